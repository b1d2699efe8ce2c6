"""Chats: what is sent, what is kept, what is taken back, and what one can do without a mouse."""

from __future__ import annotations

import base64
import gc
import io
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbmastra import Agent, Chat, MastraClient, RecordedAgent, demo_recording, tool
from nbmastra.errors import ControlError, SettingsError
from nbmastra.runtime import Memory
from nbmastra.testing import ScriptedModel, call, say, usage
from nbmastra.widgets.attachments import attach, attachable
from nbmastra.widgets.chat import ChatView
from nbmastra.widgets.chat_snapshot import chat_snapshot
from nbmastra.widgets.live import Act
from tests.support.feed import engine_tasks
from tests.support.mastra import MastraServer
from tests.widgets.recording_comm import RecordingComm
from tests.widgets.views import dangers, flat

PATIENCE_S = 20


def scripted(**options: Any) -> ScriptedModel:
    return ScriptedModel([[say("It is **4**."), usage(10, 5)]], **options)


def remembering(model: ScriptedModel | None = None) -> Agent:
    return Agent("helper", model=model or scripted(), memory=Memory("sqlite://"), description="Answers about numbers.")


def ask(chat: Chat, text: str) -> None:
    chat.send(text).result(PATIENCE_S).wait(PATIENCE_S)


def shown(view: ChatView) -> str:
    nodes = view.boot()["nodes"]
    return flat({id: {**node, "h": node["h"] or ""} for id, node in nodes.items()})


def node(view: ChatView, act: str, at: int = 0) -> str:
    nodes = view.boot()["nodes"]
    return [id for id, found in nodes.items() if found["a"].get("data-nbm-act") == act][at]


def until(view: ChatView, true: Callable[[str], bool]) -> str:
    """What the view shows, as soon as that is so."""
    comm: Any = view.comm
    while True:
        told, html = len(comm.sent), shown(view)
        if true(html):
            return html
        comm.wait_until(lambda told=told: len(comm.sent) > told, PATIENCE_S)


def texts(agent: Agent, thread: str) -> list[tuple[str, str]]:
    return [
        (one["role"], "".join(part.get("text", "") for part in one["content"]["parts"]))
        for one in agent.memory.messages(thread).result(PATIENCE_S)  # type: ignore[union-attr]
    ]


# --- what is said ----------------------------------------------------------------------------------------------------


def test_a_thread_is_kept_by_memory_and_found_again_by_another_chat(comms: list[RecordingComm]) -> None:
    agent = remembering()
    chat = Chat(agent, "t1")
    ask(chat, "2 + 2?")
    ask(chat, "Sure?")
    answer = ("assistant", "It is **4**.")
    assert texts(agent, "t1") == [("user", "2 + 2?"), answer, ("user", "Sure?"), answer]
    view = Chat(agent, "t1").view()
    html = until(view, lambda html: "4 earlier messages" in html)
    assert "<strong>4</strong>" in html
    assert "thread t1" in html


def test_without_memory_the_kernel_keeps_the_conversation_and_sends_all_of_it() -> None:
    model = scripted()
    chat = Chat(Agent("helper", model=model))
    ask(chat, "2 + 2?")
    ask(chat, "Sure?")
    roles = [message["role"] for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "user"]
    assert chat.thread is None
    with pytest.raises(SettingsError, match="no memory"):
        Chat(Agent("helper", model=model), "t1")


def test_editing_the_last_message_takes_its_turn_back_from_memory_too() -> None:
    agent = remembering()
    chat = Chat(agent, "t1")
    ask(chat, "First.")
    ask(chat, "Secnd?")
    chat.rerun("Second?").result(PATIENCE_S).wait(PATIENCE_S)
    assert [turn.text for turn in chat.turns] == ["First.", "Second?"]
    assert [text for role, text in texts(agent, "t1") if role == "user"] == ["First.", "Second?"]
    assert len(texts(agent, "t1")) == 4


def test_while_an_answer_is_coming_nothing_else_is_sent_and_stop_keeps_what_came() -> None:
    chat = Chat(Agent("helper", model=ScriptedModel([[say("It is 4. " * 2000)]], delay_s=0.02)))
    out = chat.send("2 + 2?").result(PATIENCE_S)
    while not out.total.text:
        out.log.wait_blocking(len(out.log.items), PATIENCE_S)
    for refused in (lambda: chat.send("Sure?"), chat.rerun, chat.new_thread):
        with pytest.raises(ControlError, match="stop it first"):
            refused()
    chat.stop()
    out.wait(PATIENCE_S)
    assert out.status == "cancelled"
    assert out.total.text.startswith("It is")
    assert not chat.running


def test_what_cannot_be_sent_is_told_and_the_chat_goes_on() -> None:
    class Refusing:
        id = "refusing"

        def stream(self, messages: Any, **_: Any) -> Any:
            raise SettingsError("<b>not today</b>")

    chat = Chat(Refusing())
    with pytest.raises(SettingsError):
        chat.send("Hello").result(PATIENCE_S)
    assert chat.turns[0].problem == "<b>not today</b>"
    assert not chat.running
    with pytest.raises(SettingsError, match="empty"):
        chat.send("  ")
    assert "&lt;b&gt;not today" in chat_snapshot(chat)["text/html"]


def test_a_recorded_agent_answers_too() -> None:
    chat = Chat(RecordedAgent(demo_recording(), speed=None))
    ask(chat, "Where do I ride?")
    assert "Ride round the lake" in chat.outs[-1].total.text


# --- attachments -----------------------------------------------------------------------------------------------------


def test_the_head_of_a_table_goes_as_csv_a_figure_as_png_a_file_as_its_text(tmp_path: Path) -> None:
    class Figure:
        def savefig(self, file: io.BytesIO, **_: Any) -> None:
            file.write(b"\x89PNG...")

    model = scripted()
    chat = Chat(Agent("helper", model=model))
    note = tmp_path / "note.txt"
    note.write_text("Bring tea.")
    frame = pd.DataFrame({"name": [f"s{n}" for n in range(27)], "km": range(27)})
    assert chat.attach(frame, "df").name == "df.head(20)"
    assert chat.attach(Figure(), "fig").about == "PNG, 7 B"
    chat.attach(note)
    chat.attach({"a": 1}, "settings")
    chat.detach("settings")
    ask(chat, "Look.")
    parts = model.requests[0].messages[0]["content"]
    assert "27 × 2" in parts[0]["text"]
    assert "s19" in parts[0]["text"]
    assert "s20" not in parts[0]["text"]
    assert parts[1]["mediaType"] == "image/png"
    assert base64.b64decode(parts[1]["data"]).startswith(b"\x89PNG")
    assert "Bring tea." in parts[2]["text"]
    assert [part["text"] for part in parts[3:]] == ["Look."]
    assert chat.attached == []
    assert "df.head(20) (20 × 2)" in chat_snapshot(chat)["text/plain"]


def test_what_is_too_large_or_missing_is_refused(tmp_path: Path) -> None:
    for value in ("x" * 300_000, b"x" * 11_000_000, tmp_path / "missing.txt"):
        with pytest.raises(SettingsError):
            attach(value)


def test_variables_to_attach_are_the_users_tables_first() -> None:
    names = {"z": pd.DataFrame({"a": [1]}), "a": "text", "_x": "hidden", "In": ["shell"], "f": len, "k": dict}
    assert attachable(names, {"In": names["In"]}) == {"z": "table, 1 × 1", "a": "str"}


# --- the view --------------------------------------------------------------------------------------------------------


def test_a_message_is_written_sent_answered_and_edited_in_the_view(comms: list[RecordingComm]) -> None:
    model = scripted()
    chat = Chat(Agent("helper", model=model), suggestions=["<i>Rain?</i>"])
    view = chat.view()
    assert "&lt;i&gt;Rain?" in until(view, lambda html: "Rain?" in html)
    view.on_act(Act("send", values={"text": "2 + 2?"}, node=node(view, "send")))
    html = until(view, lambda html: "<strong>4</strong>" in html and "Answer of helper: completed" in html)
    assert "Rain?" not in html
    assert "15" in html
    view.on_act(Act("edit", node=node(view, "edit")))
    until(view, lambda html: "<textarea" in html and 'data-nbm-enter="rerun"' in html)
    view.on_act(Act("rerun", values={"text": "3 + 1?"}, node=node(view, "rerun")))
    until(view, lambda html: "3 + 1?" in html and "2 + 2?" not in html)
    assert dangers(shown(view), "form") == []


def test_a_question_is_answered_within_the_chat(comms: list[RecordingComm]) -> None:
    @tool(require_approval=True)
    def book(seats: int) -> str:
        """Book seats."""
        return "booked"

    model = ScriptedModel([[call("book", "b1", seats=2)], [say("Booked.")]])
    chat = Chat(Agent("helper", model=model, tools=[book]))
    view = chat.view()
    ask(chat, "Book.")
    until(view, lambda html: "Needs approval" in html and 'data-nbm-act="approve"' in html)
    view.on_act(Act("approve", node=node(view, "approve")))
    until(view, lambda html: "Booked." in html)
    assert len(chat.turns[0].outs) == 2


def test_closed_views_are_freed_and_the_conversation_goes_on(comms: list[RecordingComm]) -> None:
    chat = Chat(Agent("helper", model=scripted()))
    ask(chat, "2 + 2?")
    views: list[weakref.ref[Any]] = []
    for number in range(20):
        view = chat.view()
        views.append(weakref.ref(view))
        if number % 2:
            view.close()
        else:
            chat.close()
    del view
    comms.clear()
    assert chat._watchers == []
    while any("ChatView" in where for where in engine_tasks().values()):
        pass  # each question gives the loop a turn
    gc.collect()
    assert [ref for ref in views if ref() is not None] == []
    ask(chat, "Sure?")


def test_a_view_that_the_page_removed_is_freed_unless_it_is_shown_again(
    comms: list[RecordingComm], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(Agent("helper", model=scripted()))
    view = chat.view()
    view._handle_custom_msg({"act": "gone"}, [])
    view._handle_custom_msg({"act": "returned"}, [])
    assert view.standing._going is None
    monkeypatch.setattr(view.standing, "grace_s", 0)
    view._handle_custom_msg({"act": "gone"}, [])
    while view.comm is not None:
        engine_tasks()
    assert chat._watchers == []


@pytest.mark.server
def test_a_thread_of_a_server_is_continued_edited_and_found_again(mastra_server: MastraServer) -> None:
    client = MastraClient(mastra_server.url)
    agent = client.agent("slow")
    thread = "chat-of-a-server"
    chat = Chat(agent, thread, resource="chat-user")
    ask(chat, "First.")
    ask(chat, "Secnd?")
    chat.rerun("Second?").result(PATIENCE_S).wait(PATIENCE_S)
    kept = client.thread(thread, agent="slow").messages(resource="chat-user").result(PATIENCE_S)
    said = [str(one["content"]) for one in kept if one["role"] == "user"]
    assert len(said) == 2
    assert "Second?" in said[1]
