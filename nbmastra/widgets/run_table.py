"""`RunTable`: a table that follows a run, and what goes on from it when somebody answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio

from nbmastra.engine import get_engine
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import MastraModelOutput
from nbmastra.recording import ReplayedOutput
from nbmastra.widgets.data import Rows
from nbmastra.widgets.pacing import draw_run
from nbmastra.widgets.questions import form_data, simple_fields
from nbmastra.widgets.shared import Act, while_open
from nbmastra.widgets.stage import give_answer
from nbmastra.widgets.tables import TableWidget

__all__ = ["RunTable", "resume_data"]


class RunTable(TableWidget):
    """Subclasses bring the rows up to date in `_update`, and forget what they know in `_forget`."""

    def __init__(self, out: MastraModelOutput) -> None:
        self.out = self.first = out
        self._forget_replay: Callable[[], None] | None = None
        super().__init__()
        self.stays = out.done and out.next is None and not (out.waiting and out.control.can)
        if isinstance(out, ReplayedOutput):
            self._playback = out.playback
            self._forget_replay = out.playback.on_change(while_open(self._move))

    def begin(self, rows: Rows) -> None:
        """What the table opens with."""
        super().begin(rows)
        out = self.out
        if isinstance(out, ReplayedOutput):
            rows.pace(out.playback.rate, lambda: out.playback.position_s)

    def _update(self, rows: Rows) -> None:
        """Show what is new."""
        raise NotImplementedError

    def _forget(self) -> None:
        """All begins anew."""
        raise NotImplementedError

    async def _pump(self) -> None:
        while True:
            await draw_run(self.out, self.draw)
            after = await self._next()
            if after is None:
                return
            self.out = after

    async def _next(self) -> MastraModelOutput | None:
        """The output that goes on, if this one waits for an answer; None if all is over."""
        out = self.out
        if out.next is None and (out.status != "suspended" or not out.control.can):
            await self._over()
            return None
        if out.next is None:
            self._end(stays=True)
        answered = anyio.Event()
        forget = out.on_next(lambda _: answered.set())
        try:
            await answered.wait()
        finally:
            forget()
        self._placement.go_on()
        return out.next

    async def _over(self) -> None:
        """The run is over, and so is the table."""
        self._end()

    def draw(self) -> None:
        """Show what is new, as one message; on the engine's loop."""
        with self.change() as rows:
            self._update(rows)

    def since(self, out: MastraModelOutput, at: float, *, waits: bool) -> float | None:
        """Seconds since a moment of a run, of what goes on; of what waits for an answer, on the wall's clock."""
        if not out.done:
            return max(0.0, out.elapsed_s - at)
        if waits and out.control.can:
            return max(0.0, (datetime.now(UTC) - out.created_at).total_seconds() - at)
        return None

    async def answer(self, out: MastraModelOutput, call: ToolCall | WorkflowStep, act: Act) -> None:
        """Approve, decline or resume a call that waits. Raises ValueError for values that don't fit, ControlError."""
        if act.name == "resume":
            await give_answer(out, call, "resume", data=resume_data(call.resume_schema, act))
        elif act.name == "approve" or act.name == "decline":
            await give_answer(out, call, act.name, reason=str(act.values.get("reason") or ""))

    # --- a replay ---------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """The replay is in another place, or has another pace; on the engine's loop."""
        if self.replaced:
            return
        out = self._playback.out
        with self.change() as rows:
            if out is not self.out:
                if self._job is not None:
                    self._job.cancel()
                self.out = self.first = out
                for key in rows.keys():  # noqa: SIM118  # it is no dict
                    rows.drop(key)
                self._forget()
                self._update(rows)
                self._job = get_engine().start(self._run)
            rows.pace(out.playback.rate)

    def close(self) -> None:
        """Leave the static table in its place, and free it; the run goes on."""
        if self._forget_replay is not None:
            self._forget_replay()
        super().close()


def resume_data(schema: dict[str, Any] | None, act: Act) -> Any:
    """What the form says: by fields of the schema, or as JSON. Raises ValueError."""
    return form_data(None if "json" in act.values else simple_fields(schema), act.values)
