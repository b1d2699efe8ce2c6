"""The conversation of a run: what users write, as model messages, and what the run adds to them.

Nothing is changed in place, since chunks share these dicts: a tool's result makes new ones of the two messages that it
belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from nbmastra.messages import Messages, wire_messages
from nbmastra.runtime.model import Message

__all__ = ["Conversation", "ResultOutput", "made_at", "model_messages", "now_ms", "result_output"]

Part = dict[str, Any]
ResultOutput = dict[str, Any]
"""A tool's result as a model message has it: `type` (json, text, error-text, error-json) and `value`."""


def now_ms() -> int:
    """Milliseconds since 1970, as chunks have times."""
    return int(time.time() * 1000)


def made_at(at: int) -> dict[str, Any]:
    """The note that Mastra leaves at a message part: when it was made."""
    return {"mastra": {"createdAt": at}}


def model_messages(messages: Messages, at: int | None = None) -> tuple[list[Message], list[Message]]:
    """System messages, and all others, as model messages, from whatever `stream` takes. Raises SettingsError."""
    note = made_at(now_ms() if at is None else at)
    system: list[Message] = []
    others: list[Message] = []
    for wire in wire_messages(messages):
        role: str = wire["role"]
        body: Any = wire.get("parts", wire.get("content"))
        if isinstance(body, dict):  # as memory keeps it: {"format": 2, "parts": […]}
            body = cast("dict[str, Any]", body).get("parts", [])
        if role == "system":
            system.append({"role": "system", "content": body if isinstance(body, str) else _joined_text(body)})
        elif role in ("user", "assistant", "tool"):
            parts = [{"type": "text", "text": body}] if isinstance(body, str) else body
            others.extend(_messages_of(role, parts, note))
    return system, others


def _joined_text(parts: list[Part]) -> str:
    return "\n".join(part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))


def _messages_of(role: str, parts: list[Part], note: dict[str, Any]) -> Iterable[Message]:
    """A message, and the tool message that the results within a UI message make."""
    content: list[Part] = []
    results: list[Part] = []
    for part in parts:
        kind = part["type"]
        convert = _PARTS.get(kind)
        if convert is not None:
            (results if kind == "tool-result" and role == "assistant" else content).append(convert(part, note))
        elif kind == "dynamic-tool" or (kind.startswith("tool-") and "state" in part):
            call, result = _ui_call(part, note)
            content.append(call)
            if result is not None:
                results.append(result)
        elif kind == "tool-invocation":
            invocation = part.get("toolInvocation")
            if isinstance(invocation, dict):
                content.append(_tool_call({**invocation}, note))
                if "result" in invocation:
                    results.append(_tool_result({**invocation}, note))
    if content:
        yield {"role": role, "content": content}
    if results:
        yield {"role": "tool", "content": results}


def _text(part: Part, note: dict[str, Any]) -> Part:
    return {"type": "text", "text": str(part.get("text", "")), "providerOptions": _noted(part, note)}


def _reasoning(part: Part, note: dict[str, Any]) -> Part:
    text = part.get("text", part.get("reasoning", ""))
    return {"type": "reasoning", "text": str(text), "providerOptions": _noted(part, note)}


def _file(part: Part, note: dict[str, Any]) -> Part:
    """An image or a file: base64 data, a data URL or a web address, under any of the names that formats use."""
    kind = str(part["type"])
    value: Any = next((part[key] for key in ("data", "url", "image", "image_url") if key in part), "")
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("url", "")
    media = part.get("mediaType", part.get("mimeType", part.get("media_type")))
    if media is None and isinstance(value, str) and value.startswith("data:"):
        media = value[5:].partition(";")[0]
    is_url = isinstance(value, str) and value.startswith(("http:", "https:"))
    made: Part = {"type": "image" if kind.startswith("image") else "file", "url" if is_url else "data": value}
    made["mediaType"] = media or ("image/*" if made["type"] == "image" else "application/octet-stream")
    if "filename" in part:
        made["filename"] = part["filename"]
    return {**made, "providerOptions": _noted(part, note)}


def _tool_call(part: Part, note: dict[str, Any]) -> Part:
    return {
        "type": "tool-call",
        "toolCallId": str(part.get("toolCallId", "")),
        "toolName": str(part.get("toolName", "")),
        "input": part.get("input", part.get("args")),
        "providerOptions": _noted(part, note),
    }


def _tool_result(part: Part, note: dict[str, Any]) -> Part:
    output = part.get("output")
    if not isinstance(output, dict) or not {"type", "value"} <= output.keys():
        output = result_output(part.get("result", output))
    made: Part = {
        "type": "tool-result",
        "toolCallId": str(part.get("toolCallId", "")),
        "toolName": str(part.get("toolName", "")),
        "output": output,
        "providerOptions": _noted(part, note),
    }
    if "input" in part or "args" in part:
        made["input"] = part.get("input", part.get("args"))
    return made


def _ui_call(part: Part, note: dict[str, Any]) -> tuple[Part, Part | None]:
    name = part.get("toolName") or str(part["type"]).removeprefix("tool-")
    called: Part = {**part, "toolName": name}
    state = part.get("state")
    result: Part | None = None
    if state == "output-available":
        result = _tool_result({**called, "output": result_output(part.get("output"))}, note)
    elif state == "output-error":
        result = _tool_result(
            {**called, "output": {"type": "error-text", "value": str(part.get("errorText", ""))}}, note
        )
    return _tool_call(called, note), result


def _noted(part: Part, note: dict[str, Any]) -> dict[str, Any]:
    given = part.get("providerOptions", part.get("providerMetadata"))
    return {**note, **cast("dict[str, Any]", given)} if isinstance(given, dict) else note


_PARTS: dict[str, Callable[[Part, dict[str, Any]], Part]] = {
    "text": _text,
    "reasoning": _reasoning,
    "image": _file,
    "image_url": _file,
    "file": _file,
    "tool-call": _tool_call,
    "tool-result": _tool_result,
}


def result_output(value: Any) -> ResultOutput:
    """A tool's result as a model message has it."""
    return {"type": "text", "value": value} if isinstance(value, str) else {"type": "json", "value": value}


class Conversation:
    """System messages, what was said earlier, what the user says now, and what the run adds step by step."""

    def __init__(self, system: Sequence[Message], input: Sequence[Message], earlier: Sequence[Message] = ()) -> None:
        self.system = list(system)
        self.earlier = list(earlier)
        self.input = list(input)
        self.response: list[Message] = []
        self._steps: list[int] = []
        """Where in `response` each step's messages begin."""
        self.feedback = ""
        """Why the last answer wasn't accepted, for the next try only."""
        self.resumed = False
        """True after an answer: what the user said belongs to the stream before."""

    def request(self) -> list[Message]:
        """What the model is sent: a result that has a text made for models is given as that text."""
        feedback: list[Message] = [{"role": "system", "content": self.feedback}] if self.feedback else []
        return [*self.system, *feedback, *map(_for_model, (*self.earlier, *self.input, *self.response))]

    def wire(self) -> dict[str, list[Message]]:
        """The conversation as `step-finish` and `finish` tell it; shared, not copied."""
        return {
            "all": [*self.earlier, *self.input, *self.response],
            "user": [] if self.resumed else list(self.input),
            "nonUser": [message for message in self.response if message["role"] != "user"],
        }

    def add_step(self, content: Sequence[Part], has_calls: bool) -> None:
        """What the model said in a step; results of its calls follow by `set_result`."""
        self._steps.append(len(self.response))
        if content:
            self.response.append({"role": "assistant", "content": list(content)})
        if has_calls:
            self.response.append({"role": "tool", "content": []})

    def add_message(self, message: Message) -> None:
        """Something that is said between two steps, such as a scorer's feedback.

        What stands there as the user's, such as a judge's feedback, is said to the model only, and belongs to no step.
        """
        self.response.append(message)

    def drop_step(self) -> None:
        """Take back the last step: a processor didn't accept it."""
        del self.response[self._steps.pop() :]

    def set_result(
        self, tool_call_id: str, output: ResultOutput, *, metadata: Mapping[str, Any] | None = None, step: int = -1
    ) -> None:
        """The result of a call of a step (default: the last); results stand in the order of the calls."""
        place = self._steps[step]
        assistant, results = self.response[place], self.response[place + 1]
        noted = {"providerOptions": dict(metadata)} if metadata else {}
        content: list[Part] = []
        order: list[str] = []
        made: Part = {}
        for part in assistant["content"]:
            if part["type"] == "tool-call":
                order.append(part["toolCallId"])
                if part["toolCallId"] == tool_call_id:
                    made = {
                        "type": "tool-result",
                        "toolCallId": tool_call_id,
                        "toolName": part["toolName"],
                        "output": output,
                        **noted,
                        "input": part["input"],
                    }
                    part = {**_without_note(part), **noted}
            content.append(part)
        self.response[place] = {**assistant, "content": content}
        kept = [part for part in results["content"] if part["toolCallId"] != tool_call_id]
        kept.append(made)
        kept.sort(key=lambda part: order.index(part["toolCallId"]))
        self.response[place + 1] = {**results, "content": kept}

    def step_messages(self, step: int) -> list[Message]:
        """The messages that a step added."""
        ends = [*self._steps[1:], len(self.response)]
        added = self.response[self._steps[step] : ends[step]]
        return [message for message in added if message["role"] != "user"]

    def step_content(self, step: int) -> list[Part]:
        """What a step holds: what the model said, and the results of its calls."""
        content: list[Part] = []
        for message in self.step_messages(step):
            for part in message["content"]:
                if part["type"] == "tool-result":
                    content.append({key: part[key] for key in ("type", "input", "output", "toolCallId", "toolName")})
                elif part["type"] == "file":
                    content.append(_step_file(part))
                else:
                    content.append(part)
        return content

    # --- kept while a run waits ------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        names = ("system", "earlier", "input", "response")
        return {**{name: getattr(self, name) for name in names}, "steps": self._steps}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Conversation:
        """The conversation that `to_json` gave."""
        made = cls(kept["system"], kept["input"], kept["earlier"])
        made.response, made._steps = list(kept["response"]), list(kept["steps"])
        return made


def _without_note(part: Part) -> Part:
    """A call that has its result isn't dated any more; what its provider noted stays."""
    options = {key: value for key, value in part.get("providerOptions", {}).items() if key != "mastra"}
    kept = {key: value for key, value in part.items() if key != "providerOptions"}
    return {**kept, "providerOptions": options} if options else kept


def _step_file(part: Part) -> Part:
    data = str(part.get("data", ""))
    base64 = data.partition(",")[2] if data.startswith("data:") else data
    return {"type": "file", "file": {"base64Data": base64, "mediaType": part["mediaType"], "type": "file"}}


def _for_model(message: Message) -> Message:
    # Most messages are sent as they are: a long conversation isn't copied for each request.
    if message["role"] != "tool" or not any("providerOptions" in part for part in message["content"]):
        return message
    return {**message, "content": [_result_for_model(part) for part in message["content"]]}


def _result_for_model(part: Part) -> Part:
    made = part.get("providerOptions", {}).get("mastra", {}).get("modelOutput")
    return {**part, "output": made} if made else part
