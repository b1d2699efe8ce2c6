"""A whole answer at once: the JSON of `generate`, folded as the stream it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import ChunkError, ObjectError
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.output import Ended, FullOutput, MastraModelOutput, ObjectSchema
from nbmastra.usage import parse_usage

__all__ = ["full_output"]


async def full_output(answer: dict[str, Any], out: MastraModelOutput, schema: ObjectSchema | None) -> FullOutput:
    """The answer as a FullOutput, by means of an output that wasn't started.

    As in Mastra, `text` joins all steps, where a stream's is what follows the last tool call.
    Source: @mastra/core, the answer of `generate`; WIRE, row "generate".
    """
    out.feed(list(_chunks(answer)), 0.0)
    out.finish(Ended(done=True, at=0.0))
    full = await out.get_full_output()
    value, problem = answer.get("object"), None
    if schema is not None and "object" in answer:
        try:
            value = schema.validate(value)
        except ObjectError as error:
            problem = error
    elif schema is not None:
        problem = full.object_error or ObjectError("the answer holds no object", partial=full.text)
    return replace(
        full,
        text=as_text(answer.get("text")),
        object=value,
        object_error=problem,
        usage=_reported(answer.get("usage")) or full.usage,
        total_usage=_reported(answer.get("totalUsage")) or full.total_usage,
        run_id=as_text(answer.get("runId")) or full.run_id,
        trace_id=as_text(answer.get("traceId")) or full.trace_id,
        request=as_dict(answer.get("request")) or full.request,
    )


def _reported(value: object) -> Any:
    usage = parse_usage(value)
    return usage if usage.nonzero else None


def _chunks(answer: dict[str, Any]) -> Iterator[Chunk]:
    steps = [as_dict(step) for step in as_list(answer.get("steps"))] or [answer]
    run_id = as_text(answer.get("runId"))
    yield _chunk(run_id, "start", {})
    for step in steps:
        yield from _step(run_id, step)
    tripwire = as_dict(answer.get("tripwire"))
    if tripwire:
        yield _chunk(run_id, "tripwire", tripwire)
        return
    question = as_dict(answer.get("suspendPayload"))
    if question:
        asks = "tool-call-suspended" if "suspendPayload" in question else "tool-call-approval"
        yield _chunk(run_id, asks, question)
        return
    finish = {
        "stepResult": {"reason": answer.get("finishReason")},
        "output": {"usage": answer.get("totalUsage") or answer.get("usage")},
        "response": answer.get("response"),
        "messages": {"all": answer.get("messages")},
    }
    yield _chunk(run_id, "finish", finish)


def _step(run_id: str, step: dict[str, Any]) -> Iterator[Chunk]:
    yield _chunk(run_id, "step-start", {"request": step.get("request")})
    for number, item in enumerate(as_list(step.get("reasoning"))):
        payload = as_dict(as_dict(item).get("payload"))
        about = {"id": f"r{number}", "providerMetadata": payload.get("providerMetadata")}
        yield _chunk(run_id, "reasoning-start", about)
        yield _chunk(run_id, "reasoning-delta", {"id": f"r{number}", "text": as_text(payload.get("text"))})
        yield _chunk(run_id, "reasoning-end", about)
    if step.get("text"):
        yield _chunk(run_id, "text-start", {"id": "t0"})
        yield _chunk(run_id, "text-delta", {"id": "t0", "text": as_text(step.get("text"))})
        yield _chunk(run_id, "text-end", {"id": "t0"})
    for key in ("toolCalls", "toolResults", "sources", "files"):
        for item in as_list(step.get(key)):
            chunk = _told(item)
            if chunk is not None:
                yield chunk
    yield from _failed_calls(run_id, step)
    if "finishReason" in step and step.get("finishReason") != "suspended":
        yield _chunk(
            run_id,
            "step-finish",
            {
                "stepResult": {"reason": step.get("finishReason"), "warnings": step.get("warnings")},
                "output": {"usage": step.get("usage")},
                "metadata": step.get("response"),
            },
        )


def _failed_calls(run_id: str, step: dict[str, Any]) -> Iterator[Chunk]:
    """Failed calls have no result; only the model's view of the step tells why."""
    done = {as_dict(as_dict(item).get("payload")).get("toolCallId") for item in as_list(step.get("toolResults"))}
    for item in map(as_dict, as_list(step.get("content"))):
        output = as_dict(item.get("output"))
        if (
            item.get("type") == "tool-result"
            and as_text(output.get("type")).startswith("error-")
            and item.get("toolCallId") not in done
        ):
            yield _chunk(
                run_id,
                "tool-error",
                {
                    "toolCallId": item.get("toolCallId"),
                    "toolName": item.get("toolName"),
                    "error": output.get("value"),
                },
            )


def _told(item: object) -> Chunk | None:
    try:
        return parse_chunk(as_dict(item))
    except ChunkError:
        return None


def _chunk(run_id: str, kind: str, payload: dict[str, Any]) -> Chunk:
    kept = {key: value for key, value in payload.items() if value is not None}
    return parse_chunk({"type": kind, "runId": run_id, "from": "AGENT", "payload": kept})
