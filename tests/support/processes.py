"""Run a server that says in its output when, and where, it is ready."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import httpx2


@contextmanager
def running(
    command: Sequence[str | Path], ready: str, log: Path, *, cwd: Path, env: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    """Run `command`, enter the block at the first output line that matches `ready`, stop it when the block ends.

    All output goes to `log` too. Its standard input is a pipe that ends with this process, however this process dies.
    RuntimeError with the output if the command ends before it is ready.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    announcement: Future[re.Match[str]] = Future()
    reader = threading.Thread(target=_read_output, args=(process, ready, log, announcement))
    reader.start()
    try:
        yield process, announcement.result()
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        reader.join()


def _read_output(process: subprocess.Popen[str], ready: str, log: Path, announcement: Future[re.Match[str]]) -> None:
    assert process.stdout is not None
    with process.stdout, log.open("w", buffering=1) as file:
        for line in process.stdout:
            file.write(line)
            if not announcement.done() and (found := re.search(ready, line)):
                announcement.set_result(found)
    if not announcement.done():
        announcement.set_exception(RuntimeError(f"{process.args} ended before it was ready:\n{log.read_text()}"))


def wait_until_answering(url: str) -> httpx2.Response:
    """The first answer of a server that names its address a little before it listens there, as Jupyter does."""
    with httpx2.Client(transport=httpx2.HTTPTransport(retries=6), follow_redirects=True, timeout=60) as client:
        return client.get(url)
