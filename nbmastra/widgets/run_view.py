"""`RunView`: one run, live, and what goes on from it when somebody answers.

out.log ──news──▶ Pacer ──draw──▶ HeaderBar, PartsView ──frame──▶ every display
   ▲                                                                   │
out.cancel / approve / decline / resume  ◀──────── acts ───────────────┘
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from nbmastra.engine import Job, get_engine
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput, verdict
from nbmastra.recording import ReplayedOutput
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import one_line
from nbmastra.widgets.header import FootBar, HeaderBar, agent_name, status_of
from nbmastra.widgets.icons import look
from nbmastra.widgets.live import Act
from nbmastra.widgets.pacing import draw_run
from nbmastra.widgets.parts import PartsView
from nbmastra.widgets.placed import PlacedWidget
from nbmastra.widgets.placement import show_bundle, widget_view
from nbmastra.widgets.shared import while_open
from nbmastra.widgets.snapshot import snapshot
from nbmastra.widgets.stage import Answering, send_answer

__all__ = ["RunView"]

_log = logging.getLogger(__name__)
_UNSAVED = "The page was loaded again during this run: show the output in a cell to keep its result in the notebook."


class RunView(PlacedWidget):
    """The live view of an output, running or finished. It follows the chain: after an answer it shows what goes on.

    Shown in a cell, it is replaced by plain output (`snapshot`) when the run is over, and freed; a run that waits for
    an answer keeps its view.
    """

    def __init__(self, out: MastraModelOutput) -> None:
        self.out = out
        self.first = out
        self.ended = threading.Event()
        """Set when a run of the chain is over, drawn, and replaced where it is shown."""
        self._job: Job[None] | None = None
        self._listens: list[Callable[[], None]] = []
        """What ends its listening to the run, for when it is closed before the run is over."""
        self._begun_whole = out.done  # asked once: the run may end while the document is begun
        self._foot: str | None = None
        super().__init__()
        if isinstance(out, ReplayedOutput):
            self._playback = out.playback
            self._listens.append(out.playback.on_change(while_open(self.move)))
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
            doc.pace(out.playback.rate, lambda: out.playback.position_s)
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
        await draw_run(self.out, self.draw)
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
            self.replace(snapshot(self.out, self.first), stays=waits)
        except Exception:  # nobody may wait for its end in vain
            _log.exception("the view could not be replaced by its snapshot")
        finally:
            self.ended.set()

    def remark_unsaved(self) -> None:
        """Say so below the run."""
        with self.frame() as doc:
            doc.add(self._body, "p", "nbm-muted nbm-line", text=_UNSAVED)

    def _ipython_display_(self) -> None:
        if self.out.done and not self.out.waiting:
            show_bundle(snapshot(self.out, self.first))
        elif not self._placement.add(widget_view(self), repr(self.out)) and not self.out.waiting:
            self.give_way()  # the run ended in between: its plain output is shown already

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

    def on_act(self, act: Act) -> None:
        """Hand a click over to the engine's loop."""
        if act.name == "stop":
            self.out.cancel()  # by the shortest way: it only sets a flag and wakes the loop
        else:
            super().on_act(act)

    def answer(
        self, call: ToolCall | WorkflowStep, answer: Answer, question: Answering, *, reason: str = "", data: Any = None
    ) -> None:
        """Send an answer to the run's source; the question is told what became of it."""
        send_answer(self, self.out, call, answer, question, reason=reason, data=data)

    # --- the chain --------------------------------------------------------------------------------------------------

    def _watch_next(self) -> None:
        if self.out.next is not None:
            self._follow(self.out.next)
            return
        if self.out.status != "suspended":
            return
        self._listens.append(self.out.on_next(while_open(self._follow)))  # it may wait long, the view need not

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

    def move(self) -> None:
        """The replay is in another place, or has another pace; on the engine's loop."""
        if self.replaced:
            return
        out = self._playback.out
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
            doc.pace(self._playback.rate)
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
        super().close()
