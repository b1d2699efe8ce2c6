"""The command line, as a user and as a script meet it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pexpect
import pytest

from nbmastra import MastraModelOutput, load_recording, record
from nbmastra.cli import main
from nbmastra.client.decode import ChunkDecoder
from tests.support.mastra import MastraServer

STREAMS = Path(__file__).parent / "data/streams"
COMMAND = [sys.executable, "-m", "nbmastra.cli"]


@pytest.fixture(autouse=True)
def no_server_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTRA_API_URL", "MASTRA_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def recordings(tmp_path: Path) -> Callable[[str], str]:
    def recording(name: str) -> str:
        chunks = ChunkDecoder().feed((STREAMS / f"{name}.sse").read_bytes())
        out = MastraModelOutput.from_chunks(chunks, agent=name)
        return str(record(out, tmp_path / f"{name}.jsonl").result(10))

    return recording


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


# --- without a server ------------------------------------------------------------------------------------------------


def test_the_demo_needs_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--speed", "max"]) == 0
    said = capsys.readouterr().out
    assert "Ride round the lake on Saturday" in said
    assert "✗ rooms" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("tools", 0),
        ("error", 1),
        ("tripwire", 1),
        ("durable-cut", 1),
        ("approve", 3),
        ("aborted", 130),
    ],
)
def test_the_exit_code_says_how_the_run_ended(recordings: Callable[[str], str], name: str, code: int) -> None:
    assert main(["replay", recordings(name), "--speed", "max"]) == code


def test_quiet_prints_the_text_and_tells_a_failure_on_the_side(
    recordings: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", recordings("error"), "--speed", "1000", "-q"]) == 1
    said = capsys.readouterr()
    assert said.out == "partial\n"
    assert said.err == "nbmastra: failed: provider went away\n"


def test_json_gives_the_chunks_one_a_line(recordings: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    path = recordings("tools")
    assert main(["replay", path, "--speed", "max", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [chunk.to_wire() for chunk in load_recording(path).log.items]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "missing.jsonl"], "missing.jsonl"),
        (["replay", __file__], "is no recording"),
    ],
)
def test_a_file_that_is_no_recording_is_told_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith("nbmastra: ")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "COMMAND"),
        (["sing"], "sing"),
        (["stream", "weather"], "PROMPT"),
        (["stream", "weather", "hi", "--tread", "t"], "--tread"),
        (["stream", "weather", "hi", "--max-steps", "no"], "--max-steps"),
        (["stream", "weather", "hi", "--until-idle=soon"], "--until-idle"),
        (["stream", "weather", "hi", "--resource", "me"], "--thread"),
        (["stream", "weather", " "], "prompt is empty"),
        (["stream", "weather", "hi", "--url", "ftp://x"], "address"),
        (["stream", "weather", "hi", "--schema-file", "missing.json"], "--schema-file"),
        (["stream", "weather", "hi", "--schema-file", __file__], "isn't JSON"),
        (["demo", "--speed", "0"], "--speed"),
    ],
)
def test_wrong_usage_is_told_in_one_line_with_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(words)
    except SystemExit as error:
        code = error.code
    assert code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_no_server_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for words in (["stream", "weather", "hi", "--url", url], ["agents", "--url", url]):
        assert main(words) == 1
        assert (
            capsys.readouterr().err == f"nbmastra: nothing answers at {url}: is the server running? (npx mastra dev)\n"
        )


def test_version_and_help_say_what_there_is() -> None:
    def said(*words: str) -> str:
        return subprocess.run([*COMMAND, *words], check=True, capture_output=True, text=True).stdout

    assert said("--version").startswith("nbmastra 0.")
    everything = said("--help")
    for words in ("stream", "demo", "replay", "agents", "exit codes", "MASTRA_API_TOKEN"):
        assert words in everything
    options = said("stream", "--help")
    for flag in "--url --thread --resource --until-idle --max-steps --schema-file --json --record --no-color".split():
        assert flag in options


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a command; its pipes are closed after the test."""
    with ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            return stack.enter_context(subprocess.Popen([*COMMAND, *words], stdout=pipe, stderr=pipe, text=True))

        yield start


def test_a_reader_that_leaves_ends_it_quietly(started: Callable[..., subprocess.Popen[str]]) -> None:
    process = started("demo", "--speed", "4")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(5) == "I loo"
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == ""


def test_ctrl_c_stops_the_run_and_keeps_what_came(started: Callable[..., subprocess.Popen[str]]) -> None:
    process = started("demo")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    assert process.stdout.read().splitlines()[-1].startswith("trip · Stopped")
    assert process.wait(5) == 130
    assert process.stderr.read() == ""


def test_on_a_terminal_it_is_rich_and_without_colour_on_demand() -> None:
    def shown(*words: str) -> str:
        child = pexpect.spawn(
            COMMAND[0], [*COMMAND[1:], "demo", "--speed", "50", *words], dimensions=(40, 100), timeout=60
        )
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        return child.before.decode()

    rich = shown()
    assert "\x1b[36m→ forecast" in rich
    assert "───" in rich
    bare = shown("--no-color")
    assert "\x1b[36m" not in bare
    assert "───" in bare


def test_a_pipe_that_cannot_carry_a_character_gets_another() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    run = subprocess.run([*COMMAND, "demo", "--speed", "max"], env=env, capture_output=True, check=True)
    assert b"? weather" in run.stdout or b"? forecast" in run.stdout
    assert run.stderr == b""


# --- with a server ---------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_a_real_run_is_printed_and_recorded(
    mastra_server: MastraServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl.gz"
    words = ["stream", "tools", "Weather", "in", "Paris?", "--url", mastra_server.url, "--record", str(path)]
    assert main([*words, "--thread", "t1", "--resource", "ada"]) == 0
    said = capsys.readouterr().out
    assert '→ weather(city="Paris")' in said
    assert "It is 21 °C in Paris." in said
    assert said.splitlines()[-1].endswith("thread t1 of ada")
    loaded = load_recording(path)
    assert (loaded.prompt, loaded.status) == ("Weather in Paris?", "success")


@pytest.mark.server
def test_a_thread_alone_belongs_to_this_user(mastra_server: MastraServer, capsys: pytest.CaptureFixture[str]) -> None:
    from nbmastra.config import settings

    assert main(["stream", "text", "hi", "--url", mastra_server.url, "--thread", "t2"]) == 0
    assert f"thread t2 of {settings.resource}" in capsys.readouterr().out


@pytest.mark.server
def test_until_idle_goes_on_until_the_tasks_are_done(
    mastra_server: MastraServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["stream", "--until-idle", "background", "Research", "--url", mastra_server.url, "--thread", "idle"]
    assert main(words) == 0
    assert "The research is finished." in capsys.readouterr().out


@pytest.mark.server
def test_the_agents_are_listed(mastra_server: MastraServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "--url", mastra_server.url]) == 0
    assert "weather" in capsys.readouterr().out
    assert main(["agents", "--url", mastra_server.url, "--json"]) == 0
    agents: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {"tools", "trip"} <= {agent["id"] for agent in agents}


@pytest.mark.server
def test_a_wrong_agent_is_told_with_those_that_exist(
    mastra_server: MastraServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stream", "tols", "hi", "--url", mastra_server.url]) == 1
    error = capsys.readouterr().err
    assert "Did you mean 'tools'?" in error
    assert error.count("\n") == 1


@pytest.mark.server
def test_an_answer_must_fit_its_schema(
    mastra_server: MastraServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.json"
    words = ["stream", "object", "Who?", "--url", mastra_server.url, "--schema-file", str(schema), "-q"]
    schema.write_text('{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}')
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "Ada"
    schema.write_text('{"type": "object", "required": ["zip"]}')
    assert main(words) == 1
    assert "zip" in capsys.readouterr().err


@pytest.mark.server
def test_a_prompt_comes_from_standard_input(mastra_server: MastraServer) -> None:
    words = [*COMMAND, "stream", "text", "-", "--url", mastra_server.url, "-q"]
    run = subprocess.run(words, input="a long\nprompt", capture_output=True, text=True, check=True)
    assert run.stdout.startswith("# Hello")


@pytest.mark.server
def test_ctrl_c_stops_a_run_of_a_server_within_two_seconds(
    start_mastra_server: Callable[..., MastraServer],
    started: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    server = start_mastra_server(CHUNK_DELAY_MS="50")
    path = tmp_path / "run.jsonl"
    process = started("stream", "long", "go", "--url", server.url, "--record", str(path))
    assert process.stdout is not None
    process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    assert "Stopped" in process.stdout.read().splitlines()[-1]
    assert load_recording(path).status == "cancelled"
