"""Runs of a local agent that wait for somebody, and the answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbmastra.errors import AlreadyResumed, NotSuspended
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.runtime.loop import AgentRun
from nbmastra.runtime.step import StepCall

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent

__all__ = ["LocalControl", "WaitingRuns"]

_MAX_REMEMBERED = 10_000


class WaitingRuns:
    """The runs of an agent that wait, by their id. On the engine's loop only."""

    def __init__(self) -> None:
        self._runs: dict[str, AgentRun] = {}
        self._answered: dict[str, None] = {}

    def keep(self, run: AgentRun) -> None:
        """The run waits."""
        self._runs[run.run_id] = run
        self._answered.pop(run.run_id, None)

    def take(self, run_id: str, tool_call_id: str | None) -> tuple[AgentRun, StepCall]:
        """The run, which is being answered from now on, and the call that is meant.

        Raises AlreadyResumed, NotSuspended.
        """
        run = self._runs.get(run_id)
        if run is None:
            if run_id in self._answered:
                raise AlreadyResumed(f"run {run_id[:40]} waits for no answer any more: it had one before")
            raise NotSuspended(f"no run {run_id[:40]!r} of this agent waits for an answer")
        waiting = run.waiting
        if tool_call_id is not None:
            chosen = [call for call in waiting if call.id == tool_call_id]
            if not chosen and run.step is not None and any(call.id == tool_call_id for call in run.step.calls):
                raise AlreadyResumed(f"{tool_call_id} in run {run_id[:40]} waits for no answer any more")
            waiting = chosen
        elif len(waiting) > 1:
            ids = ", ".join(call.id for call in waiting)
            raise NotSuspended(f"several calls wait ({ids}): name one by tool_call_id=")
        if not waiting:
            raise NotSuspended(f"no call {tool_call_id!r} of run {run_id[:40]} waits for an answer")
        del self._runs[run_id]
        self._answered[run_id] = None
        if len(self._answered) > _MAX_REMEMBERED:
            del self._answered[next(iter(self._answered))]
        return run, waiting[0]

    @property
    def runs(self) -> list[AgentRun]:
        """Those that wait now."""
        return list(self._runs.values())


class LocalControl:
    """What can be done to a run of a local agent."""

    can = frozenset({"approve", "decline", "resume"})

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        """Answer a question; gives the output that goes on. Raises AlreadyResumed, NotSuspended."""
        run_id = call.run_id or out.run_id or ""
        return self._agent.answer_now(
            run_id, call.tool_call_id or None, answer, reason=reason, data=data, previous=out, options={}
        )
