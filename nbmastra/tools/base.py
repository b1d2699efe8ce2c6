"""What all tools have in common, whatever runs when they are called."""

from __future__ import annotations

import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from nbmastra.errors import SettingsError, ToolInputError
from nbmastra.tools.context import ToolContext

__all__ = ["Background", "RequireApproval", "Tool", "check_name"]

RequireApproval = bool | Callable[[dict[str, Any]], Any]
"""Whether a call waits for approval; a function is asked with the arguments, and may be async."""

Background = bool | dict[str, Any] | None
"""Whether the tool may run in the background, and its settings."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What all providers take."""


def check_name(name: object) -> str:
    """The name, if it can be a tool's. Raises SettingsError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name) if len(repr(name)) <= 80 else f"{repr(name)[:77]}..."
        raise SettingsError(
            f"{shown} can't be a tool's name: use 1 to 64 letters, digits, _ or - (give one with @tool(name=…))"
        )
    return name


class Tool(ABC):
    """A tool: what a model is told of it, how its arguments are checked, and how it is run.

    `parameters` is the JSON Schema of its arguments, an object. `background` is kept as given, for the agent.
    """

    name: str
    description: str
    require_approval: RequireApproval = False
    background: Background = None
    strict: bool | None = None

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, an object."""

    @abstractmethod
    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the tool takes them. Raises ToolInputError."""

    @abstractmethod
    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run it with checked arguments; gives JSON.

        Raises what the tool raises, ToolSuspended where it waits for data, ToolResultError if the result isn't JSON.
        """

    def parse(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """Checked arguments from what a model wrote: a text of JSON, or values by name; nothing stands for none.

        Raises ToolInputError, which holds what the model is to be told.
        """
        if arguments is None:
            arguments = {}
        if isinstance(arguments, str):
            arguments = _object(self.name, arguments)
        return self.check(dict(arguments))

    async def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a call with these arguments, as they came, waits for approval; a check that fails says yes."""
        wanted = self.require_approval
        if not callable(wanted):
            return wanted
        try:
            answer = wanted(arguments)
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Exception:  # a user's function: whoever asks for approval in doubt does no harm
            return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _object(name: str, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value: object = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(":")[0]
        raise ToolInputError(name, [((), f"not JSON: {reason}")], raw=text) from None
    if not isinstance(value, dict):
        raise ToolInputError(name, [((), "not an object of arguments by name")], raw=text)
    return cast("dict[str, Any]", value)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
