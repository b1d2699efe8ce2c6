"""What the Tab key offers: after the magics agents, options, commands; within `model="…"` the models' names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from IPython.core import completer
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from nbmastra.client import MastraClient
from nbmastra.errors import ClientError, SettingsError
from nbmastra.run_options import Option
from nbmastra.runtime.providers import known_models

__all__ = ["AgentIds", "complete"]

COMMANDS = ("list", "use", "url", "approvals", "dashboard", "history", "tasks", "resume", "cancel", "help", "version")
_MAGIC = re.compile(r"\s*%%?(mastra_stream|mastra)\s(.*)", re.DOTALL)
_MODEL = re.compile(r"""\bmodel\s*=\s*["']([\w.:/@-]*)$""")
_PATIENCE_S = 1.0
_KEPT_S = 20.0


class AgentIds:
    """The agents of the server in use; asked for at most every 20 s, for at most one second."""

    def __init__(self, client: Callable[[], MastraClient]) -> None:
        self._client = client
        self._ids: list[str] = []
        self._asked_at = float("-inf")

    def forget(self) -> None:
        """Ask anew next time."""
        self._asked_at = float("-inf")

    def __call__(self) -> list[str]:
        """The ids; none if there is no server."""
        if time.monotonic() - self._asked_at > _KEPT_S:
            self._asked_at = time.monotonic()
            request = self._client().agents()
            try:
                self._ids = request.result(timeout=_PATIENCE_S).ids
            except (ClientError, TimeoutError):
                request.cancel()
                self._ids = []
        return self._ids


def complete(
    agent_ids: Callable[[], Iterable[str]],
    variables: Callable[[], Iterable[str]],
    options: Sequence[Option],
    tools: Callable[[], Iterable[str]] = tuple,
    shown: Callable[[], Iterable[str]] = tuple,
) -> Any:
    """A matcher for IPython's `Completer.custom_matchers`; `shown`: variables that a dashboard can show."""

    def candidates(magic: str, before: str, token: str) -> list[str]:
        words = before.split()
        if magic == "mastra":
            if not words:
                return list(COMMANDS)
            if words == ["dashboard"]:
                return ["server", *shown()]
            return [*variables(), *agent_ids()] if words == ["use"] else []
        by_flag = {flag: option for option in options for flag in option.flags}
        if token.startswith("-"):
            return [flag for flag in by_flag if flag.startswith("--")]
        last = by_flag.get(words[-1]) if words else None
        if _in_tools(words, before):
            return list(tools())
        if last is not None and last.metavar and last.value_needed:
            return list(last.choices)
        return [] if _has_agent(words, by_flag) else [*variables(), *agent_ids()]

    @cast("Any", completer).context_matcher()
    def mastra_matcher(context: CompletionContext) -> SimpleMatcherResult:
        if (model := _MODEL.search(context.text_until_cursor)) is not None:
            return _models(model[1])
        found = _MAGIC.fullmatch(context.text_until_cursor)
        names: list[str] = []
        if found is not None:
            before = found[2].removesuffix(context.token)
            names = [name for name in candidates(found[1], before, context.token) if name.startswith(context.token)]
        return {
            "completions": [SimpleCompletion(text=name, type="param") for name in dict.fromkeys(names)],
            "suppress": bool(names),
        }

    return mastra_matcher


def _models(typed: str) -> SimpleMatcherResult:
    try:
        names = [name for name in known_models() if name.startswith(typed)]
    except SettingsError:  # the extra isn't installed
        names = []
    found = [SimpleCompletion(text=name, type="param") for name in names]
    return {"completions": found, "matched_fragment": typed, "suppress": bool(names)}


def _in_tools(words: list[str], before: str) -> bool:
    """Whether a name is due behind `--tools`, the first or one behind a comma."""
    if not words:
        return False
    return words[-1] in ("--tools", "--tools=") if before[-1].isspace() else _OPEN_TOOLS.search(before) is not None


_OPEN_TOOLS = re.compile(r"--tools[\s=]+(?:\w+\s*,)*$|--tools=$")


def _has_agent(words: list[str], by_flag: dict[str, Option]) -> bool:
    values_due = 0
    for word in words:
        option = by_flag.get(word)
        if values_due:
            values_due = 0
        elif option is not None:
            values_due = int(bool(option.metavar) and option.value_needed)
        elif not word.startswith("-"):
            return True
    return False
