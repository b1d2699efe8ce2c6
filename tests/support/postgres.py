"""A PostgreSQL server of the tests' own: in a temporary directory, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import running
from tests.support.setup_postgres import find_postgres


@contextmanager
def run_postgres(log: Path) -> Iterator[str]:
    """Run PostgreSQL until the block ends, and give the URL of its database."""
    postgres, initdb = find_postgres("postgres"), find_postgres("initdb")
    if postgres is None or initdb is None:
        raise RuntimeError("no PostgreSQL: run `make setup`")
    # Not below pytest's directory: PostgreSQL doesn't run as root, and no other user may look in there.
    directory = Path(tempfile.mkdtemp(prefix="nbmastra-postgres-"))
    try:
        as_user = _as_user(directory)
        data, settings = directory / "data", ["--username=test", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        subprocess.run(
            [*as_user, str(initdb), f"--pgdata={data}", *settings],
            check=True, capture_output=True, cwd=directory, env=os.environ | {"LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "port": port}
        command = [*as_user, str(postgres), "-D", str(data), *(f"-c{name}={value}" for name, value in options.items())]
        with running(
            command, "ready to accept connections", log, cwd=directory, env=os.environ | {"LC_ALL": "C.UTF-8"}
        ):
            yield f"postgresql://test@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(directory)


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
