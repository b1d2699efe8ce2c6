"""`Chat`: a conversation with an agent, to be read and written in a cell; usable with the keyboard only."""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread

from nbmastra.engine import Job, get_engine
from nbmastra.errors import NbMastraError
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.attachments import Attachment, attach, attachable
from nbmastra.widgets.chat_model import ChatModel
from nbmastra.widgets.chat_snapshot import chat_snapshot
from nbmastra.widgets.chat_turn import EarlierView, TurnView, chips
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import number, one_line
from nbmastra.widgets.header import cost, status_of
from nbmastra.widgets.icons import CLIP, SEND, STOP, look
from nbmastra.widgets.live import Act
from nbmastra.widgets.pacing import draw_run
from nbmastra.widgets.placed import ActingWidget, Standing
from nbmastra.widgets.shared import while_open

__all__ = ["Chat", "ChatView"]

_log = logging.getLogger(__name__)


class Chat(ChatModel):
    """A conversation with an agent: write, send, stop, edit and run again; `attach` what the kernel has.

    thread: of the agent's memory, local or a server's, whose earlier messages are shown; without it a new one, and for
    an agent without memory this kernel keeps what is said. suggestions: messages to begin with, a click away.
    options: those of `stream`. Raises SettingsError, here and in its methods.
    """

    def __init__(
        self,
        agent: Any,
        thread: str | None = None,
        *,
        resource: str = "user",
        suggestions: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self._views: weakref.WeakSet[ChatView] = weakref.WeakSet()
        super().__init__(agent, thread, resource=resource, suggestions=suggestions, **options)

    def view(self) -> ChatView:
        """A view of it, as a widget of your own, for boxes for example; close it when it isn't needed any more."""
        view = ChatView(self)
        self._views.add(view)
        return view

    def close(self) -> None:
        """Close its views, which leave plain output behind; the conversation may go on."""
        for view in list(self._views):
            view.close()

    def _ipython_display_(self) -> None:
        view = self.view()
        view.standing.place(view, repr(self))


class ChatView(ActingWidget):
    """The messages of a chat, and below them where one writes. It stays; its plain output stands below, folded."""

    styles = ("nbmastra.css", "dashboard.css")

    def __init__(self, chat: ChatModel) -> None:
        self.chat = chat
        self.standing = Standing("Conversation", lambda: chat_snapshot(chat), self.close)
        self._turns: list[TurnView] = []
        self._earlier: EarlierView | None = None
        self._suggestions: str | None = None
        self._panel: str | None = None
        self._trouble = ""
        self._drawn: MastraModelOutput | None = None
        self._job: Job[None] | None = None
        super().__init__()
        self._unwatch = chat.watch(while_open(self._wake))
        self._wake()

    # --- drawing ----------------------------------------------------------------------------------------------------

    def begin(self, doc: Document) -> None:
        """Bar, an empty log, and the form."""
        name = self.chat.name
        root = doc.add(cls="nbm nbm-chat", attrs={"role": "group", "aria-label": f"Chat with {name}"})
        bar = doc.add(root, "div", "nbm-bar")
        doc.add(bar, "span", "nbm-bar__title", text=name)
        self._about = doc.add(bar, "span", "nbm-bar__about nbm-ellipsis", html="")
        self._metrics = doc.add(bar, "dl", "nbm-metrics", html="")
        self._new_button = self._button(bar, "new", "New thread", "nbm-btn", self._begin_anew)
        scroll = doc.add(root, "div", "nbm-chat__scroll")
        attrs = {"role": "log", "aria-label": "Messages", "aria-live": "off", "tabindex": "0"}
        self._logged = doc.add(scroll, "div", "nbm-chat__log", attrs=attrs)
        self._foot = doc.add(root, "div", "nbm-compose")
        form = self._form = doc.add(self._foot, "form", "nbm-compose__form", attrs={"aria-label": "Write a message"})
        self._chips = doc.add(
            form, "ul", "nbm-chips", attrs={"aria-label": "Attachments of this message", "hidden": ""}
        )
        words = f"Message to {name}"
        attrs = {"name": "text", "rows": "2", "aria-label": words, "placeholder": f"Write to {name}"}
        attrs |= {"data-nbm-enter": "send", "data-nbm-home": "", "spellcheck": "true"}
        doc.add(form, "textarea", "nbm-input", attrs=attrs)
        row = doc.add(form, "div", "nbm-compose__row")
        words, cls = "Attach a DataFrame, figure or file from the kernel", "nbm-btn nbm-btn--plain"
        self._button(row, "attach", f"{CLIP}Attach", cls, self._open_panel, words)
        self._hint = doc.add(row, "span", "nbm-muted", html="")
        ends = doc.add(row, "span", "nbm-compose__send")
        self._stop_button = self._button(ends, "stop", f"{STOP}Stop", "nbm-btn", self._end_answer, "Stop the answer")
        self._send_button = self._button(
            ends, "send", f"{SEND}Send", "nbm-btn nbm-btn--primary", self._say, "Send the message"
        )
        doc.set_attr(self._send_button, "data-nbm-clears", "")
        self._said = doc.add(root, "div", "nbm-sr", html="", attrs={"role": "status", "aria-live": "polite"})

    def _button(self, parent: str, act: str, html: str, cls: str, do: Callable[[Act], None], label: str = "") -> str:
        attrs = {"type": "button", "data-nbm-act": act, "data-nbm-repeat": ""}
        attrs |= {"aria-label": label} if label else {}
        button = self.doc.add(parent, "button", cls, html=html, attrs=attrs)
        self.on(button, do)
        return button

    def _wake(self, *_: object) -> None:
        get_engine().start(self.sync)

    async def sync(self) -> None:
        """Show the conversation as it is; on the engine's loop."""
        if self.comm is None:
            return
        with self.frame() as doc:
            try:
                self._sync_turns(doc)
                self._update(doc)
            except Exception:  # a view that can't draw something must not take the run with it
                _log.exception("a part of the chat could not be drawn")
        self._follow()

    def _sync_turns(self, doc: Document) -> None:
        chat = self.chat
        if self._earlier is None or self._earlier.records is not chat.earlier:
            if self._earlier is not None:
                self._earlier.remove()
            self._earlier = EarlierView(self, self._logged, chat.earlier, chat.name)
        kept = set(chat.turns)
        for view in [view for view in self._turns if view.turn not in kept]:
            view.remove()
            self._turns.remove(view)
        if chat.turns and self._suggestions is not None:
            doc.remove(self._suggestions)
            self._suggestions = None
        for turn in chat.turns[len(self._turns) :]:
            self._turns.append(TurnView(self, self._logged, turn, chat.name, self._run_again))
        if not chat.turns and self._suggestions is None:
            self._suggest(doc)

    def _suggest(self, doc: Document) -> None:
        self._suggestions = doc.add(self._logged, "div", "nbm-chat__start")
        words = self.chat.problem or str(getattr(self.chat.agent, "description", "") or "")
        if words:
            doc.add(self._suggestions, "p", "nbm-muted nbm-line", text=one_line(words, 300))
        if self.chat.suggestions:
            attrs = {"role": "group", "aria-label": "Suggestions"}
            group = doc.add(self._suggestions, "div", "nbm-chips", attrs=attrs)
            for suggestion in self.chat.suggestions:
                button = self._button(group, "suggest", "", "nbm-btn", lambda _, said=suggestion: self._send_now(said))
                doc.set_text(button, suggestion)

    def _update(self, doc: Document) -> None:
        chat = self.chat
        running = chat.running
        thread = f"thread {one_line(chat.thread, 60)}" if chat.thread else "kept in this kernel"
        doc.set_text(self._about, thread if chat.turns or chat.earlier else f"new {thread}")
        doc.set_html(self._metrics, _metrics(chat))
        doc.set_attr(self._new_button, "disabled", "" if running else None)
        doc.set_attr(self._stop_button, "hidden", None if running else "")
        doc.set_attr(self._send_button, "disabled", "" if running else None)
        when = "Enter sends when the answer is complete" if running else "Enter sends"
        doc.set_text(self._hint, f"{when}; Shift+Enter: new line")
        chips(self, self._chips, chat.attached, self._detach)
        for view in self._turns:
            view.update(last=view is self._turns[-1], running=running)

    def _draw(self, out: MastraModelOutput) -> None:
        with self.frame() as doc:
            try:
                if self._turns:
                    self._turns[-1].draw()
                if out.done:
                    self._update(doc)
                    doc.set_text(self._said, f"Answer of {self.chat.name}: {look(status_of(out)).word.lower()}")
            except Exception:  # a view that can't draw something must not take the run with it
                _log.exception("a part of an answer could not be drawn")

    def _follow(self) -> None:
        """Draw what comes of the last answer, if nobody does."""
        out = self.chat.turns[-1].last if self.chat.turns else None
        with self._lock:
            if out is None or out is self._drawn or self.comm is None:
                return
            self._drawn = out
            self._job = get_engine().start(self._pump, out)

    async def _pump(self, out: MastraModelOutput) -> None:
        await draw_run(out, lambda: self._draw(out))
        self.standing.renew()
        if out.status == "suspended":
            out.on_next(while_open(self._wake))

    # --- acts, on the engine's loop ----------------------------------------------------------------------------------

    def _say(self, act: Act) -> None:
        self._send_now(str(act.values.get("text") or ""))

    def _send_now(self, text: str) -> None:
        self._try(lambda: self.chat.send(text))

    def _run_again(self, text: str) -> None:
        self._try(lambda: self.chat.rerun(text))

    def _end_answer(self, _act: Act) -> None:
        self.chat.stop()

    def _begin_anew(self, _act: Act) -> None:
        self._try(self.chat.new_thread)

    def _detach(self, name: str) -> None:
        self.chat.detach(name)

    def _try(self, do: Callable[[], object]) -> None:
        """What can't be done is said, and changes nothing."""
        try:
            do()
        except NbMastraError as error:
            self.doc.set_text(self._said, one_line(str(error), 300))

    def _open_panel(self, _act: Act) -> None:
        if self._panel is not None:
            self._close_panel()
            return
        doc = self.doc
        names = attachable(*_namespace())
        self._panel = doc.add(self._foot, "form", "nbm-attach", attrs={"aria-label": "Attach"}, before=self._form)
        attrs = {"name": "variable", "aria-label": "Variable", "data-nbm-escape": "cancel", "data-nbm-focus": ""}
        select = doc.add(self._panel, "select", "nbm-input", attrs=attrs)
        doc.add(select, "option", text="A variable …" if names else "no variable to attach", attrs={"value": ""})
        for name, what in list(names.items())[:200]:
            doc.add(select, "option", text=f"{name} ({what})", attrs={"value": name})
        attrs = {"name": "path", "aria-label": "or a file's path", "placeholder": "or a file's path"}
        attrs |= {"data-nbm-enter": "add", "data-nbm-escape": "cancel"}
        doc.add(self._panel, "input", "nbm-input", attrs=attrs)
        self._button(self._panel, "add", "Attach", "nbm-btn", self._add)
        self._button(self._panel, "cancel", "Cancel", "nbm-btn nbm-btn--plain", lambda _: self._close_panel())
        self._trouble = doc.add(self._panel, "p", "nbm-notice__text", html="", attrs={"role": "alert"})

    def _close_panel(self) -> None:
        if self._panel is not None:
            self.doc.remove(self._panel)
            self._panel = None

    def _add(self, act: Act) -> None:
        name, path = str(act.values.get("variable") or ""), str(act.values.get("path") or "").strip()
        names, _ = _namespace()
        if name in names:
            get_engine().start(self._attach_now, names[name], name)
        elif path:
            get_engine().start(self._attach_now, Path(path), "")

    async def _attach_now(self, value: Any, name: str) -> None:
        try:
            made: Attachment = await anyio.to_thread.run_sync(attach, value, name)
        except Exception as error:  # whatever the value's own methods raise
            with self.frame() as doc:
                if self._panel is not None:
                    doc.set_text(self._trouble, one_line(str(error) or type(error).__name__, 300))
            return
        with self.frame():
            self._close_panel()
        self.chat.attach(made)

    # --- the end ----------------------------------------------------------------------------------------------------

    def on_gone(self) -> None:
        """The page removed it."""
        self.standing.gone()

    def on_back(self) -> None:
        """It is shown again."""
        self.standing.back()

    def close(self) -> None:
        """Remove the view and leave plain output in its place; the conversation goes on."""
        self._unwatch()
        with self._lock:
            was_open = self.comm is not None
            super().close()
        if self._job is not None:
            self._job.cancel()
        if was_open:
            self.standing.end()


def _metrics(chat: ChatModel) -> str:
    pairs: list[tuple[str, str]] = []
    if chat.turns:
        pairs.append(("turn" if len(chat.turns) == 1 else "turns", number(len(chat.turns))))
    tokens = [out.state.usage.total_tokens for out in chat.outs]
    known = [count for count in tokens if count is not None]
    if known:
        pairs.append(("tokens", number(sum(known))))
    html = "".join(f"<div><dt>{words}</dt><dd>{value}</dd></div>" for words, value in pairs)
    costs = [cost(out.state) for out in chat.outs if out.done]
    spent = [amount for amount in costs if amount is not None]
    return html + (f'<div><dt class="nbm-sr">cost</dt><dd>${sum(spent):.4f}</dd></div>' if spent else "")


def _namespace() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The notebook's variables, and those that the shell put there."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return {}, {}
    return dict(cast("Mapping[str, Any]", shell.user_ns)), cast("Mapping[str, Any]", shell.user_ns_hidden)
