"""An executed notebook as a web page: what every widget showed is in it, without kernel and without script."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

pytestmark = pytest.mark.server  # a kernel of its own

CELLS = [
    "from nbmastra import RunView, TasksTable, Timeline, ToolCallsTable, UsageView, demo_agent\n"
    "out = await demo_agent(speed=None).stream('Where do I ride?')\nout",
    "import nbmastra\nout.wait()\nout = nbmastra.load_recording(nbmastra.demo_recording())\nout",
    "ToolCallsTable(out)",
    "TasksTable(out)",
    "Timeline(out)",
    "UsageView(out)",
]
WORDS = [
    "Ride round the lake on Saturday",
    "Ride round the lake on Saturday",
    "campsites",
    "Progress or output",
    "campsites",
    "1,280",
]


def test_nbconvert_shows_what_every_widget_showed() -> None:
    """B50"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=120, kernel_name="python3", store_widget_state=False).execute()
    for cell, words in zip(notebook.cells, WORDS, strict=True):
        plain = [output.data for output in cell.outputs if "text/html" in output.get("data", {})]
        alone = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[*cell.outputs])])
        page, _ = HTMLExporter().from_notebook_node(alone)
        assert any(words in data["text/html"] for data in plain), cell.source
        assert words in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL), cell.source
