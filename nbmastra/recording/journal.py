"""Writing a recording while its run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from nbmastra._version import __version__
from nbmastra.chunks import Chunk
from nbmastra.engine import Engine, Job, get_engine
from nbmastra.errors import RecordingError
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.recording.files import open_writer
from nbmastra.recording.lines import KEPT_CONTEXT, VERSION, json_line

__all__ = ["record"]


def record(out: MastraModelOutput, path: str | Path) -> Job[Path]:
    """Write a run to a file, from its first chunk, however late this is called; goes on until the run is over.

    `path` may be a directory, which gets a file named after time and agent; a file that is there is replaced.
    The job's result is the file's path; cancelling it stops the recording, not the run. Raises RecordingError when the
    file can't be written; if that happens later, the run shows a notice and the job raises it.
    """
    target = _target(out, Path(path).expanduser())
    write, close = open_writer(target)
    try:
        write(_dumps(_header(out)))
    except OSError as error:
        with contextlib.suppress(OSError):
            close()
        raise RecordingError(f"can't write {target}: {error.strerror or error}") from None
    engine = get_engine()

    async def follow() -> Path:
        written = 0
        try:
            while True:
                closed = out.log.closed  # before the items: what comes before the end must not be missed
                batch = out.log.items[written:]
                write(b"".join(_chunk_lines(batch, out.state.times, written)))
                written += len(batch)
                if closed:
                    break
                await _news(out, written, engine)
            if out.ended is not None:
                write(_dumps({"end": _end(out, out.ended)}))
        except OSError as error:
            problem = f"{target}: {error.strerror or error}"
            out.state.notice("recording", "warning", "The recording stopped", out.elapsed_s, problem)
            raise RecordingError(problem) from None
        finally:
            with contextlib.suppress(OSError):
                close()
        return target

    return engine.start(follow)


async def _news(out: MastraModelOutput, seen: int, engine: Engine) -> None:
    try:
        await out.log.wait(seen)
    except asyncio.CancelledError:
        if not engine.closing:
            raise
        # The process ends and takes this task along; the run, which ends as well, is still written to its end.
        with anyio.CancelScope(shield=True), anyio.fail_after(1):
            await out.log.wait(seen)


def _target(out: MastraModelOutput, path: Path) -> Path:
    if not path.is_dir():
        return path
    agent = re.sub(r"[^\w-]+", "-", out.agent or "run")[:40]
    return path / f"{out.created_at:%Y%m%d-%H%M%S}-{agent}-{out.stream_id[:8]}.jsonl"


def _header(out: MastraModelOutput) -> dict[str, Any]:
    context = {key: value for key in KEPT_CONTEXT if isinstance(value := out.context.get(key), str)}
    if "url" in context:
        context["url"] = _without_secrets(context["url"])
    header = {
        "nbmastra": VERSION,
        "created": out.created_at.isoformat(),
        "agent": out.agent,
        "prompt": out.prompt,
        "stream_id": out.stream_id,
        "previous": out.previous.stream_id if out.previous is not None else None,
        "until_idle": out.until_idle or None,
        "answered": sorted(out.state.answered) or None,
        "schema": out.schema.json_schema if out.schema is not None else None,
        "context": context or None,
        "versions": {"nbmastra": __version__, "python": ".".join(map(str, sys.version_info[:3]))},
    }
    return {key: value for key, value in header.items() if value is not None}


def _end(out: MastraModelOutput, ended: Ended) -> dict[str, Any]:
    end = {
        "status": out.status,
        "reason": out.status_reason,
        "done": ended.done,
        "t": None if ended.at is None else round(ended.at, 6),
        "cancelled": ended.cancelled or None,
        "code": ended.code or None,
        "failure": ended.failure or None,
    }
    return {key: value for key, value in end.items() if value is not None}


def _chunk_lines(chunks: list[Chunk], times: Any, first: int) -> Iterator[bytes]:
    for index, chunk in enumerate(chunks, first):
        t = f"{times[index]:.6f}".rstrip("0").rstrip(".").encode()
        line = json_line(chunk)
        if line is not None:
            yield b'{"t":%b,"chunk":%b}\n' % (t, line)
        else:
            raw = chunk.to_json().decode("utf-8", "surrogateescape")
            yield b'{"t":%b,"raw":%b}\n' % (t, json.dumps(raw).encode())


def _dumps(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str).encode() + b"\n"


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return ""
