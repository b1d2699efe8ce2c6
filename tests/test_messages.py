"""Messages: what a user gives becomes wire dicts, or one clear error; what a history holds becomes records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbmastra.errors import SettingsError
from nbmastra.messages import MessageRecord, message_records, wire_messages
from tests.support.recordings import recorded_chunks

STREAMS = Path(__file__).parent / "data" / "streams"
USER = {"role": "user", "content": "Hi"}
UI = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Hello"}]}
IMAGE = {"role": "user", "content": [{"type": "image", "image": b"\x89PNG", "mediaType": "image/png"}]}
TOOL = {
    "role": "tool",
    "content": [{"type": "tool-result", "toolCallId": "k1", "toolName": "head", "input": {"rows": 2}, "result": [1]}],
}


@pytest.mark.parametrize(
    ("given", "wire"),
    [
        ("Hi", [USER]),
        ("", [{"role": "user", "content": ""}]),
        (USER, [USER]),
        (["Hi", "there"], [USER, {"role": "user", "content": "there"}]),
        (("Hi", UI, TOOL), [USER, UI, TOOL]),
        ([], []),
    ],
)
def test_text_and_messages_and_mixtures_become_wire_dicts(given: Any, wire: list[dict[str, Any]]) -> None:
    assert wire_messages(given) == wire


def test_bytes_and_dates_become_text() -> None:
    assert wire_messages(IMAGE)[0]["content"][0]["image"] == "iVBORw=="
    made = wire_messages(UI | {"createdAt": datetime(2026, 1, 2, tzinfo=UTC)})
    assert made[0]["createdAt"] == "2026-01-02T00:00:00+00:00"


def test_the_users_own_messages_are_copied() -> None:
    own = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    wire = wire_messages([own])
    own["content"][0]["text"] = "changed"  # type: ignore[index]
    assert wire[0]["content"][0]["text"] == "Hi"


def test_messages_of_a_memory_thread_can_be_given_back() -> None:
    kept = json.loads((STREAMS / "generate-tools.json").read_text())["messages"]
    assert wire_messages(kept) == kept


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (None, r"messages: expected text, .*not NoneType"),
        (5, r"messages: expected .*not int"),
        (b"Hi", r"not bytes"),
        (pd.DataFrame({"a": [1]}), r"not DataFrame"),
        (["Hi", 5], r"messages\[1\]: expected .*not int"),
        (["Hi", ["Hi"]], r"messages\[1\]: expected .*not list"),
        ([USER, {"content": "Hi"}], r"messages\[1\]: 'role' is one of user, .*not None"),
        ([{"role": "usr", "content": "Hi"}], r"messages\[0\]: 'role' is one of .*not 'usr'"),
        ([{"role": ["user"], "content": "Hi"}], r"'role' is one of"),
        ([{"role": "user"}], r"messages\[0\]: neither 'content' nor 'parts'"),
        ([{"role": "user", "content": None}], r"messages\[0\]: 'content' is text or a list of parts; not None"),
        ([{"role": "user", "content": ["Hi"]}], r"messages\[0\]: 'content'\[0\] is a part like .*not 'Hi'"),
        ([{"role": "user", "parts": "Hi"}], r"'parts' is a list of parts; not 'Hi'"),
        ([{"role": "user", "parts": [{"text": "Hi"}]}], r"'parts'\[0\] is a part like"),
        ([{"role": "user", "content": "Hi", "x": {1, 2}}], r"messages\[0\]: a message must be JSON \(set isn't\)"),
        ([{"role": "user", "content": "Hi", "x": float("nan")}], r"must be JSON"),
    ],
)
def test_anything_else_is_one_error_that_says_where_and_what_is_expected(given: Any, error: str) -> None:
    with pytest.raises(SettingsError, match=error) as caught:
        wire_messages(given)
    assert len(str(caught.value)) < 300


def test_a_message_that_holds_itself_is_an_error() -> None:
    message: dict[str, Any] = {"role": "user", "content": "Hi"}
    message["self"] = message
    with pytest.raises(SettingsError, match=r"messages\[0\]"):
        wire_messages([message])


def test_the_history_in_a_finish_becomes_records() -> None:
    chunk = next(chunk for name, chunk in recorded_chunks() if name == "tools" and chunk.type == "finish")
    records = message_records(chunk.payload.messages)
    assert [(record.role, record.text) for record in records] == [
        ("user", "hello"),
        ("assistant", "Let me look that up."),
        ("tool", ""),
        ("assistant", "It is 21 °C in Paris."),
    ]
    assert [part["type"] for part in records[1].parts] == ["text", "tool-call", "tool-call"]
    assert records[0].created_at == 1796039100921


def test_memory_messages_and_ui_messages_become_records() -> None:
    answer = json.loads((STREAMS / "generate-tools.json").read_text())
    for history in (answer, answer["messages"]):
        user, assistant = message_records(history)
        assert (user.role, user.text, user.created_at) == ("user", "hello", "2026-11-30T12:37:30.288Z")
        assert assistant.text == "Let me look that up.It is 21 °C in Paris."
        assert assistant.id == "d7fdd0dc-9a0c-41ae-b11b-b7662734143d"
    made = message_records([UI | {"metadata": {"createdAt": "2026-01-02T00:00:00Z"}}])
    assert made == [MessageRecord("assistant", "Hello", UI["parts"], "m1", "2026-01-02T00:00:00Z")]  # type: ignore[arg-type]


@pytest.mark.parametrize("history", [None, 5, "text", {}, {"all": None}, [None, 5, "text"], {"messages": {"a": 1}}])
def test_what_is_no_history_has_no_records(history: object) -> None:
    assert message_records(history) == []


@pytest.mark.parametrize("content", [None, 5, {}, {"parts": 5}, [None, 5, "text"], [{"type": "text", "text": 5}]])
def test_a_strange_message_is_a_record_without_text(content: object) -> None:
    assert [(record.role, record.text) for record in message_records([{"role": "user", "content": content}])] == [
        ("user", "")
    ]
