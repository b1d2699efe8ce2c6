"""The Tab key offers the names of models."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from nbmastra.magics import register, unregister


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    register(shell)
    yield shell
    unregister(shell)
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()
    InteractiveShell.clear_instance()


def completed(shell: InteractiveShell, text: str) -> list[str]:
    """The line as it is after choosing each of the offers."""
    with provisionalcompleter():
        found = list(shell.Completer.completions(text, len(text)))
    return [text[: offer.start] + offer.text + text[offer.end :] for offer in found]


def test_names_of_models_are_offered_within_their_argument(shell: InteractiveShell) -> None:
    head = 'agent = Agent("helper", model="'
    assert f"{head}anthropic:claude-haiku-5-5" in completed(shell, f"{head}anthropic:claude-h")
    assert f"{head}openai:gpt-6-luna" in completed(shell, f"{head}open")
    assert len(completed(shell, head)) > 20
    assert not [line for line in completed(shell, 'Agent(name="open') if "openai:" in line]
