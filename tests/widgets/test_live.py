from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import ipywidgets
import pytest

from nbmastra.widgets.comms import keep_front_end_shell
from nbmastra.widgets.live import Act, LiveWidget
from tests.widgets.browser_copy import BrowserCopy
from tests.widgets.recording_comm import RecordingComm


class Clicks(LiveWidget):
    def __init__(self) -> None:
        super().__init__()
        self.acts: list[Act] = []

    def on_act(self, act: Act) -> None:
        self.acts.append(act)


def click(widget: LiveWidget, **content: Any) -> None:
    message = {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
    widget._handle_msg(message)


def test_a_frame_is_one_message() -> None:
    widget = LiveWidget()
    with widget.frame() as doc:
        id = doc.add(tag="p", html="Hel")
        doc.patch(id, 3, "lo")
    with widget.frame():
        pass
    with widget.frame() as doc:
        doc.patch(id, 5, "!")
    assert widget.comm.custom() == [
        {"seq": 1, "ops": [["+", id, "", 0, "p", "", {}, "Hello"]]},
        {"seq": 2, "ops": [["=", id, 5, "!"]]},
    ]


def test_a_late_display_shows_everything_once(comms: list[RecordingComm]) -> None:
    """B47: what came before the first display, between two displays and after them is in each exactly once."""
    widget = LiveWidget()
    opened = comms[-1].sent[0][1]["state"]["_boot"]
    displays = [(opened["seq"], BrowserCopy(opened["nodes"]))]
    with widget.frame() as doc:
        id = doc.add(tag="p", html="")
    for number in range(10):
        if number in (3, 7):
            boot = widget.get_state()["_boot"]
            displays.append((boot["seq"], BrowserCopy(boot["nodes"])))
        with widget.frame() as doc:
            doc.patch(id, number, str(number))
    for seq, copy in displays:
        for message in widget.comm.custom():
            if message["seq"] > seq:
                seq += 1
                assert message["seq"] == seq
                copy.apply(message["ops"])
        assert copy.nodes[id]["h"] == "0123456789"


def test_the_state_asked_for_in_the_middle_of_a_frame_waits_for_its_end() -> None:
    widget = LiveWidget()
    states: list[Any] = []
    asking = threading.Thread(target=lambda: states.append(widget.get_state("_boot")["_boot"]))
    with widget.frame() as doc:
        doc.add(html="first")
        asking.start()
        doc.add(html="second")
    asking.join()
    assert (states[0]["seq"], len(states[0]["nodes"])) == (1, 3)


def test_changes_outside_of_a_frame_are_sent_before_the_state_is_given() -> None:
    widget = LiveWidget()
    widget.doc.add(html="x")
    boot = widget.boot()
    assert [message["seq"] for message in widget.comm.custom()] == [boot["seq"]] == [1]


def test_the_document_is_never_sent_as_a_whole_unless_asked() -> None:
    widget = LiveWidget()
    with widget.frame() as doc:
        doc.add(html="x" * 1000)
    assert not [data for _, data in widget.comm.sent if data.get("method") == "update"]
    click(widget, act="sync")
    (update,) = [data for _, data in widget.comm.sent if data.get("method") == "update"]
    assert list(update["state"]) == ["_boot"]


def test_a_page_that_listened_too_late_for_the_last_message_is_sent_the_document() -> None:
    """Nothing may follow that message, so the page says what it starts from; one that has all is sent nothing."""
    widget = Clicks()
    with widget.frame() as doc:
        doc.add(text="the last word")
    widget.comm.sent.clear()
    click(widget, act="seen", seq=widget.boot()["seq"])
    assert widget.comm.sent == []
    click(widget, act="seen", seq=widget.boot()["seq"] - 1)
    (update,) = [data for _, data in widget.comm.sent if data.get("method") == "update"]
    assert list(update["state"]) == ["_boot"]


def test_a_button_acts_once_however_often_and_wherever_it_is_clicked() -> None:
    """B40: the first click disables the button in every display; a second one on its way is not heard."""
    widget = Clicks()
    with widget.frame() as doc:
        stop = doc.add(tag="button", text="Stop", attrs={"data-nbm-act": "stop"})
        more = doc.add(tag="button", text="More", attrs={"data-nbm-act": "more", "data-nbm-repeat": ""})
    for _ in range(2):
        click(widget, act="stop", node=stop, arg="", values={})
        click(widget, act="more", node=more, arg="1", values={"reason": "no", "all": True})
    assert [act.name for act in widget.acts] == ["stop", "more", "more"]
    assert widget.acts[1] == Act("more", "1", {"reason": "no", "all": True}, more)
    assert widget.doc.get_attr(stop, "disabled") == ""
    with widget.frame() as doc:
        doc.set_attr(stop, "disabled", None)
    click(widget, act="stop", node=stop)
    assert [act.name for act in widget.acts].count("stop") == 2


@pytest.mark.parametrize("name", ["sync", "seen", "gone", "returned"])
def test_an_act_may_be_called_as_the_pages_own_messages_are(name: str) -> None:
    widget = Clicks()
    with widget.frame() as doc:
        button = doc.add(tag="button", text="X", attrs={"data-nbm-act": name})
    click(widget, act=name, node=button)
    assert [act.name for act in widget.acts] == [name]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"act": 1},
        {"act": "stop"},
        {"act": "stop", "node": "gone"},
        {"act": "stop", "node": {}},
        {"act": None, "node": ""},
    ],
)
def test_a_message_that_is_no_act_is_ignored(content: Any) -> None:
    widget = Clicks()
    click(widget, **content)
    assert widget.acts == []


def test_values_that_no_form_gives_are_left_out() -> None:
    widget = Clicks()
    with widget.frame() as doc:
        go = doc.add(tag="button", text="Go", attrs={"data-nbm-act": "go"})
    click(widget, act="go", node=go, arg=3, values={"a": "x", "b": {"deep": 1}, "c": None})
    assert widget.acts == [Act("go", "", {"a": "x"}, go)]


def test_closing_frees_everything(comms: list[RecordingComm]) -> None:
    """B49: no reference keeps a closed widget; updating it is harmless."""
    before = len(ipywidgets.widgets.widget._instances)
    threads = threading.active_count()
    refs = []
    for _ in range(50):
        widget = LiveWidget()
        with widget.frame() as doc:
            doc.add(html="x")
        widget.close()
        with widget.frame() as doc:
            doc.add(html="after the end")
        refs.append(weakref.ref(widget))
        del widget, doc
        comms.clear()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 50
    assert len(ipywidgets.widgets.widget._instances) == before
    assert threading.active_count() == threads


def test_clicks_go_where_the_front_end_sent_them() -> None:
    class RoutingComm:
        def _reply_subshell_for(self, _data: Any, _default: str | None) -> str | None:
            return None  # the shell that published last, which a cell blocks

    routing = RoutingComm()
    keep_front_end_shell(routing)
    assert routing._reply_subshell_for({}, "subshell-1") == "subshell-1"


def test_comms_of_other_kernels_stay_as_they_are() -> None:
    other = object()
    keep_front_end_shell(other)
    keep_front_end_shell(None)


def test_the_saved_state_is_plain_json() -> None:
    """B50: restored without a kernel, it is the document as it was."""
    widget = LiveWidget()
    with widget.frame() as doc:
        id = doc.add(tag="p", html="done")
    state = ipywidgets.Widget.get_manager_state(widgets=[widget])["state"][widget.model_id]["state"]
    assert state["_boot"]["nodes"][id]["h"] == "done"
