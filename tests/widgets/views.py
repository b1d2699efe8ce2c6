"""Views whose frames the test decides, and what they show."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from html.parser import HTMLParser
from typing import Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.widgets.document import ROOT
from nbmastra.widgets.run_view import RunView
from tests.support.runs import Wire
from tests.widgets.browser_copy import BrowserCopy

FORBIDDEN = {"script", "iframe", "object", "embed", "link", "style", "base", "meta", "video", "audio", "form"}
RASTER = ("data:image/png;base64,", "data:image/jpeg;base64,", "data:image/gif;base64,", "data:image/webp;base64,")


class SteppedView(RunView):
    """A view that draws when it is told to, and not by itself."""

    def _watch(self) -> None:
        pass


class Watched:
    """A run that is fed by hand, its view, and a display that follows the view's messages from the start."""

    def __init__(self, **about: Any) -> None:
        self.out = MastraModelOutput(prompt="Why?", **about)
        self.view = SteppedView(self.out)
        self.display = BrowserCopy(self.view.boot()["nodes"])
        self.seen = 0
        self.events = 0

    def feed(self, *chunks: Wire | Chunk) -> None:
        """Chunks that come together, drawn as one frame; the n-th chunk of all comes at n/100 seconds."""
        for item in chunks:
            chunk = item if isinstance(item, Chunk) else parse_chunk(item, event=self.events)
            self.out.feed([chunk], self.events / 100)
            self.events += 1
        self.draw()

    def end(self, done: bool = True, **how: Any) -> None:
        self.out.finish(Ended(done, at=self.events / 100, **how))
        self.draw()

    def draw(self) -> None:
        self.view.draw()
        self.follow()

    def follow(self) -> None:
        """Let the display take the messages that came."""
        for message in self.messages()[self.seen :]:
            self.display.apply(message["ops"])
            self.seen += 1

    def messages(self) -> list[Any]:
        return self.view.comm.custom() if self.view.comm is not None else []

    def html(self) -> str:
        """What the display shows."""
        return flat(self.display.shown())


def watch(chunks: Iterable[Wire | Chunk], per_frame: int = 1, *, done: bool = True, **about: Any) -> Watched:
    """A whole run, watched from its start."""
    watched = Watched(**about)
    items = list(chunks)
    for start in range(0, len(items), per_frame):
        watched.feed(*items[start : start + per_frame])
    watched.end(done)
    return watched


def flat(nodes: dict[str, Any], id: str = ROOT) -> str:
    """The document as HTML, without ids."""
    node = nodes[id]
    inner = node["h"] + "".join(flat(nodes, kid) for kid in node["k"])
    if id == ROOT:
        return inner
    attrs = sorted({"class": node["c"], **node["a"], "since": node["s"]}.items())
    shown = "".join(f' {name}="{escape(str(value))}"' for name, value in attrs if value not in (None, ""))
    shown += "".join(f" {name}" for name, value in attrs if value == "" and name != "class")
    return f"<{node['t']}{shown}>{inner}</{node['t']}>"


class _Gate(HTMLParser):
    def __init__(self, allowed: set[str]) -> None:
        super().__init__()
        self.found: list[str] = []
        self.allowed = allowed

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in FORBIDDEN - self.allowed:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            value = value or ""
            if name.startswith("on") or name in ("srcset", "srcdoc", "formaction", "background", "ping", "xlink:href"):
                self.found.append(f"{name}={value}")
            if name == "href" and not value.lower().startswith(("https://", "http://", "mailto:")):
                self.found.append(f"{name}={value}")
            if name == "src" and not value.startswith((*RASTER, "data:image/svg+xml,%3Csvg")):
                self.found.append(f"{name}={value}")
            if name == "style" and ("url(" in value or "expression" in value or "@import" in value):
                self.found.append(f"{name}={value}")


def dangers(html: str, *allowed: str) -> list[str]:
    """What in the HTML could act or load: elements, attributes, addresses. Allowed elements are the views' own."""
    gate = _Gate(set(allowed))
    gate.feed(html)
    gate.close()
    return gate.found
