"""`%mastra history`, in plain IPython and in a real kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbmastra.client import MastraClient
from nbmastra.config import settings
from nbmastra.errors import SettingsError
from nbmastra.history_summary import history_command, summary
from tests.client.test_run_history import Traces, run
from tests.client.tiny_server import TinyServer, tiny_server
from tests.support.kernel import Kernel
from tests.support.mastra import MastraServer
from tests.support.traces import weather


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with tiny_server() as server:
        monkeypatch.setattr(settings, "url", server.url)
        failed = {"error": {"message": "no such city", "name": "CityError"}}
        server.handler = Traces(
            run(3, agent="ops", days_ago=1),
            run(2, agent="ops", days_ago=2, **failed),
            weather("t9"),
            run(1, days_ago=9),
        )
        yield server


def test_it_shows_a_row_an_agent_and_one_of_all(server: TinyServer, capsys: pytest.CaptureFixture[str]) -> None:
    history_command("", {})
    head, columns, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith(f"4 runs at {server.url}, 2026-11-20 09:30 to ")
    assert columns.split()[:5] == ["runs", "success", "failed", "waiting", "other"]
    assert [row.split()[:4] for row in rows] == [
        ["weather", "2", "2", "0"],
        ["ops", "2", "1", "1"],
        ["all", "4", "3", "1"],
    ]
    assert rows[0].split()[-2:] == ["62", "-"]


def test_its_options_choose_what_it_asks_for(server: TinyServer, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    history_command("--last 36h -o recent", names)
    assert [out.stream_id for out in names["recent"]] == ["a3"]  # type: ignore[attr-defined]
    assert "recent has them: recent.runs_df()" in capsys.readouterr().out
    for line in ("--agent ops --limit 1 -o found", "ops --limit 1 -o found"):
        history_command(line, names)
        assert [out.stream_id for out in names["found"]] == ["a3"]  # type: ignore[attr-defined]
    history_command("--until 30d", {})
    assert capsys.readouterr().out.splitlines()[-1] == f"0 runs at {server.url}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--last lately", "since='lately'"),
        ("ops and more", "what is 'and more'"),
        ("ops --agent weather", "what is 'ops'"),
        ("-o 7up", "-o takes a variable's name"),
        ("--frm 7d", "there is no option --frm"),
        ("--limit none", "--limit takes a whole number above 0"),
    ],
)
def test_what_is_wrong_is_told(line: str, words: str, server: TinyServer) -> None:
    with pytest.raises(SettingsError, match=words):
        history_command(line, {})


def test_names_of_a_hostile_server_are_plain_text(server: TinyServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.handler = Traces(run(1, agent="\x1b[31m<b>evil</b>\nline"))
    history_command("", {})
    told = capsys.readouterr().out
    assert "\x1b" not in told
    frame = summary(MastraClient(server.url).history().result(10))
    assert len(frame) == 1
    assert "<b>" not in frame._repr_html_()  # type: ignore[operator]


@pytest.mark.server
def test_in_a_kernel_it_is_a_table(kernel: Kernel, mastra_server: MastraServer, tmp_path: Path) -> None:
    kernel.run(f"import os; os.environ['XDG_CACHE_HOME'] = {str(tmp_path)!r}")
    kernel.run("%load_ext nbmastra")
    kernel.run(f"%mastra url {mastra_server.url}")
    kernel.run("%mastra_stream tools -q Weather")
    client = MastraClient(mastra_server.url)
    while not client.traces().result(10):
        pass  # servers write spans some seconds late
    shown = kernel.run("%mastra history tools --last 1h -o h")
    # A slow server has a progress bar beside it.
    [table] = [one for one in shown.of("display_data") if "<table" in one["data"].get("text/html", "")]
    assert "tools" in table["data"]["text/plain"]
    assert "h has them: h.runs_df()" in shown.text
    assert json.loads(kernel.run("print(len(h.tool_calls_df()) % 2)").text) == 0
    assert "%mastra history [--last 7d]" in kernel.run("%mastra help").text
