"""`RemoteAgent`: an agent of a Mastra server."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping
from typing import Any, Unpack

from nbmastra.client.agent_routes import AgentRoutes, begin, run_context
from nbmastra.client.answers import Question, RemoteControl, carried_options, send_answer
from nbmastra.client.budgets import Bounds, make_limits, priced
from nbmastra.client.client_tools import ClientToolRun, split_client_tools
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.generate import full_output
from nbmastra.client.history import RemoteThread
from nbmastra.client.http import Http
from nbmastra.client.info import AgentInfo
from nbmastra.client.observe import ObserveSource, ReconnectingSource
from nbmastra.client.options import UntilIdle, answer_options, schema_options, stream_body
from nbmastra.client.refusals import clean
from nbmastra.client.request import Request
from nbmastra.client.source import HttpSource
from nbmastra.client.subscribe import SubscribeSource
from nbmastra.client.suspended import SuspendedRuns, suspended_runs
from nbmastra.errors import SettingsError
from nbmastra.messages import Messages, message_records
from nbmastra.output import Answer, FullOutput, Limits, MastraModelOutput, ObjectSchema, Source
from nbmastra.prices import OwnPrices

__all__ = ["RemoteAgent"]


class RemoteAgent:
    """An agent of a server, by its id; nothing is asked of the server until a method is called.

    `bounds` of a run, everywhere: `idle_timeout`, `max_seconds`, `max_tokens`, `max_cost_usd`, `prices`
    (`nbmastra.client.budgets.Bounds`). All methods raise SettingsError at once, ClientErrors when awaited.
    """

    def __init__(self, http: Http, agent_id: str) -> None:
        self.id = agent_id
        self._http = http
        self._routes = AgentRoutes(http, agent_id)

    def describe(self) -> Request[AgentInfo]:
        """Its name, model, tools and instructions. Raises AgentNotFound, ClientError."""
        return Request(self._http.engine, self._routes.describe)

    # --- runs ------------------------------------------------------------------------------------------------------

    def stream(
        self,
        messages: Messages,
        *,
        until_idle: UntilIdle = False,
        memory: Mapping[str, Any] | None = None,
        schema: Any = None,
        structured_output: Mapping[str, Any] | None = None,
        max_steps: int | None = None,
        run_id: str | None = None,
        require_tool_approval: bool | None = None,
        client_tools: Any = None,
        reconnect: bool = False,
        idle_timeout: float | None = None,
        max_seconds: float | None = None,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
        prices: OwnPrices | None = None,
        **options: Any,
    ) -> Request[MastraModelOutput]:
        """Start a run; the output is there as soon as the server has accepted it, and fills by itself.

        messages: a text, a message dict, or a list of them.
        until_idle: go on until the background tasks are done; `{"max_idle_ms": …}` bounds the waiting between turns.
        memory: `{"thread": …, "resource": …}`.
        schema: what the object must be: pydantic model, any type, TypeAdapter or JSON schema. `structured_output` is
        the long form, with further keys beside it.
        client_tools: functions of this process that the agent may call, a list, or a dict by name (see `tool`); what
        the agent asks is run here, and the run goes on with the result. A dict of the wire's own dicts is passed on.
        reconnect: of a durable agent: observe the run on if the connection breaks. Servers that abort a run when its
        client leaves (`@mastra/hono`) make it end as cancelled, with that reason.
        idle_timeout … prices: bounds of the run, see `nbmastra.client.budgets.Bounds`.
        options: everything else that the server takes (`model_settings`, `request_context` …), passed on in
        camelCase.

        Raises SettingsError at once; AgentNotFound, BadRequest, ServerUnreachable, PriceUnknown and other ClientErrors
        when awaited.
        """
        checked, structured = schema_options(schema, structured_output)
        bounds = Bounds(
            idle_timeout=idle_timeout,
            max_seconds=max_seconds,
            max_tokens=max_tokens,
            max_cost_usd=max_cost_usd,
            prices=prices,
        )
        limits = make_limits(bounds)
        client, declared = split_client_tools(client_tools)
        if client is not None and reconnect:
            raise SettingsError("reconnect= and client_tools= don't go together: observing a run can't answer it")
        named = {
            "memory": memory,
            "client_tools": declared,
            "structured_output": structured,
            "max_steps": max_steps,
            "run_id": run_id or (str(uuid.uuid4()) if reconnect else None),
            "require_tool_approval": require_tool_approval,
        }
        body = stream_body(messages, until_idle, {**named, **options})

        async def open_stream() -> MastraModelOutput:
            priced_limits = await self._priced(limits, bounds)
            stream = await self._routes.stream("/stream", body)
            source: Source
            run: ClientToolRun | None = None
            if reconnect:
                source = ReconnectingSource(self._routes, stream, body["runId"])
            else:
                source = HttpSource(stream, ChunkDecoder(self._http.max_event_bytes))
                if client is not None:
                    source = run = client.start(self._routes, source, body)
            out = MastraModelOutput(
                control=RemoteControl(self._routes, carried_options(body), run),
                schema=checked,
                agent=self.id,
                prompt=_prompt(body["messages"]),
                until_idle=until_idle is not False,
                limits=priced_limits,
                context=run_context(self._http, memory),
                engine=self._http.engine,
            )
            return out.start(source)

        return begin(self._http.engine, open_stream)

    def stream_until_idle(
        self, messages: Messages, *, max_idle_ms: int | None = None, **options: Any
    ) -> Request[MastraModelOutput]:
        """Deprecated: `stream(messages, until_idle=True)`, or `until_idle={"max_idle_ms": …}`."""
        warnings.warn("stream_until_idle() is now stream(until_idle=True)", DeprecationWarning, stacklevel=2)
        until_idle: UntilIdle = True if max_idle_ms is None else {"max_idle_ms": max_idle_ms}
        return self.stream(messages, until_idle=until_idle, **options)

    def generate(
        self,
        messages: Messages,
        *,
        memory: Mapping[str, Any] | None = None,
        schema: Any = None,
        structured_output: Mapping[str, Any] | None = None,
        max_steps: int | None = None,
        run_id: str | None = None,
        require_tool_approval: bool | None = None,
        **options: Any,
    ) -> Request[FullOutput]:
        """The whole answer at once, when the run is over, however long that takes.

        As in Mastra, `text` joins the texts of all steps, where a stream's `text` is what follows the last tool call.
        A run that fails raises ServerError with the reason; one that waits for an approval or for data has the status
        suspended, and is answered by `approve_tool_call` or `resume_stream` with its `run_id`.
        """
        checked, structured = schema_options(schema, structured_output)
        if split_client_tools(options.get("client_tools"))[0] is not None:
            raise SettingsError("client_tools= are for stream(): await (await agent.stream(…)).get_full_output()")
        named = {
            "memory": memory,
            "structured_output": structured,
            "max_steps": max_steps,
            "run_id": run_id,
            "require_tool_approval": require_tool_approval,
        }
        body = stream_body(messages, False, {**named, **options})

        async def ask() -> FullOutput:
            answer = await self._routes.post("/generate", body, patient=True)
            out = MastraModelOutput(agent=self.id, engine=self._http.engine)
            return await full_output(answer, out, checked)

        return Request(self._http.engine, ask)

    def observe(
        self,
        run_id: str,
        *,
        offset: int | None = None,
        schema: Any = None,
        reconnect: bool = True,
        **bounds: Unpack[Bounds],
    ) -> Request[MastraModelOutput]:
        """A run of a durable agent, from its first event or from the one with index `offset`; the run isn't touched.

        A run that isn't known raises RunNotFound after 10 s, since servers then keep silent; with an `offset` that
        limit doesn't hold. Stopping this output only stops observing.
        """
        checked = ObjectSchema(schema) if schema is not None else None
        limits = make_limits(bounds)

        async def open_stream() -> MastraModelOutput:
            priced_limits = await self._priced(limits, bounds)
            source = ObserveSource(self._routes, run_id, offset, reconnect=reconnect)
            await source.begin()
            return self._output(checked, priced_limits).start(source)

        return begin(self._http.engine, open_stream)

    def subscribe(
        self, thread: str, resource: str, *, once: bool = False, **bounds: Unpack[Bounds]
    ) -> Request[MastraModelOutput]:
        """The runs of a thread, whoever starts them: the active one from its start, then all that follow.

        They are the turns of one output, which never ends by itself: cancel it, which doesn't touch the runs. Awaited
        values follow the first run. With `once` it ends with the first run.
        """
        make_limits(bounds)  # what is wrong with them is said at once
        return begin(self._http.engine, lambda: self.subscribe_now(thread, resource, once=once, bounds=bounds))

    async def subscribe_now(self, thread: str, resource: str, *, once: bool, bounds: Bounds) -> MastraModelOutput:
        """As `subscribe`, on the engine's loop."""
        limits = await self._priced(make_limits(bounds), bounds)
        stream = await self._routes.stream("/threads/subscribe", {"threadId": thread, "resourceId": resource})
        memory = {"thread": thread, "resource": resource}
        out = self._output(None, limits, memory=memory, until_idle=True, endless=True)
        return out.start(SubscribeSource(stream, ChunkDecoder(self._http.max_event_bytes), once=once))

    # --- runs that wait, and stopping ------------------------------------------------------------------------------

    def approve_tool_call(self, run_id: str, tool_call_id: str, **options: Any) -> Request[MastraModelOutput]:
        """Let a call run that waits for approval; gives the output that goes on. Raises AlreadyResumed, ClientError.

        options: those of `stream` that shall hold from here on.
        """
        return self._answer("approve", run_id, tool_call_id, options)

    def decline_tool_call(
        self, run_id: str, tool_call_id: str, *, reason: str | None = None, **options: Any
    ) -> Request[MastraModelOutput]:
        """Refuse a call that waits for approval; the model is told the reason. Raises AlreadyResumed, ClientError."""
        return self._answer("decline", run_id, tool_call_id, options, reason=reason)

    def resume_stream(
        self, run_id: str, data: Any, tool_call_id: str | None = None, **options: Any
    ) -> Request[MastraModelOutput]:
        """Give a suspended run its data; gives the output that goes on. Raises AlreadyResumed, ClientError.

        tool_call_id: which call is meant, where several wait.
        """
        return self._answer("resume", run_id, tool_call_id, options, data=data)

    def suspended_runs(self, *, thread: str | None = None, resource: str | None = None) -> Request[SuspendedRuns]:
        """The runs of this agent that wait for somebody, as the server knows them. Raises ClientError."""
        return Request(self._http.engine, lambda: suspended_runs(self._routes, thread=thread, resource=resource))

    def thread(self, thread_id: str) -> RemoteThread:
        """A thread of this agent's memory: `await agent.thread("t1").messages()`."""
        return RemoteThread(self._http, thread_id, self.id)

    def abort(self, thread: str, resource: str) -> Request[bool]:
        """Stop the active run of a thread, whoever started it; False if there is none. Raises ClientError."""

        async def ask() -> bool:
            body = {"threadId": thread, "resourceId": resource}
            return (await self._routes.post("/threads/abort", body)).get("aborted") is True

        return Request(self._http.engine, ask)

    # --- shared ----------------------------------------------------------------------------------------------------

    def _answer(
        self,
        answer: Answer,
        run_id: str,
        tool_call_id: str | None,
        options: Mapping[str, Any],
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> Request[MastraModelOutput]:
        client, declared = split_client_tools(options.get("client_tools"))
        checked, body, bounds = answer_options({**options, "client_tools": declared})
        limits = make_limits(bounds)
        question = Question(run_id, tool_call_id)

        async def send() -> MastraModelOutput:
            return await send_answer(
                self._routes,
                question,
                answer,
                reason=reason,
                data=data,
                options=body,
                schema=checked,
                limits=await self._priced(limits, bounds),
                client=client,
            )

        return begin(self._http.engine, send)

    async def _priced(self, limits: Limits, bounds: Bounds) -> Limits:
        if limits.max_cost_usd is None:
            return limits
        return priced(limits, await self._routes.describe(), bounds.get("prices"))

    def _output(
        self,
        schema: ObjectSchema | None,
        limits: Limits,
        *,
        memory: Mapping[str, Any] | None = None,
        until_idle: bool = False,
        endless: bool = False,
    ) -> MastraModelOutput:
        """An output of a run that was started elsewhere."""
        return MastraModelOutput(
            control=RemoteControl(self._routes, {"memory": dict(memory)} if memory else {}),
            schema=schema,
            agent=self.id,
            until_idle=until_idle,
            endless=endless,
            limits=limits,
            context=run_context(self._http, memory),
            engine=self._http.engine,
        )

    def __repr__(self) -> str:
        return f"<RemoteAgent {clean(self.id, 80)} at {self._http.address.url}: await .stream(…), .describe()>"


def _prompt(messages: list[dict[str, Any]]) -> str | None:
    """What the user asked last, for views."""
    asked = [record.text for record in message_records(messages) if record.role == "user"]
    return asked[-1] or None if asked else None
