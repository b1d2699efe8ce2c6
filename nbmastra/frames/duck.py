"""DuckDB as the tables use it: in memory, nothing fetched from anywhere, nothing of the caller's program read."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from nbmastra.errors import SettingsError

__all__ = ["connect", "installed"]

_SETTINGS: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}


def installed() -> bool:
    """True if the extra `big` is there."""
    return find_spec("duckdb") is not None and find_spec("pyarrow") is not None


def connect(threads: int = 0) -> tuple[Any, Any]:
    """The module and a new connection, of at most so many threads if that isn't 0, since each has its buffers.

    Raises SettingsError where the extra isn't installed.
    """
    if not installed():
        raise SettingsError("DuckDB needs `pip install 'nbmastra[big]'`")
    duckdb: Any = import_module("duckdb")
    most = {"threads": min(threads, os.cpu_count() or 1)} if threads else {}
    return duckdb, duckdb.connect(config=_SETTINGS | most)
