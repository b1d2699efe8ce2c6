"""What a server keeps: its store, read by the file or the database that the real server wrote, and its HTTP lists."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from nbmastra import frames
from nbmastra.client import MastraClient
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames import from_mastra_store
from nbmastra.frames.jsonb import decode_jsonb
from tests.support.mastra import run_mastra_server

AGENTS = ("slow", "background", "supervisor", "approve", "ask", "suspend")


@dataclass(frozen=True)
class Kept:
    """A store that a real server wrote, and what the server said of it."""

    url: str
    tasks: pd.DataFrame
    messages: dict[str, pd.DataFrame]
    threads: pd.DataFrame


def talk(directory: Path, url: str) -> Kept:
    """Let a real server write a store, and ask it by HTTP what is in there."""
    with run_mastra_server(directory, DB=url) as server:
        client = MastraClient(server.url)
        for agent in AGENTS:
            memory = {"thread": f"of-{agent}", "resource": "u1"}
            client.agent(agent).stream(f"Hello {agent}", memory=memory, until_idle=True).result(20).wait(20)
        threads = client.threads(resource="u1").result(10)
        return Kept(
            url,
            frames.tasks_df(client.background_tasks.list().result(10)),
            {thread["id"]: frames.messages_df(client.thread(thread["id"]).messages().result(10)) for thread in threads},
            frames.threads_df(threads),
        )


@pytest.fixture(scope="module")
def libsql(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    directory = tmp_path_factory.mktemp("libsql")
    return talk(directory, f"file:{directory / 'server.db'}")


@pytest.fixture(scope="module", params=["libsql", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    if request.param == "libsql":
        return request.getfixturevalue("libsql")
    return talk(tmp_path_factory.mktemp("pg"), request.getfixturevalue("postgres_url"))


@pytest.fixture
def database(libsql: Kept, tmp_path: Path) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """A copy of the store that may be damaged."""
    path = tmp_path / "server.db"
    for file in Path(libsql.url.removeprefix("file:")).parent.glob("server.db*"):
        shutil.copy(file, tmp_path)
    connection = sqlite3.connect(path, isolation_level=None)
    yield path, connection
    connection.close()


def by_id(frame: pd.DataFrame, id: str) -> pd.DataFrame:
    return frame.sort_values(id).reset_index(drop=True)


@pytest.mark.server
def test_tasks_of_a_store_are_those_that_its_server_lists(kept: Kept) -> None:
    tasks = from_mastra_store(kept.url).tasks_df()
    pd.testing.assert_frame_equal(by_id(tasks, "task_id"), by_id(kept.tasks, "task_id"), check_categorical=False)
    assert sorted(tasks["status"]) == ["completed", "failed", "suspended"]
    done = tasks[tasks["status"] == "completed"].iloc[0]
    assert (done["args"], done["result"]) == ({"topic": "solana"}, {"summary": "notes on solana"})
    assert done["created_at"] <= done["started_at"] < done["completed_at"]
    assert 0.2 < done["running_s"] < 20
    assert done["attempts"] == 1
    waiting = tasks[tasks["status"] == "suspended"].iloc[0]
    assert waiting[["running_s", "suspended_s", "completed_at"]].isna().all()  # how long can't be known
    assert "source offline" in set(tasks["error_message"].dropna())


@pytest.mark.server
def test_messages_of_a_store_are_those_that_its_server_lists(kept: Kept) -> None:
    messages = from_mastra_store(kept.url).messages_df()
    assert {f"of-{agent}" for agent in AGENTS} == set(kept.messages)
    for thread, listed in kept.messages.items():
        stored = messages[messages["stream_id"] == thread].reset_index(drop=True)
        pd.testing.assert_frame_equal(stored, listed, check_categorical=False)
        assert list(stored["role"]) == ["user", "assistant"]
        assert stored["text"][0].startswith("Hello ")
    assert any("of-supervisor-" in thread for thread in messages["stream_id"])  # the sub-agent's own thread


@pytest.mark.server
def test_threads_of_a_store_say_whose_they_are_and_how_long(kept: Kept) -> None:
    store = from_mastra_store(kept.url)
    threads = store.threads_df()
    own = threads[threads["resource_id"] == "u1"].reset_index(drop=True)
    listed = by_id(kept.threads, "stream_id")
    counted = ["messages", "tasks"]
    pd.testing.assert_frame_equal(own.drop(columns=counted), listed.drop(columns=counted), check_categorical=False)
    assert set(own["messages"]) == {2}
    assert own["tasks"].sum() == 3
    only = from_mastra_store(kept.url, thread="of-slow")
    assert list(only.threads_df()["stream_id"]) == ["of-slow"]
    assert len(only.tasks_df()) == 0
    assert set(from_mastra_store(kept.url, resource="u1-sub").messages_df()["text"]) == {"say hi", "sub-agent says hi"}


@pytest.mark.server
def test_tool_calls_of_a_store_are_those_of_its_messages_without_times_that_nobody_kept(kept: Kept) -> None:
    calls = from_mastra_store(kept.url).tool_calls_df().set_index("tool_call_id")
    assert calls["status"].to_dict() == {
        "a1": "needs-approval",
        "b1": "success",
        "b2": "error",
        "d1": "success",
        "q1": "suspended",
        "s1": "suspended",
    }
    assert calls.loc["b1", "result"] == {"summary": "notes on solana"}
    assert "source offline" in calls.loc["b2", "error_message"]
    assert calls.loc[["b1", "b2"], "task_id"].notna().all()
    assert calls[["started_at", "duration_s", "arguments_s"]].isna().all(axis=None)
    errors = frames.errors_df(from_mastra_store(kept.url))
    assert list(errors["tool_call_id"]) == ["b2"]


@pytest.mark.server
def test_a_store_is_never_written(kept: Kept) -> None:
    store = from_mastra_store(kept.url)
    with (
        pytest.raises(DBAPIError, match=r"read-only|readonly"),
        store._engine.connect() as connection,
    ):
        connection.execute(sa.text("DELETE FROM mastra_messages"))
    assert len(store.messages_df()) > 0
    assert len(frames.runs_df(store)) == len(frames.steps_df(store)) == 0  # a thread is no run


@pytest.mark.server
def test_rows_that_cannot_be_read_are_counted_and_the_rest_is_there(
    database: tuple[Path, sqlite3.Connection],
) -> None:
    path, connection = database
    connection.execute("UPDATE mastra_messages SET content = '{broken' WHERE thread_id = 'of-slow' AND role = 'user'")
    connection.execute("UPDATE mastra_background_tasks SET args = x'ff01' WHERE tool_call_id = 'b1'")
    connection.execute("UPDATE mastra_background_tasks SET \"createdAt\" = 'once' WHERE tool_call_id = 'b2'")
    store = from_mastra_store(path)
    messages = store.messages_df()
    assert len(messages) == 13
    assert len(messages.attrs["unread"]) == 3
    tasks, errors = frames.tasks_df(store, strict=False)
    assert list(tasks["tool_call_id"]) == ["s1"]
    assert len(errors) == 3
    assert sorted(errors["source"].str.partition(" ")[0]) == ["mastra_background_tasks", "mastra_messages", "task"]
    assert errors["error_message"].str.len().min() > 10


@pytest.mark.server
def test_a_store_is_read_while_its_server_writes_and_where_nothing_can_be_written(
    database: tuple[Path, sqlite3.Connection],
) -> None:
    path, connection = database
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM mastra_messages")
    assert len(from_mastra_store(f"sqlite:///{path}").messages_df()) == 14  # nothing of what isn't committed
    connection.execute("ROLLBACK")


@pytest.mark.server
def test_old_messages_are_text_and_old_stores_have_no_tasks(database: tuple[Path, sqlite3.Connection]) -> None:
    path, connection = database
    connection.execute("DROP TABLE mastra_background_tasks")
    connection.execute("UPDATE mastra_messages SET type = 'text', content = 'plain {words' WHERE thread_id = 'of-slow'")
    store = from_mastra_store(path)
    messages = store.messages_df()
    assert set(messages[messages["stream_id"] == "of-slow"]["text"]) == {"plain {words"}
    assert messages.attrs == {}
    assert len(store.tasks_df()) == 0


def test_what_is_no_store_is_refused_without_telling_a_secret(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no store"):
        from_mastra_store(f"file:{tmp_path / 'nothing.db'}")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE users (id)")
    connection.close()
    with pytest.raises(RecordingError, match=r"other\.db is no Mastra store"):
        from_mastra_store(other)
    text = tmp_path / "text.db"
    text.write_text("hello " * 1000)
    with pytest.raises(RecordingError, match=r"can't read text\.db: file is not a database"):
        from_mastra_store(text)
    with pytest.raises(SettingsError, match="not libsql://"):
        from_mastra_store("libsql://somewhere.example?authToken=letmein")
    with pytest.raises(RecordingError) as caught:
        from_mastra_store("postgresql://somebody:letmein@127.0.0.1:1/mastra?connect_timeout=2")
    assert "127.0.0.1/mastra" in str(caught.value)
    assert "letmein" not in str(caught.value)


def test_lists_that_are_mixed_or_in_their_envelope_are_read_and_others_counted() -> None:
    message = {"id": "m1", "role": "user", "content": "Hi", "threadId": "t1", "createdAt": "2026-01-02T03:04:05Z"}
    thread = {"id": "t1", "resourceId": "u1", "title": "One", "createdAt": "2026-01-02T03:04:00Z"}
    ui = {
        "id": "m2",
        "role": "assistant",
        "threadId": "t1",
        "parts": [
            {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"n": 1}, "output": 2},
            {"type": "dynamic-tool", "toolName": "other", "toolCallId": "c2", "state": "output-denied", "input": {}},
        ],
    }
    source = [thread, {"messages": [message, ui]}, {"neither": 1}]
    frame, errors = frames.messages_df(source, strict=False)
    assert list(zip(frame["stream_id"], frame["seq"], frame["text"], strict=True)) == [("t1", 0, "Hi"), ("t1", 1, "")]
    assert list(errors["error_message"]) == ["neither a message nor a task nor a thread"]
    assert frames.threads_df(source)["messages"].item() == 2
    calls = frames.tool_calls_df(source)
    assert list(calls["tool_name"]) == ["weather", "other"]
    assert list(calls["status"]) == ["success", "denied"]
    with pytest.raises(SettingsError, match="from_chunks"):
        frames.messages_df([{"type": "start", "runId": "r", "payload": {}}])


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", None),
        ("01", True),
        ("02", False),
        ("1331", 1),
        ("4430783166", 31),
        ("35312e35", 1.5),
        ("262e35", 0.5),
        ("37616263", "abc"),
        ("48c3a95c6e", "é\n"),
        ("c803616263", "abc"),
        ("0b", []),
        ("0c", {}),
        ("4b13311332", [1, 2]),
        ("4c17611331", {"a": 1}),
        ("4330783166", ValueError),  # hexadecimal is no JSON number
        ("1b1331", ValueError),  # longer than what holds it
        ("2c1761", ValueError),  # a name without a value
        ("4c13311331", ValueError),  # a name that is no text
        ("ff01", ValueError),
        ("0d", ValueError),
        ("", ValueError),
        ("0000", ValueError),
        ("eb00010000", ValueError),
        ("1b" * 5000, ValueError),
    ],
)
def test_binary_json_is_decoded_or_refused(data: str, value: object) -> None:
    if value is ValueError:
        with pytest.raises(ValueError):  # noqa: PT011
            decode_jsonb(bytes.fromhex(data))
    else:
        assert decode_jsonb(bytes.fromhex(data)) == value
