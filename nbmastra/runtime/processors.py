"""Processors: they see what goes to a model and what comes from it, may change it, and may stop the run.

process_input ─▶ [ process_input_step ─▶ process_llm_request ─▶ model ─▶ process_output_stream … ─▶
process_output_step ─▶ tools ─▶ process_tool_result … ] ─▶ process_output_result
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from pydantic_core import to_jsonable_python

from nbmastra.errors import SettingsError
from nbmastra.runtime.chunks_out import data_chunk
from nbmastra.runtime.conversation import model_messages, result_output
from nbmastra.runtime.extend import Extension, Tripwire
from nbmastra.runtime.ready import Ready

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.model import Message
    from nbmastra.runtime.step import ModelStep

__all__ = ["Abort", "AnswerProcessors", "ChunkProcessors", "ProcessorSet", "ProcessorWriter", "read_processors"]

_logger = logging.getLogger("nbmastra")

_IDS = {"run_id", "agent_id", "thread_id", "resource_id"}
_COMMON = {"abort", "abort_signal", "request_context", "retry_count", "state", "writer", *_IDS}
_STEP = {"messages", "system_messages", "step_number", "steps"}
_METHODS: dict[str, tuple[str, set[str]]] = {
    "process_input": ("messages", {"messages", "system_messages"}),
    "process_input_step": ("messages", {*_STEP, "model", "tools", "tool_choice", "active_tools", "model_settings"}),
    "process_llm_request": ("prompt", {"prompt", "step_number", "steps", "model"}),
    "process_output_stream": ("part", {"part", "stream_parts"}),
    "process_output_step": ("messages", {*_STEP, "text", "tool_calls", "finish_reason", "usage", "provider_metadata"}),
    "process_tool_result": ("result", {*_STEP, "result", "args", "tool_name", "tool_call_id"}),
    "process_output_result": ("messages", {"messages", "result"}),
}
"""A processor's methods: what each is mainly about, and what it may ask for besides. Source: @mastra/core 1.71."""

_SEEN_BY_NONE = ("start", "finish")


class Abort(Protocol):
    """`abort(reason, retry=True, metadata=…)`: the answer isn't accepted; with retry, the model is asked again."""

    def __call__(self, reason: str = "", *, retry: bool = False, metadata: Any = None) -> NoReturn: ...


class ProcessorWriter:
    """`writer.custom({"type": "data-…", "data": …})`: a chunk of a processor's own; from any thread, may be awaited."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()

    def custom(self, chunk: Mapping[str, Any]) -> Ready[None]:
        """Put it into the run's stream. Raises ValueError if it isn't data."""
        if not str(chunk.get("type", "")).startswith("data-"):
            raise ValueError('writer.custom takes {"type": "data-…", "data": …}')
        made = data_chunk(to_jsonable_python(dict(chunk), fallback=str))
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._run.emit(made)
        else:
            self._loop.call_soon_threadsafe(self._run.emit, made)
        return Ready(None)


class _Hook:
    """One method of a processor, called with the arguments that it names.

    A plain function runs in a thread of its own, but for those of chunks: a thread for each delta would be too dear.
    """

    def __init__(self, function: Callable[..., Any], method: str) -> None:
        self._function = function
        self._in_thread = method != "process_output_stream" and not inspect.iscoroutinefunction(function)
        main, own = _METHODS[method]
        known = own | _COMMON
        self._names: list[str] = []
        self._first: str | None = None
        self._takes_all = False
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
            self._first = main
        for index, parameter in enumerate(parameters):
            if parameter.kind is parameter.VAR_KEYWORD:
                self._takes_all = True
            elif parameter.kind is parameter.VAR_POSITIONAL:
                continue
            elif parameter.name in known and parameter.kind is not parameter.POSITIONAL_ONLY:
                self._names.append(parameter.name)
            elif index == 0 and main not in [other.name for other in parameters]:
                self._first = main  # whatever it calls it
            elif parameter.default is parameter.empty:
                raise SettingsError(f"{method} asks for {parameter.name!r}; it can have {', '.join(sorted(known))}")
        if self._takes_all:
            self._names = sorted(known)

    def wants(self, name: str) -> bool:
        return name in self._names or name == self._first

    def own(self, name: str, value: Any) -> Any:
        """A copy that the processor may change, if it asks for it at all."""
        return deepcopy(value) if self.wants(name) else value

    async def __call__(self, given: Mapping[str, Any]) -> Any:
        first = [given[self._first]] if self._first is not None else []
        named = {name: given[name] for name in self._names if name in given and name != self._first}
        if self._in_thread:
            answer = await asyncio.to_thread(self._function, *first, **named)
        else:
            answer = self._function(*first, **named)
        return await answer if inspect.isawaitable(answer) else answer


class _Processor:
    """A processor of a run: its hooks, and the state that they share."""

    def __init__(self, source: Any, hooks: dict[str, _Hook]) -> None:
        self.id = _id(source)
        self.hooks = hooks
        self.state: dict[str, Any] = {}
        self.parts: list[dict[str, Any]] = []
        self.failed = False

    def abort(self, reason: str = "", *, retry: bool = False, metadata: Any = None) -> NoReturn:
        words = reason or f"Tripwire triggered by {self.id}"
        raise Tripwire(words, retry=retry, metadata=metadata, processor_id=self.id)


def _id(source: Any) -> str:
    given: Any = getattr(source, "id", None) or getattr(source, "name", None)
    if isinstance(given, str) and given:
        return given
    named = source if inspect.isroutine(source) or inspect.isclass(source) else cast("object", type(source))
    return str(getattr(named, "__name__", "processor")).replace("_", "-")


def read_processors(processors: Any, option: str, default: str) -> list[tuple[Any, dict[str, _Hook]]]:
    """Processors with their hooks; a plain function is a `default` hook. Raises SettingsError."""
    if not isinstance(processors, list | tuple):
        raise SettingsError(f"{option}= takes a list of functions or objects, not {type(processors).__name__}")
    found: list[tuple[Any, dict[str, _Hook]]] = []
    for source in cast("Sequence[Any]", processors):
        if inspect.isclass(source):
            raise SettingsError(f"{option}= takes objects: {source.__name__}(), not the class")
        hooks = {
            method: _Hook(getattr(source, method), method)
            for method in _METHODS
            if callable(getattr(source, method, None))
        }
        if not hooks and callable(source):
            hooks = {default: _Hook(source, default)}
        if not hooks:
            raise SettingsError(
                f"{option}= takes functions, or objects with a method such as {default}, not {type(source).__name__}"
            )
        found.append((source, hooks))
    return found


class ProcessorSet:
    """An agent's processors in one run; each keeps one state through all of its methods."""

    def __init__(self, inputs: Any, outputs: Any) -> None:
        made: dict[int, _Processor] = {}

        def processors(given: Any, option: str, default: str) -> list[_Processor]:
            found = read_processors(given, option, default)
            return [made.setdefault(id(source), _Processor(source, hooks)) for source, hooks in found]

        self.inputs = processors(inputs, "input_processors", "process_input")
        self.outputs = processors(outputs, "output_processors", "process_output_stream")

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)

    def having(self, method: str) -> list[tuple[_Processor, _Hook]]:
        """The processors that have a method, in their order, each with it."""
        all_of_them = self.inputs if method.startswith(("process_input", "process_llm")) else self.outputs
        return [(one, one.hooks[method]) for one in all_of_them if method in one.hooks]


async def _call(processor: _Processor, hook: _Hook, given: Mapping[str, Any]) -> Any:
    try:
        return await hook(given)
    except Tripwire as trip:
        trip.processor_id = trip.processor_id or processor.id  # raised by hand
        raise


def _given(run: AgentRun, processor: _Processor, **more: Any) -> dict[str, Any]:
    return {
        "abort": processor.abort,
        "abort_signal": run.abort,
        "writer": ProcessorWriter(run),
        "state": processor.state,
        "run_id": run.run_id,
        "agent_id": run.agent_id,
        "thread_id": run.thread,
        "resource_id": run.resource,
        "request_context": run.options.request_context,
        "retry_count": run.retries,
        **more,
    }


class ChunkProcessors(Extension):
    """The half that sees chunks: stands before structured output, whose chunks no processor sees."""

    def __init__(self, processors: ProcessorSet) -> None:
        self.is_processor = bool(processors.outputs)
        self._stream = processors.having("process_output_stream")
        self._results = processors.having("process_tool_result")
        self.sees_chunks = bool(self._stream or self._results)

    async def chunk(self, run: AgentRun, step: ModelStep | None, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """Each processor gets what the one before it left."""
        if chunk.get("type") in _SEEN_BY_NONE:
            return [chunk]
        if self._results and chunk.get("type") == "tool-result":
            chunk = await self._result(run, step, chunk)
        parts = [chunk]
        for processor, hook in self._stream:
            parts = [made for part in parts for made in await self._part(run, processor, hook, part)]
        return parts

    async def _part(
        self, run: AgentRun, processor: _Processor, hook: _Hook, part: dict[str, Any]
    ) -> list[dict[str, Any]]:
        if hook.wants("stream_parts"):
            processor.parts.append(part)
        try:
            # A copy, since chunks share their payloads with the conversation.
            given = _given(run, processor, part=_own(part), stream_parts=processor.parts)
            made = _parts(await _call(processor, hook, given))
        except Tripwire:
            raise
        except Exception:  # as in Mastra: a processor that breaks is left out, the answer goes on
            if not processor.failed:
                processor.failed = True
                _logger.exception("process_output_stream of %s failed; its chunks pass unchanged", processor.id)
            return [part]
        return made

    async def _result(self, run: AgentRun, step: ModelStep | None, chunk: dict[str, Any]) -> dict[str, Any]:
        payload = chunk["payload"]
        result = payload["result"]
        about = {"args": payload.get("args"), "tool_name": payload["toolName"], "tool_call_id": payload["toolCallId"]}
        for processor, hook in self._results:
            about |= {
                "messages": hook.own("messages", _messages(run)),
                "system_messages": hook.own("system_messages", run.conversation.system),
            }
            number = step.index if step is not None else 0
            given = _given(run, processor, **about, result=deepcopy(result), step_number=number, steps=run.results)
            changed = await _call(processor, hook, given)
            if changed is not None:
                result = changed
        if result is payload["result"]:
            return chunk
        call = next((call for call in step.calls if call.id == payload["toolCallId"]), None) if step else None
        if call is not None and not call.provider_executed:
            call.result = result
            run.conversation.set_result(call.id, result_output(result), metadata=call.metadata)
        return {**chunk, "payload": {**payload, "result": result}}


def _parts(made: Any) -> list[dict[str, Any]]:
    """The chunks that a processor gave. Raises TypeError if it gave something else."""
    parts: list[Any] = [] if made is None else list(cast("Sequence[Any]", made)) if isinstance(made, list) else [made]
    for part in parts:
        if not isinstance(part, dict) or not isinstance(cast("dict[str, Any]", part).get("type"), str):
            raise TypeError("process_output_stream gives the chunk, a list of chunks, or None")
    return parts


def _own(part: dict[str, Any]) -> dict[str, Any]:
    payload = part.get("payload")
    return {**part, "payload": dict(cast("dict[str, Any]", payload))} if isinstance(payload, dict) else dict(part)


class AnswerProcessors(Extension):
    """The half that sees messages: what goes in, each answer of the model, and the result."""

    def __init__(self, processors: ProcessorSet) -> None:
        self.is_processor = bool(processors.outputs)
        self._of = {method: processors.having(method) for method in _METHODS}

    async def start(self, run: AgentRun) -> None:
        """What the user says; system messages may be changed too."""
        conversation = run.conversation
        for processor, hook in self._of["process_input"]:
            messages = hook.own("messages", conversation.input)
            system = hook.own("system_messages", conversation.system)
            made = await _call(processor, hook, _given(run, processor, messages=messages, system_messages=system))
            more: list[Message] = []
            if isinstance(made, Mapping):
                answer = cast("Mapping[str, Any]", made)
                messages, system = answer.get("messages", messages), answer.get("system_messages", system)
            elif made is not None:
                messages = made
            if messages != conversation.input:
                more, conversation.input = model_messages(messages)
            conversation.system = [*(_as_system(system) if system != conversation.system else system), *more]

    async def before_step(self, run: AgentRun, step: ModelStep) -> None:
        """What the model is asked in this step."""
        for processor, hook in self._of["process_input_step"]:
            request = step.request
            before = [message for message in request.messages if message["role"] != "system"]
            system_before = [message for message in request.messages if message["role"] == "system"]
            messages, system = hook.own("messages", before), hook.own("system_messages", system_before)
            answer: Any = await _call(
                processor,
                hook,
                _given(
                    run,
                    processor,
                    messages=messages,
                    system_messages=system,
                    step_number=step.index,
                    steps=list(run.results),
                    model=run.model,
                    tools=[tool.name for tool in request.tools],
                    tool_choice=request.tool_choice,
                    active_tools=run.options.active_tools,
                    model_settings=dict(request.settings),
                ),
            )
            if isinstance(answer, list | tuple):
                answer = {"messages": list(cast("Sequence[Any]", answer))}
            changes: dict[str, Any] = dict(cast("Mapping[str, Any]", answer)) if isinstance(answer, Mapping) else {}
            messages, system = changes.get("messages", messages), changes.get("system_messages", system)
            more: list[Message] = []
            if messages != before:
                more, messages = model_messages(messages)
            if system != system_before:
                system = _as_system(system)
            active = changes.get("active_tools")
            step.request = replace(
                request,
                messages=[*system, *more, *messages],
                tools=[tool for tool in request.tools if active is None or tool.name in active],
                tool_choice=changes.get("tool_choice", request.tool_choice),
                settings=changes.get("model_settings", request.settings),
            )

        for processor, hook in self._of["process_llm_request"]:
            prompt: Any = hook.own("prompt", list(step.request.messages))
            given = _given(
                run, processor, prompt=prompt, step_number=step.index, steps=list(run.results), model=run.model
            )
            made = await _call(processor, hook, given)
            if isinstance(made, Mapping):
                made = cast("Mapping[str, Any]", made).get("prompt")
            step.request = replace(step.request, messages=prompt if made is None else list(made))

    async def after_model(self, run: AgentRun, step: ModelStep) -> None:
        """The model's answer, before its tools run."""
        for processor, hook in self._of["process_output_step"]:
            said: Message = {"role": "assistant", "content": step.content()}
            messages = hook.own("messages", [*_messages(run), said])
            calls = [{"toolName": call.name, "toolCallId": call.id, "args": call.wire_args} for call in step.calls]
            made = await _call(
                processor,
                hook,
                _given(
                    run,
                    processor,
                    messages=messages,
                    system_messages=hook.own("system_messages", run.conversation.system),
                    step_number=step.index,
                    steps=list(run.results),
                    text=step.text,
                    tool_calls=calls,
                    finish_reason=step.reason,
                    usage=step.usage,
                    provider_metadata=step.provider_metadata,
                ),
            )
            last = (messages if made is None else list(made))[-1:]
            if last and last[0].get("role") == "assistant" and last[0] != said:
                kept = [part for message in model_messages(last)[1] for part in message["content"]]
                ids = {part.get("toolCallId") for part in kept}
                calls_left = [part for part in said["content"] if part["type"] == "tool-call"]
                step.said = [*kept, *(part for part in calls_left if part["toolCallId"] not in ids)]

    async def finish(self, run: AgentRun) -> None:
        """The whole answer, before it is told and kept."""
        if run.suspended or run.step is None or run.step.error is not None or run.step.rejection is not None:
            return
        conversation = run.conversation
        for processor, hook in self._of["process_output_result"]:
            messages = hook.own("messages", conversation.response)
            result = {
                "text": run.text,
                "usage": run.usage,
                "finish_reason": run.step.reason,
                "steps": list(run.results),
            }
            made = await _call(processor, hook, _given(run, processor, messages=messages, result=result))
            messages = messages if made is None else list(made)
            if messages != conversation.response:
                conversation.response = model_messages(messages)[1]


def _messages(run: AgentRun) -> list[Message]:
    conversation = run.conversation
    return [*conversation.earlier, *conversation.input, *conversation.response]


def _as_system(messages: Any) -> list[Message]:
    texts = [messages] if isinstance(messages, str) else list(messages)
    return [{"role": "system", "content": text} if isinstance(text, str) else text for text in texts]
