"""The parts of a dashboard that are its own: the bar with filters, the list of runs, the tabs of the selected one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nbmastra.widgets.document import Document
from nbmastra.widgets.format import one_line, seconds
from nbmastra.widgets.icons import SEARCH, icon, status_html
from nbmastra.widgets.live import Act
from nbmastra.widgets.placed import ActingWidget
from nbmastra.widgets.run_list import Listed

__all__ = ["DashBar", "DashList", "DashTabs", "Item"]

Item = Listed | str
"""What can be selected: a run, or one of the source's own views, by its name."""
FILTERS = {"all": "All", "running": "Running", "waits": "Needs you"}


def fits(listed: Listed, kind: str, search: str) -> bool:
    """Whether a run stands in the list under these filters."""
    status = listed.status
    if (kind == "running" and status != "running") or (kind == "waits" and not listed.waits):
        return False
    return search.lower() in f"{listed.title} {listed.about} {status}".lower()


class DashBar(ActingWidget):
    """Filters by status and text and, over a server, the forms that attach to a run or a thread."""

    styles = ("nbmastra.css", "dashboard.css")

    def __init__(
        self,
        title: str,
        filtered: Callable[[str, str], None],
        attach: Callable[[str, Mapping[str, str | bool]], None] | None,
        gone: Callable[[], None],
        back: Callable[[], None],
    ) -> None:
        self._title, self._filtered, self._attach = title, filtered, attach
        self._gone, self._back = gone, back
        self._kind, self._search = "all", ""
        self._form: str | None = None
        self._told = ""
        super().__init__()

    def begin(self, doc: Document) -> None:
        """Title, filters, search."""
        root = self._root = doc.add(cls="nbm nbm-dash__part", attrs={"role": "group", "aria-label": self._title})
        bar = doc.add(root, "div", "nbm-bar")
        doc.add(bar, "span", "nbm-bar__title", text=self._title)
        group = doc.add(bar, "span", "nbm-dash__filters", attrs={"role": "group", "aria-label": "Filter by status"})
        self._filters: dict[str, str] = {}
        for kind, words in FILTERS.items():
            attrs = {"type": "button", "data-nbm-act": "filter", "data-nbm-repeat": "", "data-nbm-arg": kind}
            attrs["aria-pressed"] = "true" if kind == "all" else "false"
            button = self._filters[kind] = doc.add(group, "button", "nbm-toggle", html=words, attrs=attrs)
            self.on(button, lambda _, kind=kind: self._choose(kind))
        doc.add(bar, "span", "nbm-spacer")
        search = doc.add(bar, "span", "nbm-search")
        doc.add(search, "span", "nbm-mark", html=SEARCH)
        attrs = {"type": "search", "name": "search", "placeholder": "Filter runs", "aria-label": "Filter runs"}
        field = doc.add(search, "input", "nbm-input", attrs={**attrs, "data-nbm-act": "search"})
        self.on(field, self._find)
        if self._attach is not None:
            attrs = {"type": "button", "data-nbm-act": "attach", "data-nbm-repeat": "", "aria-expanded": "false"}
            attrs["aria-label"] = "Attach to a run or a thread of the server"
            self._open = doc.add(bar, "button", "nbm-btn", text="Attach to run…", attrs=attrs)
            self.on(self._open, lambda _: self._toggle())
        self._said = doc.add(root, "div", "nbm-sr", html="", attrs={"role": "status", "aria-live": "polite"})

    def count(self, runs: Sequence[Listed]) -> None:
        """How many runs each filter leaves."""
        with self.frame() as doc:
            for kind, button in self._filters.items():
                count = sum(fits(listed, kind, "") for listed in runs)
                doc.set_html(button, f"{FILTERS[kind]} <b>{count}</b>")

    def say(self, words: str) -> None:
        """To those who can't see it, and where a form is open, below it."""
        with self.frame() as doc:
            doc.set_text(self._said, words)
            if self._form is not None:
                doc.set_text(self._told, words)

    def close_form(self) -> None:
        """What the form asked for is there."""
        if self._form is not None:
            self._toggle()

    def _choose(self, kind: str) -> None:
        self._kind = kind
        for name, button in self._filters.items():
            self.doc.set_attr(button, "aria-pressed", "true" if name == kind else "false")
        self._filtered(self._kind, self._search)

    def _find(self, act: Act) -> None:
        self._search = str(act.values.get("search") or "").strip()
        self._filtered(self._kind, self._search)

    def _toggle(self) -> None:
        with self.frame() as doc:
            doc.set_attr(self._open, "aria-expanded", "true" if self._form is None else "false")
            if self._form is not None:
                doc.remove(self._form)
                self._form = None
                return
            self._form = doc.add(self._root, "div", "nbm-dash__attach", before=self._said)
            self._fields("observe", "Observe run", {"run": "Run id (durable agents)", "agent": "Agent"}, focus=True)
            words = {"thread": "Thread", "resource": "Resource", "agent": "Agent (optional)"}
            self._fields("subscribe", "Subscribe to thread", words)
            self._told = doc.add(self._form, "p", "nbm-notice__text", html="", attrs={"role": "alert"})

    def _fields(self, act: str, words: str, fields: Mapping[str, str], *, focus: bool = False) -> None:
        doc = self.doc
        assert self._form is not None
        form = doc.add(self._form, "form", "nbm-attach", attrs={"aria-label": words})
        for name, label in fields.items():
            attrs = {"name": name, "aria-label": label, "placeholder": label, "data-nbm-enter": act}
            if focus and name == next(iter(fields)):
                attrs["data-nbm-focus"] = ""
            doc.add(form, "input", "nbm-input", attrs={**attrs, "data-nbm-escape": "cancel"})
        for name, label, cls in ((act, words, "nbm-btn"), ("cancel", "Cancel", "nbm-btn nbm-btn--plain")):
            attrs = {"type": "button", "data-nbm-act": name, "data-nbm-repeat": ""}
            button = doc.add(form, "button", cls, text=label, attrs=attrs)
            self.on(button, self._ask if name == act else lambda _: self._toggle())

    def _ask(self, act: Act) -> None:
        if self._attach is not None:
            self._attach(act.name, act.values)

    def on_gone(self) -> None:
        """The page removed the dashboard."""
        self._gone()

    def on_back(self) -> None:
        """It is shown again."""
        self._back()


class DashList(ActingWidget):
    """The runs with their status, newest first; the selected one is marked."""

    styles = ("nbmastra.css", "dashboard.css")

    def __init__(self, own: Mapping[str, str], chosen: Callable[[Item], None]) -> None:
        self._own = dict(own)
        self._chosen = chosen
        self._items: dict[Item, _ListItem] = {}
        super().__init__()

    def begin(self, doc: Document) -> None:
        """The source's own views; runs follow by `show`."""
        root = doc.add(cls="nbm nbm-dash__part nbm-dash__list", attrs={"role": "group", "aria-label": "Runs"})
        self._list = doc.add(root, "ul", "nbm-runs")
        self._empty = doc.add(root, "p", "nbm-dash__empty nbm-muted", text="No runs yet.")
        for name in self._own:
            self._items[name] = _ListItem(self, self._list, name, self._chosen, None)

    def show(self, runs: Sequence[Listed], selected: Item | None, kind: str, search: str) -> None:
        """Bring the list up to date; on the engine's loop."""
        with self.frame() as doc:
            for listed in runs:
                if listed not in self._items:
                    before = next(
                        (item.node for key, item in reversed(self._items.items()) if isinstance(key, Listed)), None
                    )
                    self._items[listed] = _ListItem(self, self._list, listed, self._chosen, before)
            shown = 0
            for key, item in self._items.items():
                fitting = kind == "all" and not search if isinstance(key, str) else fits(key, kind, search)
                shown += fitting
                item.update(doc, self._own.get(key, "") if isinstance(key, str) else "", key is selected, fitting)
            doc.set_text(self._empty, "No runs yet." if not runs else "No run fits the filters.")
            doc.set_attr(self._empty, "hidden", "" if shown else None)

    def about(self, name: str, words: str) -> None:
        """What is known of one of the source's own views."""
        self._own[name] = words


class _ListItem:
    def __init__(
        self, view: ActingWidget, parent: str, item: Item, chosen: Callable[[Item], None], before: str | None
    ) -> None:
        doc = view.doc
        self._item = item
        self.node = doc.add(parent, "li", before=before)
        attrs = {"type": "button", "data-nbm-act": "choose", "data-nbm-repeat": ""}
        self._button = doc.add(self.node, "button", "nbm-runs__item", attrs=attrs)
        view.on(self._button, lambda _: chosen(item))
        self._mark = doc.add(self._button, "span", "nbm-mark", html="")
        self._title = doc.add(self._button, "span", "nbm-ellipsis", html="")
        self._time = doc.add(self._button, "span", "nbm-num nbm-muted", html="")
        self._meta = doc.add(self._button, "span", "nbm-runs__meta nbm-ellipsis", html="")

    def update(self, doc: Document, about: str, selected: bool, shown: bool) -> None:
        item = self._item
        doc.set_attr(self.node, "hidden", None if shown else "")
        doc.set_attr(self._button, "aria-current", "true" if selected else None)
        if isinstance(item, str):
            doc.set_html(self._mark, f'<span class="nbm-status">{icon("info")}</span>')
            doc.set_text(self._title, item)
            doc.set_text(self._meta, about)
            return
        doc.set_html(self._mark, status_html(item.status, word=False))
        doc.set_text(self._title, item.title)
        doc.set_text(self._meta, item.about)
        if item.out.done:
            doc.since(self._time, None)
            doc.set_text(self._time, seconds(item.elapsed_s))
        elif not doc.ticks(self._time):
            doc.since(self._time, item.elapsed_s)


class DashTabs(ActingWidget):
    """What is shown of the selected run."""

    styles = ("nbmastra.css", "dashboard.css")

    def __init__(self, tabs: Mapping[str, str], chosen: Callable[[str], None]) -> None:
        self._names, self._chosen = dict(tabs), chosen
        super().__init__()

    def begin(self, doc: Document) -> None:
        """A button for each."""
        root = doc.add(cls="nbm nbm-dash__part", attrs={"role": "group", "aria-label": "Selected run"})
        self._bar = doc.add(root, "div", "nbm-tabs")
        self._tabs: dict[str, str] = {}
        for name, words in self._names.items():
            attrs = {"type": "button", "data-nbm-act": "tab", "data-nbm-repeat": "", "aria-pressed": "false"}
            tab = self._tabs[name] = doc.add(self._bar, "button", "nbm-tab", html=words, attrs=attrs)
            self.on(tab, lambda _, name=name: self._chosen(name))
        self._title = doc.add(root, "p", "nbm-dash__title nbm-muted", text="", attrs={"hidden": ""})

    def show(self, item: Item | None, tab: str, counts: Mapping[str, int]) -> None:
        """Mark the tab; of what is no run, only the title."""
        with self.frame() as doc:
            for name, node in self._tabs.items():
                doc.set_attr(node, "aria-pressed", "true" if name == tab else "false")
                count = f" <b>{counts[name]}</b>" if counts.get(name) else ""
                doc.set_html(node, f"{self._names[name]}{count}")
            run = isinstance(item, Listed)
            doc.set_attr(self._bar, "hidden", None if run else "")
            doc.set_attr(self._title, "hidden", "" if run else None)
            doc.set_text(self._title, "Choose a run." if item is None else "" if run else one_line(str(item), 80))
