"""`RunView`: one run, live, and what goes on from it when somebody answers.

out.log ──news──▶ Pacer ──draw──▶ HeaderBar, PartsView ──frame──▶ every display
   ▲                                                                   │
out.cancel / approve / decline / resume  ◀──────── acts ───────────────┘
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio

from nbmastra.engine import Job, get_engine
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput, verdict
from nbmastra.recording import ReplayedOutput
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import one_line
from nbmastra.widgets.header import FootBar, HeaderBar, agent_name, status_of
from nbmastra.widgets.icons import look
from nbmastra.widgets.live import Act, LiveWidget
from nbmastra.widgets.pacing import Pacer
from nbmastra.widgets.parts import PartsView
from nbmastra.widgets.placement import Placement, show_bundle, widget_view
from nbmastra.widgets.snapshot import snapshot
from nbmastra.widgets.stage import Answering

__all__ = ["RunView"]

_log = logging.getLogger(__name__)
_UNSAVED = "The page was loaded again during this run: show the output in a cell to keep its result in the notebook."
_MAX_LEAVING = 20
_leaving: deque[RunView] = deque()
"""Views that plain output has replaced, oldest first; where no page says that they are gone, they are bounded."""


class RunView(LiveWidget):
    """The live view of an output, running or finished. It follows the chain: after an answer it shows what goes on.

    Shown in a cell, it is replaced by plain output (`snapshot`) when the run is over, and freed; a run that waits for
    an answer keeps its view.
    """

    def __init__(self, out: MastraModelOutput) -> None:
        self.out = out
        self.first = out
        self.ended = threading.Event()
        """Set when a run of the chain is over, drawn, and replaced where it is shown."""
        self._placement = Placement()
        self._acts: dict[str, Callable[[Act], None]] = {}
        self._job: Job[None] | None = None
        self._replaced = False
        self._listens: list[Callable[[], None]] = []
        """What ends its listening to the run, for when it is closed before the run is over."""
        self._begun_whole = out.done  # asked once: the run may end while the document is begun
        self._foot: str | None = None
        super().__init__()
        if isinstance(out, ReplayedOutput):
            self._watch_replay(out)
        if self._begun_whole:
            self.ended.set()
            self._watch_next()
        else:
            self._watch()

    # --- drawing ----------------------------------------------------------------------------------------------------

    def begin(self, doc: Document) -> None:
        """The document at the start: whole for a finished run, else the frame that `_pump` fills."""
        out = self.out
        if isinstance(out, ReplayedOutput):
            doc.pace(self._rate, lambda: out.playback.position_s)
        self._root = doc.add(cls="nbm nbm-run", attrs={"role": "group"})
        self._header = HeaderBar(doc, self._root, out)
        self.on(self._header.stop, lambda _: self.out.cancel())
        self._body = doc.add(self._root, "div", "nbm-run__body")
        self._begin_body()
        self._news = doc.add(self._root, "div", "nbm-sr", html="", attrs={"role": "status", "aria-live": "polite"})
        if self._begun_whole:
            self._draw_end()

    def _begin_body(self) -> None:
        doc, out = self.doc, self.out
        if out.prompt:
            prompt = doc.add(self._body, "p", "nbm-prompt")
            doc.add(prompt, "b", text="You")
            doc.add(prompt, "span", "nbm-prompt__text", text=out.prompt[:4000])
        self._parts = PartsView(self, self._body, out.state, out.agent, schema=out.schema)

    def _watch(self) -> None:
        """Draw what comes, from now on."""
        self._job = get_engine().start(self._pump)

    async def _pump(self) -> None:
        out, seen = self.out, 0
        over = anyio.Event()
        forget = out.on_done(over.set)

        async def news() -> bool:
            nonlocal seen
            if seen:
                await out.log.wait(seen)
            closed, seen = out.log.closed, max(1, len(out.log.items))
            return not closed

        try:
            await Pacer(self.draw, news, over.wait).pump()
        finally:
            forget()
        self._watch_next()

    def draw(self) -> None:
        """Show what is new, as one message; on the engine's loop."""
        with self.frame():
            try:
                if self.out.done:
                    self._draw_end()
                else:
                    self._header.update(self.out)
                    self._parts.update()
            except Exception:  # a view that can't draw something must not take the run with it
                _log.exception("a part of the run could not be drawn")
                self._say("A part of this run could not be shown; the run itself goes on.")
        if self.out.done:
            self._end()

    def _end(self) -> None:
        """Leave plain output behind: the saved notebook needs no kernel then."""
        waits = self.out.status == "suspended" and bool(self.can) and bool(self.out.waiting)
        try:
            view = widget_view(self) if waits else None
            shown = self._placement.replace(snapshot(self.out, self.first), view)
            if shown and not waits:
                self._give_way()
        except Exception:
            _log.exception("the view could not be replaced by its snapshot")
        finally:
            self.ended.set()

    def _give_way(self) -> None:
        """Close when the page says that the view is gone: one that was closed or loaded again may still need it."""
        self._replaced = True
        if self.reloaded:
            with self.frame() as doc:
                doc.add(self._body, "p", "nbm-muted nbm-line", text=_UNSAVED)
        _leaving.append(self)
        if len(_leaving) > _MAX_LEAVING:
            _leaving.popleft().close()

    def on_gone(self) -> None:
        """The page removed the view; if the snapshot stands in its place, it is no longer needed."""
        if self._replaced:
            get_engine().start(self._leave)

    async def _leave(self) -> None:
        if self in _leaving:
            _leaving.remove(self)
        self.close()

    def _ipython_display_(self) -> None:
        if self.out.done and not self.out.waiting:
            show_bundle(snapshot(self.out, self.first))
        elif not self._placement.add(widget_view(self), repr(self.out)) and not self.out.waiting:
            self._give_way()  # the run ended in between: its plain output is shown already

    def _draw_end(self) -> None:
        out = self.out
        self._header.update(out)
        self._parts.settle()
        judged = verdict(out)
        if judged is not None:
            self._parts.judge(judged)
        if out.status != "suspended" and self._foot is None:
            self._foot = self.doc.add(self._root, before=self._news)
            FootBar(self.doc, self._foot, out)
        what = look(status_of(out)).word.lower()
        reason = f": {one_line(out.status_reason)}" if out.status not in ("success", "running") else ""
        self._say(f"Run of {agent_name(out)} {what}{reason}")

    def _say(self, words: str) -> None:
        self.doc.set_text(self._news, words)

    # --- the stage of the parts -------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the run's start."""
        return self.out.elapsed_s

    @property
    def over(self) -> bool:
        """True if the run is over."""
        return self.out.done

    @property
    def can(self) -> frozenset[str]:
        """What may be answered."""
        return self.out.control.can

    def on(self, node: str, act: Callable[[Act], None]) -> None:
        """What a control does; called on the engine's loop, inside of a frame."""
        self._acts[node] = act

    def on_act(self, act: Act) -> None:
        """Hand a click over to the engine's loop."""
        if act.name == "stop":
            self.out.cancel()  # by the shortest way: it only sets a flag and wakes the loop
        else:
            get_engine().start(self._perform, act)

    async def _perform(self, act: Act) -> None:
        perform = self._acts.get(act.node)
        if perform is not None:
            with self.frame():
                perform(act)

    def answer(
        self, call: ToolCall | WorkflowStep, answer: Answer, question: Answering, *, reason: str = "", data: Any = None
    ) -> None:
        """Send an answer to the run's source; the question is told what became of it."""
        get_engine().start(self._answer, call.tool_call_id, answer, question, reason, data)

    async def _answer(self, call_id: str, answer: Answer, question: Answering, reason: str, data: Any) -> None:
        out = self.out
        try:
            if answer == "approve":
                await out.approve(call_id)
            elif answer == "decline":
                await out.decline(call_id, reason=reason or None)
            else:
                await out.resume(data, tool_call_id=call_id)
        except Exception as error:  # whatever the source says: nothing ends silently, and one may try again
            with self.frame():
                question.failed(str(error) or type(error).__name__)
        else:
            with self.frame():
                question.sent("Answered; the run goes on.")

    # --- the chain --------------------------------------------------------------------------------------------------

    def _watch_next(self) -> None:
        if self.out.next is not None:
            self._follow(self.out.next)
            return
        if self.out.status != "suspended":
            return
        here = weakref.ref(self)  # a suspended run may live long, the view need not

        def follow(out: MastraModelOutput) -> None:
            view = here()
            if view is not None and view.comm is not None:
                view._follow(out)

        self._listens.append(self.out.on_next(follow))

    def _follow(self, out: MastraModelOutput) -> None:
        with self.frame() as doc:
            cards = self._parts.waiting_cards()
            self.out = out
            self._parts = PartsView(self, self._body, out.state, out.agent, cards, out.schema)
            doc.set_attr(self._header.stop, "disabled", None)
            self.ended.clear()
            self._placement.go_on()
        self._watch()

    # --- a replay ---------------------------------------------------------------------------------------------------

    @property
    def _rate(self) -> float:
        """How fast time passes in the run."""
        player = self.out.playback if isinstance(self.out, ReplayedOutput) else None
        if player is None:
            return 1.0
        return 0.0 if player.paused or player.at_end else player.speed or 1.0

    def _watch_replay(self, out: ReplayedOutput) -> None:
        here = weakref.ref(self)

        def moved() -> None:
            view = here()
            if view is not None and view.comm is not None and not view._replaced:
                view.move(out.playback.out)

        self._listens.append(out.playback.on_change(moved))

    def move(self, out: ReplayedOutput) -> None:
        """The replay is in another place, or has another pace; on the engine's loop."""
        with self.frame() as doc:
            back = out is not self.out
            if back and self._job is not None:
                self._job.cancel()
            if back:
                self.out = self.first = out
                if self._foot is not None:
                    doc.remove(self._foot)
                    self._foot = None
                self._say("")
                with doc.rebuilt(self._body):
                    self._begin_body()
                    self._parts.update()
            doc.pace(self._rate)
            if not out.done:  # its end is drawn when its turn comes
                self.draw()
        if back:
            self.ended.clear()
            self._watch()

    def close(self) -> None:
        """Remove the view from every display and stop drawing; the run goes on."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        while self._listens:
            self._listens.pop()()
        self._acts.clear()
        super().close()
