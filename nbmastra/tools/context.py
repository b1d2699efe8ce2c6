"""What a running tool knows of its run, and how it speaks while it runs.

`ToolContext` knows nothing of chunks: whoever runs the tool gives it functions for what the tool writes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NoReturn, cast

from nbmastra.errors import SettingsError
from nbmastra.tools.abort import AbortSignal
from nbmastra.tools.results import to_json

__all__ = ["ToolContext", "ToolSuspended", "ToolWriter"]


class ToolSuspended(BaseException):
    """How `suspend` leaves the tool: no Exception, so that a tool's own `except Exception` lets it pass."""

    def __init__(self, data: Any, resume_schema: dict[str, Any] | None = None, run_state: Any = None) -> None:
        super().__init__("the tool waits for data")
        self.data = data
        self.resume_schema = resume_schema
        self.run_state = run_state
        """What a tool that is itself a run goes on from; JSON."""


class _Written:
    """What writing gives: done already, and can be awaited for those who like to."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_WRITTEN = _Written()


class ToolWriter:
    """Writes into the run while the tool runs: from any thread, with or without `await`."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def write(self, value: Any) -> _Written:
        """Write any value that can be JSON: a tool-output chunk. Raises ToolResultError for what can't."""
        self._context.deliver("write", to_json(value, what="what was written"))
        return _WRITTEN

    def custom(self, chunk: dict[str, Any]) -> _Written:
        """Write a chunk of your own: `{"type": "data-…", "data": …}`, with `id` and `transient` if you like.

        A transient one isn't kept in memory. Raises SettingsError, and ToolResultError for data that can't be JSON.
        """
        self._context.deliver("custom", _checked_custom(chunk))
        return _WRITTEN


def _checked_custom(chunk: object) -> dict[str, Any]:
    expected = 'writer.custom() takes {"type": "data-…", "data": …}'
    if not isinstance(chunk, dict):
        raise SettingsError(f"{expected}, not {type(chunk).__name__}")
    given = cast("dict[str, Any]", chunk)
    kind = given.get("type")
    if not isinstance(kind, str) or not kind.startswith("data-") or kind == "data-":
        raise SettingsError(f"{expected}: the type begins with 'data-', not {str(kind)[:60]!r}")
    unknown = sorted(str(key) for key in given.keys() - {"type", "data", "id", "transient"})
    if unknown:
        raise SettingsError(f"{expected}, and id, transient: not {', '.join(unknown)[:80]}")
    if not isinstance(given.get("transient", False), bool):
        raise SettingsError(f"{expected}: transient is True or False")
    if not isinstance(given.get("id", ""), str):
        raise SettingsError(f"{expected}: id is a text")
    return {"data": None, **to_json(given, what="the data")}


class ToolContext:
    """What a tool gets in a parameter annotated `ToolContext`; a model never sees that parameter.

    `request_context` is what the caller sent along, `messages` the conversation so far (wire dicts), `resume_data` the
    answer to `suspend`, None on the first call. `abort` tells when to stop.
    """

    def __init__(
        self,
        *,
        tool_call_id: str = "",
        tool_name: str = "",
        run_id: str | None = None,
        agent_id: str | None = None,
        thread_id: str | None = None,
        resource_id: str | None = None,
        request_context: dict[str, Any] | None = None,
        messages: Sequence[dict[str, Any]] = (),
        resume_data: Any = None,
        abort: AbortSignal | None = None,
        write: Callable[[Any], object] | None = None,
        custom: Callable[[dict[str, Any]], object] | None = None,
        printed: Callable[[str], object] | None = None,
    ) -> None:
        """`abort` is the run's signal; `write`, `custom` and `printed` are called on the loop that runs the tool."""
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.run_id = run_id
        self.agent_id = agent_id
        self.thread_id = thread_id
        self.resource_id = resource_id
        self.request_context: dict[str, Any] = request_context if request_context is not None else {}
        self.messages = messages
        self.resume_data = resume_data
        self.abort = AbortSignal(abort)
        self.writer = ToolWriter(self)
        self.run_state: Any = None
        """What it gave to `ToolSuspended` before."""
        self._sinks = {"write": write, "custom": custom, "printed": printed}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._ended = False

    def suspend(self, data: Any = None, *, resume_schema: dict[str, Any] | None = None) -> NoReturn:
        """Leave the tool and wait for data; it is called again from its start, with the answer in `resume_data`.

        `data` tells people what is waited for, `resume_schema` (JSON Schema) what the answer must look like. With or
        without `await`. Never returns. Raises ToolResultError for data that can't be JSON.
        """
        raise ToolSuspended(to_json(data, what="the suspend data"), resume_schema)

    # --- for whoever runs the tool ---------------------------------------------------------------------------------

    def printed(self, text: str) -> None:
        """What the tool printed; from any thread."""
        self.deliver("printed", text)

    def begin(self) -> None:
        """From now on everything is delivered on the running loop, in the order in which it was written."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def end(self) -> None:
        """The call is over: what its left-over threads write is dropped."""
        self._ended = True
        self.abort.detach()

    @property
    def ended(self) -> bool:
        """True once the call is over."""
        return self._ended

    def deliver(self, sink: str, value: Any) -> None:
        """Hand a value to one of the functions that the context was made with."""
        function = self._sinks[sink]
        if function is None or self._ended:
            return
        if self._loop is None or threading.get_ident() == self._thread:
            function(value)
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._now, function, value)

    def _now(self, function: Callable[[Any], object], value: Any) -> None:
        if not self._ended:
            function(value)

    def __repr__(self) -> str:
        return f"<ToolContext of {self.tool_name or 'no tool'}>"
