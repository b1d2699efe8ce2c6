"""`TableWidget`: rows of calls or tasks, kept up to date in the kernel, drawn by static/table.js.

A row's fields: status, tool, tags, depth, parent, args (open while they are written), started (UTC text), elapsed or
since (seconds), attempts, says (with tone and progress), acts that one may do, why there are none. What a row opens to
(`d`, `d_output`) is made when a page asks for it, and kept up to date from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.to_thread

from nbmastra.engine import Job, get_engine
from nbmastra.widgets.data import DataWidget, Rows
from nbmastra.widgets.format import one_line
from nbmastra.widgets.placed import GivesWay, Standing
from nbmastra.widgets.placement import Placement, show_bundle, widget_view
from nbmastra.widgets.shared import Act
from nbmastra.widgets.table_snapshot import table_snapshot

__all__ = ["COLUMNS", "TableWidget"]

_log = logging.getLogger(__name__)

COLUMNS = {
    "status": "Status",
    "tool": "Tool",
    "args": "Arguments",
    "started": "Started",
    "elapsed": "Elapsed",
    "attempts": "Try",
}


class TableWidget(GivesWay, DataWidget):
    """Base of the tables. Subclasses fill rows in `_pump`, make details in `_details`, and do acts in `_do`.

    Shown in a cell while a run goes on, it is replaced by a static table (`snapshot`) at the run's end. A table of what
    was over then, or never will be, stays live, with the static one folded below, until it is closed.
    """

    repeats = frozenset({"select", "detail", "copy"})
    kind = "calls"
    title = "Tool calls"
    last = "Result"
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    empty: tuple[str, str] = ("", "")

    def __init__(self) -> None:
        self._placement = Placement()
        self._standing: Standing | None = None
        self.stays = False
        """True for a table that nothing replaces while there is a kernel: of what was over, or never will be."""
        self._gone = False
        self._opened: set[str] = set()
        self._whole: set[str] = set()
        self._chosen: list[Callable[[str], None]] = []
        self._job: Job[None] | None = None
        super().__init__()
        self._job = get_engine().start(self._run)

    @classmethod
    def scripts(cls) -> tuple[str, ...]:
        """The store of rows, the table, its rows, and what one does with it."""
        return ("data.js", "table.js", "table_row.js", "table_acts.js")

    def begin(self, rows: Rows) -> None:
        """What the table opens with."""
        rows.facts(
            kind=self.kind,
            title=self.title,
            columns=[*COLUMNS.items(), ("says", self.last), *((("acts", ""),) if self.kind == "tasks" else ())],
            filters=self.filters,
            empty=self.empty,
            sort=["started", 1],
            selected="",
            news="",
        )

    async def _run(self) -> None:
        try:
            await self._pump()
        except Exception as error:  # a table that can't go on says so; what it is about isn't disturbed
            _log.exception("a table could not be kept up to date")
            self._say(f"This table is no longer kept up to date: {one_line(str(error)) or type(error).__name__}")

    async def _pump(self) -> None:
        """Fill the rows, and keep them up to date until all is over."""
        raise NotImplementedError

    def _details(self, key: str, rows: Rows) -> dict[str, Any] | None:
        """What a row opens to; None if there is no such row any more."""
        raise NotImplementedError

    async def _fetch(self, key: str) -> None:
        """Get what a row's details need from where it is kept, if that isn't here."""

    def _copied(self, key: str, what: str) -> str:
        """The whole of a part of a row."""
        raise NotImplementedError

    async def _do(self, act: Act) -> None:
        """Do what a button says."""
        raise NotImplementedError

    # --- acts -------------------------------------------------------------------------------------------------------

    def on_select(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` with the key of each row that is clicked, on the engine's loop; gives what ends it."""
        self._chosen.append(callback)
        return lambda: self._chosen.remove(callback) if callback in self._chosen else None

    def select(self, key: str) -> None:
        """Mark a row and scroll to it; "" marks none. The key of a row is the id of its call or task."""
        with self.change() as rows:
            rows.facts(selected=key)

    def on_act(self, act: Act) -> None:
        """Hand a click over to the engine's loop."""
        get_engine().start(self._perform, act)

    async def _perform(self, act: Act) -> None:
        key = act.node
        if act.name == "select":
            self.select(key)
            for callback in list(self._chosen):
                callback(key)
        elif act.name == "detail":
            self._opened.add(key)
            if act.arg == "all":
                self._whole.add(key)
            await self._fetch(key)
            with self.change() as rows:
                self.open_row(key, rows)
        elif act.name == "copy":
            text = await anyio.to_thread.run_sync(self._copied, key, act.arg)
            self.send({"copy": str(act.values.get("token") or ""), "text": text})  # pyright: ignore[reportUnknownMemberType]
        else:
            await self._try(act)

    async def _try(self, act: Act) -> None:
        with self.change() as rows:
            rows.put(act.node, {"problem": None})
        try:
            await self._do(act)
        except Exception as error:  # whatever the source says: nothing ends silently, and one may try again
            words = one_line(str(error), 300) or type(error).__name__
            with self.change() as rows:
                if act.node in rows:
                    rows.put(act.node, {"problem": words})
                    self.again(act.node)
            self._say(words)

    def open_row(self, key: str, rows: Rows) -> None:
        """Bring what an opened row shows up to date."""
        if key in self._opened and key in rows:
            found = self._details(key, rows)
            if found is not None:
                rows.put(key, {"d_output": found.pop("output", ""), "d": found})

    def _say(self, words: str) -> None:
        """To those who can't see the table: endings and questions only."""
        with self.change() as rows:
            rows.facts(news=words)

    # --- shown ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, str]:
        """The rows as plain output: text/html, text/markdown, text/plain; the first rows of very many."""
        with self._lock:
            return table_snapshot(self.rows)

    def _ipython_display_(self) -> None:
        if self.comm is None:
            show_bundle(self.snapshot())
        elif self.stays:
            self._standing = self._standing or Standing(self.title, self.snapshot, self.close)
            self._standing.place(self, repr(self))
        else:
            self._placement.add({**widget_view(self), **self.snapshot()}, repr(self))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The live table, and beside it the static one for those who have no kernel."""
        made = cast("Any", super())._repr_mimebundle_(**options)
        view = cast("dict[str, Any]", (made[0] if isinstance(made, tuple) else made) or {})
        return {**view, **self.snapshot()}, {}

    def _end(self, *, stays: bool = False) -> None:
        """All is over: the saved notebook needs no kernel then. A table that one may still act on stays beside it.

        One that nobody has seen yet is shown live later: whoever asks for it then wants to look into it.
        """
        if self._standing is not None:
            self._standing.renew()
        elif not self._placement.shown:
            self.stays = not stays
        else:
            self._placement.replace(self.snapshot(), widget_view(self) if stays else None)
            if not stays:
                self.give_way()

    def renew(self) -> None:
        """Bring the plain output beside a table that stays up to date."""
        if self._standing is not None:
            self._standing.renew()

    def give_way(self) -> None:
        """Leave at once if its cell ran again while the run went on."""
        super().give_way()
        if self._gone:
            get_engine().start(self.leave)

    def on_gone(self) -> None:
        """The page removed the table; if plain output stands in its place or beside it, it is no longer needed."""
        self._gone = True
        super().on_gone()
        if self._standing is not None:
            self._standing.gone()

    def on_back(self) -> None:
        """The page shows it again."""
        self._gone = False
        if self._standing is not None:
            self._standing.back()

    def close(self) -> None:
        """Leave the static table in its place, and free it; what it shows goes on."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        if self._standing is not None:
            self._standing.end()
        elif self.comm is not None and not self.replaced:
            self._placement.replace(self.snapshot())
        self._chosen.clear()
        super().close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.rows)} rows>"
