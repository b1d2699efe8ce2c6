"""Traces that were fetched, kept in the user's cache folder: one SQLite file a server, for this user's eyes only.

It holds what the server keeps of runs, prompts and answers too, but no token and no header. Deleting it costs nothing
but time. A file that can't be used is made anew, and without a place to write nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import platformdirs

__all__ = ["TraceStore", "store_path"]

_VERSION = 1
_CREATE = """
create table if not exists traces (
    id text primary key, settled integer not null, updated text not null, trace blob not null
) without rowid
"""


def store_path(url: str) -> Path:
    """The file for a server; its name is a digest of the server's address."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:24]
    return platformdirs.user_cache_path("nbmastra") / "traces" / f"{digest}.sqlite"


class TraceStore:
    """Fetched traces by their id. Every method is a short transaction, so kernels can share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def settled(self, listed: Iterable[tuple[str, str]]) -> set[str]:
        """Those of the traces (id, when it changed) that are here and need not be fetched again."""
        known: dict[str, str] = {}
        with suppress(sqlite3.Error, OSError), self._open() as db:
            known = dict(db.execute("select id, updated from traces where settled"))
        return {id for id, updated in listed if known.get(id) == updated}

    def put(self, id: str, trace: dict[str, Any], settled: bool, updated: str) -> bool:
        """Keep a trace in place of what was kept of it before; False if it couldn't be kept."""
        try:
            blob = zlib.compress(json.dumps(trace, separators=(",", ":")).encode(), 3)
        except RecursionError:
            return False
        for _ in range(2):
            try:
                with self._open() as db:
                    db.execute("insert or replace into traces values (?, ?, ?, ?)", (id, settled, updated, blob))
            except sqlite3.OperationalError:  # locked, full, read-only
                return False
            except sqlite3.DatabaseError:
                self._discard()
            except OSError:
                return False
            else:
                return True
        return False

    def read(self, ids: Iterable[str]) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """The traces, in this order; None for one that isn't here, or can't be read."""
        for id in ids:
            trace: Any = None
            with suppress(sqlite3.Error, OSError, zlib.error, ValueError), self._open() as db:
                row = db.execute("select trace from traces where id = ?", (id,)).fetchone()
                trace = json.loads(zlib.decompress(row[0])) if row is not None else None
            yield id, cast("dict[str, Any]", trace) if isinstance(trace, dict) else None

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        if not self.path.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
        with closing(sqlite3.connect(self.path, timeout=5)) as db, db:
            db.execute("pragma synchronous = off")  # what a crash takes is fetched again
            if db.execute("pragma user_version").fetchone()[0] != _VERSION:
                db.execute("drop table if exists traces")
                db.execute(f"pragma user_version = {_VERSION}")
            db.execute(_CREATE)
            yield db

    def _discard(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)
