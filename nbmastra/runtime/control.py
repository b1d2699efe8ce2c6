"""Runs of a local agent that wait for somebody, and the answers to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nbmastra.engine import Job
from nbmastra.errors import AlreadyResumed, NotSuspended
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.runtime.kept import run_state
from nbmastra.runtime.loop import AgentRun
from nbmastra.runtime.step import StepCall

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent
    from nbmastra.runtime.background.manager import BackgroundTaskManager

__all__ = ["LocalControl", "WaitingCall", "WaitingRun", "WaitingRuns"]

_MAX_REMEMBERED = 10_000

_logger = logging.getLogger("nbmastra")


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits: for approval, or for data (then `suspend_payload` is what it asks)."""

    tool_call_id: str
    tool_name: str
    args: Any = None
    needs_approval: bool = False
    suspend_payload: Any = None

    @classmethod
    def of(cls, call_id: str, name: str, args: Any, asked: Mapping[str, Any]) -> WaitingCall:
        """What a call asks; one that runs a sub-agent asks what the agent's call does."""
        approval = asked.get("kind") == "approval"
        return cls(call_id, asked.get("name", name), asked.get("args", args), approval, asked.get("payload"))


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run that waits for somebody; answering gives the output that goes on with it.

    Answers take the id of a call where several wait, and raise AlreadyResumed, NotSuspended when awaited.
    """

    run_id: str
    calls: tuple[WaitingCall, ...]
    thread: str | None = None
    resource: str | None = None
    agent: Agent | None = field(default=None, repr=False)

    def approve(self, tool_call_id: str | None = None) -> Job[MastraModelOutput]:
        """Let a call run."""
        assert self.agent is not None
        return self.agent.approve_tool_call(self.run_id, tool_call_id)

    def decline(self, tool_call_id: str | None = None, *, reason: str | None = None) -> Job[MastraModelOutput]:
        """Refuse a call; the model is told the reason."""
        assert self.agent is not None
        return self.agent.decline_tool_call(self.run_id, tool_call_id, reason=reason)

    def resume(self, data: Any, *, tool_call_id: str | None = None) -> Job[MastraModelOutput]:
        """Give a call the data it waits for."""
        assert self.agent is not None
        return self.agent.resume_stream(self.run_id, data, tool_call_id)


class WaitingRuns:
    """The runs of an agent that wait, by their id; in its memory's store too. On the engine's loop only."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._runs: dict[str, AgentRun] = {}
        self._answered: dict[str, None] = {}
        self._only_here: set[str] = set()

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
            self._only_here.add(run.run_id)
            _logger.warning("a run that waits can't be kept in the store", exc_info=True)

    async def take(self, run_id: str, tool_call_id: str | None) -> tuple[AgentRun, StepCall]:
        """The run, which is being answered from now on, and the call that is meant.

        Raises AlreadyResumed, NotSuspended.
        """
        run, store = self._runs.get(run_id), self._store
        if run is not None:
            call = _waiting_call(run, tool_call_id)
            self._forget(run_id)  # before anything is awaited: a second answer at the same time is refused
            if store is not None and run_id not in self._only_here:
                await store.run(store.take_suspended, run_id)  # refuses, if another kernel was faster
            return run, call
        if run_id in self._answered:
            raise AlreadyResumed(f"run {run_id[:40]} waits for no answer any more: it had one before")
        if store is None:
            raise NotSuspended(f"no run {run_id[:40]!r} of {self._agent.name} waits for an answer")
        state = await store.run(store.take_suspended, run_id)
        try:
            run = self._agent.runs.restored(state)
        except Exception:  # this kernel's agent lacks what the run needs; another's may have it
            about = {"agent": self._agent.id, "thread": state["thread"], "resource": state["resource"]}
            await store.run(store.save_suspended, run_id, state, **about)
            raise
        try:
            return run, _waiting_call(run, tool_call_id)
        except NotSuspended:
            await self.keep(run)
            raise

    async def listed(self) -> list[WaitingRun]:
        """Those that wait, in this process and, as far as the store knows, of other kernels."""
        found: dict[str, WaitingRun] = {}
        store = self._store
        if store is not None:
            for kept in await store.run(store.suspended_runs, agent=self._agent.id):
                calls = [call for call in kept["state"]["step"]["calls"] if call["state"] == "waiting"]
                asked = (WaitingCall.of(one["id"], one["name"], one["args"], one["suspended"] or {}) for one in calls)
                about = (kept["threadId"], kept["resourceId"], self._agent)
                found[kept["runId"]] = WaitingRun(kept["runId"], tuple(asked), *about)
        for run in self._runs.values():
            if store is not None and run.run_id not in found and run.run_id not in self._only_here:
                continue  # another kernel has answered it
            asked = (WaitingCall.of(call.id, call.name, call.args, call.suspended or {}) for call in run.waiting)
            found[run.run_id] = WaitingRun(run.run_id, tuple(asked), run.thread, run.resource, self._agent)
        return list(found.values())

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

    @property
    def tasks(self) -> BackgroundTaskManager | None:
        """What runs the agent's background tasks."""
        return self._agent.background.manager if self._agent.background is not None else None

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
