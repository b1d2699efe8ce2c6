"""`compare`: agents side by side on the same prompts, every cell live."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

import anyio

from nbmastra.engine import Job, get_engine
from nbmastra.messages import Messages
from nbmastra.widgets.compare_snapshot import comparison_snapshot
from nbmastra.widgets.comparison import Cell, Comparison
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import number, one_line, seconds
from nbmastra.widgets.icons import CHEVRON, STOP, look, status_html
from nbmastra.widgets.inline_run import InlineRun
from nbmastra.widgets.live import Act
from nbmastra.widgets.pacing import Pacer
from nbmastra.widgets.placed import PlacedWidget
from nbmastra.widgets.placement import show_bundle
from nbmastra.widgets.run_words import facts_words, said_words

__all__ = ["CompareView", "ShownComparison", "compare"]

_log = logging.getLogger(__name__)
_INTERVAL_S = 0.1
_COUNTED = {
    "running": ("running",),
    "failed": ("failed", "truncated", "tripwire"),
    "waiting": ("needs-approval", "needs-input", "suspended"),
    "queued": ("queued",),
}


def compare(agents: Any, prompts: Messages | Iterable[Messages], *, limit: int = 4, **options: Any) -> ShownComparison:
    """Ask every agent every prompt, at most `limit` at a time, and show the answers as a matrix that grows.

    agents: what has a method `stream`, in a list or by name: local, remote and recorded ones. prompts: texts, messages,
    or lists of them. options: those of `stream`, the same for all. It returns at once; `await` gives it back when
    nothing runs any more, `.df()` has a row per cell at any moment, `.stop()` ends all. Raises SettingsError.
    """
    return ShownComparison(agents, prompts, limit=limit, **options)


class ShownComparison(Comparison):
    """A comparison that shows itself."""

    def view(self) -> CompareView:
        """A live view of it, as a widget of your own, for boxes for example; close it when it isn't needed any more."""
        return CompareView(self)

    def _ipython_display_(self) -> None:
        if self.done and not self.waiting:
            show_bundle(comparison_snapshot(self))
        else:
            self.view().place(repr(self))


class CompareView(PlacedWidget):
    """The matrix of a comparison: a row per prompt, a column per agent; a cell opens to its whole run.

    Plain output takes its place when all is over.
    """

    styles = ("nbmastra.css", "dashboard.css")

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.ended = threading.Event()
        """Set when nothing runs any more and all of it is drawn."""
        self._changed: set[Cell] = set(comparison.cells)
        self._job: Job[None] | None = None
        self._wake, self._over = anyio.Event(), anyio.Event()
        super().__init__()
        self._unwatch = comparison.watch(self._note)
        get_engine().start(self._awake)

    # --- drawing ----------------------------------------------------------------------------------------------------

    def begin(self, doc: Document) -> None:
        """Bar, progress, head, and an empty cell for each run."""
        comparison = self.comparison
        names, prompts = list(comparison.agents), len(comparison.prompts)
        size = f"{_count(len(names), 'agent')} × {_count(prompts, 'prompt')}, {comparison.limit} at a time"
        label = f"Comparison of {_count(len(names), 'agent')} on {_count(prompts, 'prompt')}"
        root = doc.add(cls="nbm nbm-compare", attrs={"role": "group", "aria-label": label})
        bar = doc.add(root, "div", "nbm-bar")
        doc.add(bar, "span", "nbm-bar__title", text="Compare")
        doc.add(bar, "span", "nbm-bar__about nbm-ellipsis", text=size)
        self._metrics = doc.add(bar, "dl", "nbm-metrics", html="")
        attrs = {"type": "button", "data-nbm-act": "stop", "aria-label": "Stop all running and queued runs"}
        self._stop = doc.add(bar, "button", "nbm-btn", html=f"{STOP}Stop all", attrs=attrs)
        self.on(self._stop, lambda _: comparison.stop())
        holder = doc.add(root, "div", "nbm-compare__progress")
        whole = str(len(comparison.cells))
        attrs = {"role": "progressbar", "aria-label": "Runs finished", "aria-valuemin": "0", "aria-valuemax": whole}
        self._progress = doc.add(holder, "span", "nbm-progress nbm-progress--stack", attrs=attrs)
        self._bars = {
            kind: doc.add(self._progress, "i", f"is-{kind}") for kind in ("done", "failed", "waiting", "running")
        }
        attrs = {"role": "table", "aria-label": "Answers by prompt and agent", "style": f"--n: {len(names)}"}
        scroll = doc.add(
            root, "div", "nbm-compare__scroll", attrs={"tabindex": "0", "role": "group", "aria-label": label}
        )
        matrix = doc.add(scroll, "div", "nbm-matrix", attrs=attrs)
        self._head(doc, doc.add(matrix, "div", attrs={"role": "rowgroup"}), names)
        body = doc.add(matrix, "div", attrs={"role": "rowgroup"})
        self._cells: list[_CellView] = []
        for prompt in range(prompts):
            row = doc.add(body, "div", attrs={"role": "row"})
            words = one_line(comparison.words(prompt), 300)
            doc.add(row, "div", "nbm-matrix__prompt", text=words, attrs={"role": "rowheader"})
            below = doc.add(body, "div", attrs={"role": "row", "hidden": ""})
            for agent, name in enumerate(names):
                cell = comparison.cells[prompt * len(names) + agent]
                self._cells.append(_CellView(self, row, below, cell, name, words))
        self._said = doc.add(root, "div", "nbm-sr", html="", attrs={"role": "status", "aria-live": "polite"})

    def _head(self, doc: Document, group: str, names: list[str]) -> None:
        row = doc.add(group, "div", "is-head", attrs={"role": "row"})
        doc.add(doc.add(row, "div", "nbm-matrix__head", attrs={"role": "columnheader"}), "span", text="Prompt")
        self._models: list[str] = []
        for name in names:
            head = doc.add(row, "div", "nbm-matrix__head", attrs={"role": "columnheader"})
            doc.add(head, "b", text=name)
            self._models.append(doc.add(head, "span", html=""))

    def draw(self) -> None:
        """Show what is new, as one message; on the engine's loop."""
        with self.frame() as doc:
            changed, self._changed = self._changed, set()
            places = {cell: at for at, cell in enumerate(c for c in self.comparison.cells if c.status == "queued")}
            for cell in sorted({*changed, *places}, key=lambda cell: cell.number):
                try:
                    self._cells[cell.number].update(places.get(cell))
                except Exception:  # a view that can't draw something must not take the runs with it
                    _log.exception("a cell of a comparison could not be drawn")
                model = cell.out.state.model if cell.out is not None else None
                if model:
                    doc.set_text(self._models[cell.agent], one_line(model, 40))
            self._totals(doc)

    def _totals(self, doc: Document) -> None:
        cells = self.comparison.cells
        counts = {kind: sum(cell.status in statuses for cell in cells) for kind, statuses in _COUNTED.items()}
        over = len(cells) - counts["running"] - counts["queued"] - counts["waiting"]
        costs = [cell.cost_usd for cell in cells if cell.out is not None]
        known = [amount for amount in costs if amount is not None]
        pairs = [(f"of {len(cells)} done", str(over))]
        pairs += [(kind, str(count)) for kind, count in counts.items() if count]
        html = "".join(f"<div><dt>{words}</dt><dd>{value}</dd></div>" for words, value in pairs)
        if known:
            html += f'<div><dt class="nbm-sr">cost</dt><dd>${sum(known):.4f}</dd></div>'
        doc.set_html(self._metrics, html)
        for kind, bar in self._bars.items():
            count = over - counts["failed"] if kind == "done" else counts[kind]
            doc.set_attr(bar, "style", f"--p: {100 * count / len(cells):.2f}%")
        failed = f", {counts['failed']} of them failed" if counts["failed"] else ""
        doc.set_attr(self._progress, "aria-valuenow", str(over))
        doc.set_attr(self._progress, "aria-valuetext", f"{over} of {len(cells)} finished{failed}")
        done = self.comparison.done
        doc.set_attr(self._stop, "hidden", "" if done else None)
        if done:
            waiting = f", {_count(counts['waiting'], 'run')} waiting for an answer" if counts["waiting"] else ""
            doc.set_text(self._said, f"Comparison over: {over} of {len(cells)} finished{failed}{waiting}")

    # --- following --------------------------------------------------------------------------------------------------

    async def _awake(self) -> None:
        self._start()

    def _start(self) -> bool:
        """Draw from now on, if nobody does; not a view that is closed. On the engine's loop only, so without a lock:

        who held one while the engine is asked to start something would wait for a loop that waits for the lock.
        """
        if self.comm is None or (self._job is not None and not self._job.done):
            return False
        self.ended.clear()
        self._job = get_engine().start(self._pump)
        return True

    def _halt(self) -> None:
        if self._job is not None:
            self._job.cancel()

    def _note(self, cell: Cell) -> None:
        self._changed.add(cell)
        if self._start():
            return
        self._wake.set()
        if self.comparison.done:
            self._over.set()

    async def _pump(self) -> None:
        self._wake, self._over = anyio.Event(), anyio.Event()
        self._changed.update(self.comparison.cells)
        first = True

        async def news() -> bool:
            nonlocal first
            if not first and not self.comparison.done:
                await self._wake.wait()
            self._wake, first = anyio.Event(), False
            return not self.comparison.done

        await Pacer(self.draw, news, self._over.wait, interval=_INTERVAL_S).pump()
        self._end()

    def _end(self) -> None:
        """Leave plain output behind; what waits for an answer keeps its view."""
        try:
            self.replace(comparison_snapshot(self.comparison), stays=bool(self.comparison.waiting))
        except Exception:  # nobody may wait for its end in vain
            _log.exception("the view could not be replaced by its snapshot")
        finally:
            self.ended.set()

    def close(self) -> None:
        """Remove the view from every display and stop drawing; the runs go on."""
        self._unwatch()
        super().close()
        get_engine().call_soon(self._halt)


class _CellView:
    """One cell: status, time, the beginning of the answer, numbers; opened, the whole run below its row."""

    def __init__(self, view: CompareView, row: str, below: str, cell: Cell, name: str, prompt: str) -> None:
        self._view, self._cell, self._name, self._below = view, cell, name, below
        doc = self._doc = view.doc
        self._node = doc.add(row, "div", "nbm-matrix__cell", attrs={"role": "cell"})
        top = doc.add(self._node, "span", "nbm-matrix__top")
        doc.add(top, "span", "nbm-matrix__agent", text=name)
        self._status = doc.add(top, "span", "nbm-mark", html="")
        doc.add(top, "span", "nbm-spacer")
        self._time = doc.add(top, "span", "nbm-num nbm-muted", html="")
        self._text = doc.add(self._node, "span", "nbm-matrix__text", html="")
        foot = doc.add(self._node, "span", "nbm-matrix__foot")
        self._facts = doc.add(foot, "span", "nbm-muted", html="")
        attrs = {
            "type": "button",
            "data-nbm-act": "open",
            "data-nbm-repeat": "",
            "aria-expanded": "false",
            "hidden": "",
        }
        attrs["aria-label"] = f"The whole run of {name}: {one_line(prompt, 80)}"
        self._open = doc.add(foot, "button", "nbm-btn nbm-btn--plain nbm-matrix__open", html=CHEVRON, attrs=attrs)
        view.on(self._open, self._toggle)
        self._asked = False
        self._whole: str | None = None
        self._run: InlineRun | None = None

    def update(self, place: int | None) -> None:
        """Show what is new; `place`: how many stand before it in the queue."""
        doc, cell = self._doc, self._cell
        status, out = cell.status, cell.out
        doc.set_html(self._status, status_html(status))
        if out is not None and not out.done:
            if not doc.ticks(self._time):
                doc.since(self._time, out.elapsed_s)
        else:
            doc.since(self._time, None)
            doc.set_text(self._time, "" if out is None else seconds(sum(one.elapsed_s for one in cell.chain)))
        text, failed = said_words(cell)
        doc.set_text(self._text, text)
        doc.set_cls(self._text, f"nbm-matrix__text{' is-failed' if failed else ''}")
        doc.set_attr(self._text, "data-nbm-caret", "" if status == "running" and text else None)
        doc.set_text(self._facts, facts_words(cell, place))
        doc.set_attr(self._open, "hidden", "" if out is None else None)
        if self._run is not None:
            self._run.update()
        asks = look(status).tone == "suspended"
        if asks and not self._asked and self._whole is None:
            self._show()  # what waits for the user is open, until the user closes it
        self._asked = asks

    def _toggle(self, act: Act) -> None:
        if self._whole is None:
            self._show()
        else:
            self._hide()

    def _show(self) -> None:
        doc, out = self._doc, self._cell.out
        if out is None:
            return
        first = self._cell.chain[0]
        self._whole = doc.add(self._below, "div", "nbm-matrix__whole", attrs={"role": "cell"})
        doc.add(self._whole, "p", "nbm-h", text=f"{self._name}, the whole run")
        body = doc.add(self._whole, "div", "nbm-run__body")
        self._run = InlineRun(self._view, body, first)
        self._run.update()
        self._mark(open=True)

    def _hide(self) -> None:
        if self._whole is not None:
            self._doc.remove(self._whole)
        self._whole = self._run = None
        self._mark(open=False)

    def _mark(self, *, open: bool) -> None:
        doc = self._doc
        doc.set_attr(self._open, "aria-expanded", "true" if open else "false")
        doc.set_cls(self._node, "nbm-matrix__cell is-open" if open else "nbm-matrix__cell")
        doc.set_attr(self._below, "hidden", None if doc.kids(self._below) else "")


def _count(count: int, word: str) -> str:
    return f"{number(count)} {word}{'' if count == 1 else 's'}"
