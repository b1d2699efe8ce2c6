"""Structured output by a model of its own: the agent answers in prose, another model makes the object of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbmastra.chunks.built import encode_json
from nbmastra.errors import ObjectError
from nbmastra.runtime.answer_object import NOTHING
from nbmastra.runtime.asking import ask_model
from nbmastra.runtime.chunks_out import error_json
from nbmastra.runtime.extend import Extension, Tripwire
from nbmastra.runtime.model import ModelRequest
from nbmastra.runtime.object_chunks import ObjectGrowth
from nbmastra.runtime.structured import StructuredSettings, ask_for, keep_object, result_chunk, with_system

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.model import Model
    from nbmastra.runtime.step import ModelStep

__all__ = ["StructuringModel"]

_logger = logging.getLogger("nbmastra")

_ID = "structured-output"
_FROM = {"from": _ID}
_PREPARE = (
    "Somebody else will take data out of your answer, by the JSON schema below. Answer in plain language, and say all "
    "that its fields ask for.\n{}"
)
_SYSTEM = (
    "You turn text into data. Take what the schema asks for out of the text, in the schema's types; what the text "
    "doesn't say is null, or left out where the schema allows it."
)
_PROMPT = "Take the data out of this text, without changing its meaning:\n\n{}"


class StructuringModel(Extension):
    """Asks the other model when the agent's answer is complete; as a processor may, it asks for another try."""

    sees_chunks = True
    is_processor = True

    def __init__(self, settings: StructuredSettings, model: Model) -> None:
        self.settings = settings
        self._model = model
        self._said: dict[str, list[str]] = {}

    async def before_step(self, run: AgentRun, step: ModelStep) -> None:
        """Tell the agent's model what its answer is for."""
        if run.retries:
            self._said = {}  # only of the newest try
        schema = encode_json(self.settings.wire_schema).decode()
        messages = with_system(step.request.messages, _PREPARE.format(schema))
        step.request = replace(step.request, messages=messages)

    async def chunk(self, run: AgentRun, step: ModelStep | None, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """Keep what the other model will read."""
        payload: Any = chunk.get("payload")
        match chunk.get("type"):
            case "text-delta":
                self._note("Answer", str(payload.get("text", "")))
            case "reasoning-delta":
                self._note("Reasoning", str(payload.get("text", "")))
            case "tool-call":
                self._note("Tool calls", f"{payload['toolName']}: {_json(payload.get('args'))}\n")
            case "tool-result":
                self._note("Tool results", f"{payload['toolName']}: {_json(payload.get('result'))}\n")
            case _:
                pass
        return [chunk]

    def _note(self, title: str, text: str) -> None:
        self._said.setdefault(title, []).append(text)

    async def after_model(self, run: AgentRun, step: ModelStep) -> None:
        """Make the object, if this answer is the last."""
        if step.pending:
            return
        try:
            value = await self._make(run)
        except Exception as error:  # whatever a model raises; it must not take the agent's answer with it
            self._fail(run, step, error)
            return
        run.emit(result_chunk(run, value, _FROM))
        keep_object(step, value)

    async def _make(self, run: AgentRun) -> Any:
        settings = self.settings
        text = "\n\n".join(f"# {title}\n{''.join(pieces).strip()}" for title, pieces in self._said.items())
        system = settings.instructions or _SYSTEM
        request = ModelRequest(
            [
                {"role": "system", "content": system},
                {"role": "user", "content": [{"type": "text", "text": _PROMPT.format(text)}]},
            ]
        )
        growth = ObjectGrowth({"from": "AGENT", "runId": run.run_id, "metadata": _FROM}, settings.answer)
        own = StructuredSettings(settings.schema, settings.kind, settings.wire_schema, mode=settings.mode)
        async with aclosing(ask_model(self._model, ask_for(own, self._model, request))) as pieces:
            async for piece in pieces:
                grown = growth.feed(piece)
                if grown is not None:
                    run.emit(grown)
        value = growth.answer.result()
        if value is NOTHING:
            raise ObjectError("the answer holds no JSON", partial=growth.text)
        settings.check(value)
        return value

    def _fail(self, run: AgentRun, step: ModelStep, error: Exception) -> None:
        match self.settings.error_strategy:
            case "warn":
                _logger.warning("no object could be made of the answer of %s: %s", run.agent_id, error)
            case "fallback":
                run.emit(result_chunk(run, self.settings.fallback_value, {"fallback": True, **_FROM}))
                keep_object(step, self.settings.fallback_value)
            case _:
                reason = f"no object could be made of the answer: {error}"
                raise Tripwire(reason, retry=True, metadata={"error": error_json(error)}, processor_id=_ID) from error


def _json(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()
