from __future__ import annotations

import gc
import json
import math
import threading
import weakref
from typing import Any

import ipywidgets
from hypothesis import given
from hypothesis import strategies as st

from nbmastra.widgets.data import DataWidget, Rows
from nbmastra.widgets.live import Act
from tests.widgets.recording_comm import RecordingComm


class Clicks(DataWidget):
    repeats = frozenset({"detail"})

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[Act] = []

    def on_act(self, act: Act) -> None:
        self.acts.append(act)


class Copy:
    """What static/data.js keeps, by the same operations."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.facts: dict[str, Any] = dict(state["facts"])
        self.rows: dict[str, dict[str, Any]] = {key: dict(row) for key, row in state["rows"]}
        self.order = list(self.rows)

    def apply(self, ops: list[list[Any]]) -> None:
        for kind, key, *rest in ops:
            if kind == "f":
                self.facts.update(key)
            elif kind == "-":
                del self.rows[key]
                self.order.remove(key)
            elif kind == "+":
                after, fields = rest
                assert key not in self.rows
                self.rows[key] = dict(fields)
                self.order.insert(0 if after is None else self.order.index(after) + 1, key)
            elif kind == "=":
                self.rows[key].update(rest[0])
            else:
                name, keep, add = rest
                kept = self.rows[key][name].encode("utf-16-le")[: 2 * keep].decode("utf-16-le")
                self.rows[key][name] = kept + add


def send(widget: DataWidget, **content: Any) -> None:
    widget._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


def test_a_change_is_one_message_with_what_differs() -> None:
    widget = DataWidget()
    with widget.change() as rows:
        rows.put("a", {"status": "running", "tool": "wind"})
        rows.put("a", {"status": "success"})
        rows.facts(count=1)
    with widget.change() as rows:
        rows.put("a", {"status": "success", "tool": "wind", "result": [1, 2]})
    with widget.change() as rows:
        rows.put("a", {"status": "success"})
    assert widget.comm.custom() == [
        {"seq": 1, "ops": [["+", "a", None, {"status": "success", "tool": "wind"}], ["f", {"count": 1}]]},
        {"seq": 2, "ops": [["=", "a", {"result": [1, 2]}]]},
    ]


_KEYS = st.sampled_from("abcdef")
_TEXT = st.text(max_size=4).map(lambda end: "x😀" * 120 + end)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _KEYS, st.one_of(st.none(), st.integers(0, 3), _TEXT), st.one_of(st.none(), _KEYS)),
        st.tuples(st.just("drop"), _KEYS),
        st.tuples(st.just("fact"), st.integers(0, 2)),
        st.tuples(st.just("send")),
    ),
    max_size=40,
)


@given(_STEPS)
def test_a_display_has_what_the_kernel_has_after_every_message(steps: list[Any]) -> None:
    rows = Rows()
    copy = Copy(rows.state())
    for step in [*steps, ("send",)]:
        match step:
            case ("put", key, value, after):
                rows.put(key, {"value": value}, after=after)
            case ("drop", key):
                rows.drop(key)
            case ("fact", value):
                rows.facts(value=value)
            case _:
                copy.apply(json.loads(json.dumps(rows.take())))
                state = rows.state()
                assert [[key, copy.rows[key]] for key in copy.order] == state["rows"]
                assert copy.facts == state["facts"]


def test_a_long_text_that_grows_costs_what_is_new() -> None:
    """B48: bytes grow with the text, not with its square."""
    widget = DataWidget()
    with widget.change() as rows:
        rows.put("a", {"output": "é" * 1000})
    for _ in range(100):
        with widget.change() as rows:
            rows.put("a", {"output": rows.get("a", "output") + "a new line\n"})
    assert sum(len(json.dumps(message)) for message in widget.comm.custom()[1:]) < 100 * 100


def test_time_passes_without_messages() -> None:
    now = 100.0
    rows = Rows(lambda: now)
    rows.put("a", {"since": 2.0, "queued_since": None})
    rows.take()
    now = 105.0
    rows.put("a", {"since": 7.05})  # the same start, measured a little later
    assert rows.take() == []
    assert rows.get("a", "since") == 7.0
    assert rows.state()["rows"] == [["a", {"since": 7.0}]]
    rows.pace(0.0, lambda: 1.0)  # another clock: what has passed stays
    assert rows.take() == [["=", "a", {"since": 7.0}], ["f", {"rate": 0.0}]]


def test_a_late_display_shows_everything_once(comms: list[RecordingComm]) -> None:
    """B47: what came before the first display, between two displays and after them is in each exactly once."""
    widget = DataWidget()
    opened = comms[-1].sent[0][1]["state"]["_boot"]
    displays = [(opened["seq"], Copy(opened))]
    for number in range(10):
        if number in (3, 7):
            boot = widget.get_state()["_boot"]
            displays.append((boot["seq"], Copy(boot)))
        with widget.change() as rows:
            rows.put(str(number), {"n": number})
    for seq, copy in displays:
        for message in widget.comm.custom():
            if message["seq"] > seq:
                seq += 1
                assert message["seq"] == seq
                copy.apply(message["ops"])
        assert copy.order == list("0123456789")


def test_a_page_that_missed_something_is_sent_the_whole() -> None:
    widget = DataWidget()
    with widget.change() as rows:
        rows.put("a", {})
    for message in ({"act": "sync"}, {"act": "seen", "seq": 0}):
        widget.comm.sent.clear()
        send(widget, **message)
        ((_, update),) = widget.comm.sent
        assert update["state"]["_boot"]["rows"] == [["a", {}]]
    widget.comm.sent.clear()
    send(widget, act="seen", seq=1)
    assert widget.comm.sent == []
    assert not widget.reloaded


def test_an_act_on_a_row_is_taken_once_until_it_may_be_done_again() -> None:
    """B40: a second click, from wherever, is not heard; details may be asked for as often as one likes."""
    widget = Clicks()
    with widget.change() as rows:
        rows.put("a", {})
    for _ in range(2):
        send(widget, act="cancel", node="a", arg="", values={})
        send(widget, act="detail", node="a", values={"open": True, "bad": {}})
        send(widget, act="stop", node="")
        send(widget, act="cancel", node="gone")
        send(widget, act="detail", node="gone")
    assert [act.name for act in widget.acts] == ["cancel", "detail", "stop", "detail", "stop"]
    assert widget.acts[1] == Act("detail", "", {"open": True}, "a")
    assert widget.rows.get("a", "taken") == ["cancel"]
    widget.again("a", "cancel")
    send(widget, act="cancel", node="a")
    assert [act.name for act in widget.acts].count("cancel") == 2
    widget.again("a")
    assert widget.rows.get("a", "taken") == []


def test_whatever_a_row_holds_can_be_sent() -> None:
    """Half characters, endless numbers, objects of other kinds: no message fails for them."""
    rows = Rows()
    rows.put("a", {"text": "\ud83d", "nan": math.nan, "inf": [math.inf], "deep": {1: {object}}, "thread": threading})
    (op,) = rows.take()
    json.dumps(op, allow_nan=False).encode()
    assert op[3]["nan"] == "nan"
    assert op[3]["text"] == "?"


def test_closing_frees_everything(comms: list[RecordingComm]) -> None:
    """B49: no reference keeps a closed widget; updating it is harmless."""
    before = len(ipywidgets.widgets.widget._instances)
    refs = []
    for _ in range(50):
        widget = DataWidget()
        with widget.change() as rows:
            rows.put("a", {})
        widget.close()
        with widget.change() as rows:
            rows.put("b", {})
        refs.append(weakref.ref(widget))
        del widget, rows
        comms.clear()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 50
    assert len(ipywidgets.widgets.widget._instances) == before
