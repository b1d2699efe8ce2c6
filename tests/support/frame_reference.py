"""Writes `docs/frames.md`: every table, its columns and what they mean. `python -m tests.support.frame_reference`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbmastra.frames import TABLES, Column, Table

TARGET = Path(__file__).parents[2] / "docs" / "frames.md"
INTRO = """\
# Tables

Runs as pandas DataFrames: of one output, `out.usage_df()`, at any moment of its run; of recordings,
`nbmastra.frames.usage_df(source)`, where `source` is a file, a folder, a pattern like `runs/2026-*.jsonl`, an output,
or a list of these. Further sources:

- `await client.history(since="7d")`: runs that a server traced, see [history](history.md); only they have `spans_df`.
- `from_mastra_store(url)`: a server's own store, its LibSQL or SQLite file or its Postgres database, read only. It has
  `threads_df`, `messages_df`, `tool_calls_df`, `tasks_df` and `errors_df`; `stream_id` is the thread's id.
- what a server's lists give: `messages_df(await client.thread("t1").messages())`,
  `tasks_df(await client.background_tasks.list())`, `threads_df(await client.threads())`.
- `from_client_js(path)`: a file of chunks that other programs wrote (JSON array, lines, event stream).

- A table has the same columns, order and dtypes whatever it is made of, also of nothing. What is missing is missing
  (`<NA>`, `NaT`), never 0.
- `columns=` takes names and groups. Columns of group *main* are there by default, the others if they are asked for:
  `chunks_df(source, ["main", "raw"])`.
- Times are seconds (`_s`) or UTC timestamps. Times are those at which chunks came.
- Each number is the fold's own: text, view and table can't disagree.
- `strict=False` gives `(frame, errors)`: files that can't be read are listed in `errors` and don't stop the rest. A
  broken line in a file that can be read is a row of `errors_df`. A broken row of a store is left out and told in
  `.attrs["unread"]`.
- Costs come from own prices (`prices={"my-model": {"input": 1.5, "output": 6}}`, USD per million tokens) or from the
  extra `nbmastra[prices]`. Without a price a cost is missing.
- `usage_df(...).attrs["reconciliation"]`: `tokens` has what the rows sum to and what the fold counts, by column;
  `complete` says that they agree; `beyond_steps` lists turns whose own total isn't that of their steps;
  `unpriced_models` those without a price (`steps_df` and `runs_df` have them too: `.attrs["unpriced_models"]`);
  `repeated_streams` those that came more than once, a recording and its copy, and count as often.

`runs_df(folder)` keeps an index in the folder (`.nbmastra-index`), so that each recording is read once; deleting it
costs nothing but time. `nbmastra runs FOLDER` prints it. `export(source, "out.parquet", "tool_calls_df")`, or
`nbmastra export FOLDER out.parquet --table tool_calls_df`, writes any table, a run at a time.
Large recordings: [big](big.md).

dtype *timestamp* is `datetime64[us, UTC]`; *object* holds JSON values.

This page is generated: `python -m tests.support.frame_reference`.
"""


def reference() -> str:
    """The text of the page."""
    return "\n".join([INTRO, *map(_section, TABLES.values())])


def _section(table: Table[Any]) -> str:
    rows = "\n".join(map(_row, table.columns))
    return f"## {table.name}\n\n{table.doc}\n\n| column | dtype | unit | |\n|---|---|---|---|\n{rows}\n"


def _row(column: Column[Any]) -> str:
    group = "" if column.group == "main" else f" *Group {column.group}.*"
    values = f" One of {', '.join(column.values)}." if column.values else ""
    return f"| `{column.name}` | {column.dtype} | {column.unit} | {column.doc}{values}{group} |"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(reference(), encoding="utf-8")
