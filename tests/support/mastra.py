"""The reference Mastra servers (`tests/mastra_server`, and an older 1.x) as processes and as fixtures."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import running
from tests.support.setup_node import OLDER_DIR, SERVER_DIR, node_path


@dataclass(frozen=True)
class MastraServer:
    """A running reference server."""

    url: str
    log: Path
    process: subprocess.Popen[str]


@contextmanager
def run_mastra_server(directory: Path, code: Path = SERVER_DIR, **env: str) -> Iterator[MastraServer]:
    """Run the server on a free port, its database and log in `directory`, until the block ends.

    `env` overrides its variables (`CHUNK_DELAY_MS="20"`). RuntimeError with its output if it dies before it listens.
    """
    if not (code / "node_modules").is_dir():
        raise RuntimeError("the reference server's packages are not installed: run `make setup`")
    defaults = {"PORT": "0", "CHUNK_DELAY_MS": "1", "DB": f"file:{directory / 'server.db'}", "EXIT_WITH_STDIN": "1"}
    log = directory / "server.log"
    command = [node_path(), "server.mjs"]
    with running(command, r"^listening (\d+)", log, cwd=code, env=os.environ | defaults | env) as (
        process,
        found,
    ):
        yield MastraServer(f"http://127.0.0.1:{found[1]}", log, process)


@pytest.fixture(scope="session")
def mastra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MastraServer]:
    """The reference server, shared by all tests; its model waits 1 ms between chunks."""
    with run_mastra_server(tmp_path_factory.mktemp("mastra")) as server:
        yield server


@pytest.fixture(scope="session")
def older_mastra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MastraServer]:
    """A server of an older 1.x, with the agents `tools` and `object`."""
    with run_mastra_server(tmp_path_factory.mktemp("older"), OLDER_DIR) as server:
        yield server


@pytest.fixture
def start_mastra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., MastraServer]]:
    """A function that starts a server of the test's own: `start_mastra_server(CHUNK_DELAY_MS="20")`."""
    with ExitStack() as stack:
        yield lambda **env: stack.enter_context(run_mastra_server(tmp_path_factory.mktemp("mastra"), **env))
