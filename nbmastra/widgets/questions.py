"""What a suspended run asks, on the card of the call that waits: approve or decline, or a form for the missing data."""

from __future__ import annotations

import json
from typing import Any, cast

from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.widgets.format import one_line
from nbmastra.widgets.icons import icon
from nbmastra.widgets.json_tree import tree
from nbmastra.widgets.live import Act
from nbmastra.widgets.stage import Stage

__all__ = ["ApprovalQuestion", "DataQuestion", "ask_fields", "asked_words", "form_data", "simple_fields"]


class _Question:
    """A notice inside of a card, with a line for what went wrong."""

    def __init__(self, stage: Stage, parent: str, call: ToolCall | WorkflowStep, title: str, text: str) -> None:
        self._stage = stage
        self._call = call
        doc = stage.doc
        self._node = doc.add(parent, "div", "nbm-notice nbm-notice--warn")
        doc.add(self._node, "span", "nbm-notice__icon", html=icon("suspended"))
        doc.add(self._node, "p", "nbm-notice__title", text=one_line(title))
        if text:
            doc.add(self._node, "p", "nbm-notice__text", text=text)
        self._controls: list[str] = []
        self._problem: str | None = None

    def _button(self, parent: str, words: str, act: str, cls: str = "nbm-btn") -> str:
        label = f"{words} {one_line(self._call.tool_name, 80)}"
        attrs = {"type": "button", "data-nbm-act": act, "aria-label": label}
        button = self._stage.doc.add(parent, "button", cls, text=words, attrs=attrs)
        self._controls.append(button)
        return button

    def _only(self, how: str) -> None:
        self._stage.doc.add(self._node, "p", "nbm-notice__text nbm-muted", text=how)

    def sent(self, words: str) -> None:
        """The answer was accepted; the run goes on."""
        if self._node in self._stage.doc:
            self._say(words)

    def failed(self, message: str) -> None:
        """The answer wasn't accepted: one may try again."""
        if self._node in self._stage.doc:
            for control in self._controls:
                self._stage.doc.set_attr(control, "disabled", None)
            self._say(one_line(message))

    def _say(self, words: str) -> None:
        doc = self._stage.doc
        if self._problem is None:
            self._problem = doc.add(self._node, "p", "nbm-notice__text")
        doc.set_text(self._problem, words)

    def _disable(self) -> None:
        for control in self._controls:
            self._stage.doc.set_attr(control, "disabled", "")

    def remove(self) -> None:
        """It was answered, here or elsewhere."""
        self._stage.doc.remove(self._node)


class ApprovalQuestion(_Question):
    """May this call run?"""

    def __init__(self, stage: Stage, parent: str, call: ToolCall | WorkflowStep, who: str) -> None:
        text = "It has not run yet. The run waits for your answer and keeps its place."
        super().__init__(stage, parent, call, f"{who} asks to run {call.tool_name}", text)
        if not {"approve", "decline"} <= stage.can:
            self._only("This run can't be answered from here.")
            return
        doc = stage.doc
        form = doc.add(self._node, "form", "nbm-actions")
        stage.on(self._button(form, "Approve", "approve", "nbm-btn nbm-btn--primary"), self._approve)
        stage.on(self._button(form, "Decline", "decline"), self._decline)
        label = f"Reason for declining {one_line(call.tool_name, 80)} (optional)"
        attrs = {"name": "reason", "aria-label": label, "placeholder": "Reason for declining (optional)"}
        doc.add(form, "input", "nbm-input", attrs=attrs)

    def _approve(self, act: Act) -> None:
        self._disable()
        self._stage.answer(self._call, "approve", self)

    def _decline(self, act: Act) -> None:
        self._disable()
        self._stage.answer(self._call, "decline", self, reason=str(act.values.get("reason") or ""))


class DataQuestion(_Question):
    """Which data does it need? A form from the resume schema, or a field for JSON."""

    def __init__(self, stage: Stage, parent: str, call: ToolCall | WorkflowStep) -> None:
        super().__init__(stage, parent, call, f"{call.tool_name} waits for input", asked_words(call.suspend_payload))
        doc = stage.doc
        payload: Any = call.suspend_payload
        if isinstance(payload, dict):
            payload = {key: value for key, value in cast("Any", payload).items() if key not in _WORDS}
        if payload and not isinstance(payload, str):
            doc.add(self._node, html=tree(payload, label="What it says"))
        if "resume" not in stage.can:
            self._only("This run can't be answered from here.")
            return
        self._fields = simple_fields(call.resume_schema)
        form = doc.add(self._node, "form")
        for asked in ask_fields(call.resume_schema):
            self._add_field(form, asked)
        row = doc.add(form, "div", "nbm-actions")
        stage.on(self._button(row, "Resume", "resume", "nbm-btn nbm-btn--primary"), self._resume)

    def _add_field(self, form: str, asked: dict[str, Any]) -> None:
        doc, kind = self._stage.doc, asked["kind"]
        row = doc.add(form, "div", "nbm-field")
        id = f"field-{row}"
        doc.add(row, "label", text=asked["label"], attrs={"for": id})
        attrs: dict[str, str] = {"id": id, "name": asked["name"], "aria-describedby": f"hint-{row}"}
        if kind == "choice":
            select = doc.add(row, "select", "nbm-input", attrs=attrs)
            for words, value in asked["choices"]:
                doc.add(select, "option", text=words, attrs={"value": value})
        elif kind == "check":
            doc.add(row, "input", "nbm-input", attrs={**attrs, "type": "checkbox"})
        elif kind == "json":
            doc.add(row, "textarea", "nbm-input", attrs={**attrs, "rows": "4", "spellcheck": "false"})
        else:
            mode = "decimal" if kind == "number" else "text"
            start = {"value": asked["value"]} if asked["value"] else {}
            doc.add(row, "input", "nbm-input", attrs={**attrs, "type": "text", "inputmode": mode, **start})
        doc.add(row, "span", "nbm-field__hint", text=asked["hint"], attrs={"id": f"hint-{row}"})

    def _resume(self, act: Act) -> None:
        try:
            data = form_data(self._fields, act.values)
        except ValueError as error:
            self.failed(str(error))
            return
        self._disable()
        self._stage.answer(self._call, "resume", self, data=data)


_WORDS = ("question", "message", "reason")


def asked_words(payload: Any) -> str:
    """The question in what a tool was suspended with; "" if there are no words."""
    if isinstance(payload, str):
        return payload[:1000]
    if isinstance(payload, dict):
        fields = cast("dict[str, Any]", payload)
        words = next((fields[k] for k in _WORDS if isinstance(fields.get(k), str)), "")
        return words[:1000]
    return ""


def simple_fields(schema: dict[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    """The schema's properties if a form can ask for them; None if only JSON will do."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, dict) or not properties or len(cast("dict[str, Any]", properties)) > 20:
        return None
    fields = cast("dict[str, Any]", properties)
    if all(isinstance(field, dict) and isinstance(cast("Any", field).get("type"), str) for field in fields.values()):
        return fields
    return None


def ask_fields(schema: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The fields of the form that asks for the data: name, label, kind, hint, value, choices as words and JSON.

    kind: choice, check, json, number or text. Without a schema that a form can ask for, one field takes JSON.
    """
    fields = simple_fields(schema)
    if fields is None:
        return [_field("json", "Answer as JSON", {"type": "object"}, required=True)]
    names = (schema or {}).get("required")
    needed = cast("list[Any]", names) if isinstance(names, list) else []
    return [_field(name, str(s.get("title") or name), s, required=name in needed) for name, s in fields.items()]


_KINDS = {"boolean": "check", "object": "json", "array": "json", "number": "number", "integer": "number"}


def _field(name: str, label: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    type, choices, default = schema.get("type"), schema.get("enum"), schema.get("default")
    kind = {"boolean": "check", "object": "json", "array": "json", "number": "number", "integer": "number"}.get(
        str(type)
    )
    listed = cast("list[Any]", choices)[:200] if isinstance(choices, list) else []
    hints = [one_line(str(schema.get("description") or "")), _bounds(schema), "required" if required else ""]
    return {
        "name": name,
        "label": one_line(label, 80),
        "kind": "choice" if isinstance(choices, list) else kind,
        "choices": [[one_line(str(choice)), json.dumps(choice)] for choice in listed],
        "hint": ", ".join(filter(None, hints)),
        "value": str(default) if isinstance(default, str | int | float) else "",
    }


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""


def form_data(fields: dict[str, dict[str, Any]] | None, values: Any) -> Any:
    """What the user wrote as the data that the schema asks for. Raises ValueError that names the field."""
    if fields is None:
        return _parse("the answer", str(values.get("json") or ""), {"type": "object"})
    data: dict[str, Any] = {}
    for name, schema in fields.items():
        written = values.get(name)
        if isinstance(written, bool):
            data[name] = written
        elif isinstance(written, str) and (written or schema.get("type") == "string"):
            data[name] = _parse(name, written, schema)
    return data


def _parse(name: str, written: str, schema: dict[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "string" and "enum" not in schema:
        return written
    try:
        if kind == "integer" and "enum" not in schema:
            return int(written)
        if kind == "number" and "enum" not in schema:
            return float(written)
        return json.loads(written)
    except ValueError:
        what = {"integer": "a whole number", "number": "a number"}.get(str(kind), "JSON")
        raise ValueError(f"{one_line(name, 60)}: {what} is needed") from None
