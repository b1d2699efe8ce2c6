"""How an agent's runs are made: asked by its user, within another agent's run, as a task, or from what was kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from nbmastra.errors import SettingsError
from nbmastra.messages import Messages
from nbmastra.runtime.background.turn import BackgroundTurn
from nbmastra.runtime.caller_tools import caller_tools
from nbmastra.runtime.conversation import Conversation, model_messages
from nbmastra.runtime.extend import Extension, RunMemory
from nbmastra.runtime.kept import restore_run
from nbmastra.runtime.loop import AgentRun
from nbmastra.runtime.model import Message
from nbmastra.runtime.models import find_model
from nbmastra.runtime.options import StreamOptions, read_options, run_options
from nbmastra.runtime.run_setup import RunSetup
from nbmastra.runtime.subagents import AgentTool
from nbmastra.runtime.wiring import make_extensions
from nbmastra.tools import as_tools

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent

__all__ = ["RunMaker"]


class RunMaker:
    """Makes the runs of an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def setup(self, messages: Messages, options: StreamOptions) -> RunSetup:
        """What a run with these options, which are read already, consists of. Raises SettingsError."""
        agent = self._agent
        system, said = model_messages(messages)
        thread, resource, recall = self._thread(options)
        tools = {**agent.tools, **as_tools(options.get("tools") or ())}
        tools |= caller_tools(options.get("client_tools"))
        own = options.get("model")
        read = run_options(options)
        unknown = [name for name in read.active_tools or () if name not in tools]
        if unknown and not agent.mcp:
            raise SettingsError(f"active_tools= names {unknown[0]!r}; there is {', '.join(tools) or 'no tool'}")
        if read.tool_choice not in ("auto", "none", "required", *tools) and not agent.mcp:
            raise SettingsError(f"tool_choice= names {read.tool_choice!r}; there is {', '.join(tools) or 'no tool'}")
        return RunSetup(
            agent_id=agent.id,
            model=(lambda: find_model(own)) if own is not None else (lambda: agent.model),
            instructions=options.get("instructions") or agent.instructions,
            conversation=Conversation(system, said),
            options=read,
            tools=tools,
            sources=agent.mcp,
            memory=agent.memory,
            has_memory=agent.memory is not None,
            thread=thread,
            resource=resource,
            recall_options=recall,
            extensions=self.extensions(options, thread),
            dispatch=agent.dispatch,
        )

    def extensions(self, options: StreamOptions, thread: str | None) -> list[Extension]:
        """What takes part in a run with these options: new ones for each."""
        made = make_extensions(self._agent, options)
        if self._agent.background is not None:
            waits = thread is None or not options.get("until_idle")
            made.append(BackgroundTurn(self._agent.background, waits=waits))
        return made

    def nested(
        self,
        parent: AgentRun,
        prompt: str,
        *,
        context: list[Message],
        thread: str,
        resource: str,
        instructions: str | None,
        max_steps: int | None,
    ) -> AgentRun:
        """A run of this agent within a call of another's."""
        setup = self._below(prompt, parent.options.request_context, instructions, max_steps)
        setup.conversation.earlier = context
        return AgentRun(self._within(setup, parent, thread, resource))

    def as_task(
        self,
        prompt: str,
        *,
        context: list[Message],
        request_context: dict[str, Any],
        instructions: str | None,
        max_steps: int | None,
        memory: RunMemory | None,
        thread: str,
        resource: str,
    ) -> AgentRun:
        """A run of this agent as another's background task; its own calls are no tasks again."""
        setup = self._below(prompt, request_context, instructions, max_steps)
        setup.conversation.earlier = context
        return AgentRun(_alone(setup, memory, thread, resource))

    def task_restored(self, state: dict[str, Any], memory: RunMemory | None) -> AgentRun:
        """The same, that was kept while it waited."""
        return self._restored(state, lambda setup: _alone(setup, memory, state["thread"], state["resource"]))

    def restored(self, state: dict[str, Any], parent: AgentRun | None = None) -> AgentRun:
        """A run of this agent that was kept while it waited, maybe by another kernel."""

        def place(setup: RunSetup) -> RunSetup:
            if parent is not None:
                return self._within(setup, parent, state["thread"], state["resource"])
            return replace(setup, thread=state["thread"], resource=state["resource"])

        return self._restored(state, place)

    def _restored(self, state: dict[str, Any], place: Callable[[RunSetup], RunSetup]) -> AgentRun:
        def new_run(options: dict[str, Any], conversation: Conversation) -> AgentRun:
            checked = read_options(self._agent.default_options, options)
            return AgentRun(place(replace(self.setup([], checked), conversation=conversation)))

        run = restore_run(state, new_run)
        for call in run.waiting:
            tool = self._agent.tools.get(call.name)
            if call.nested is not None and isinstance(tool, AgentTool):
                call.nested = tool.agent.runs.restored(call.nested, run)
        return run

    def _below(
        self, prompt: str, request_context: Mapping[str, Any], instructions: str | None, max_steps: int | None
    ) -> RunSetup:
        defaults = self._agent.default_options
        cap = defaults.get("max_steps")
        given: dict[str, Any] = {"request_context": dict(request_context)}
        if max_steps is not None:
            given["max_steps"] = min(max_steps, cap) if cap else max_steps
        setup = self.setup(prompt, read_options(defaults, given))
        if instructions:
            setup.conversation.system.append({"role": "system", "content": instructions})
        return setup

    def _within(self, setup: RunSetup, parent: AgentRun, thread: str | None, resource: str | None) -> RunSetup:
        """The run has a thread of its own, in the parent's memory if it has none, if the parent's run has a thread."""
        memory = (self._agent.memory or parent.setup.memory) if parent.thread is not None else None
        has_memory = setup.has_memory or parent.setup.has_memory
        setup = replace(setup, nested=True, memory=memory, has_memory=has_memory)
        tells = parent.thread is not None
        return replace(setup, thread=thread, resource=resource, recalls=False, tells_thread=tells)

    def _thread(self, options: StreamOptions) -> tuple[str | None, str | None, dict[str, Any]]:
        memory = options.get("memory") or {}
        thread: Any = memory.get("thread")
        if isinstance(thread, Mapping):
            thread = cast("Mapping[str, Any]", thread).get("id")
        if thread is None:
            return None, None, {}
        name = self._agent.name
        if self._agent.memory is None:
            raise SettingsError(
                f"memory= names a thread, but {name} has no memory: Agent({name!r}, …, memory=Memory())"
            )
        nested: Mapping[str, Any] = memory.get("options") or {}
        given = {**nested, **memory}
        last = given.get("last_messages", given.get("lastMessages"))
        recall = {} if last is None else {"last_messages": last}
        return str(thread), str(memory.get("resource") or "user"), recall


def _alone(setup: RunSetup, memory: RunMemory | None, thread: str | None, resource: str | None) -> RunSetup:
    """A run that is a task: in a thread of its own, and without tasks."""
    others = [one for one in setup.extensions if not isinstance(one, BackgroundTurn)]
    setup = replace(setup, nested=True, memory=memory, has_memory=memory is not None, recalls=False)
    setup = replace(setup, thread=thread, resource=resource, tells_thread=memory is not None)
    return replace(setup, dispatch=None, extensions=others)
