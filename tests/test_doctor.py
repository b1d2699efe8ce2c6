"""`nbmastra doctor`: what it finds here, at a server, and where nothing answers."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from typing import Any

import pytest

from nbmastra import doctor
from nbmastra.cli import main
from nbmastra.client.address import TOKEN_VARIABLE, URL_VARIABLE
from nbmastra.doctor import SUPPORTED_MASTRA, Check, examine, report
from tests.client.tiny_server import Request, answer, tiny_server
from tests.support.mastra import MastraServer


@pytest.fixture(autouse=True)
def no_server_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def nowhere() -> str:
    """An address where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.server
def test_a_real_server_is_found_and_the_exit_code_is_0(
    mastra_server: MastraServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--url", mastra_server.url]) == 0
    printed = capsys.readouterr().out
    assert "answers, " in printed
    assert f"made for {SUPPORTED_MASTRA}" in printed
    assert "MISSING" not in printed


def test_where_nothing_answers_it_says_what_to_do_and_the_exit_code_is_1(
    nowhere: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--url", nowhere]) == 1
    printed = capsys.readouterr().out
    assert f"MISSING {nowhere}" in printed
    assert "npx mastra dev" in printed


def test_as_json_every_finding_is_an_object(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--url", nowhere, "--json"]) == 1
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {entry["group"] for entry in found} == {"packages", "notebook", "development", "server"}
    assert found[-1]["state"] == "missing"
    assert set(found[0]) == {"group", "name", "state", "detail", "remedy"}


def test_an_address_that_is_none_is_said_before_anything_is_asked() -> None:
    check = list(examine("ftp://nowhere"))[-1]
    assert (check.name, check.state) == ("address", "missing")


@pytest.mark.parametrize(
    ("version", "state"), [("1.71.0", "ok"), ("1.29.3", "ok"), ("1.28.0", "warning"), ("2.0.0-beta.1", "warning")]
)
def test_a_server_of_a_version_that_is_not_supported_is_a_warning(version: str, state: str) -> None:
    packages = {"packages": [{"name": "@mastra/core", "version": version}]}

    def handler(request: Request) -> list[bytes]:
        return [answer(200, json.dumps(packages if "system" in request.target else {}))]

    with tiny_server() as server:
        server.handler = handler
        check = by_name(list(examine(server.url)))["@mastra/core"]
    assert (check.state, version in check.detail) == (state, True)


def test_a_missing_package_comes_with_its_remedy(monkeypatch: pytest.MonkeyPatch, nowhere: str) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("pandas", "genai-prices", "ipykernel"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    found = by_name(list(examine(nowhere)))
    assert (found["pandas"].state, "pip install" in found["pandas"].remedy) == ("missing", True)
    assert (found["genai-prices"].state, "nbmastra[prices]" in found["genai-prices"].remedy) == ("warning", True)
    assert (found["ipykernel"].state, "nbmastra[lab]" in found["ipykernel"].remedy) == ("warning", True)


def test_what_a_server_says_can_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([Check("server", "x\x1b[2J", "missing", "a\nb\x1b]0;t\x07", "c\r")]) == 1
    assert "\x1b" not in (printed := capsys.readouterr().out)
    assert printed.count("\n") == 3
