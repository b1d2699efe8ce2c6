"""Runs that ask, what answers them, and what a run view says then."""

from __future__ import annotations

import json
import re
from typing import Any

from nbmastra.engine import get_engine
from nbmastra.errors import ControlError
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.widgets.run_view import RunView
from tests.support.runs import (
    chunk,
    finish,
    result,
    step_finish,
    step_start,
    text,
)
from tests.widgets.views import Watched, flat

AFTER = [result("c1", "booked", "book_train"), step_finish(), step_start(), text("Booked."), step_finish(), finish()]


def approval(id: str = "c1", name: str = "book_train") -> dict[str, Any]:
    return chunk("tool-call-approval", {"toolCallId": id, "toolName": name, "args": {"seats": 1}})


def words(html: str) -> str:
    """The text that HTML shows."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def shown(view: RunView) -> str:
    return flat({id: {**n, "h": n["h"] or ""} for id, n in view.boot()["nodes"].items()})


def live_run(chunks: list[Any], control: Any) -> tuple[MastraModelOutput, RunView]:
    """A run that has come to its end, or waits, and its view."""
    out = MastraModelOutput.from_chunks(chunks, control=control)
    view = RunView(out)
    assert view.ended.wait(5)
    return out, view


def wait_shown(view: RunView, words: str) -> None:
    """Return when the kernel has sent these words."""
    view.comm.wait_until(lambda: words in json.dumps(view.comm.sent, ensure_ascii=False))


class Scripted:
    """A source whose suspended runs can be answered; what was answered is kept."""

    can = frozenset({"approve", "decline", "resume"})

    def __init__(self, after: list[Any], fails: str = "") -> None:
        self.after = after
        self.fails = fails
        self.answers: list[tuple[Any, ...]] = []

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        if self.fails:
            message, self.fails = self.fails, ""
            raise ControlError(message)
        self.answers.append((call.tool_call_id, answer, reason, data))
        return MastraModelOutput.from_chunks(self.after, answered=[call.tool_call_id])


def act_on(watched: Watched, name: str, **values: Any) -> None:
    """Do what a user does; returns when the view has drawn it."""
    nodes = watched.display.nodes
    node = next(id for id, n in nodes.items() if n["a"].get("data-nbm-act") == name and "disabled" not in n["a"])
    message = {"act": name, "arg": "", "node": node, "values": values}
    watched.view._handle_msg({"content": {"data": {"method": "custom", "content": message}}, "buffers": []})
    get_engine().start(settle).result(5)
    watched.follow()


async def settle() -> None:
    """The engine has done what it was given before."""
    import anyio

    await anyio.wait_all_tasks_blocked()
