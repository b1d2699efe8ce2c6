"""`Agent`: an agent that runs here, in the notebook's own process, and speaks as a Mastra server does."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast

from nbmastra.engine import Engine, Job, get_engine
from nbmastra.errors import MastraStreamError, SettingsError
from nbmastra.messages import Messages, message_records, wire_messages
from nbmastra.output import (
    Answer,
    Bounds,
    FullOutput,
    Limits,
    MastraModelOutput,
    ObjectSchema,
    make_limits,
    price_limits,
)
from nbmastra.runtime.background.calls import read_background
from nbmastra.runtime.background.eligible import AgentTools, check_tools, may_run_in_background
from nbmastra.runtime.background.idle import IdleSource, idle_s
from nbmastra.runtime.caller_tools import caller_tools
from nbmastra.runtime.control import LocalControl, WaitingRun, WaitingRuns
from nbmastra.runtime.extend import Dispatch, RunMemory, ToolSource
from nbmastra.runtime.goals import GoalRecords
from nbmastra.runtime.loop import AgentRun
from nbmastra.runtime.making import RunMaker
from nbmastra.runtime.mcp import mcp_sources
from nbmastra.runtime.model import Model
from nbmastra.runtime.models import find_model
from nbmastra.runtime.options import (
    AnswerOptions,
    Instructions,
    StreamOptions,
    check_kind,
    read_options,
    run_options,
)
from nbmastra.runtime.ready import Ready
from nbmastra.runtime.source import Callbacks, LocalSource
from nbmastra.runtime.structured import read_structured
from nbmastra.runtime.subagents import AgentTool
from nbmastra.runtime.wiring import EXTENSION_OPTIONS, make_extensions
from nbmastra.tools import Tool, as_tools

if TYPE_CHECKING:
    from nbmastra.runtime.background.record import BackgroundTask

__all__ = ["Agent"]


class Agent:
    """An agent of this process: a model, instructions and tools.

        agent = Agent("helper", model="openai:gpt-5-mini", instructions="Answer briefly.", tools=[look_up])
        out = await agent.stream("What's new?")

    model: a name such as "anthropic:claude-sonnet-4-5", a pydantic-ai model, or anything that has the methods of
    `nbmastra.runtime.Model`. instructions: a text, several, or a function of the request context. tools: functions,
    `@tool`s, or a dict of them by name. agents: other agents by name, or a list; the model calls them as `agent-NAME`.
    memory: keeps threads. mcp: MCP servers, whose tools are opened with each run
    (`nbmastra.runtime.mcp.mcp_sources` tells how they are named). default_options: options of `stream`.
    background_tasks: a `BackgroundTaskManager`, its settings, or True; tools that are `@tool(background=True)`, or are
    named in background_tools ("all", or a dict of names with True, False or settings), then run as tasks, at most
    background_concurrency at a time; a run waits up to wait_timeout_s for the next one that ends. Without
    background_tasks all tools run in the foreground. on_task_complete: a function of each task that has ended.
    input_processors, output_processors: functions or objects (`nbmastra.runtime.processors`), which may ask for another
    answer `max_processor_retries` times in a row. goal: a dict of objective, judge (function or model) and max_runs.

    Raises SettingsError for what can't be right, here and in all methods at once.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Any = None,
        instructions: Instructions = "",
        description: str = "",
        tools: Any = (),
        agents: Mapping[str, Agent] | Sequence[Agent] = (),
        memory: RunMemory | None = None,
        input_processors: Sequence[Any] = (),
        output_processors: Sequence[Any] = (),
        goal: Any = None,
        mcp: Any = (),
        max_steps: int | None = None,
        max_processor_retries: int | None = None,
        default_options: StreamOptions | None = None,
        dispatch: Dispatch | None = None,
        background_tasks: Any = None,
        background_tools: Any = None,
        background_concurrency: int | None = None,
        wait_timeout_s: float | None = None,
        on_task_complete: Callable[[BackgroundTask], Any] | None = None,
        id: str | None = None,
        engine: Engine | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may err
            raise SettingsError(f"an agent's name is a text, not {type(name).__name__}")
        check_kind("instructions", instructions)
        if memory is not None and not callable(getattr(memory, "recall", None)):
            raise SettingsError(f"memory= takes a Memory, not {type(memory).__name__}: memory=Memory({memory!r:.60})")
        self.name = name
        self.id = id or name
        self.description = description
        self.instructions = instructions
        self.memory = memory
        self.input_processors = input_processors
        self.output_processors = output_processors
        self.goal = goal
        self.goal_records = GoalRecords()
        self.mcp: list[ToolSource] = mcp_sources(mcp)
        self.dispatch = dispatch
        self._model = model
        self._found: Model | None = None
        own: dict[str, Any] = {"max_steps": max_steps, "max_processor_retries": max_processor_retries}
        self.default_options = read_options({}, {**own, **(default_options or {})})
        self.agents = _agents_by_name(agents)
        self.tools: dict[str, Tool] = as_tools(tools)
        for key, agent in self.agents.items():
            made = AgentTool(key, agent, memory)
            self.tools[made.name] = made
        self._engine = engine or get_engine()
        self._background_tools: AgentTools = check_tools(background_tools)
        self.background = read_background(
            self.id,
            background_tasks,
            background_tools,
            memory=memory,
            concurrency=background_concurrency,
            wait_timeout_s=wait_timeout_s,
            on_complete=on_task_complete,
            engine=self._engine,
        )
        self._lacks_manager = background_tasks is None and self.has_background_tools
        self.runs = RunMaker(self)
        self._idle: dict[tuple[str, str | None, str | None], IdleSource] = {}
        self._waiting = WaitingRuns(self)
        self._carried: dict[str, StreamOptions] = {}
        """Options of the runs that wait, which hold for what follows an answer as well."""
        make_extensions(self, self.default_options)  # what can't be right is said now
        if self.background is not None:
            self.background.register(self.tools)
            self.dispatch = self.dispatch or self.background.dispatch

    # --- runs ------------------------------------------------------------------------------------------------------

    def stream(self, messages: Messages, **options: Unpack[StreamOptions]) -> Ready[MastraModelOutput]:
        """Start a run; its output is there at once, and fills by itself.

        messages: a text, a message dict, or a list of both. Options: `help(nbmastra.runtime.StreamOptions)`.
        """
        checked = read_options(self.default_options, options)
        run = AgentRun(self.runs.setup(messages, checked))
        return Ready(self._start(run, checked, prompt=_prompt(wire_messages(messages))))

    def stream_until_idle(
        self, messages: Messages, *, max_idle_ms: float | None = None, **options: Unpack[StreamOptions]
    ) -> Ready[MastraModelOutput]:
        """Deprecated, as in Mastra: `stream(messages, until_idle=True)`, or `until_idle={"max_idle_ms": …}`."""
        warnings.warn("stream_until_idle() is now stream(until_idle=True)", DeprecationWarning, stacklevel=2)
        until_idle: Any = True if max_idle_ms is None else {"max_idle_ms": max_idle_ms}
        return self.stream(messages, **{**options, "until_idle": until_idle})

    def generate(self, messages: Messages, **options: Unpack[StreamOptions]) -> Job[FullOutput]:
        """The whole answer, when the run is over; as in Mastra, `text` joins the texts of all steps.

        Raises MastraStreamError if the run fails. One that waits for somebody has the status suspended, and is
        answered by `approve_tool_call`, `decline_tool_call` or `resume_stream` with its `run_id`.
        """
        started = self.stream(messages, **options)

        async def wait() -> FullOutput:
            out = await started
            try:
                full = await out.get_full_output()
            except BaseException:
                out.cancel()
                raise
            if full.status == "failed":
                error = full.error
                raise MastraStreamError(
                    full.status_reason,
                    name=error.name if error is not None else "Error",
                    status_code=error.status_code if error is not None else None,
                    partial=full,
                )
            return replace(full, text="".join(step.text for step in full.steps))

        return self._engine.start(wait)

    # --- runs that wait --------------------------------------------------------------------------------------------

    def approve_tool_call(
        self, run_id: str, tool_call_id: str | None = None, **options: Unpack[AnswerOptions]
    ) -> Job[MastraModelOutput]:
        """Let a call run that waits for approval; gives the output that goes on.

        options: those of `stream` that shall hold from here on. Raises AlreadyResumed, NotSuspended when awaited.
        """
        return self._answer(run_id, tool_call_id, "approve", options)

    def decline_tool_call(
        self,
        run_id: str,
        tool_call_id: str | None = None,
        *,
        reason: str | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Job[MastraModelOutput]:
        """Refuse a call that waits for approval; the model is told the reason. Raises as `approve_tool_call`."""
        return self._answer(run_id, tool_call_id, "decline", options, reason=reason)

    def resume_stream(
        self, run_id: str, data: Any, tool_call_id: str | None = None, **options: Unpack[AnswerOptions]
    ) -> Job[MastraModelOutput]:
        """Give a suspended run its data; gives the output that goes on. Raises as `approve_tool_call`."""
        return self._answer(run_id, tool_call_id, "resume", options, data=data)

    def suspended_runs(self, *, thread: str | None = None, resource: str | None = None) -> Job[list[WaitingRun]]:
        """The runs that wait for somebody: in this process and, with a memory, those of other kernels too."""

        async def ask() -> list[WaitingRun]:
            return [
                run
                for run in await self._waiting.listed()
                if thread in (None, run.thread) and resource in (None, run.resource)
            ]

        return self._engine.start(ask)

    def _answer(
        self,
        run_id: str,
        tool_call_id: str | None,
        answer: Answer,
        options: AnswerOptions,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> Job[MastraModelOutput]:
        checked = read_options({}, options)
        fixed = [name for name in checked if name not in AnswerOptions.__annotations__]
        if fixed:
            raise SettingsError(f"{fixed[0]}= is the run's from its start, and can't be given with an answer")

        async def send() -> MastraModelOutput:
            return await self.answer(run_id, tool_call_id, answer, reason=reason, data=data, options=checked)

        return self._engine.start(send)

    async def answer(
        self,
        run_id: str,
        tool_call_id: str | None,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
        options: AnswerOptions,
        previous: MastraModelOutput | None = None,
    ) -> MastraModelOutput:
        """Answer a run that waits; on the engine's loop only. Raises AlreadyResumed, NotSuspended."""
        run, call = await self._waiting.take(run_id, tool_call_id)
        decision = {"approve": True, "decline": False}.get(answer)
        run.answer(call, approved=decision, reason=reason, data=data)
        own = options.get("model")
        run.configure(
            run_options(options, run.options),
            tools={**as_tools(options.get("tools") or ()), **caller_tools(options.get("client_tools"))},
            model=(lambda: find_model(own)) if own is not None else None,
        )
        carried = cast("StreamOptions", {**self._carried.get(run_id, {}), **options})
        if not EXTENSION_OPTIONS.isdisjoint(options):
            run.extensions = self.runs.extensions(carried, run.thread)
        return self._start(run, carried, previous=previous, answered=[call.id])

    @property
    def has_background_tools(self) -> bool:
        """Whether some tools are meant to run in the background; another agent then runs all of this one so.

        Source: @mastra/core 1.71, `deriveSubAgentBackgroundConfig`.
        """
        return any(
            may_run_in_background(tool.name, tool.background, self._background_tools) for tool in self.tools.values()
        )

    # --- making a run ----------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model. Raises SettingsError if there is none, or what finding it raises."""
        if self._found is None:
            if self._model is None:
                raise SettingsError(f'the agent {self.name} has no model: give one, like model="openai:gpt-5-mini"')
            self._found = find_model(self._model)
        return self._found

    def _start(
        self,
        run: AgentRun,
        options: StreamOptions,
        *,
        prompt: str | None = None,
        previous: MastraModelOutput | None = None,
        answered: Sequence[str] = (),
    ) -> MastraModelOutput:
        about = {"thread": run.thread, "resource": run.resource}
        until_idle: Any = options.get("until_idle")
        # Without tasks, or a thread that their results come to, it is a plain stream.
        tasks = self.background is not None and run.thread is not None
        idle = idle_s(until_idle) if until_idle and tasks else None
        out = MastraModelOutput(
            control=LocalControl(self),
            schema=_schema_of(options),
            agent=self.name,
            prompt=prompt,
            previous=previous,
            limits=self._limits(options),
            answered=answered,
            context={key: value for key, value in about.items() if value is not None},
            until_idle=idle is not None,
            endless=idle is not None,
            engine=self._engine,
        )
        if (until_idle and not tasks) or self._lacks_manager:
            out.state.notice("background", "info", "nothing runs in the background", 0.0, self._what_is_missing())
        source = LocalSource(run, out, Callbacks.of(options), options.get("abort_signal"), self._ended(options))
        if idle is None or self.background is None:
            return out.start(source)
        again = cast("StreamOptions", {name: options[name] for name in options if name not in ("on_finish", "run_id")})

        def go_on(directive: str) -> LocalSource:
            setup = self.runs.setup([], again)
            setup.conversation.system.append({"role": "system", "content": directive})
            told = Callbacks.of(again)
            return LocalSource(AgentRun(setup), out, told, options.get("abort_signal"), self._ended(again))

        scope = (self.id, run.thread, run.resource)
        manager = self.background.manager
        return out.start(IdleSource(manager, out, source, go_on, scope=scope, streams=self._idle, max_idle_s=idle))

    def _what_is_missing(self) -> str:
        if self.background is None:
            return "the agent has no background_tasks= (a BackgroundTaskManager, or True)"
        return "until_idle= needs a thread, in memory={...}, and an agent with a memory: this is a plain stream"

    def _ended(self, options: StreamOptions) -> Callable[[AgentRun], Awaitable[None]]:
        async def ended(run: AgentRun) -> None:
            if run.suspended:
                self._carried[run.run_id] = options
                await self._waiting.keep(run)
            else:
                self._carried.pop(run.run_id, None)

        return ended

    def _limits(self, options: StreamOptions) -> Limits:
        bounds = cast("Bounds", {name: options[name] for name in Bounds.__annotations__ if name in options})
        limits = make_limits(bounds)
        if limits.max_cost_usd is None:
            return limits
        model = find_model(options["model"]) if "model" in options else self.model
        return price_limits(limits, f"{model.provider}/{model.model_id}", bounds.get("prices"))

    def __repr__(self) -> str:
        names = ", ".join(self.tools)
        return f"<Agent {self.name}{f' with {names}' if names else ''}: await .stream(…)>"


def _prompt(wire: list[dict[str, Any]]) -> str | None:
    """What the user asked last, for views."""
    asked = [record.text for record in message_records(wire) if record.role == "user"]
    return asked[-1] or None if asked else None


def _agents_by_name(agents: Any) -> dict[str, Agent]:
    if isinstance(agents, Mapping):
        found = dict(cast("Mapping[str, Any]", agents))
    else:
        ones = list(cast("Sequence[Any]", agents)) if isinstance(agents, list | tuple) else [agents]
        found = {str(getattr(one, "name", "")): one for one in ones}
    for one in found.values():
        if not isinstance(one, Agent):
            raise SettingsError(f"agents= takes agents, in a list or by name, not {type(one).__name__}")
    return found


def _schema_of(options: StreamOptions) -> ObjectSchema | None:
    structured = read_structured(options)
    return structured.schema if structured is not None else None
