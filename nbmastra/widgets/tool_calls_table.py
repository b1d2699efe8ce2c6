"""`ToolCallsTable`: what a run called, one row per call, those of sub-agents indented under their parent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nbmastra.fold import RunState, ToolCall, WorkflowStep
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.cards import facts_of
from nbmastra.widgets.data import Rows
from nbmastra.widgets.format import iso, one_line
from nbmastra.widgets.header import agent_name
from nbmastra.widgets.run_table import RunTable
from nbmastra.widgets.shared import Act
from nbmastra.widgets.table_rows import WAITS, Writing, args_words, copied, details, output_lines, says

__all__ = ["ToolCallsTable"]

Call = ToolCall | WorkflowStep


@dataclass(slots=True)
class _Row:
    """A call and where it stands."""

    call: Call
    out: MastraModelOutput
    key: str
    depth: int
    parent: str = ""
    last: str = ""
    """Key of the last row below it, its own if there is none."""
    writing: Writing | None = None
    args: Any = None
    """Arguments that an earlier part of the run told; the one that goes on doesn't tell them again."""


class ToolCallsTable(RunTable):
    """The calls of a run, live or finished, and of what goes on from it after an answer."""

    kind = "calls"
    title = "Tool calls"
    filters = (
        ("Running", ("streaming", "running", "pending", "waiting")),
        ("Waiting", WAITS),
        ("Failed", ("error", "failed", "denied")),
    )
    empty = ("No tool calls yet", "The calls that the agent makes appear here, live.")

    def __init__(self, out: MastraModelOutput) -> None:
        self._rows: dict[str, _Row] = {}
        self._by_part: dict[Call, str] = {}
        self._read: dict[RunState, int] = {}
        super().__init__(out)

    def begin(self, rows: Rows) -> None:
        """The calls so far."""
        super().begin(rows)
        rows.facts(label=f"Tool calls of {one_line(agent_name(self.first), 60)}")
        self._update(rows)

    def _forget(self) -> None:
        self._rows, self._by_part, self._read = {}, {}, {}

    # --- following the run ------------------------------------------------------------------------------------------

    def _update(self, rows: Rows) -> None:
        for call in self._touched(self.out.state):
            key = self._by_part.get(call)
            if key is not None:
                self._put(self._rows[key], rows)
        if self.out.done:
            for row in self._rows.values():  # what was open has an end now
                if rows.get(row.key, "since") is not None or row.call.status in WAITS:
                    self._put(row, rows)

    def _touched(self, state: RunState, parent: _Row | None = None) -> Iterator[Call]:
        """The calls that may have changed since the last time, in order, new ones with a row."""
        changes, seen = state.changes, self._read.get(state, 0)
        self._read[state] = len(changes)
        for part in dict.fromkeys(changes[max(0, seen - 1) :]):  # the last one may have changed again
            if not isinstance(part, ToolCall | WorkflowStep):
                continue
            key = self._by_part.get(part)
            row = self._rows[key] if key is not None else self._new(part, parent)
            yield part
            for run in list(part.nested):
                yield from self._touched(run, row)

    def _new(self, call: Call, parent: _Row | None) -> _Row:
        known = self._rows.get(call.tool_call_id)
        if known is not None and known.out is not self.out and known.call.status in WAITS:
            # The output that goes on tells of the call that waited: it keeps its row.
            known.args = known.args or known.call.args
            known.call, known.out = call, self.out
            self._by_part[call] = known.key
            return known
        number, key = 1, call.tool_call_id
        while not key or key in self._rows:
            number += 1
            key = f"{call.tool_call_id}#{number}"  # ids are unique within a step only
        row = self._rows[key] = _Row(call, self.out, key, 0 if parent is None else parent.depth + 1, last=key)
        row.parent = "" if parent is None else parent.key
        self._by_part[call] = key
        return row

    # --- rows -------------------------------------------------------------------------------------------------------

    def _put(self, row: _Row, rows: Rows) -> None:
        call, out = row.call, row.out
        facts = facts_of(call)
        facts.args = facts.args or row.args
        streaming = isinstance(call, ToolCall) and facts.status == "streaming"
        if isinstance(call, ToolCall) and streaming:
            row.writing = row.writing or Writing()
            args = row.writing.words(call)
        else:
            row.writing, args = None, args_words(facts.args)
        begun = call.started_at if streaming else facts.started_at
        fields: dict[str, Any] = {
            "status": facts.status,
            "tool": one_line(facts.name, 100) or "tool",
            "tags": facts.tags,
            "depth": row.depth,
            "parent": row.parent,
            "args": args,
            "writing": streaming,
            "started": iso(out.created_at, call.started_at),
            "elapsed": facts.duration_s,
            "since": self.since(out, begun, waits=facts.asks) if facts.open and facts.duration_s is None else None,
            "attempts": self._attempts(call),
            "asks": facts.asks and bool(out.control.can),
            **says(facts, call.suspend_payload),
        }
        before = rows.get(row.key, "status")
        if before is None:
            rows.put(row.key, fields, after=self._place(row))
        else:
            rows.put(row.key, fields)
        if facts.asks and before != facts.status:
            rows.facts(news=f"{fields['tool']}: {fields['says']}")
        if before in WAITS and not facts.asks:
            rows.put(row.key, {"taken": [], "problem": None})
        self.open_row(row.key, rows)

    def _place(self, row: _Row) -> str | None:
        """The key that a new row stands behind; None at the end."""
        parent = self._rows.get(row.parent)
        if parent is None:
            return None
        after = parent.last
        above: _Row | None = parent
        while above is not None and above.last == after:
            above.last = row.key
            above = self._rows.get(above.parent)
        return after

    def _attempts(self, call: Call) -> int | None:
        task = self.out.state.tasks.get(call.task_id or "") if isinstance(call, ToolCall) else None
        return task.attempts if task is not None else None

    def _details(self, key: str, rows: Rows) -> dict[str, Any] | None:
        row = self._rows.get(key)
        if row is None:
            return None
        call, out = row.call, row.out
        facts = facts_of(call)
        facts.args = facts.args or row.args
        written = call.arguments_s if isinstance(call, ToolCall) else None
        found = details(
            call,
            facts,
            times={"Arguments written": written, "Ran": facts.duration_s},
            ids={"Call id": call.tool_call_id, "Run": call.run_id, "Agent": None if row.parent else out.agent},
            can=out.control.can if call in out.waiting else frozenset(),
            schema=call.resume_schema,
            asked=call.suspend_payload,
            whole=key in self._whole,
        )
        if facts.nested and facts.error is None:
            answer = "".join(run.text for run in facts.nested)
            found["answer"] = answer[-5000:]
        return {**found, "output": output_lines(facts.outputs)}

    def _copied(self, key: str, what: str) -> str:
        row = self._rows[key]
        facts = facts_of(row.call)
        facts.args = facts.args or row.args
        return copied(facts, what)

    async def _do(self, act: Act) -> None:
        row = self._rows[act.node]
        await self.answer(row.out, row.call, act)
