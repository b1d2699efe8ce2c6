"""`TasksTable`: background tasks, of a run or of all runs, with what can be done to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio

from nbmastra.engine import Job, get_engine
from nbmastra.errors import ControlError
from nbmastra.fold import Task, ToolCall, WorkflowStep
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.cards import MAX_OUTPUTS, facts_of
from nbmastra.widgets.data import Rows
from nbmastra.widgets.format import iso, one_line
from nbmastra.widgets.run_table import RunTable, resume_data
from nbmastra.widgets.shared import Act
from nbmastra.widgets.table_rows import WAITS, args_words, copied, details, output_lines, says
from nbmastra.widgets.task_record import ACTIVE, TaskRecord, TaskSource, of_record, of_task

__all__ = ["TasksTable"]

PAGE, MAX_LISTED = 500, 10_000
RENEW_S = 10.0
"""How often the plain output beside a manager's table is brought up to date."""
LOOK_S = 1.0
"""How often a manager is asked for tasks that wait in its queue: nothing tells of them."""

_NO_ACTS = "This source offers no way to cancel, resume or restart a task. Stop the run instead, or close its stream."


class TasksTable(RunTable):
    """The background tasks of an output, of a `BackgroundTaskManager`, or of a client's server.

    A manager's and a server's are those of all runs, earlier kernels' too. What the source can't do has no button.
    Of an output, calls that wait for approval before they may begin are there as well.
    """

    kind = "tasks"
    title = "Tasks"
    last = "Progress or output"
    filters = (("Active", (*ACTIVE, "needs-approval")), ("Waiting", WAITS), ("Failed", ("failed", "timed_out")))
    empty = ("No background tasks yet", "A tool runs in the background when it is declared with background=True.")

    def __init__(self, source: Any) -> None:
        self._records: dict[str, TaskRecord] = {}
        self._calls: dict[str, tuple[ToolCall | WorkflowStep, MastraModelOutput]] = {}
        self._read = 0
        self._only: set[str] = set()
        self._before: dict[str, list[Any]] = {}
        self._watching = self._changed = False
        self._side: Job[None] | None = None
        out = source if isinstance(source, MastraModelOutput) else None
        given = getattr(source, "background_tasks", source) if out is None else getattr(out.control, "tasks", None)
        self._tasks: TaskSource | None = cast("Any", given)
        self._of_run = out is not None
        super().__init__(out if out is not None else MastraModelOutput())
        self.stays = self.stays or not self._of_run

    def begin(self, rows: Rows) -> None:
        """The tasks so far."""
        super().begin(rows)
        whose = one_line(self.first.agent or "", 60)
        rows.facts(label=f"Background tasks of {whose}" if whose else "Background tasks")
        if self._of_run:
            self._update(rows)
        else:
            rows.facts(sort=["started", -1])

    def _forget(self) -> None:
        self._records, self._calls, self._read = {}, {}, 0

    @property
    def _can(self) -> frozenset[str]:
        return self._tasks.can if self._tasks is not None else frozenset()

    # --- tasks of a run ---------------------------------------------------------------------------------------------

    def _update(self, rows: Rows) -> None:
        out = self.out
        changes, seen = out.state.changes, self._read
        self._read = len(changes)
        parts = list(dict.fromkeys(changes[max(0, seen - 1) :]))  # the last one may have changed again
        for part in parts:
            if isinstance(part, Task):
                self._put(of_task(part, out), rows)
        for call in out.waiting:
            self._calls.setdefault(call.tool_call_id, (call, out))
        for part in parts:
            if isinstance(part, ToolCall) and part.tool_call_id in self._calls:
                self._calls[part.tool_call_id] = part, out
        for key in list(self._calls):
            self._put_call(key, rows)
        if out.done:
            for record in list(self._records.values()):
                if record.active:
                    self._put(record, rows)

    def _put_call(self, key: str, rows: Rows) -> None:
        """A call that waits before it may become a task."""
        call, out = self._calls[key]
        if isinstance(call, ToolCall) and call.task_id in self._records:
            del self._calls[key]  # the task's row takes over
            rows.drop(key)
            return
        facts = facts_of(call)
        waits = call in out.waiting
        acts = ("approve", "decline") if facts.status == "needs-approval" else ("resume",)
        fields: dict[str, Any] = {
            "status": facts.status,
            "tool": one_line(facts.name, 100) or "tool",
            "args": args_words(facts.args),
            "started": iso(out.created_at, call.started_at),
            "elapsed": facts.duration_s,
            "since": self.since(out, facts.started_at, waits=waits) if facts.open else None,
            "acts": [act for act in acts if act in out.control.can] if waits else [],
            "why": "This run can't be answered from here." if waits and not out.control.can else "",
            **says(facts, call.suspend_payload),
        }
        self._announce(key, fields, rows)
        rows.put(key, fields)
        self.open_row(key, rows)

    async def _over(self) -> None:
        """The run is over; its tasks may go on, and their manager tells of them."""
        if self._tasks is None or not any(record.active for record in self._records.values()):
            self._end()
            return
        self._end(stays=True)
        self._only |= set(self._records)
        await self._watch(self._only)

    # --- tasks of a manager -----------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        if self._of_run:
            await super()._pump()
        else:
            await self._watch(None)

    async def _watch(self, only: set[str] | None) -> None:
        """Keep up with a manager; with these tasks only, as long as one of them is active."""
        assert self._tasks is not None
        if self._watching:
            return
        self._watching = True
        stream = await self._tasks.stream()
        try:
            if only is None:
                await self._list_all()
            else:
                await self._look_again([id for id in only if id in self._records and self._records[id].active])
            seen = 0
            renewed = 0.0
            while only is None or any(self._records[id].active for id in only & self._records.keys()):
                seen = await self._keep_up(stream, seen, only)
                if self._changed and time.monotonic() - renewed > RENEW_S:
                    self._changed, renewed = False, time.monotonic()
                    self.renew()
        finally:
            self._watching = False
            stream.cancel("closed")
        self._end()

    async def _look_again(self, ids: list[str]) -> None:
        assert self._tasks is not None
        found = [await self._tasks.get(id) for id in ids]
        with self.change() as rows:
            for record in found:
                if record is not None:
                    known = self._records.get(record.id)
                    self._put(of_record(record, known.outputs if known is not None else None), rows)

    async def _keep_up(self, stream: MastraModelOutput, seen: int, only: set[str] | None) -> int:
        changes = stream.state.changes
        touched = [part for part in dict.fromkeys(changes[max(0, seen - 1) :]) if isinstance(part, Task)]
        seen = len(changes)
        known = {task.id: task for task in touched if only is None or task.id in only}
        stale = [id for id, task in known.items() if self._status(id) != task.status]
        found = {id: await self._tasks.get(id) for id in stale} if self._tasks is not None else {}
        queued = await self._newest() if only is None else []
        with self.change() as rows:
            for id, task in known.items():
                record = self._records.get(id)
                outputs = self._before.get(id, []) + task.outputs
                if found.get(id) is not None:
                    self._put(of_record(found[id], outputs), rows)
                elif record is not None:
                    record.outputs = outputs
                    self._put(record, rows)
            for record in queued:
                self._put(record, rows)
        with anyio.move_on_after(LOOK_S):
            while len(stream.state.changes) == seen and not stream.done:
                await stream.log.wait(len(stream.log.items))
        if stream.done:
            raise ControlError("the manager's stream has ended")
        return seen

    async def _list_all(self) -> None:
        assert self._tasks is not None
        found: list[TaskRecord] = []
        for page in range(MAX_LISTED // PAGE):
            answer = await self._tasks.list(page=page, per_page=PAGE)
            found += map(of_record, answer)
            if len(answer) < PAGE:
                break
        with self.change() as rows:
            for record in reversed(found):
                self._put(record, rows)
        for record in found:
            if record.status == "running":
                await self._fetch(record.id)
                with self.change() as rows:
                    self._put(record, rows)

    async def _newest(self) -> list[TaskRecord]:
        """Of the newest tasks those that aren't known, or whose news was missed."""
        assert self._tasks is not None
        listed = [of_record(record) for record in await self._tasks.list(page=0, per_page=50)]
        for record in listed:
            known = self._records.get(record.id)
            record.outputs = known.outputs if known is not None else record.outputs
        return [record for record in listed if self._status(record.id) != record.status]

    async def _fetch(self, key: str) -> None:
        """What a task wrote before this table listened: its manager has kept it."""
        record, ask = self._records.get(key), getattr(self._tasks, "outputs", None)
        if record is None or ask is None or key in self._before or self._of_run:
            return
        kept: list[Any] = await ask(key)
        record = self._records[key]
        self._before[key] = kept[-MAX_OUTPUTS - len(record.outputs) : len(kept) - len(record.outputs)]
        record.outputs = self._before[key] + record.outputs

    def _status(self, id: str) -> str | None:
        record = self._records.get(id)
        return record.status if record is not None else None

    # --- rows -------------------------------------------------------------------------------------------------------

    def _put(self, record: TaskRecord, rows: Rows) -> None:
        self._records[record.id] = record
        facts = record.facts
        since = (self._now() - record.begun).total_seconds() if record.active and record.begun is not None else None
        acts = [act for act in self._wanted(record) if act in self._can]
        fields: dict[str, Any] = {
            "status": record.status,
            "tool": one_line(facts.name, 100) or "task",
            "tags": [one_line(record.agent, 40)] if record.agent and not self._of_run else [],
            "args": args_words(record.args),
            "started": iso(record.created) if record.created is not None else None,
            "elapsed": record.elapsed_s,
            "since": max(0.0, since) if since is not None and self._passes() else None,
            "attempts": record.attempts,
            "acts": acts,
            "why": _NO_ACTS if record.active and not acts else "",
            **says(facts, record.suspend_payload),
        }
        if record.status == "pending":
            fields["says"] = "waits in the queue"
        self._announce(record.id, fields, rows)
        rows.put(record.id, fields)
        self.open_row(record.id, rows)

    def _now(self) -> datetime:
        """Now; in a replay, where it is."""
        out = self.out
        follows = self._of_run and not out.done
        return out.created_at + timedelta(seconds=out.elapsed_s) if follows else datetime.now(UTC)

    def _passes(self) -> bool:
        """False if nobody can tell how long it takes any more: the run is over, and its tasks' manager unknown."""
        return not self._of_run or not self.out.done or self._tasks is not None

    def _wanted(self, record: TaskRecord) -> Iterator[str]:
        if record.status == "suspended":
            yield "resume"
        if record.active:
            yield "cancel"
        elif record.status != "completed":
            yield "restart"

    def _announce(self, key: str, fields: dict[str, Any], rows: Rows) -> None:
        before, status = rows.get(key, "status"), fields["status"]
        if before != status:
            self._changed = True
            if before is not None:
                rows.put(key, {"taken": [], "problem": None})
            if before is not None and (status in WAITS or status not in ACTIVE):
                rows.facts(news=f"{fields['tool']}: {fields['says'] or status}")

    def _details(self, key: str, rows: Rows) -> dict[str, Any] | None:
        waiting = self._calls.get(key)
        if waiting is not None:
            call, out = waiting
            facts, schema, can = facts_of(call), call.resume_schema, out.control.can
            times: dict[str, float | None] = {}
            ids: dict[str, str | None] = {"Call id": call.tool_call_id, "Run": call.run_id}
            asked = call.suspend_payload
        else:
            record = self._records.get(key)
            if record is None:
                return None
            facts, schema, can, asked = record.facts, self._schema(record), self._can, record.suspend_payload
            times = {"Queued": record.queued_s, "Ran": record.elapsed_s}
            ids = {"Task id": record.id, "Call id": record.tool_call_id, "Run": record.run_id, "Agent": record.agent}
        whole = key in self._whole
        found = details(None, facts, times=times, ids=ids, can=can, schema=schema, asked=asked, whole=whole)
        return {**found, "output": output_lines(facts.outputs)}

    def _schema(self, record: TaskRecord) -> dict[str, Any] | None:
        """What the answer must look like: kept by the manager that ran the task, or told by the run's call."""
        kept: dict[str, Any] = getattr(self._tasks, "resume_schemas", {})
        if record.id in kept:
            return kept[record.id]
        calls = (call for call in self.out.state.tool_calls if call.task_id == record.id)
        return next((call.resume_schema for call in calls if call.resume_schema), None)

    def _copied(self, key: str, what: str) -> str:
        waiting = self._calls.get(key)
        return copied(facts_of(waiting[0]) if waiting is not None else self._records[key].facts, what)

    # --- acts -------------------------------------------------------------------------------------------------------

    async def _do(self, act: Act) -> None:
        key, source = act.node, cast("Any", self._tasks)
        if key in self._calls:
            call, out = self._calls[key]
            await self.answer(out, call, act)
        elif act.name not in self._can or key not in self._records:
            raise ControlError(_NO_ACTS)
        elif act.name == "cancel":
            await source.cancel(key)
        elif act.name == "resume":
            await source.resume(key, resume_data(self._schema(self._records[key]), act))
        elif act.name == "restart":
            made = of_record(await source.restart(key))
            with self.change() as rows:
                self._put(made, rows)
            if self._of_run:  # the run doesn't tell of it, its manager does
                self._only.add(made.id)
                self._side = get_engine().start(self._watch, self._only)

    def close(self) -> None:
        """Leave the static table in its place, and free it; the tasks go on."""
        if self._side is not None:
            self._side.cancel()
        super().close()
