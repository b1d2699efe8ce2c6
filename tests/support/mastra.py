"""The reference Mastra server (`tests/mastra_server`) as a process and as fixtures."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.setup_node import SERVER_DIR, node_path


@dataclass(frozen=True)
class MastraServer:
    """A running reference server."""

    url: str
    log: Path
    process: subprocess.Popen[str]


@contextmanager
def run_mastra_server(directory: Path, **env: str) -> Iterator[MastraServer]:
    """Run the server on a free port, its database and log in `directory`, until the block ends.

    `env` overrides its variables (`CHUNK_DELAY_MS="20"`). RuntimeError with its output if it dies before it listens.
    """
    if not (SERVER_DIR / "node_modules").is_dir():
        raise RuntimeError("the reference server's packages are not installed: run `make setup`")
    defaults = {"PORT": "0", "CHUNK_DELAY_MS": "1", "DB": f"file:{directory / 'server.db'}", "EXIT_WITH_STDIN": "1"}
    process = subprocess.Popen(
        [node_path(), "server.mjs"],
        cwd=SERVER_DIR,
        env=os.environ | defaults | env,
        stdin=subprocess.PIPE,  # ends with this process, however it dies, and the server with it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    log = directory / "server.log"
    port: Future[str] = Future()
    reader = threading.Thread(target=_read_output, args=(process, log, port))
    reader.start()
    try:
        yield MastraServer(f"http://127.0.0.1:{port.result()}", log, process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        reader.join()


def _read_output(process: subprocess.Popen[str], log: Path, port: Future[str]) -> None:
    """Copy the server's output to `log` until it ends, and tell the port when the server names it."""
    assert process.stdout is not None
    with process.stdout, log.open("w", buffering=1) as file:
        for line in process.stdout:
            file.write(line)
            if line.startswith("listening ") and not port.done():
                port.set_result(line.split()[1])
    if not port.done():
        port.set_exception(RuntimeError(f"the reference server did not start:\n{log.read_text()}"))


@pytest.fixture(scope="session")
def mastra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MastraServer]:
    """The reference server, shared by all tests; its model waits 1 ms between chunks."""
    with run_mastra_server(tmp_path_factory.mktemp("mastra")) as server:
        yield server


@pytest.fixture
def start_mastra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., MastraServer]]:
    """A function that starts a server of the test's own: `start_mastra_server(CHUNK_DELAY_MS="20")`."""
    with ExitStack() as stack:
        yield lambda **env: stack.enter_context(run_mastra_server(tmp_path_factory.mktemp("mastra"), **env))
