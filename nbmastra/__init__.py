"""Watch, steer and analyse Mastra agents from a notebook.

    from nbmastra import MastraClient
    out = await MastraClient("http://localhost:4111").agent("weather").stream("Weather in Paris?")
    out                                     # the live view
    await out.text

    %load_ext nbmastra
    %%mastra_stream weather
    What's the weather in Paris?

Importing this loads the chunks; output, client, widgets and all else are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbmastra._version import __version__
from nbmastra.chunks import Chunk, UnknownChunk, parse_chunk
from nbmastra.errors import NbMastraError
from nbmastra.hooks import hooks

if TYPE_CHECKING:
    from nbmastra.client import MastraClient, RemoteAgent
    from nbmastra.config import configure
    from nbmastra.demo import demo_agent
    from nbmastra.output import MastraModelOutput
    from nbmastra.recording import RecordedAgent, demo_recording, load_recording, record, replay
    from nbmastra.run_diff import diff
    from nbmastra.runtime import Agent
    from nbmastra.tools import ToolContext, tool
    from nbmastra.widgets.chat import Chat
    from nbmastra.widgets.compare import compare
    from nbmastra.widgets.dashboard import Dashboard
    from nbmastra.widgets.replay import Replay
    from nbmastra.widgets.run_view import RunView
    from nbmastra.widgets.snapshot import snapshot
    from nbmastra.widgets.tasks_table import TasksTable
    from nbmastra.widgets.timeline import Timeline
    from nbmastra.widgets.tool_calls_table import ToolCallsTable
    from nbmastra.widgets.usage_view import UsageView

__all__ = [
    "Agent",
    "Chat",
    "Chunk",
    "Dashboard",
    "MastraClient",
    "MastraModelOutput",
    "NbMastraError",
    "RecordedAgent",
    "RemoteAgent",
    "Replay",
    "RunView",
    "TasksTable",
    "Timeline",
    "ToolCallsTable",
    "ToolContext",
    "UnknownChunk",
    "UsageView",
    "__version__",
    "compare",
    "configure",
    "demo_agent",
    "demo_recording",
    "diff",
    "load_recording",
    "parse_chunk",
    "record",
    "replay",
    "snapshot",
    "tool",
]

_LAZY = {
    "Agent": "nbmastra.runtime",
    "ToolContext": "nbmastra.tools",
    "tool": "nbmastra.tools",
    "MastraModelOutput": "nbmastra.output",
    "MastraClient": "nbmastra.client",
    "RemoteAgent": "nbmastra.client",
    "configure": "nbmastra.config",
    "RecordedAgent": "nbmastra.recording",
    "demo_agent": "nbmastra.demo",
    "demo_recording": "nbmastra.recording",
    "load_recording": "nbmastra.recording",
    "record": "nbmastra.recording",
    "replay": "nbmastra.recording",
    "Replay": "nbmastra.widgets.replay",
    "diff": "nbmastra.run_diff",
    "RunView": "nbmastra.widgets.run_view",
    "Chat": "nbmastra.widgets.chat",
    "Dashboard": "nbmastra.widgets.dashboard",
    "compare": "nbmastra.widgets.compare",
    "snapshot": "nbmastra.widgets.snapshot",
    "TasksTable": "nbmastra.widgets.tasks_table",
    "ToolCallsTable": "nbmastra.widgets.tool_calls_table",
    "Timeline": "nbmastra.widgets.timeline",
    "UsageView": "nbmastra.widgets.usage_view",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext nbmastra`: the magics `%mastra_stream`, `%%mastra_stream` and `%mastra`."""
    import_module("nbmastra.magics").register(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext nbmastra`."""
    import_module("nbmastra.magics").unregister(ipython)


def _display(out: MastraModelOutput) -> None:
    import_module("nbmastra.display").show(out)


def _frame(name: str, out: MastraModelOutput, options: dict[str, Any]) -> Any:
    return import_module("nbmastra.frames").frame_of(name, out, options)


def _widget(name: str, out: MastraModelOutput, options: dict[str, Any]) -> Any:
    return __getattr__(name)(out, **options)


hooks.display = _display
hooks.widget = _widget
hooks.frame = _frame
