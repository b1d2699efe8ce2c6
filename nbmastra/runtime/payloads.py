"""Payloads of a run's `step-start`, `step-finish` and `finish`, as a Mastra server writes them.

Each tells all of what was said so far; they share its parts, and nothing is changed after it was told.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nbmastra.runtime.chunks_out import usage_json
from nbmastra.runtime.model import Message
from nbmastra.runtime.step import ModelStep
from nbmastra.runtime.ui_messages import ui_messages
from nbmastra.usage import Usage

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun

__all__ = ["Payloads"]

_MODEL_VERSION = "v2"
"""The version of the AI SDK's model interface, whose events ours are."""

_NOT_OF_RESPONSE = ("providerMetadata", "request")


class Payloads:
    """What chunks tell of a run."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._steps: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self._message_ids: list[str] = []
        self.answered = False
        """True while the step is being finished that somebody's answer let go on."""

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON, while the run waits."""
        return {"steps": self._steps, "messageIds": self._message_ids}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from what `to_json` gave."""
        self._steps, self._message_ids = list(kept["steps"]), list(kept["messageIds"])

    def by_message(self) -> list[tuple[str, list[Message]]]:
        """The messages of each step, with the id of the message for people that they belong to."""
        messages = self._run.conversation.step_messages
        return [(message_id, messages(step)) for step, message_id in enumerate(self._message_ids)]

    def step_start(self, step: ModelStep) -> dict[str, Any]:
        """A step begins."""
        return {
            "request": {},
            "warnings": list(step.warnings),
            "messageId": step.message_id,
            "startedAt": step.started_ms,
        }

    def add(self, step: ModelStep) -> None:
        """The model's answer is complete: note the step."""
        run = self._run
        noted: dict[str, Any] = {
            "content": run.conversation.step_content(-1),
            "usage": usage_json(step.usage, raw=step.usage),
            "warnings": list(step.warnings),
            "response": {**self._response(step), "messages": run.conversation.wire()["nonUser"]},
        }
        if step.error is not None:
            noted["finishReason"] = step.reason
        if step.provider_metadata is not None:
            noted["providerMetadata"] = step.provider_metadata
        if run.setup.nested:
            noted["request"] = {}
        trip = step.rejection
        if trip is not None:
            told = {"reason": trip.reason, "retry": trip.retry, "metadata": trip.metadata}
            told["processorId"] = trip.processor_id
            noted["tripwire"] = {key: value for key, value in told.items() if value is not None}
        self._steps = [*self._steps, noted]
        self._message_ids.append(step.message_id)

    def drop_step(self) -> None:
        """The last step's messages were taken back; that there was such a step is told all the same."""
        self._message_ids.pop()

    def refresh(self) -> None:
        """Another step begins: the last one's content has its tools' results by now."""
        if self._steps and "tripwire" not in self._steps[-1]:
            self._steps = [*self._steps[:-1], {**self._steps[-1], "content": self._run.conversation.step_content(-1)}]

    def step_finish(self, step: ModelStep) -> dict[str, Any]:
        """A step is over."""
        run = self._run
        result: dict[str, Any] = {"reason": step.reason, "isContinued": step.continued}
        if step.error is not None and not step.responded:
            result["warnings"] = list(step.warnings)
        if self.answered:
            result["messageId"] = step.message_id
            self.answered = False
        output: dict[str, Any] = {
            "text": step.text,
            "toolCalls": [] if step.reason == "retry" else self._tool_calls(step),
            "usage": usage_json(step.usage, raw=step.usage),
            "steps": self._steps,
        }
        trip = step.rejection
        if trip is not None and step.reason == "retry":
            told = {"retryReason": trip.reason, "retryMetadata": trip.metadata, "retryProcessorId": trip.processor_id}
            result |= {key: value for key, value in told.items() if value is not None}
        if step.has_object:
            output["object"] = step.object
        self._last = {
            "messageId": step.message_id,
            "stepResult": result,
            "metadata": self._metadata(step),
            "output": output,
            "messages": run.conversation.wire(),
            "processorRetryCount": run.retries,
            **step.extra,
        }
        if run.conversation.feedback:
            self._last["processorRetryFeedback"] = run.conversation.feedback
        return self._last

    def finish(self) -> dict[str, Any]:
        """The run is over: the last step again, with the tokens of all."""
        run, step = self._run, self._run.step
        last_usage = step.usage if step is not None else Usage()
        output = {**self._last.get("output", {}), "usage": usage_json(run.usage, raw=last_usage, total=True)}
        result = {key: value for key, value in self._last["stepResult"].items() if key != "messageId"}
        return self._with_response({**self._last, "stepResult": result, "output": output})

    def aborted(self) -> dict[str, Any]:
        """The run was stopped: it ends as one that a processor blocked does, with no tokens counted."""
        run, step = self._run, self._run.step
        messages = run.conversation.wire()  # as the server, which adds the cut answer to the response only
        if step is not None and step.index == len(self._steps):
            run.conversation.add_step(step.content(), False)
            self._message_ids.append(step.message_id)
        output: dict[str, Any] = {"text": step.text if step is not None else "", "toolCalls": [], "steps": []}
        return self._with_response(
            {
                "messageId": step.message_id if step is not None else run.message_id,
                "stepResult": {"reason": "tripwire", "isContinued": False},
                "metadata": self._metadata(step) if step is not None else {},
                "output": {**output, "usage": usage_json(Usage(), total=True)},
                "messages": messages,
            }
        )

    # --- parts of them ---------------------------------------------------------------------------------------------

    def _with_response(self, payload: dict[str, Any]) -> dict[str, Any]:
        """With memory or processors, servers also tell the response as such."""
        run = self._run
        if not run.setup.has_memory and not run.has_processors:
            return payload
        conversation, model = run.conversation, run.model
        about = {"threadId": run.thread, "resourceId": run.resource} if run.setup.tells_thread else {}
        shown = ui_messages(
            self.by_message(),
            {"modelId": model.model_id, "provider": model.provider},
            {key: value for key, value in about.items() if value is not None},
        )
        metadata = {key: value for key, value in payload["metadata"].items() if key not in _NOT_OF_RESPONSE}
        messages = conversation.wire()["nonUser"]
        return {**payload, "response": {**metadata, "messages": messages, "uiMessages": shown}}

    def _metadata(self, step: ModelStep) -> dict[str, Any]:
        made = {**self._response(step), "modelMetadata": self._model()}
        if step.provider_metadata is not None:
            made["providerMetadata"] = step.provider_metadata
        if self._run.setup.nested:
            made["request"] = {}
        return made

    def _response(self, step: ModelStep) -> dict[str, Any]:
        """What the provider calls its answer, or, if it doesn't say, names of our own."""
        if not step.response:
            stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            step.response = {"id": str(uuid.uuid4()), "timestamp": stamp, **self._model()}
        return step.response

    def _model(self) -> dict[str, Any]:
        model = self._run.model
        return {"modelId": model.model_id, "modelVersion": _MODEL_VERSION, "modelProvider": model.provider}

    def _tool_calls(self, step: ModelStep) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for call in step.calls:
            told = {"toolCallId": call.id, "toolName": call.name, "args": call.kept}
            if call.provider_executed:
                told["providerExecuted"] = True
            made.append(told)
        return made
