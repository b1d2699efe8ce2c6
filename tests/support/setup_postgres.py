"""Find a PostgreSQL server, or install one by apt (as root): `python tests/support/setup_postgres.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PACKAGED = Path("/usr/lib/postgresql")  # Debian keeps the server's programs off PATH, by version


def find_postgres(program: str = "postgres") -> Path | None:
    """Path of one of PostgreSQL's programs: on PATH, or the newest that Debian's packages hold."""
    if found := shutil.which(program):
        return Path(found)
    packaged = sorted(PACKAGED.glob(f"*/bin/{program}"), key=lambda path: int(path.parts[4].partition(".")[0]))
    return packaged[-1] if packaged else None


def install_postgres() -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for step in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "postgresql"]):
            subprocess.run(step, env=env, check=True)


def main() -> None:
    if find_postgres() is None:
        install_postgres()
    path = find_postgres()
    if path is None:
        raise SystemExit("No PostgreSQL server found, and none could be installed: put `postgres` on PATH")
    print(f"PostgreSQL: {path}")


if __name__ == "__main__":
    main()
