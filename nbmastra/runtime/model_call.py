"""One call of the model: the request of a step, and its answer, whose chunks go out as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk
from nbmastra.runtime.chunks_out import error_json
from nbmastra.runtime.extend import Tripwire
from nbmastra.runtime.model import ModelEvent, ModelRequest, PartDelta, ToolSpec, Warned
from nbmastra.runtime.step import ModelStep

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun

__all__ = ["call_model", "make_request"]

_BREATH_S = 0.005
"""How long a model that never waits may keep the loop from everything else."""
_ANNOUNCE_S = 0.02
"""A step is announced when the provider answers, with its warnings; after so long, without waiting for them."""


def make_request(run: AgentRun) -> ModelRequest:
    """What the model is asked with in the next step."""
    options = run.options
    tools = [run.tools[name] for name in run.tool_names]
    return ModelRequest(
        messages=run.conversation.request(),
        tools=[ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools],
        tool_choice=options.tool_choice,
        settings=options.model_settings,
        include_raw=options.include_raw_chunks,
        rejected=sum(step.finish_reason == "retry" for step in run.results),
    )


async def call_model(run: AgentRun, step: ModelStep) -> None:
    """Read the model's answer into the step; what it raises is the step's error. Raises Tripwire."""
    announced = False

    def announce() -> None:
        nonlocal announced
        if not announced:
            announced = True
            run.emit(run.writer.write("step-start", run.payloads.step_start(step)))

    timer = asyncio.get_running_loop().call_later(_ANNOUNCE_S, announce)
    breath = time.perf_counter()
    try:
        # Those that aren't generators have nothing to close.
        stream: AsyncIterator[ModelEvent] = run.model.stream(step.request)
        async with aclosing(stream) if hasattr(stream, "aclose") else nullcontext():  # type: ignore[type-var]
            async for event in stream:
                chunks = step.take(event)
                if not announced and type(event) is not Warned:
                    announce()
                for chunk in chunks:
                    if run.watched:
                        await _send_processed(run, step, event, chunk)
                    else:
                        run.emit(chunk)
                if time.perf_counter() - breath > _BREATH_S:
                    await asyncio.sleep(0)
                    breath = time.perf_counter()
        announce()
        if step.reason == "error" or (step.reason == "other" and not step.spoke):
            raise RuntimeError(f"the model stopped with reason {step.reason!r} and said no more")
    except Tripwire:
        raise
    except Exception as error:
        announce()
        step.error, step.reason = error, "error"
        run.failure = error
        await run.send(run.writer.write("error", {"type": "error", "error": error_json(error)}), step)
    finally:
        timer.cancel()


async def _send_processed(run: AgentRun, step: ModelStep, event: object, chunk: Chunk) -> None:
    made = await run.processed(chunk, step)
    if isinstance(event, PartDelta):
        texts = [one["payload"].get("text", "") for one in made if one.get("type") == chunk.type]
        step.replace_delta(event.kind, event.id, "".join(texts))
    for one in made:
        run.emit(build_chunk(one))
