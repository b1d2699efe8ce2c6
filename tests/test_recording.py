"""Recordings: what was written is what is read, whatever happened in between."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from nbmastra import (
    MastraModelOutput,
    RecordedAgent,
    demo_recording,
    load_recording,
    parse_chunk,
    record,
    replay,
)
from nbmastra.client.decode import ChunkDecoder
from nbmastra.errors import MastraStreamError, ObjectError, RecordingError, SettingsError, StreamTruncated
from nbmastra.output import Batch
from nbmastra.recording import json_line
from tests.support.mastra import MastraServer

STREAMS = sorted(path for path in (Path(__file__).parent / "data/streams").glob("*.sse") if "observe" not in path.name)


class WireSource:
    """A recorded SSE answer, read in pieces, its end mark noticed."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        decoder = ChunkDecoder()
        for start in range(0, len(self._data), 700):
            yield None, decoder.feed(self._data[start : start + 700])
            self.done = decoder.done
            await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        pass


def text_chunk(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": text}}


def told(out: MastraModelOutput) -> dict[str, Any]:
    """What a run says of itself, times rounded as recordings round them."""
    state = out.state

    def rounded(at: float | None) -> float | None:
        return None if at is None else round(at, 6)

    return {
        "chunks": [chunk.to_json() for chunk in out.log.items],
        "times": [rounded(at) for at in state.times],
        "status": (out.status, out.status_reason),
        "ended": out.ended and replace(out.ended, at=rounded(out.ended.at)),
        "about": (out.agent, out.prompt, out.stream_id, out.created_at, out.until_idle),
        "parts": [
            (part.kind, part.step, rounded(part.started_at), rounded(part.ended_at), part.rejected)
            for part in state.parts
        ],
        "steps": [(rounded(step.started_at), rounded(step.ended_at), step.text, step.usage) for step in state.steps],
        "calls": [(call.tool_name, call.status, call.args, call.result) for call in state.tool_calls],
        "notices": [(notice.code, notice.title, notice.text) for notice in state.notices],
        "text": state.text,
        "usage": state.grand_usage,
        "elapsed": rounded(out.elapsed_s),
    }


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


# --- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_loaded_recording_says_what_the_live_run_said(path: Path, tmp_path: Path) -> None:
    out = MastraModelOutput(agent=path.stem, prompt="What?", until_idle="until-idle" in path.stem)
    job = record(out, tmp_path / "run.jsonl")
    out.start(WireSource(path)).wait(10)
    loaded = load_recording(job.result(10))
    assert loaded.done
    assert told(loaded) == told(out)


def test_a_replay_ends_as_the_live_run_did(tmp_path: Path) -> None:
    for name in ("tools", "error", "approve", "aborted", "durable-cut"):
        out = MastraModelOutput(agent=name).start(WireSource(STREAMS[0].with_name(f"{name}.sse"))).wait(10)
        again = replay(record(out, tmp_path / "run.jsonl").result(10), speed=1000).wait(10)
        assert told(again) == told(out)


def test_recording_a_finished_run_gives_the_same_file_as_recording_it_live(tmp_path: Path) -> None:
    out = MastraModelOutput()
    live = record(out, tmp_path / "live.jsonl")
    out.start(WireSource(STREAMS[0])).wait(10)
    late = record(out, tmp_path / "late.jsonl")
    assert live.result(10).read_bytes() == late.result(10).read_bytes()


async def test_a_cancelled_run_is_cancelled_in_its_recording_too(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[dict[str, Any]]:
        yield text_chunk("so far")
        await anyio.sleep_forever()

    out = MastraModelOutput.from_chunks(endless())
    job = record(out, tmp_path / "run.jsonl")
    async for _ in out.text_stream:
        out.cancel("enough")
    loaded = load_recording(await job)
    assert (loaded.status, loaded.status_reason) == ("cancelled", "enough")
    assert loaded.total.text == "so far"
    assert told(loaded) == told(out)


async def test_an_idle_time_out_keeps_its_code(tmp_path: Path) -> None:
    async def silent() -> AsyncIterator[dict[str, Any]]:
        yield text_chunk("so far")
        await anyio.sleep_forever()

    from nbmastra.output import Limits

    out = MastraModelOutput.from_chunks(silent(), limits=Limits(idle_timeout_s=0.05))
    loaded = load_recording(await record(out, tmp_path / "run.jsonl"))
    assert [notice.code for notice in loaded.state.notices] == ["idle"]
    assert told(loaded) == told(out)


async def test_a_broken_connection_keeps_its_cause(tmp_path: Path) -> None:
    async def breaking() -> AsyncIterator[dict[str, Any]]:
        yield text_chunk("so far")
        raise OSError("reset by peer")

    out = MastraModelOutput.from_chunks(breaking())
    loaded = load_recording(await record(out, tmp_path / "run.jsonl"))
    assert loaded.status == "truncated"
    assert "reset by peer" in loaded.status_reason
    with pytest.raises(StreamTruncated):
        await loaded.text


chunk_texts = st.one_of(
    st.text(),
    st.sampled_from(["\ud83d", "\u2028 \u0085 \x1e", "\x1b[31m", '"}', "\\", "\n\r\n", "a" * 5000]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(chunk_texts, max_size=8), st.sampled_from([".jsonl", ".jsonl.gz", ".jsonl.zst"]))
def test_any_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, texts: list[str], suffix: str) -> None:
    chunks = [parse_chunk(text_chunk(text)) for text in texts]
    out = MastraModelOutput.from_chunks(chunks)
    path = record(out, tmp_path_factory.mktemp("any") / f"run{suffix}").result(10)
    assert load_recording(path).log.items == chunks


def test_chunks_keep_their_bytes_or_their_value(tmp_path: Path) -> None:
    wire = [
        b'{"type":"x","payload":{"n":12345678901234567890,"a":null},"extra":1.50}',
        b'{"type":"text-delta",\n "runId":"r","from":"AGENT",\r\n "payload":{"id":"t","text":"spread"}}',
        b'{"payload":{"id":"t","text":"other order"},"from":"AGENT","runId":"r","type":"text-delta"}',
    ]
    out = MastraModelOutput.from_chunks(wire)
    path = record(out, tmp_path / "run.jsonl").result(10)
    loaded = load_recording(path)
    assert loaded.log.items == out.log.items
    assert loaded.log.items[0].to_json() == wire[0]
    for line in path.read_bytes().splitlines():
        json.loads(line)


def test_a_body_that_is_not_json_is_kept_and_the_file_stays_json(tmp_path: Path) -> None:
    broken = b'data: {"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"\xff\x1b[31m}}\n\n'
    out = MastraModelOutput.from_chunks(ChunkDecoder().feed(broken))
    out.wait(10)
    path = record(out, tmp_path / "run.jsonl").result(10)
    assert [json.loads(line) for line in path.read_bytes().splitlines()]
    assert told(load_recording(path)) == told(out)
    assert load_recording(path).state.bad_payloads == 1
    assert json_line(out.log.items[0]) is None


def test_the_recorded_schema_checks_the_object_again(tmp_path: Path) -> None:
    class Person(BaseModel):
        name: str
        age: int

    data = STREAMS[0].with_name("object.sse").read_bytes()
    out = MastraModelOutput.from_chunks(ChunkDecoder().feed(data), schema=Person)
    path = record(out, tmp_path / "run.jsonl").result(10)
    assert load_recording(path).object.result()["name"] == "Ada"
    assert load_recording(path, schema=Person).object.result() == Person(name="Ada", age=36)


# --- damaged and foreign files ---------------------------------------------------------------------------------------


def recorded(tmp_path: Path, *texts: str) -> Path:
    out = MastraModelOutput.from_chunks([text_chunk(text) for text in texts])
    return record(out, tmp_path / "run.jsonl").result(10)


def test_a_recording_is_good_up_to_its_last_whole_line_at_every_cut(tmp_path: Path) -> None:
    whole = recorded(tmp_path, "one ", "two ", "three").read_bytes()
    lines = whole.splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    for cut in range(len(lines[0]), len(whole)):
        path.write_bytes(whole[:cut])
        loaded = load_recording(path)
        complete = whole[:cut].count(b"\n") - 1 + whole[:cut].endswith(b"}}}")
        assert len(loaded.log) == min(complete, 3)
        assert loaded.state.decode_errors == 0
        assert loaded.status == "truncated"


def test_a_broken_line_is_counted_and_shown_and_the_rest_is_read(tmp_path: Path) -> None:
    path = recorded(tmp_path, "one ", "two ", "three")
    lines = path.read_text().splitlines()
    for broken in ("garbage", lines[2][:-20], '{"t":1}', "[]", '{"t":"x","chunk":{"type":"a"}}', '{"t":1,"chunk":3}'):
        path.write_text("\n".join([lines[0], lines[1], broken, *lines[3:]]) + "\n")
        loaded = load_recording(path)
        assert loaded.total.text == "one three"
        assert loaded.state.decode_errors == 1
        assert "decode-error" in [notice.code for notice in loaded.state.notices]


def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (
        b"",
        b"data: {}\n\n",
        b"[1]\n",
        b'{"nbmastra": "1"}\n',
        b'{"nbmastra": true}\n',
        b"\x1f\x8bnot gzip at all",
    ):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match="file is "):
            load_recording(path)
    path.write_text('{"nbmastra": 2}\n')
    with pytest.raises(RecordingError, match="newer nbmastra"):
        replay(path)
    with pytest.raises(RecordingError, match="No such file"):
        load_recording(tmp_path / "missing")
    with pytest.raises(RecordingError, match="directory"):
        load_recording(tmp_path)


def test_a_recording_with_an_unusable_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"nbmastra": 1, "schema": {"type": 7}}\n')
    with pytest.raises(RecordingError, match="schema"):
        load_recording(path)


def test_a_recorded_schema_asks_no_server_for_its_parts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reference = f"http://127.0.0.1:{server.getsockname()[1]}/schema"
        header = {"nbmastra": 1, "schema": {"type": "object", "properties": {"a": {"$ref": reference}}}}
        chunk = {"type": "object-result", "runId": "r", "from": "AGENT", "object": {"a": 1}}
        lines = [header, {"t": 0, "chunk": chunk}, {"end": {"done": True, "t": 0}}]
        path = tmp_path / "run.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(ObjectError, match="isn't in it"):
            load_recording(path).object.result()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_hostile_headers_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    header = {"nbmastra": 1, "agent": {"x": 1}, "prompt": 5, "created": [], "context": 7, "answered": [[]]}
    path.write_text(json.dumps(header) + '\n{"end": {"t": "soon"}}\n')
    assert load_recording(path).status == "truncated"


def test_times_that_run_backwards_are_held(tmp_path: Path) -> None:
    path = recorded(tmp_path, "one ", "two ")
    lines = path.read_text().splitlines()
    chunk = json.dumps(text_chunk("x"))
    path.write_text("\n".join([lines[0], f'{{"t":5,"chunk":{chunk}}}', f'{{"t":1,"chunk":{chunk}}}']) + "\n")
    assert list(load_recording(path).state.times) == [5.0, 5.0]


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks([])
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match="can't write"):
        record(out, tmp_path / "file" / "run.jsonl")


def test_a_disk_that_is_full_from_the_start_is_told_at_once() -> None:
    with pytest.raises(RecordingError, match="No space left"):
        record(MastraModelOutput.from_chunks([]), "/dev/full")


FILLING = """
    import resource, signal, sys
    from nbmastra import MastraModelOutput, record

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    chunk = {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "x"}}
    out = MastraModelOutput.from_chunks([chunk] * 1000)
    try:
        record(out, sys.argv[1]).result(10)
    except Exception as error:
        print(type(error).__name__, error)
    print(out.wait(10).total.text == "x" * 1000, [notice.title for notice in out.state.notices])
"""


def test_a_disk_that_fills_up_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-c", textwrap.dedent(FILLING), str(path)]
    said = subprocess.run(command, check=True, timeout=30, capture_output=True, text=True).stdout.splitlines()
    assert said[0] == f"RecordingError {path}: File too large"
    assert said[1].startswith("True")
    assert "The recording stopped" in said[1]
    assert len(load_recording(path).log) > 10


# --- replay ----------------------------------------------------------------------------------------------------------


async def test_a_replay_keeps_the_recorded_times_at_any_speed() -> None:
    started = anyio.current_time()
    out = replay(demo_recording(), speed=40)
    assert out.status == "running"
    assert await out.text
    took = anyio.current_time() - started
    recorded_s = load_recording(demo_recording()).elapsed_s
    assert took >= recorded_s / 40
    assert told(out) == told(load_recording(demo_recording()))


async def test_a_replay_can_be_cancelled() -> None:
    out = replay(demo_recording())
    async for _ in out.full_stream:
        break
    out.cancel()
    await out.aclose()
    assert out.status == "cancelled"


def test_a_replay_without_speed_is_there_at_once() -> None:
    assert replay(demo_recording(), speed=None).done
    for speed in (0, -1, float("nan")):
        with pytest.raises(SettingsError, match="speed"):
            replay(demo_recording(), speed=speed)


def test_the_demo_shows_what_an_agent_can_do() -> None:
    out = load_recording(demo_recording())
    assert out.status == "success"
    assert [(call.tool_name, call.status) for call in out.tool_calls] == [
        ("forecast", "success"),
        ("agent-route", "success"),
        ("rooms", "error"),
        ("campsites", "success"),
    ]
    assert out.state.reasoning_pieces
    assert [run.text for run in out.total.nested]
    assert len(out.sources) == 1
    assert "| Day |" in out.text.result()


async def test_a_recording_stands_in_for_an_agent() -> None:
    agent = RecordedAgent(demo_recording(), speed=None)
    out = await agent.stream("anything", memory={"thread": "t"})
    assert agent.id == out.agent == "trip"
    assert "trip" in repr(agent)
    with pytest.raises(RecordingError, match="there is trip"):
        demo_recording("nope")
    with pytest.raises(RecordingError):
        RecordedAgent("nowhere.jsonl")


@pytest.mark.server
def test_a_run_of_a_real_server_is_recorded_as_it_comes(mastra_server: MastraServer, tmp_path: Path) -> None:
    from nbmastra import MastraClient

    for agent in ("tools", "error", "background"):
        stream = MastraClient(mastra_server.url, token="hunter2").agent(agent).stream
        memory = {"thread": f"rec-{agent}", "resource": "u"}
        out = stream("Go", until_idle=agent == "background", memory=memory).result(20)
        path = record(out, tmp_path / f"{agent}.jsonl").result(30)
        assert told(load_recording(path)) == told(out)
        assert "hunter2" not in path.read_text()
        if agent == "error":
            with pytest.raises(MastraStreamError, match="provider went away"):
                load_recording(path).text.result()
