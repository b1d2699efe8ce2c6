"""The agent loop: call the model, run its tools, and again, until it has answered.

open tools ─▶ start ─▶ [ step-start ─▶ model ─▶ tools ─▶ step-finish ] … ─▶ memory ─▶ finish
                                             └─▶ waits for somebody: kept, until `answer` and another `run`
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.caller_tools import CallerTool
from nbmastra.runtime.calls import question_chunk, run_calls, was_cancelled
from nbmastra.runtime.chunks_out import ChunkWriter, error_json, tripwire_chunk
from nbmastra.runtime.extend import Extension, Tripwire
from nbmastra.runtime.instructions import system_messages
from nbmastra.runtime.model import Message, Model, ModelRequest
from nbmastra.runtime.model_call import call_model, make_request
from nbmastra.runtime.options import RunOptions
from nbmastra.runtime.payloads import Payloads
from nbmastra.runtime.run_setup import RunSetup
from nbmastra.runtime.step import ModelStep, StepCall, StepResult
from nbmastra.tools import AbortSignal, Tool, free_name
from nbmastra.usage import Usage

__all__ = ["AgentRun"]

Emit = Callable[[Chunk], None]

_NO_TOOLS_AFTER = ("error", "length", "content-filter")
_FEEDBACK = "Your last answer wasn't accepted: {}. Answer again with that in mind."


class AgentRun:
    """One run of an agent: from its messages to its end, or to where it waits for somebody."""

    def __init__(self, setup: RunSetup) -> None:
        options = setup.options
        self.setup = setup
        self.options = options
        self.agent_id = setup.agent_id
        self.run_id: str = options.run_id or str(uuid.uuid4())
        self.thread, self.resource = setup.thread, setup.resource
        self.conversation = setup.conversation
        self.extensions = list(setup.extensions)
        self.dispatch = setup.dispatch
        self.writer = ChunkWriter(self.run_id)
        self.message_id = str(uuid.uuid4())
        self.abort = AbortSignal()
        self.results: list[StepResult] = []
        """The steps that are over."""
        self.usage = Usage()
        self.retries = 0
        """How often in a row a processor rejected the answer."""
        self.failure: BaseException | None = None
        self.finished = False
        self.step: ModelStep | None = None
        """The step that runs, or whose calls wait."""
        self.tools: dict[str, Tool] = {}
        self._model: Model | None = None
        self._emit: Emit = _nowhere
        self._started = False
        self._watchers: list[Extension] = []
        self._written: deque[Chunk] = deque()
        self._writing: asyncio.Task[None] | None = None
        self.payloads = Payloads(self)

    # --- what it is about ------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model; made at first use. Raises what making it raises."""
        if self._model is None:
            self._model = self.setup.model()
        return self._model

    @property
    def tool_names(self) -> list[str]:
        """The tools that the model may use."""
        active = self.options.active_tools
        return [name for name in self.tools if active is None or name in active]

    def tool_of(self, call: StepCall) -> Tool | None:
        """The tool that a call means, if the model may use it."""
        return self.tools[call.name] if call.name in self.tool_names else None

    @property
    def waiting(self) -> list[StepCall]:
        """The calls that wait for somebody's answer."""
        return [call for call in self.step.calls if call.state == "waiting"] if self.step is not None else []

    @property
    def has_processors(self) -> bool:
        """True if a processor may change the answer."""
        return any(extension.is_processor for extension in self.extensions)

    @property
    def watched(self) -> bool:
        """True if an extension sees its chunks before they go out."""
        return bool(self._watchers)

    @property
    def suspended(self) -> bool:
        """True if it waits for somebody."""
        return bool(self.waiting)

    @property
    def text(self) -> str:
        """The answer: the last step's text if tools were called, else all of it, as Mastra gives it.

        What a processor rejected is no part of it.
        """
        accepted = [step for step in self.results if step.finish_reason not in ("retry", "tripwire")]
        if any(step.tool_calls for step in accepted):
            return self.results[-1].text if accepted[-1] is self.results[-1] else ""
        return "".join(step.text for step in accepted)

    # --- chunks ----------------------------------------------------------------------------------------------------

    def emit(self, chunk: Chunk) -> None:
        """Send a chunk as it is, past the processors."""
        self._emit(chunk)

    async def send(self, chunk: Chunk, step: ModelStep | None = None) -> None:
        """Send a chunk; processors see it first."""
        if not self._watchers:
            self._emit(chunk)
            return
        for made in await self.processed(chunk, step):
            self._emit(build_chunk(made))

    def write(self, chunk: Chunk) -> None:
        """Send what a tool writes while it runs; processors see it first, in the order of writing."""
        if not self._watchers:
            self._emit(chunk)
            return
        self._written.append(chunk)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._send_written())

    async def _send_written(self) -> None:
        while self._written:
            await self.send(self._written.popleft(), self.step)

    async def written(self) -> None:
        """Wait until all that tools wrote is sent. Raises Tripwire."""
        if self._writing is not None:
            await self._writing

    async def processed(self, chunk: Chunk, step: ModelStep | None) -> list[dict[str, Any]]:
        """What the processors make of a chunk. Raises Tripwire."""
        whole = chunk.head.whole
        chunks = [whole if whole is not None else chunk.to_wire()]
        for watcher in self._watchers:
            chunks = [made for one in chunks for made in await watcher.chunk(self, step, one)]
        return chunks

    # --- the run ---------------------------------------------------------------------------------------------------

    async def run(self, emit: Emit, abort: AbortSignal | None = None) -> None:
        """Go on until the answer is complete, or somebody has to answer first. Fails by chunks, not by raising."""
        self._emit = emit
        self.abort = AbortSignal(abort)
        self._watchers = [extension for extension in self.extensions if extension.sees_chunks]
        try:
            async with AsyncExitStack() as stack:
                await self._open_tools(stack)
                await self._run()
        except Tripwire as trip:
            self.failure = None
            self.finished = True
            spoke = self.step is not None and self.step.spoke  # then the server's chunk doesn't name its run
            emit(
                tripwire_chunk(
                    trip.reason,
                    retry=trip.retry or None,
                    metadata=trip.metadata,
                    processor_id=trip.processor_id,
                    run_id=None if spoke else self.run_id,
                )
            )
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and was_cancelled():
                raise
            self.failure = error
            emit(self.writer.write("error", {"error": error_json(error)}))
        finally:
            self.abort.detach()
            writing = self._writing
            if writing is not None and not writing.cancel() and not writing.cancelled():
                writing.exception()  # it was raised where it mattered, or the run has ended otherwise

    async def _open_tools(self, stack: AsyncExitStack) -> None:
        self.tools = dict(self.setup.tools)
        for source in self.setup.sources:
            for tool in await stack.enter_async_context(source.open()):
                named = free_name(tool, self.tools)
                self.tools[named.name] = named

    async def _run(self) -> None:
        if self._started:
            await self._find_model()
            more = await self._after_answer()
        else:
            self._started = True
            start = self.writer.write("start", {"id": self.agent_id, "messageId": self.message_id})
            try:
                await asyncio.sleep(0)  # a run that is stopped already ends here
                await self._prepare()
            except Tripwire:
                raise  # as on a server, where such a run never begins
            except BaseException:
                self._emit(start)
                raise
            self._emit(start)
            await self._keep(self.conversation.input)
            more = True
        while more:
            more = await self._run_step()
        for extension in self.extensions:
            await extension.finish(self)
        await self.remember()
        if self.suspended:
            return
        self.finished = True
        await self.send(self.writer.share("finish", self.payloads.finish()))

    async def _find_model(self) -> None:
        # In a thread: a provider's libraries take seconds to load, and other runs go on meanwhile.
        if self._model is None:
            self._model = await asyncio.to_thread(self.setup.model)

    async def _prepare(self) -> None:
        await self._find_model()  # what is wrong with it is said before anything is asked of others
        told = await system_messages(self.setup.instructions, self.options.request_context)
        self.conversation.system[:0] = told
        if self.setup.memory is not None and self.thread is not None and self.setup.recalls:
            self.conversation.earlier[:0] = await self.setup.memory.recall(
                self.thread, self.resource or "", **self.setup.recall_options
            )
        for extension in self.extensions:
            await extension.start(self)

    async def remember(self) -> None:
        """Keep in the thread what the run said so far; told again, it replaces what was kept before."""
        steps = self.payloads.by_message()
        if steps and self.step is not None and self.step.reason == "tripwire":
            steps.pop()  # a blocked answer is nothing to go on from
        if steps:
            about = {"modelId": self.model.model_id, "provider": self.model.provider}
            said = [(message_id, message) for message_id, messages in steps for message in messages]
            await self._keep([{**message, "id": message_id, "metadata": about} for message_id, message in said])

    async def _keep(self, messages: Sequence[Message]) -> None:
        memory = self.setup.memory
        if memory is not None and self.thread is not None and messages:
            await memory.remember(self.thread, self.resource or "", messages)

    async def _run_step(self) -> bool:
        """One call of the model and its tools; True if another step follows."""
        for extension in self.extensions:
            await extension.next_step(self)
        self.payloads.refresh()
        step = self.step = ModelStep(len(self.results), self.message_id, make_request(self), self.writer)
        for extension in self.extensions:
            await extension.before_step(self, step)
        await call_model(self, step)
        if step.error is None:
            await self._check(step)
        for call in step.pending:
            if isinstance(self.tool_of(call), CallerTool):
                call.state = "left"
        self.conversation.add_step(step.content(), bool(step.calls))
        self.payloads.add(step)
        runs_tools = step.rejection is None and step.error is None and step.reason not in _NO_TOOLS_AFTER
        step.continued = runs_tools and bool(step.pending)
        if step.rejection is not None:
            self._reject(step)
        else:
            self._accept()
        if step.continued and step.rejection is None:
            await run_calls(self, step, step.pending)
        return await self._end_step(step)

    async def _after_answer(self) -> bool:
        """Go on where somebody answered: run the calls that may run now, then finish the step."""
        step = self.step
        assert step is not None
        self.conversation.resumed = self.thread is not None  # a thread knows what the user said
        asked = {call.id for call in self.waiting}
        await run_calls(self, step, step.pending)
        for call in self.waiting:
            if call.id in asked:  # still: the new stream asks again what the one before did
                await self.send(question_chunk(self, call), step)
        self.message_id = str(uuid.uuid4())
        step.message_id = self.message_id
        self.payloads.answered = not self.suspended
        return await self._end_step(step)

    async def _end_step(self, step: ModelStep) -> bool:
        unsettled = step.rejection is None and any(call.state in ("waiting", "called") for call in step.pending)
        if unsettled and step.continued:
            return False
        if any(call.state == "left" for call in step.calls):
            step.continued = False
        self.results.append(step.result())
        self.usage = self.usage + step.usage
        for extension in self.extensions:
            await extension.after_step(self, step)
        if step.continued and await self.options.stops(self.results):
            step.continued = False
        await self.send(self.writer.share("step-finish", self.payloads.step_finish(step)), step)
        return step.continued

    # --- processors ------------------------------------------------------------------------------------------------

    async def _check(self, step: ModelStep) -> None:
        try:
            for extension in self.extensions:
                await extension.after_model(self, step)
        except Tripwire as trip:
            step.rejection = trip

    def _reject(self, step: ModelStep) -> None:
        """A processor didn't accept the answer: try again without it, or stop."""
        trip: Tripwire = step.rejection
        if trip.retry and self.retries < (self.options.max_processor_retries or 0):
            self.retries += 1
            step.continued, step.reason = True, "retry"
            self.conversation.drop_step()
            self.payloads.drop_step()
            step.extra["processorRetryFeedback"] = self.conversation.feedback = _FEEDBACK.format(trip.reason)
        else:
            step.reason = "tripwire"

    def _accept(self) -> None:
        self.retries, self.conversation.feedback = 0, ""

    # --- answers and stopping --------------------------------------------------------------------------------------

    def answer(
        self, call: StepCall, *, approved: bool | None = None, reason: str | None = None, data: Any = None
    ) -> None:
        """Note the answer to a call that waits: approved or declined, or the data it waits for. Then `run` again."""
        asks_approval = (call.suspended or {}).get("kind") == "approval"
        said = as_dict(data)
        if asks_approval and approved is None and isinstance(said.get("approved"), bool):
            approved, reason = said["approved"], said.get("reason")
        if call.nested is not None:
            inner = call.nested.waiting[0]
            call.nested.answer(inner, approved=approved, reason=reason, data=data)
            call.state = "approved"
        elif approved is False:
            call.state, call.result, call.suspended = "denied", reason, None
        else:
            call.state, call.suspended = "approved", None
            call.resume_data = None if approved else data

    @property
    def bare_request(self) -> ModelRequest:
        """What the model was asked with in a step that was kept: not kept itself."""
        return ModelRequest(messages=(), include_raw=self.options.include_raw_chunks)

    def restore(
        self,
        *,
        message_id: str,
        usage: Usage,
        retries: int,
        results: list[StepResult],
        step: ModelStep,
        payloads: Mapping[str, Any],
    ) -> None:
        """Go on from where a run was kept."""
        self._started = True
        self.message_id, self.usage, self.retries = message_id, usage, retries
        self.results, self.step = results, step
        self.payloads.restore(payloads)

    def configure(
        self, options: RunOptions, *, tools: Mapping[str, Tool] | None = None, model: Callable[[], Model] | None = None
    ) -> None:
        """What holds from here on: options, further tools, another model."""
        self.options = options
        self.setup = replace(self.setup, options=options, tools={**self.setup.tools, **(tools or {})})
        if model is not None:
            self.setup, self._model = replace(self.setup, model=model), None

    def parting(self) -> list[Chunk]:
        """The last chunks of a run that is stopped from outside."""
        if self.finished or not self._started:
            return []
        self.finished = True
        abort = self.writer.write("abort", {})
        if self._model is None:
            return [abort]
        return [abort, self.writer.share("finish", self.payloads.aborted())]


def _nowhere(_chunk: Chunk) -> None:
    """Before the run has begun."""
