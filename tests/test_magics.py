"""The magics, in plain IPython and in a real kernel."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from pydantic import BaseModel

import nbmastra
from nbmastra import MastraModelOutput, demo_agent, load_recording
from nbmastra.client.decode import ChunkDecoder
from nbmastra.config import configure, settings
from nbmastra.errors import MastraStreamError, NbMastraError, ObjectError, SettingsError, StreamTruncated
from nbmastra.tools import tool
from tests.support.mastra import MastraServer

WIDGET = "application/vnd.jupyter.widget-view+json"
STREAMS = Path(__file__).parent / "data/streams"


@pytest.fixture(scope="module")
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        shell = InteractiveShell.instance()
        shell.history_manager.enabled = False
        yield shell
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()
        InteractiveShell.clear_instance()


@pytest.fixture
def shell(ipython: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """Plain IPython, without a kernel, its cells run in this process."""
    for name in ("MASTRA_API_URL", "MASTRA_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("url", "resource", "record_dir"):
        monkeypatch.setattr(settings, name, getattr(settings, name))
    ipython.run_line_magic("load_ext", "nbmastra")
    yield ipython
    ipython.run_line_magic("unload_ext", "nbmastra")
    ipython.reset(new_session=False)


class Echo:
    """An agent that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    async def stream(self, messages: Any, **options: Any) -> MastraModelOutput:
        self.asked.append((messages, options))
        return _finished("text")


def _finished(name: str, **about: Any) -> MastraModelOutput:
    chunks = ChunkDecoder().feed((STREAMS / f"{name}.sse").read_bytes())
    return MastraModelOutput.from_chunks(chunks, agent=name, **about)


class Recorded:
    """An agent that answers with a recorded answer of the wire."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, messages: Any, schema: Any = None, **options: Any) -> MastraModelOutput:
        return _finished(self.name, schema=schema, prompt=messages)


def ask(shell: InteractiveShell, line: str, cell: str | None = "hi\n") -> None:
    if cell is None:
        shell.run_line_magic("mastra_stream", line)
    else:
        shell.run_cell_magic("mastra_stream", line, cell)


# --- the prompt ------------------------------------------------------------------------------------------------------

B46 = 'é漢字🎉 and "quotes"\n%matplotlib inline\n  indented {braces} {{x}} {x.y} {} $x\n\nends with a backslash \\'


def test_b46_the_body_is_passed_on_as_it_is(shell: InteractiveShell) -> None:
    echo = shell.user_ns["echo"] = Echo()
    result = shell.run_cell(f"%%mastra_stream echo -o res -q\n{B46}")
    assert result.success
    assert echo.asked == [(B46, {})]
    assert shell.user_ns["res"].status == "success"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("Weather in {city}?", "Weather in Paris?"),
        ("{city}{city}", "ParisParis"),
        ("{number} {frame}", "3 a  b"),
        ("{größe}", "large"),
        ("{unknown} {id} {print} {In} {get_ipython}", "{unknown} {id} {print} {In} {get_ipython}"),
        ("{{city}} {city", "{{city}} {city"),
        (
            '{"city": 1} {city!r} {city:>9} {city.upper()} { city }',
            '{"city": 1} {city!r} {city:>9} {city.upper()} { city }',
        ),
        ("$city", "$city"),
    ],
)
def test_only_known_names_in_braces_are_filled_in(shell: InteractiveShell, written: str, sent: str) -> None:
    echo = Echo()
    shell.user_ns |= {"echo": echo, "city": "Paris", "number": 3, "frame": "a  b", "größe": "large"}
    ask(shell, "echo -q", f"{written}\n")
    ask(shell, f"echo -q -- {written}", None)
    assert [prompt for prompt, _ in echo.asked] == [sent, sent]


def test_the_line_form_takes_the_rest_of_the_line_as_it_is(shell: InteractiveShell) -> None:
    echo = shell.user_ns["echo"] = Echo()
    ask(shell, 'echo -q What\'s the  weather in "Paris"? -5 °C?', None)
    ask(shell, "echo -q -- --thread is a word", None)
    assert [prompt for prompt, _ in echo.asked] == ['What\'s the  weather in "Paris"? -5 °C?', "--thread is a word"]


# --- options ---------------------------------------------------------------------------------------------------------


def test_options_reach_the_agent_and_only_those_that_were_given(shell: InteractiveShell) -> None:
    class Person(BaseModel):
        name: str

    echo = Echo()
    shell.user_ns |= {"echo": echo, "Person": Person, "tid": "thread 7"}
    ask(shell, "echo -q --until-idle --max-steps=3")
    ask(shell, 'echo -q --thread "{tid}" --resource ada --until-idle=500 --no-raise')
    ask(shell, "--quiet --schema Person echo --no-raise")
    assert [options for _, options in echo.asked] == [
        {"until_idle": True, "max_steps": 3},
        {"until_idle": {"max_idle_ms": 500}, "memory": {"thread": "thread 7", "resource": "ada"}},
        {"schema": Person},
    ]


def test_a_thread_alone_belongs_to_the_configured_resource(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    echo = shell.user_ns["echo"] = Echo()
    ask(shell, "echo -q --thread t1")
    configure(resource="team-7")
    ask(shell, "echo -q --thread t1")
    first, second = [options["memory"]["resource"] for _, options in echo.asked]
    assert first
    assert second == "team-7"


@pytest.mark.parametrize(
    ("line", "cell", "words"),
    [
        ("", "hi\n", "which agent?"),
        ("echo --tread x", "hi\n", "no option --tread: did you mean --thread?"),
        ("echo --zzz", "hi\n", "no option --zzz: %mastra help lists the options"),
        ("echo --thread", "hi\n", "--thread needs a value: --thread NAME"),
        ("echo --thread --quiet", "hi\n", "--thread needs a value"),
        ("echo --quiet=yes", "hi\n", "--quiet takes no value"),
        ("echo --max-steps 0", "hi\n", "--max-steps takes a whole number above 0, not '0'"),
        ("echo --until-idle=soon", "hi\n", "--until-idle takes milliseconds"),
        ("echo -f html", "hi\n", "-f takes one of markdown, text, json, not 'html'"),
        ("echo -o 7up", "hi\n", "-o takes a variable's name, not '7up'"),
        ("echo --schema Persn", "hi\n", "--schema Persn: there is no such variable; did you mean Person?"),
        ("echo --tools Persn", "hi\n", "--tools Persn: there is no such variable; did you mean Person?"),
        ("echo --tools number", "hi\n", "--tools number: int is no function"),
        ("echo --tools Person", "hi\n", "a tool is a function, not the class object"),
        ("echo --tools", "hi\n", "--tools needs a value"),
        ("echo --resource me", "hi\n", "give --thread too"),
        ("echo --url http://x", "hi\n", "echo is a variable here"),
        ("echo something else", "hi\n", "the cell's body is the prompt: what is 'something else'"),
        ("echo", " \n", "the prompt is empty"),
        ("echo", None, "the prompt is empty: %mastra_stream echo prompt"),
        ("echo What? --out run", None, "--out stands within the prompt"),
    ],
)
def test_a_wrong_line_is_one_short_error_that_says_what_to_write(
    shell: InteractiveShell, line: str, cell: str | None, words: str
) -> None:
    shell.user_ns |= {"echo": Echo(), "Person": object, "number": 3}
    with pytest.raises(SettingsError) as error:
        ask(shell, line, cell)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert shell.user_ns["echo"].asked == []


def test_an_error_is_shown_in_one_line(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell("%%mastra_stream echo --tread x\nhi")
    assert not result.success
    said = capsys.readouterr()
    assert (said.out + said.err).strip() == "SettingsError: there is no option --tread: did you mean --thread?"


# --- endings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "raised", "words"),
    [
        ("tools", None, ""),
        ("error", MastraStreamError, "provider went away"),
        ("durable-cut", StreamTruncated, "the connection ended before the run did"),
        ("approve", None, ""),
        ("aborted", None, ""),
        ("tripwire", None, ""),
    ],
)
def test_failed_and_cut_runs_raise_and_the_output_is_bound_all_the_same(
    shell: InteractiveShell,
    capsys: pytest.CaptureFixture[str],
    name: str,
    raised: type[NbMastraError] | None,
    words: str,
) -> None:
    shell.user_ns["agent"] = Recorded(name)
    result = shell.run_cell("%%mastra_stream agent -o out -q\nhi")
    assert isinstance(result.error_in_exec, raised) if raised else result.success
    said = capsys.readouterr()
    assert (said.out + said.err).count("\n") == (1 if raised else 0)
    assert words in said.out + said.err
    assert shell.user_ns["out"].done
    assert shell.run_cell("%%mastra_stream agent -o out -q --no-raise\nhi").success


def test_an_object_that_does_not_fit_its_schema_raises(shell: InteractiveShell) -> None:
    shell.user_ns |= {"agent": Recorded("object"), "City": {"type": "object", "required": ["zip"]}}
    with pytest.raises(ObjectError, match="zip"):
        ask(shell, "agent --schema City -q")
    ask(shell, "agent --schema City -q --no-raise")


def test_what_a_server_says_is_no_command_in_an_error(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    class Evil:
        def stream(self, messages: Any) -> MastraModelOutput:
            error = {
                "type": "error",
                "runId": "r",
                "from": "AGENT",
                "payload": {"error": {"message": "\x1b]0;x\x07\x9b2J!"}},
            }
            return MastraModelOutput.from_chunks([error])

    shell.user_ns["evil"] = Evil()
    assert not shell.run_cell("%mastra_stream evil hi").success
    said = capsys.readouterr()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", said.out + said.err)


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_plain_ipython_shows_text(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["agent"] = Recorded("tools")
    for flags in ("", "-f text", "-f markdown"):
        ask(shell, f"agent {flags}")
        said = capsys.readouterr().out
        assert '→ weather(city="Paris")' in said
        assert said.splitlines()[-1].startswith("tools · Completed")


def test_json_shows_the_chunks_and_quiet_shows_nothing(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.user_ns["agent"] = Recorded("tools")
    ask(shell, "agent -f json -o out")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [chunk.to_wire() for chunk in shell.user_ns["out"].log.items]
    ask(shell, "agent -q")
    assert capsys.readouterr().out == ""


def test_an_output_as_a_cells_last_line_shows_itself(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.user_ns["out"] = _finished("tools").wait(10)
    shell.run_cell("out")
    assert "It is 21 °C in Paris." in capsys.readouterr().out


def test_in_the_background_plain_ipython_prints_nothing_over_the_prompt(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.user_ns["agent"] = demo_agent(speed=50)
    ask(shell, "agent --background -o out")
    assert shell.user_ns["out"].wait(20).status == "success"
    assert capsys.readouterr().out == "the run goes on in the background; out is its output\n"


def test_on_a_terminal_an_interrupt_stops_the_run_and_keeps_what_came(tmp_path: Path) -> None:
    env = {**os.environ, "IPYTHONDIR": str(tmp_path), "TERM": "xterm"}
    words = ["-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=nocolor"]
    child = pexpect.spawn(sys.executable, words, env=env, encoding="utf-8", timeout=60, dimensions=(40, 120))

    def enter(line: str) -> None:
        child.expect(r"In \[\d+\]: ")
        child.sendline(line)

    enter("%load_ext nbmastra")
    enter("from nbmastra import demo_agent; trip = demo_agent()")
    enter("%mastra_stream trip -o out hi")
    child.expect("→ forecast")
    child.sendintr()
    child.expect("trip · Stopped")
    child.expect("KeyboardInterrupt: the run was stopped; what came is kept in out")
    enter("print(out.status, len(out.tool_calls) > 0)")
    child.expect("cancelled True")
    enter("exit()")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


# --- recording -------------------------------------------------------------------------------------------------------


def test_runs_are_recorded_where_one_says(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.user_ns["agent"] = Recorded("tools")
    ask(shell, "agent -q --record one.jsonl -o out")
    configure(record_dir=tmp_path / "all")
    ask(shell, "agent -q -o out2")
    paths = [tmp_path / "one.jsonl"]
    until = time.monotonic() + 10
    while len(paths) < 2 or any(load_recording(path).status != "success" for path in paths):
        paths = [tmp_path / "one.jsonl", *(tmp_path / "all").glob("*.jsonl")]
        assert time.monotonic() < until
    assert [load_recording(path).stream_id for path in paths] == [
        shell.user_ns["out"].stream_id,
        shell.user_ns["out2"].stream_id,
    ]


# --- %mastra ---------------------------------------------------------------------------------------------------------


def test_help_lists_every_option_and_version_tells_the_version(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("mastra", "help")
    said = capsys.readouterr().out
    flags = "--url --thread --resource --until-idle --schema --max-steps --out --background --format --quiet --no-raise"
    for flag in flags.split():
        assert flag in said
    ask(shell, "--help", None)
    assert capsys.readouterr().out == said
    assert "--until-idle" in (shell.magics_manager.magics["cell"]["mastra_stream"].__doc__ or "")
    shell.run_line_magic("mastra", "version")
    assert capsys.readouterr().out == f"nbmastra {nbmastra.__version__}\n"
    with pytest.raises(SettingsError, match="did you mean list"):
        shell.run_line_magic("mastra", "lst")


def test_the_agent_in_use_needs_no_name(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    echo = shell.user_ns["echo"] = Echo()
    shell.run_line_magic("mastra", "use echo")
    ask(shell, "-q")
    ask(shell, "", "second\n")
    assert [prompt for prompt, _ in echo.asked] == ["hi", "second"]
    shell.run_line_magic("mastra", "use")
    assert "in use: echo" in capsys.readouterr().out


def test_the_servers_address_is_shown_without_secrets(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("mastra", "url http://ada:hunter2@localhost:4999/?token=hunter3")
    shell.run_line_magic("mastra", "url")
    said = capsys.readouterr().out
    assert said == "server: http://localhost:4999\n" * 2
    assert "hunter" not in repr(settings)
    with pytest.raises(SettingsError):
        shell.run_line_magic("mastra", "url ftp://x")
    assert "4999" in (settings.url or "")


def print_it(what: str) -> str:
    """Print it."""
    return what


def test_functions_of_the_notebook_are_tools_by_name(shell: InteractiveShell) -> None:
    echo = shell.user_ns["echo"] = Echo()
    shell.user_ns |= {"print_it": print_it, "other": tool(name="second")(print_it)}
    ask(shell, "echo -q --tools print_it,other")
    ((_, options),) = echo.asked
    assert list(options["tools"]) == ["print_it", "second"]


@pytest.mark.server
def test_a_servers_agent_gets_them_as_tools_of_the_caller(shell: InteractiveShell, mastra_server: MastraServer) -> None:
    def head_of_table(rows: int) -> int:
        return rows

    shell.user_ns["head_of_table"] = head_of_table
    ask(shell, f"client-echo --url {mastra_server.url} -q -o out --tools head_of_table")
    assert [(call.status, call.result) for call in shell.user_ns["out"].state.tool_calls] == [("success", 2)]


def completions(shell: InteractiveShell, text: str) -> list[str]:
    with provisionalcompleter():
        return [completion.text for completion in shell.Completer.completions(text, len(text))]


def test_tab_offers_agents_options_and_commands(shell: InteractiveShell) -> None:
    shell.user_ns |= {"my_agent": Echo(), "my_number": 3}
    settings.url = "http://127.0.0.1:9"  # nobody answers: only variables are offered
    assert completions(shell, "%%mastra_stream my_") == ["my_agent"]
    assert completions(shell, "%mastra_stream -q my_") == ["my_agent"]
    assert completions(shell, "%%mastra_stream my_agent --ba") == ["--background"]
    assert completions(shell, "%%mastra_stream my_agent -f ") == ["json", "markdown", "text"]
    assert completions(shell, "%mastra u") == ["url", "use"]
    shell.user_ns |= {"my_function": lambda: 1, "my_other": tool(name="other")(print_it)}
    for typed in ("--tools my_", "--tools=my_", "--tools my_other,my_"):
        assert completions(shell, f"%%mastra_stream my_agent {typed}") == ["my_function", "my_other"]
    assert completions(shell, "%mastra use my_") == ["my_agent"]


@pytest.mark.server
def test_agents_of_a_server(
    shell: InteractiveShell, mastra_server: MastraServer, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("mastra", f"url {mastra_server.url}")
    assert "bad-args" in completions(shell, "%%mastra_stream bad")
    assert completions(shell, "%mastra use super") == ["supervisor"]
    shell.user_ns["local"] = Echo()
    capsys.readouterr()
    shell.run_line_magic("mastra", "list")
    said = capsys.readouterr().out
    assert "in this notebook: local" in said
    assert "weather" in said
    shell.run_line_magic("mastra", "use tools")
    ask(shell, "-o out")
    assert shell.user_ns["out"].text.result() == "It is 21 °C in Paris."
    with pytest.raises(NbMastraError, match="Did you mean 'tools'"):
        shell.run_line_magic("mastra", "use tols")


@pytest.mark.server
def test_a_variable_wins_over_a_servers_agent(shell: InteractiveShell, mastra_server: MastraServer) -> None:
    configure(url=mastra_server.url)
    ask(shell, "text -q -o out")
    assert shell.user_ns["out"].context["url"] == mastra_server.url
    shell.user_ns["text"] = Recorded("tools")
    ask(shell, "text -q -o out")
    assert shell.user_ns["out"].agent == "tools"
    shell.user_ns["text"] = "not an agent"
    ask(shell, "text -q -o out")
    assert shell.user_ns["out"].context["url"] == mastra_server.url
