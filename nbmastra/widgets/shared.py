"""`SharedWidget`: what the kernel decides, kept equal in all displays of a widget; base of `LiveWidget`, `DataWidget`.

kernel                                    browser (static/shared.js)
a change ends      ──{seq, ops}──────────▶  applied in every display
get_state()["_boot"]  ──whole, seq───────▶  a reload, a second display, a late one start from here;
                                            messages up to that seq are ignored, a gap asks for it again,
                                            and a page says once what it starts from ("seen")
on_act(Act)           ◀──{act, …}─────────  a click or a form
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, cast

import anywidget
import traitlets

from nbmastra.widgets.comms import keep_front_end_shell

__all__ = ["Act", "SharedWidget", "while_open"]


@dataclass(frozen=True, slots=True)
class Act:
    """What a user did: the act's name and argument, the values of its form by field name, its node or its row's key."""

    name: str
    arg: str = ""
    values: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"])
    node: str = ""


@cache
def _static(names: tuple[str, ...]) -> str:
    return "\n".join((files("nbmastra.widgets") / "static" / name).read_text("utf-8") for name in names)


def _boot_json(_value: None, widget: SharedWidget) -> dict[str, Any]:
    widget._boots += 1  # pyright: ignore[reportPrivateUsage]  # a part of the class, outside of it for traitlets
    return widget.boot()


class SharedWidget(anywidget.AnyWidget):
    """Subclasses keep the state, give the whole (`whole`) and what is new (`news`), and override `on_act`.

    Thread-safe: changes may come from any thread, one after another. After `close()` nothing is sent any more.
    """

    styles: ClassVar[tuple[str, ...]] = ()
    """Further stylesheets below static/."""

    # Text and not a Path: anywidget 0.11 connects a Path's change signal to a closure that keeps every widget alive.
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    _boot = traitlets.Any(None).tag(sync=True, to_json=_boot_json)

    def __init__(self, **traits: Any) -> None:
        self._seq = 0
        self._boots = 0
        self._id = uuid.uuid4().hex[:12]
        self._lock = threading.RLock()
        super().__init__(**traits)
        keep_front_end_shell(self.comm)

    @traitlets.default("_esm")
    def _default_esm(self) -> str:
        return _static(("shared.js", *self.scripts()))

    @traitlets.default("_css")
    def _default_css(self) -> str:
        return _static(("nbmastra.css", *self.styles))

    @classmethod
    def scripts(cls) -> tuple[str, ...]:
        """Files below static/ that make the module behind shared.js, in this order."""
        raise NotImplementedError

    def whole(self) -> dict[str, Any]:
        """The state from which a display starts."""
        raise NotImplementedError

    def news(self) -> list[Any]:
        """What has changed since the last call, as operations."""
        raise NotImplementedError

    def boot(self) -> dict[str, Any]:
        """The whole state as of the last message, from which a display starts."""
        with self._lock:
            self._flush()
            return {"id": self._id, "seq": self._seq, **self.whole()}

    @property
    def reloaded(self) -> bool:
        """True if a page asked for the whole state after the widget was made: it was loaded again, or late."""
        return self._boots > 1

    def _flush(self) -> None:
        ops = self.news()
        if ops:
            self._seq += 1
            self.send({"seq": self._seq, "ops": ops})  # pyright: ignore[reportUnknownMemberType]  # ipywidgets has no types

    def close(self) -> None:
        """Remove it from every display and free it; its layout is a widget of its own, and no one else's."""
        if self.comm is not None:
            with self._lock:  # not in the middle of another thread's change
                super().close()
            self.layout.close()  # pyright: ignore[reportUnknownMemberType]

    def on_act(self, act: Act) -> None:
        """A user's act, on a kernel thread that must not wait: hand it over and return."""

    def on_gone(self) -> None:
        """The last display of it in a page was removed; on a kernel thread that must not wait."""

    def on_back(self) -> None:
        """It is displayed again after all, since its cell was moved, for example; on such a thread too."""

    def accept(self, act: Act) -> bool:
        """True if the act may be done: what it names is there, and wasn't used up by the same act before."""
        raise NotImplementedError

    def _handle_custom_msg(self, content: Any, buffers: Any) -> None:
        super()._handle_custom_msg(content, buffers)  # pyright: ignore[reportUnknownMemberType]
        if not isinstance(content, dict):
            return
        message = cast("dict[str, Any]", content)
        name, node = message.get("act"), message.get("node")
        if isinstance(name, str) and isinstance(node, str):  # first: an act may have any name
            arg = message.get("arg")
            act = Act(name, arg if isinstance(arg, str) else "", _values(message.get("values")), node)
            if self.accept(act):
                self.on_act(act)
        elif name == "sync" or (name == "seen" and message.get("seq") != self._seq):
            self._boots -= 1  # a page that missed something, not a new one
            self.send_state("_boot")  # pyright: ignore[reportUnknownMemberType]
        elif name == "gone":
            self.on_gone()
        elif name == "returned":
            self.on_back()


def while_open(method: Callable[..., object]) -> Callable[..., None]:
    """A call of a widget's method, for what may live longer: it holds no widget, and calls none that is closed."""
    here = weakref.WeakMethod(method)

    def call(*args: Any) -> None:
        live: Any = here()
        if live is not None and live.__self__.comm is not None:
            live(*args)

    return call


def _values(fields: Any) -> dict[str, str | bool]:
    if not isinstance(fields, dict):
        return {}
    return {
        name: value
        for name, value in cast("dict[Any, Any]", fields).items()
        if isinstance(name, str) and isinstance(value, str | bool)
    }
