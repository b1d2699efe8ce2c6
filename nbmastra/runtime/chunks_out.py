"""A run's chunks, as a Mastra server writes them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk, encode_json
from nbmastra.chunks.envelope import PAYLOAD_MARK, Head
from nbmastra.errors import ModelError
from nbmastra.usage import Usage

__all__ = ["ChunkWriter", "data_chunk", "error_json", "error_text", "tripwire_chunk", "usage_json"]

_STACK_FRAMES = 4
_STACK_CHARS = 4000
_MESSAGE_CHARS = 10_000
_PACKAGE = str(Path(__file__).parents[1])


class ChunkWriter:
    """Writes the chunks of one run. Those of a type share all but their payload."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._heads: dict[str, Head] = {}

    def write(self, kind: str, payload: dict[str, Any], *, from_: str = "AGENT") -> Chunk:
        """A chunk whose payload is small: its bytes are made now."""
        head = self._heads.get(kind)
        if head is None:
            envelope = {"type": kind, "runId": self.run_id, "from": from_}
            head = self._heads[kind] = Head(envelope, encode_json(envelope)[:-1] + b"," + PAYLOAD_MARK)
        return head.make(kind, head, encode_json(payload))

    def share(self, kind: str, payload: dict[str, Any], *, from_: str = "AGENT") -> Chunk:
        """A chunk whose payload is shared with others and must not change: nothing is copied."""
        return build_chunk({"type": kind, "runId": self.run_id, "from": from_, "payload": payload})

    def tool_output(self, output: Any, tool_call_id: str, tool_name: str) -> Chunk:
        """What a tool wrote."""
        payload = {"output": output, "toolCallId": tool_call_id, "toolName": tool_name}
        return self.write("tool-output", payload, from_="USER")

    def nested(self, chunk: Chunk, tool_call_id: str, tool_name: str) -> Chunk:
        """A chunk of a sub-agent, within the call that runs it."""
        whole = chunk.head.whole
        if whole is not None:
            payload = {"output": whole, "toolCallId": tool_call_id, "toolName": tool_name}
            return self.share("tool-output", payload, from_="USER")
        made = self.tool_output(None, tool_call_id, tool_name)
        # The chunk's own bytes, as they are: parsing and writing each anew would make sub-agents slow.
        body = b'{"output":' + chunk.to_json() + made.body[len(b'{"output":null') :]
        return made.head.make("tool-output", made.head, body)


def data_chunk(data: dict[str, Any]) -> Chunk:
    """A `data-…` chunk, which has no run and no payload."""
    return build_chunk(data)


def tripwire_chunk(
    reason: str,
    *,
    retry: bool | None = None,
    metadata: Any = None,
    processor_id: str | None = None,
    run_id: str | None = None,
) -> Chunk:
    """A processor blocked the run."""
    envelope = {"type": "tripwire"} if run_id is None else {"type": "tripwire", "runId": run_id, "from": "AGENT"}
    payload = {"reason": reason, "retry": retry, "metadata": metadata, "processorId": processor_id}
    return build_chunk({**envelope, "payload": {key: value for key, value in payload.items() if value is not None}})


_USAGE_NAMES = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "reasoning_tokens": "reasoningTokens",
    "cached_input_tokens": "cachedInputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
}


def usage_json(usage: Usage, *, raw: Usage | None = None, total: bool = False) -> dict[str, Any]:
    """Usage as the wire has it; `raw` is the provider's own of the last step. A turn's `total` has zeros, no gaps."""
    made: dict[str, Any] = dict.fromkeys(("inputTokens", "outputTokens", "totalTokens"), 0) if total else {}
    made |= _camel(usage)
    if raw is not None and raw.reported:
        made["raw"] = _camel(raw)
    return made


def _camel(usage: Usage) -> dict[str, int]:
    return {_USAGE_NAMES[name]: value for name, value in usage.to_dict().items()}


def error_json(error: BaseException) -> dict[str, Any]:
    """An exception as chunks tell it: name, message, short traceback, and what a provider said besides."""
    error = single_error(error)
    made: dict[str, Any] = {"message": error_text(error), "name": type(error).__name__, "stack": _short_stack(error)}
    if isinstance(error, ModelError):
        extra: Mapping[str, Any] = {
            "statusCode": error.status_code,
            "retryAfterS": error.retry_after_s,
            "code": error.code,
            "provider": error.provider,
        }
        made |= {key: value for key, value in extra.items() if value is not None}
    return made


def single_error(error: BaseException) -> BaseException:
    """What a task group wraps if only one thing went wrong, else the error itself."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(inner) != 1:
            return cast("BaseException", error)
        error = inner[0]
    return error


def error_text(error: BaseException) -> str:
    """What an exception says, as long as a model should read it."""
    error = single_error(error)
    text = str(error) or type(error).__name__
    return text if len(text) <= _MESSAGE_CHARS else f"{text[:_MESSAGE_CHARS]}… ({len(text):,} characters)"


def _short_stack(error: BaseException) -> str:
    """The last frames outside of this package: where the tool itself is, not how it was called."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)][-_STACK_FRAMES:]
    lines = [*traceback.format_list(theirs), *traceback.format_exception_only(error)]
    return "".join(lines).strip()[-_STACK_CHARS:]
