"""Tools of the caller, for agents of a server: it asks, the kernel runs the function, the run goes on.

POST /stream ─▶ chunks … finish, with calls that have no result ─▶ [DONE]
                                                                    run them: tool-result, tool-error chunks
POST /stream with their results ─▶ chunks … ─▶ …                    all of it one output, one turn

Source: WIRE, "Client tools"; the wire's own words are those of @mastra/client-js 1.71.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.client.agent_routes import AgentRoutes
from nbmastra.client.client_calls import ClientCall, make_context, prepare_answer, run_call, run_calls
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.source import HttpSource
from nbmastra.errors import AlreadyResumed, SettingsError, StreamTruncated
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.output import Answer, Batch
from nbmastra.tools import AbortSignal, Tool, as_tools

__all__ = ["ClientToolRun", "ClientTools", "Waiting", "split_client_tools"]

CONCURRENCY = 10
"""Calls of one step that run at the same time, unless `tool_call_concurrency` says else; Mastra's own number."""
MAX_ROUNDS = 20
"""Rounds of client tools of a run that has no `max_steps`."""


def split_client_tools(given: Any) -> tuple[ClientTools | None, Any]:
    """The functions among what was given as `client_tools`, and what the request says of them. Raises SettingsError.

    A dict of dicts is the wire's own form, for a caller that runs the tools itself: it is passed on as it is.
    """
    if given is None:
        return None, None
    if isinstance(given, Mapping):
        values = list(cast("Mapping[str, Any]", given).values())
        if values and all(isinstance(value, Mapping) for value in values):
            return None, cast("Any", given)
    tools = as_tools(cast("Any", given))
    return (ClientTools(tools), _wire(tools)) if tools else (None, None)


def _wire(tools: Mapping[str, Tool]) -> dict[str, Any]:
    return {
        name: {"id": name, "description": tool.description, "inputSchema": tool.parameters}
        for name, tool in tools.items()
    }


class ClientTools:
    """The functions of a run, by the names that the model knows."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools

    def start(self, routes: AgentRoutes, source: HttpSource, body: Mapping[str, Any]) -> ClientToolRun:
        """The run whose first stream this is; `body` is the request that gave it."""
        return ClientToolRun(routes, self, dict(body), first=source)


@dataclass(eq=False)
class Waiting:
    """A round whose calls somebody must approve, or give data: shared by all outputs that go on with it."""

    calls: dict[str, ClientCall]
    settled: list[ClientCall]
    history: list[dict[str, Any]]
    steps: int
    rounds: int
    running: int = 0

    def take(self, tool_call_id: str) -> ClientCall:
        """The call, which from now on nobody else may answer. Raises AlreadyResumed."""
        call = self.calls.pop(tool_call_id, None)
        if call is None:
            raise AlreadyResumed(f"{tool_call_id} was answered before")
        return call


@dataclass
class _Round:
    """What one stream of the server said that matters here."""

    calls: dict[str, ClientCall] = field(default_factory=dict[str, ClientCall])
    steps: int = 0
    finish: Chunk | None = None
    over: bool = False
    """True if there is nothing to go on with: it failed, was stopped, or waits for somebody."""

    def note(self, chunk: Chunk) -> None:
        handler = _NOTES.get(chunk.type)
        if handler is not None:
            handler(self, chunk, as_dict(chunk.raw_payload()) if handler is not _note_finish else {})

    def open_calls(self) -> list[ClientCall]:
        """The calls that the server leaves to its caller."""
        if self.over or self.finish is None:
            return []
        return [call for call in self.calls.values() if call.called and not call.answered]


def _note_input(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    id = as_text(payload.get("toolCallId"))
    round_.calls[id] = ClientCall(id, as_text(payload.get("toolName")), chunk.run_id)  # ids may return in later steps


def _note_delta(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    call = round_.calls.get(as_text(payload.get("toolCallId")))
    if call is not None:
        call.pieces.append(as_text(payload.get("argsTextDelta")))


def _note_call(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    id = as_text(payload.get("toolCallId"))
    call = round_.calls.get(id)
    if call is None or call.called:
        call = round_.calls[id] = ClientCall(id, as_text(payload.get("toolName")), chunk.run_id)
    call.name = as_text(payload.get("toolName")) or call.name
    call.called, call.args = True, payload.get("args")
    call.answered = payload.get("providerExecuted") is True


def _note_answer(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    call = round_.calls.get(as_text(payload.get("toolCallId")))
    if call is not None and payload.get("preliminary") is not True:
        call.answered = True


def _note_step(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    round_.steps += 1


def _note_finish(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    round_.finish = chunk


def _note_end(round_: _Round, chunk: Chunk, payload: dict[str, Any]) -> None:
    round_.over = payload.get("retry") is not True


_NOTES: dict[str, Callable[[_Round, Chunk, dict[str, Any]], None]] = {
    "tool-call-input-streaming-start": _note_input,
    "tool-call-delta": _note_delta,
    "tool-call": _note_call,
    "tool-result": _note_answer,
    "tool-error": _note_answer,
    "tool-output-denied": _note_answer,
    "step-start": _note_step,
    "finish": _note_finish,
    "error": _note_end,
    "abort": _note_end,
    "tripwire": _note_end,
    "tool-call-approval": _note_end,
    "tool-call-suspended": _note_end,
}


class ClientToolRun:
    """A source: the server's streams one after the other, and what the caller's tools gave in between."""

    def __init__(
        self,
        routes: AgentRoutes,
        client: ClientTools,
        body: dict[str, Any],
        *,
        first: HttpSource | None = None,
        waiting: Waiting | None = None,
        call: ClientCall | None = None,
    ) -> None:
        """`first` is the stream that it begins with, or `call` what was answered of a round that waits."""
        self.done = False
        self.waiting = waiting
        """The round that waits for somebody, once it does."""
        self.client = client
        self.body = body
        self._routes = routes
        self._source = first
        self._call = call
        self._sent: list[dict[str, Any]] = [as_dict(message) for message in as_list(body.get("messages"))]
        self._system = [message for message in self._sent if message.get("role") == "system"]
        self._steps = waiting.steps if waiting is not None else 0
        self._rounds = waiting.rounds if waiting is not None else 0
        self._events = 0
        self._abort = AbortSignal()

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. Raises StreamTruncated, ClientError of a further request."""
        if self._call is not None:
            async for batch in self._answered(self._call):
                yield batch
        while self._source is not None:
            source, round_ = self._source, _Round()
            async for at, chunks in source.batches():
                for chunk in chunks:
                    round_.note(chunk)
                self._events += len(chunks)
                yield at, chunks
            self.done = source.done
            calls = round_.open_calls()
            if not calls or not self.done:
                return
            await source.aclose()
            self._source = None
            self._steps += round_.steps
            history, waits = self._history(round_), list[ClientCall]()
            async for batch in self._run(calls, waits, history):
                yield batch
            settled = [call for call in calls if call not in waits]
            if waits:
                left = {call.id: call for call in waits}
                self.waiting = Waiting(left, settled, history, self._steps, self._rounds)
            else:
                await self._go_on(settled, history)

    async def _answered(self, call: ClientCall) -> AsyncIterator[Batch]:
        """Go on with a round that waited: with the server, or with what still waits of it."""
        waiting, waits = self.waiting, list[ClientCall]()
        assert waiting is not None
        waiting.running += 1
        try:
            async for batch in self._run([call], waits, waiting.history):
                yield batch
        finally:
            waiting.running -= 1
        if not waits:
            waiting.settled.append(call)
        for left in waiting.calls.values():
            if left.question is not None:
                yield None, self._number([parse_chunk(left.question)])
        waiting.calls.update({call.id: call for call in waits})
        self.done = True
        if not waiting.calls and not waiting.running:
            self.waiting = None
            await self._go_on(waiting.settled, waiting.history)

    async def _run(
        self, calls: list[ClientCall], unsettled: list[ClientCall], history: list[dict[str, Any]]
    ) -> AsyncIterator[Batch]:
        """Run calls at the same time; their chunks as they come. Those that wait for somebody go to `unsettled`."""
        chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()

        emit, limit = chunks.put_nowait, self.body.get("toolCallConcurrency")

        async def run(call: ClientCall) -> bool:
            context = make_context(call, emit, **self._about(history))
            # Servers ask for an approval of their own tools only.
            always = self.body.get("requireToolApproval") is True
            return await run_call(call, self.client.tools, context, emit, always_ask=always)

        async def run_all() -> None:
            try:
                unsettled.extend(
                    await run_calls(calls, run, limit=limit if isinstance(limit, int) and limit > 0 else CONCURRENCY)
                )
            finally:
                chunks.put_nowait(None)

        task = asyncio.create_task(run_all())
        try:
            ended = False
            while not ended:
                batch = [await chunks.get()]
                while not chunks.empty():
                    batch.append(chunks.get_nowait())
                ended = batch[-1] is None
                yield None, self._number([chunk for chunk in batch if chunk is not None])
            await task
        finally:
            if not task.done():
                self._abort.abort("the run was stopped")
                task.cancel()

    def _about(self, history: list[dict[str, Any]]) -> dict[str, Any]:
        memory = as_dict(self.body.get("memory"))
        thread = memory.get("thread")
        return {
            "agent_id": self._routes.id,
            "thread_id": as_text(as_dict(cast("object", thread)).get("id") or thread) or None,
            "resource_id": as_text(memory.get("resource")) or None,
            "request_context": dict(as_dict(self.body.get("requestContext"))),
            "messages": history,
            "abort": self._abort,
        }

    def _number(self, chunks: list[Chunk]) -> list[Chunk]:
        for chunk in chunks:
            chunk.event = self._events
            self._events += 1
        return chunks

    async def _go_on(self, settled: Iterable[ClientCall], history: list[dict[str, Any]]) -> None:
        """Ask the server with the results, unless there may be no further step."""
        limit = self.body.get("maxSteps")
        left = limit - self._steps if isinstance(limit, int) else None
        self.done = True
        if left is not None and left <= 0:
            return
        self._rounds += 1
        if left is None and self._rounds > MAX_ROUNDS:
            self.done = False
            raise StreamTruncated(f"stopped after {MAX_ROUNDS} rounds of client tools: max_steps= allows more")
        told = {"role": "tool", "content": [call.message_part() for call in settled]}
        self._sent = [told] if self._on_thread else [*history, told]
        body = {key: value for key, value in self.body.items() if key != "runId"} | {"messages": self._sent}
        if left is not None:
            body["maxSteps"] = left
        self.done = False
        decoder = ChunkDecoder(self._routes.http.max_event_bytes)
        decoder.events = self._events
        self._source = HttpSource(await self._routes.stream("/stream", body), decoder)

    @property
    def _on_thread(self) -> bool:
        return bool(as_dict(self.body.get("memory")).get("thread"))

    def _history(self, round_: _Round) -> list[dict[str, Any]]:
        """The conversation up to the open calls, for a server that keeps none.

        The user's messages as they were sent, since servers change them (media types), and the answers as the finish
        tells them, with what providers want back (signatures).
        """
        assert round_.finish is not None
        told = as_dict(as_dict(round_.finish.raw_payload()).get("messages"))
        every, answers = (_with_content(told.get(key)) for key in ("all", "nonUser"))
        if self._sent and all(message.get("role") in ("user", "system") for message in self._sent):
            return [*self._sent, *(answers or [_assistant(round_)])]
        if every:
            return [*self._system, *every]
        return [*self._sent, _assistant(round_)]

    def answer(self, tool_call_id: str, answer: Answer, *, reason: str | None, data: Any) -> ClientToolRun:
        """The run that goes on with the answer to a call that waits. Raises AlreadyResumed, SettingsError."""
        assert self.waiting is not None
        call = self.waiting.take(tool_call_id)
        try:
            prepare_answer(call, answer, reason, data)
        except SettingsError:
            self.waiting.calls[tool_call_id] = call
            raise
        return ClientToolRun(self._routes, self.client, self.body, waiting=self.waiting, call=call)

    async def aclose(self) -> None:
        """Stop what runs here, and close the connection."""
        self._abort.abort("the run is over")
        if self._source is not None:
            await self._source.aclose()


def _with_content(messages: object) -> list[dict[str, Any]]:
    return [message for message in map(as_dict, as_list(messages)) if message.get("content")]


def _assistant(round_: _Round) -> dict[str, Any]:
    """The answer that made the calls, where the finish doesn't tell it."""
    parts = [
        {"type": "tool-call", "toolCallId": call.id, "toolName": call.name, "input": call.args}
        for call in round_.open_calls()
    ]
    return {"role": "assistant", "content": parts}
