"""The replay's view shows the run of the moment its slider stands at, and sends what differs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra import Replay, demo_recording, replay
from nbmastra.engine import get_engine
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.widgets.document import ROOT, Document
from nbmastra.widgets.live import Act
from nbmastra.widgets.run_view import RunView
from tests.widgets.browser_copy import BrowserCopy
from tests.widgets.views import dangers, flat


class Shown:
    """A replay and a display that follows it from the start."""

    def __init__(self, path: Path | None = None, **options: Any) -> None:
        self.view = Replay(path or demo_recording(), **options)
        boot = self.view.boot()
        self.seq = boot["seq"]
        self.display = BrowserCopy(boot["nodes"])

    def follow(self) -> str:
        with self.view.frame():
            pass
        for message in self.view.comm.custom():  # type: ignore[union-attr]
            if message["seq"] > self.seq:
                self.seq = message["seq"]
                self.display.apply(message["ops"])
        return self.html()

    def html(self) -> str:
        return flat(self.display.shown())

    def act(self, name: str, **values: str | bool) -> None:
        """A user's act, taken to its end."""
        node = next(id for id, n in self.view.boot()["nodes"].items() if n["a"].get("data-nbm-act") == name)
        self.view.on_act(Act(name, values=values, node=node))

        async def after() -> None:
            pass

        get_engine().start(after).result(5)


def visible(nodes: dict[str, Any], id: str = ROOT) -> str:
    """What one sees: nothing hidden, and of a clock its time."""
    node = nodes[id]
    if "hidden" in node["a"]:
        return ""
    inner = f"{node['s']} s" if node["s"] is not None else node["h"] or ""
    attrs = [node["a"].get(name) for name in ("open", "value", "aria-valuetext", "disabled")]
    return f"<{node['t']} {node['c']} {attrs}>{inner}{''.join(visible(nodes, kid) for kid in node['k'])}"


def test_scrubbing_back_shows_what_a_replay_opened_there_shows() -> None:
    shown = Shown(start=1e9)
    assert "nbm-bar--foot" in shown.follow()
    for at in (8.6, 6.0, 3.0, 1.7, 0.5, 0.0):
        shown.view.playback.seek(at)
        assert "nbm-bar--foot" not in shown.follow()
        assert visible(shown.display.nodes) == visible(Shown(start=at).display.nodes)


def test_scrubbing_forward_ends_as_the_run_did() -> None:
    shown = Shown()
    for at in (0.5, 3.0, 8.6, 1e9):
        shown.view.playback.seek(at)
    assert shown.view.ended.wait(5)
    shown.follow()
    assert visible(shown.display.nodes) == visible(Shown(start=1e9).display.nodes)


def test_going_back_a_step_sends_little_and_keeps_the_elements() -> None:
    shown = Shown(start=8.6)
    shown.follow()
    before = shown.seq
    cards = [id for id, node in shown.display.nodes.items() if "nbm-call" in node["c"].split()]
    shown.view.playback.step(-1)
    shown.follow()
    messages = [m for m in shown.view.comm.custom() if m["seq"] > before]  # type: ignore[union-attr]
    kinds = {op[0] for message in messages for op in message["ops"]}
    assert "r" in kinds
    assert "+" not in kinds
    renamed = {was for message in messages for op in message["ops"] if op[0] == "r" for was in op[2]}
    assert set(cards) <= renamed
    assert len(json.dumps(messages)) < 4000


def test_each_control_does_what_it_says() -> None:
    shown = Shown()
    player = shown.view.playback
    shown.act("forward")
    assert player.chunk == 1
    assert "chunk 1 of 281 start" in shown.follow()
    shown.act("back")
    assert player.chunk == 0
    shown.act("seek", position="4.25")
    assert player.position_s == 4.25
    shown.act("speed", speed="10.0")
    assert player.speed == 10
    for nonsense in ("", "nan", "-3", "fast"):
        shown.act("speed", speed=nonsense)
        shown.act("seek", position=nonsense)
    assert (player.speed, player.position_s) == (10, 4.25)
    shown.act("play")
    assert not player.paused
    shown.act("play")
    assert player.paused
    shown.act("speed", speed="max")
    shown.act("play")
    assert shown.view.ended.wait(5)
    assert 'aria-label="Play again"' in shown.follow()
    shown.act("speed", speed="1")
    shown.act("play")
    assert player.position_s < 1
    assert 'aria-label="Pause"' in shown.follow()
    shown.view.close()


def test_an_edge_has_no_step_beyond_it() -> None:
    def disabled(shown: Shown) -> set[str]:
        shown.follow()
        return {
            node["a"]["data-nbm-act"]
            for node in shown.display.nodes.values()
            if "disabled" in node["a"] and "data-nbm-act" in node["a"]
        }

    shown = Shown()
    assert disabled(shown) == {"back"}
    shown.view.playback.seek(3)
    assert disabled(shown) == set()
    shown.view.playback.seek(1e9)
    shown.view.ended.wait(5)
    assert disabled(shown) == {"forward"}


def test_the_output_of_a_replay_has_the_tables_of_that_moment() -> None:
    view = Replay(demo_recording(), start=3.0)
    assert list(view.out.tool_calls_df()["status"]) == ["running"] * len(view.out.tool_calls_df())
    early = view.out
    view.playback.seek(1e9)
    assert list(view.out.tool_calls_df()["status"]).count("success") == 4
    assert view.out is early
    view.playback.seek(0.1)
    assert view.out is not early
    assert view.out.tool_calls_df().empty
    assert "0.1 of 10.9 s" in repr(view)


def test_a_saved_replay_keeps_the_whole_run_as_plain_output(capture: list[dict[str, Any]]) -> None:
    Replay(demo_recording())._ipython_display_()
    view, fallback = capture
    assert "application/vnd.jupyter.widget-view+json" in view
    assert set(fallback) == {"text/html", "text/markdown", "text/plain"}
    assert "Ride round the lake on Saturday" in fallback["text/html"]
    assert fallback["text/html"].startswith("<details")
    assert dangers(fallback["text/html"]) == []


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    from nbmastra.widgets import placement

    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(placement._ipython, "display", lambda bundle, **_: shown.append(bundle))
    return shown


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError):
        Replay(tmp_path / "nowhere.jsonl")
    with pytest.raises(SettingsError):
        Replay(demo_recording(), speed=0)


def test_scrubbing_is_linear_and_fast_in_a_long_recording(tmp_path: Path) -> None:
    """20,000 chunks: each place is folded anew, in a fraction of a second."""
    path = tmp_path / "long.jsonl"
    words = "the lake is wide and the road winds along its shore\n\n".split(" ")
    with path.open("w") as file:
        file.write('{"nbmastra": 1, "agent": "long"}\n')
        for number in range(20_000):
            text = {"id": "t", "text": words[number % len(words)] + " "}
            chunk = {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": text}
            file.write(json.dumps({"t": number / 100, "chunk": chunk}, separators=(",", ":")) + "\n")
    shown = Shown(path, start=1e9)
    shown.view.playback.seek(199.0)
    shown.follow()
    took = []
    for at in (198.0, 150.0, 100.0, 50.0):
        started = time.process_time()
        shown.view.playback.seek(at)
        took.append(time.process_time() - started)
        assert shown.view.playback.chunk == at * 100 + 1
        shown.follow()
    assert max(took) < 3  # 0.3 s on a quiet machine
    assert took[-1] < took[0]


# --- the view of `replay()` ------------------------------------------------------------------------------------------


def test_the_view_of_a_replay_goes_back_with_it() -> None:
    out = replay(demo_recording(), paused=True, start=8.6)
    view = RunView(out)
    boot = view.boot()
    display = BrowserCopy(boot["nodes"])
    out.playback.seek(1.0)
    for message in view.comm.custom():  # type: ignore[union-attr]
        if message["seq"] > boot["seq"]:
            display.apply(message["ops"])
    assert "campsites" not in flat(display.shown())
    assert boot["rate"] == 0
    assert view.out is out.playback.out
    out.playback.out.cancel()


# --- the document ----------------------------------------------------------------------------------------------------

Tree = st.recursive(
    st.tuples(st.sampled_from("pb"), st.sampled_from(["", "x", "x y", "z"]), st.text("ab😀", max_size=4)),
    lambda kids: st.tuples(st.just("div"), st.sampled_from(["", "x"]), st.lists(kids, max_size=4)),
    max_leaves=12,
)


def grow(doc: Document, parent: str, tree: Any) -> None:
    tag, cls, inner = tree
    if isinstance(inner, str):
        attrs = {"title": inner} if len(inner) % 2 else {}
        node = doc.add(parent, tag, cls, html=inner, attrs=attrs)
        if cls == "z":
            doc.since(node, float(len(inner)))
    else:
        node = doc.add(parent, tag, cls)
        for kid in inner:
            grow(doc, node, kid)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(Tree, max_size=5), st.booleans()), min_size=1, max_size=4))
def test_a_display_follows_whatever_is_rebuilt(trees: list[tuple[list[Any], bool]]) -> None:
    doc = Document(clock=lambda: 0.0)
    root = doc.add(ROOT, "div")
    beside = doc.add(ROOT, "p", html="")
    display = BrowserCopy(Document().state())
    for number, (kids, send) in enumerate(trees):
        with doc.rebuilt(root):
            for kid in kids:
                grow(doc, root, kid)
            gone = doc.add(root, "i")
            doc.remove(gone)
            doc.set_text(beside, str(number))
        doc.set_cls(root, str(number))
        doc.pace(float(number))
        if send:
            display.apply(doc.take())
            assert display.shown() == BrowserCopy(doc.state()).shown()
    display.apply(doc.take())
    assert display.shown() == BrowserCopy(doc.state()).shown()
    assert display.rate == doc.rate
