"""Runs of a local agent that wait for somebody, and the answers to them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from nbmastra.errors import AlreadyResumed, NotSuspended
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.runtime.kept import run_state
from nbmastra.runtime.loop import AgentRun
from nbmastra.runtime.step import StepCall

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent

__all__ = ["LocalControl", "WaitingRuns"]

_MAX_REMEMBERED = 10_000

_logger = logging.getLogger("nbmastra")


class WaitingRuns:
    """The runs of an agent that wait, by their id; in its memory's store too. On the engine's loop only."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._runs: dict[str, AgentRun] = {}
        self._answered: dict[str, None] = {}

    @property
    def _store(self) -> Any:
        store = getattr(self._agent.memory, "store", None)
        return store if hasattr(store, "save_suspended") else None

    async def keep(self, run: AgentRun) -> None:
        """The run waits. What a store can't keep waits in this process only, which is logged."""
        self._runs[run.run_id] = run
        self._answered.pop(run.run_id, None)
        store = self._store
        if store is None:
            return
        about = {"agent": self._agent.id, "thread": run.thread, "resource": run.resource}
        try:
            await store.run(store.save_suspended, run.run_id, run_state(run), **about)
        except Exception:
            _logger.warning("a run that waits can't be kept in the store", exc_info=True)

    async def take(self, run_id: str, tool_call_id: str | None) -> tuple[AgentRun, StepCall]:
        """The run, which is being answered from now on, and the call that is meant.

        Raises AlreadyResumed, NotSuspended.
        """
        run, store = self._runs.get(run_id), self._store
        if run is not None:
            call = _waiting_call(run, tool_call_id)
            self._forget(run_id)  # before anything is awaited: a second answer at the same time is refused
            if store is not None:
                await store.run(store.take_suspended, run_id)  # refuses, if another kernel was faster
            return run, call
        if run_id in self._answered:
            raise AlreadyResumed(f"run {run_id[:40]} waits for no answer any more: it had one before")
        if store is None:
            raise NotSuspended(f"no run {run_id[:40]!r} of {self._agent.name} waits for an answer")
        state = await store.run(store.take_suspended, run_id)
        run = self._agent.restore(state)
        try:
            return run, _waiting_call(run, tool_call_id)
        except NotSuspended:
            await self.keep(run)
            raise

    def _forget(self, run_id: str) -> None:
        del self._runs[run_id]
        self._answered[run_id] = None
        if len(self._answered) > _MAX_REMEMBERED:
            del self._answered[next(iter(self._answered))]


def _waiting_call(run: AgentRun, tool_call_id: str | None) -> StepCall:
    waiting = run.waiting
    if tool_call_id is None and len(waiting) > 1:
        ids = ", ".join(call.id for call in waiting)
        raise NotSuspended(f"several calls wait ({ids}): name one by tool_call_id=")
    for call in waiting:
        if tool_call_id in (None, call.id):
            return call
    if run.step is not None and any(call.id == tool_call_id for call in run.step.calls):
        raise AlreadyResumed(f"{tool_call_id} in run {run.run_id[:40]} waits for no answer any more")
    raise NotSuspended(f"no call {tool_call_id!r} of run {run.run_id[:40]} waits for an answer")


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
        return await self._agent.answer(
            run_id, call.tool_call_id or None, answer, reason=reason, data=data, previous=out, options={}
        )
