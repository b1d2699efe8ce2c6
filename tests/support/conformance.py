"""Pytest plugin: the table of conformance scenarios at the end of a test run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_TOLD = pytest.StashKey[dict[str, str]]()


@pytest.fixture
def record_conformance(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function that notes how a scenario compared: `equal`, `2 wanted` differences, or `differs`."""
    return request.config.stash.setdefault(_TOLD, {}).__setitem__


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    told = config.stash.get(_TOLD, {})
    if not told:
        return
    terminalreporter.section("conformance with a real Mastra server")
    for scenario, outcome in told.items():
        terminalreporter.write_line(f"{scenario:<28}{outcome}")
    equal = sum(outcome == "equal" for outcome in told.values())
    wanted = sum(outcome.endswith("wanted") for outcome in told.values())
    terminalreporter.write_line(f"{len(told)} scenarios: {equal} equal, {wanted} with wanted differences only")
