"""Runs as pandas DataFrames: `chunks_df`, `steps_df`, `usage_df`, `tool_calls_df` and more, of one run or a folder.

Each function takes an output (live or finished), a recording's path, a folder, a glob pattern, or a list of these.
Whatever it is given, also nothing, a table has the same columns in the same order with the same dtypes; what is missing
is missing, never 0. `docs/frames.md` lists all columns; `TABLES` has them as specs.
"""

from __future__ import annotations

from nbmastra.frames.build import (
    TABLES,
    Columns,
    chunks_df,
    errors_df,
    frame_of,
    messages_df,
    runs_df,
    sources_df,
    spans_df,
    steps_df,
    tasks_df,
    threads_df,
    timeline_df,
    tool_calls_df,
    usage_df,
)
from nbmastra.frames.cluster import dask
from nbmastra.frames.columns import Column, Table
from nbmastra.frames.files import export
from nbmastra.frames.query import query
from nbmastra.frames.runs import Source
from nbmastra.frames.store import MastraStore, from_mastra_store
from nbmastra.frames.stream import aggregate, iter_chunks_df
from nbmastra.recording import from_client_js

__all__ = [
    "TABLES",
    "Column",
    "Columns",
    "MastraStore",
    "Source",
    "Table",
    "aggregate",
    "chunks_df",
    "dask",
    "errors_df",
    "export",
    "frame_of",
    "from_client_js",
    "from_mastra_store",
    "iter_chunks_df",
    "messages_df",
    "query",
    "runs_df",
    "sources_df",
    "spans_df",
    "steps_df",
    "tasks_df",
    "threads_df",
    "timeline_df",
    "tool_calls_df",
    "usage_df",
]
