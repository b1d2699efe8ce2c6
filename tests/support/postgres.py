"""A PostgreSQL server of the tests' own: in a temporary directory, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.processes import running
from tests.support.setup_postgres import find_postgres


class PostgresServer:
    """A server that can be stopped and started again; `url` of its database stays the same."""

    def __init__(self, directory: Path, postgres: Path, initdb: Path, log: Path) -> None:
        self._directory, self._log = directory, log
        self._as_user, self._env = _as_user(directory), os.environ | {"LC_ALL": "C.UTF-8"}
        data, settings = directory / "data", ["--username=test", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        subprocess.run(
            [*self._as_user, str(initdb), f"--pgdata={data}", *settings],
            check=True, capture_output=True, cwd=directory, env=self._env,
        )  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "port": port}
        settings = [f"-c{name}={value}" for name, value in options.items()]
        self._command = [*self._as_user, str(postgres), "-D", str(data), *settings]
        self._running = ExitStack()
        self.url = f"postgresql://test@127.0.0.1:{port}/postgres"

    def start(self) -> None:
        """Run it; it answers at the return."""
        ready = "ready to accept connections"
        server = running(self._command, ready, self._log, cwd=self._directory, env=self._env)
        self._process, _ = self._running.enter_context(server)

    def stop(self) -> None:
        """Stop it, and cut off whoever is connected."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._running.close()


@contextmanager
def postgres_server(log: Path) -> Iterator[PostgresServer]:
    """A server that runs, until the block ends."""
    postgres, initdb = find_postgres("postgres"), find_postgres("initdb")
    if postgres is None or initdb is None:
        raise RuntimeError("no PostgreSQL: run `make setup`")
    # Not below pytest's directory: PostgreSQL doesn't run as root, and no other user may look in there.
    directory = Path(tempfile.mkdtemp(prefix="nbmastra-postgres-"))
    try:
        server = PostgresServer(directory, postgres, initdb, log)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


@contextmanager
def run_postgres(log: Path) -> Iterator[str]:
    """Run PostgreSQL until the block ends, and give the URL of its database."""
    with postgres_server(log) as server:
        yield server.url


def new_schema(url: str) -> str:
    """The URL of an empty schema, as good as a database of its own, which would take a second."""
    schema = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
    return f"{url}?options=-csearch_path%3D{schema}"


def _as_user(directory: Path) -> list[str]:
    """What must stand before a command so that it doesn't run as root; the directory is given to that user."""
    if os.geteuid() != 0:
        return []
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty database."""
    with run_postgres(tmp_path_factory.mktemp("postgres") / "postgres.log") as url:
        yield url
