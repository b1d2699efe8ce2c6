"""The notebook of client tools, with a real server: its agent answers from a table that only the kernel has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from tests.support.mastra import MastraServer

PATH = Path(__file__).parents[1] / "notebooks" / "06-client-tools.ipynb"


@pytest.mark.server
def test_a_servers_agent_answers_from_a_table_of_the_kernel(
    mastra_server: MastraServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("MASTRA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MASTRA_API_URL", mastra_server.url)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(PATH, as_version=4)
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[dict[str, Any]] = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert printed == f"analyst at {mastra_server.url}\n"  # what the tools print goes to the run
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert "Borea</strong> has the highest mean" in page
    assert "mean of rain_mm over 12 rows" in page
    assert "<td>8.5" in page
