"""Every notebook runs from top to bottom in a fresh kernel, without a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SHOWN = {
    "02-dashboard": ["Lakeside meadow", "4 agents × 3 prompts", "Conversation as plain output", "Seynod"],
    "03-background-tasks": [
        "background-task-resumed",
        "Three tasks are under way.",
        "the report is published.",
        "on the cluster: completed, cancelled, completed",
    ],
    "06-client-tools": ["Borea", "has the highest mean", "stands in"],
    "04-usage-analysis": ["no price for in-house-1", "campsites", "Rate limit reached", "nbm-picture"],
}
"""What the pages of notebooks hold; where nothing is said, the demo's answer."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.timeout(300)  # a kernel's start and some seconds of computing, on a busy machine
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_runs_top_to_bottom_and_shows_its_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("MASTRA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[dict[str, Any]] = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    page, _ = HTMLExporter().from_notebook_node(notebook)
    for words in SHOWN.get(path.stem, ["Lakeside meadow"]):
        assert words in page
