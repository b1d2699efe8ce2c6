"""`ApprovalsView`: the runs of a server that wait for somebody, as a table to act on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from nbmastra.engine import get_engine
from nbmastra.errors import NbMastraError
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import one_line, signature
from nbmastra.widgets.header import status_of
from nbmastra.widgets.icons import icon, look
from nbmastra.widgets.live import Act
from nbmastra.widgets.placed import ActingWidget

__all__ = ["ApprovalsView", "WaitingCall", "WaitingRun"]


class WaitingCall(Protocol):
    """A call that waits for an approval, or for data."""

    @property
    def tool_call_id(self) -> str: ...
    @property
    def tool_name(self) -> str: ...
    @property
    def args(self) -> Any: ...
    @property
    def suspend_payload(self) -> Any: ...


class WaitingRun(Protocol):
    """A run that waits, as its source lists it; answering gives the output that goes on."""

    @property
    def agent(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def calls(self) -> Sequence[WaitingCall]: ...
    @property
    def suspended_at(self) -> datetime | None: ...

    def approve(self, tool_call_id: str | None = None) -> Awaitable[MastraModelOutput]: ...
    def decline(
        self, tool_call_id: str | None = None, *, reason: str | None = None
    ) -> Awaitable[MastraModelOutput]: ...
    def resume(self, data: Any, *, tool_call_id: str | None = None) -> Awaitable[MastraModelOutput]: ...


class ApprovalsView(ActingWidget):
    """One row per waiting call, with the buttons that answer it; `outs` are the outputs that went on."""

    def __init__(self, runs: Sequence[WaitingRun]) -> None:
        self.runs = list(runs)
        self.outs: list[MastraModelOutput] = []
        self._rows: dict[tuple[str, str], _Row] = {}
        super().__init__()

    def begin(self, doc: Document) -> None:
        """The whole table."""
        root = doc.add(cls="nbm nbm-run", attrs={"role": "group", "aria-label": "Runs that wait for an answer"})
        bar = doc.add(root, "div", "nbm-bar")
        self._title = doc.add(bar, "span", "nbm-bar__title", text="")
        self._body = doc.add(root, "div", "nbm-run__body")
        self._fill(doc)

    def update(self, runs: Sequence[WaitingRun]) -> None:
        """What waits now: new calls get a row, those that others have answered say so; what one fills in stays."""
        self.runs = list(runs)
        with self.frame() as doc:
            self._fill(doc)

    def _fill(self, doc: Document) -> None:
        waiting = {(run.run_id, call.tool_call_id): (run, call) for run in self.runs for call in run.calls}
        words = f"{len(waiting) or 'No'} call{'' if len(waiting) == 1 else 's'} waiting"
        doc.set_text(self._title, words)
        for key, (run, call) in waiting.items():
            row = self._rows.get(key)
            if row is None or row.gone:  # the same call may ask again
                self._rows[key] = _Row(self, doc, self._body, run, call)
        for key, row in self._rows.items():
            if key not in waiting and not row.taken:
                row.leave(doc)


class _Row:
    def __init__(self, view: ApprovalsView, doc: Document, body: str, run: WaitingRun, call: WaitingCall) -> None:
        self._view, self._run, self._call = view, run, call
        notice = doc.add(body, "div", "nbm-notice nbm-notice--warn")
        doc.add(notice, "span", "nbm-notice__icon", html=icon("suspended"))
        name, rest = signature(call.tool_name, call.args)
        title = doc.add(notice, "p", "nbm-notice__title")
        doc.add(title, "span", "nbm-mono", text=one_line(f"{name}{rest}", 200))
        since = f", since {run.suspended_at:%Y-%m-%d %H:%M} UTC" if run.suspended_at else ""
        asked = "" if call.suspend_payload is None else f" It asks: {one_line(_json(call.suspend_payload), 300)}"
        facts = f"{one_line(run.agent, 60)}, run {one_line(run.run_id, 40)}{since}.{asked}"
        doc.add(notice, "p", "nbm-notice__text", text=facts)
        form = doc.add(notice, "form", "nbm-actions")
        self._controls: list[str] = []
        self.taken = False
        """It was answered here, or is being answered."""
        self.gone = False
        """It is answered, or somebody else has stopped the run: if the call waits again, that is another question."""
        if call.suspend_payload is None:
            self._button(doc, form, "Approve", "nbm-btn nbm-btn--primary", lambda _: self._send("approve"))
            self._button(doc, form, "Decline", "nbm-btn", lambda act: self._send("decline", act))
            self._field(doc, form, "reason", "Reason for declining (optional)")
        else:
            self._field(doc, form, "json", "Answer as JSON")
            self._button(doc, form, "Resume", "nbm-btn nbm-btn--primary", lambda act: self._send("resume", act))
        self._told = doc.add(notice, "p", "nbm-notice__text", attrs={"role": "status", "aria-live": "polite"})

    def leave(self, doc: Document) -> None:
        """It doesn't wait any more, and nobody here has answered it."""
        self.taken = self.gone = True
        for control in self._controls:
            doc.set_attr(control, "disabled", "")
        doc.set_text(self._told, "It doesn't wait any more: it was answered elsewhere, or its run was stopped.")

    def _button(self, doc: Document, form: str, words: str, cls: str, act: Callable[[Act], None]) -> None:
        label = f"{words} {one_line(self._call.tool_name, 80)}"
        attrs = {"type": "button", "data-nbm-act": words.lower(), "aria-label": label}
        button = doc.add(form, "button", cls, text=words, attrs=attrs)
        self._controls.append(button)
        self._view.on(button, act)

    def _field(self, doc: Document, form: str, name: str, words: str) -> None:
        label = f"{words}, {one_line(self._call.tool_name, 80)}"
        doc.add(form, "input", "nbm-input", attrs={"name": name, "placeholder": words, "aria-label": label})

    def _send(self, answer: str, act: Act | None = None) -> None:
        self.taken = True
        with self._view.frame() as doc:
            for control in self._controls:
                doc.set_attr(control, "disabled", "")
        get_engine().start(self._answer, answer, dict(act.values) if act is not None else {})

    async def _answer(self, answer: str, values: dict[str, Any]) -> None:
        run, call_id = self._run, self._call.tool_call_id or None
        try:
            if answer == "approve":
                out = await run.approve(call_id)
            elif answer == "decline":
                out = await run.decline(call_id, reason=str(values.get("reason") or "") or None)
            else:
                out = await run.resume(json.loads(str(values.get("json") or "null")), tool_call_id=call_id)
        except NbMastraError as error:
            self._tell(one_line(str(error), 300), again=True)
            return
        except ValueError as error:
            self._tell(f"That is no JSON: {one_line(str(error), 120)}", again=True)
            return
        self._view.outs.append(out)
        self._tell("The run goes on …")
        await out.consume_stream()
        self.gone = True
        text = one_line(out.total.text, 200)
        self._tell(f"{look(status_of(out)).word}{': ' if text else ''}{text}")

    def _tell(self, words: str, *, again: bool = False) -> None:
        with self._view.frame() as doc:
            doc.set_text(self._told, words)
            if again:
                self.taken = False
                for control in self._controls:
                    doc.set_attr(control, "disabled", None)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
