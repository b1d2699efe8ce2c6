"""Functions of a notebook as tools of a real server's agent, in a real JupyterLab."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.support.lab import NotebookPage
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.browser

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06-client-tools.ipynb"


def test_a_remote_agent_answers_from_a_table_of_the_kernel(
    notebook_page: NotebookPage, mastra_server: MastraServer
) -> None:
    cells = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    asks = next(i for i, cell in enumerate(cells) if cell.startswith("%%mastra_stream"))
    cells[0] = f'import os\n\nos.environ["MASTRA_API_URL"] = "{mastra_server.url}"\n' + cells[0].replace(
        "%load_ext nbmastra", 'get_ipython().run_line_magic("load_ext", "nbmastra")'
    )
    notebook_page.open("client-tools.ipynb", cells[: asks + 1])
    for i in range(asks):
        notebook_page.run(i)
    output = notebook_page.run(asks).first
    expect(output).to_contain_text("Borea has the highest mean")
    expect(output).to_contain_text("Completed analyst")
    calls = output.locator("details", has=notebook_page.page.locator("summary code"))
    expect(calls).to_have_count(2)
    expect(calls.last).to_contain_text("mean_by")
    assert notebook_page.outputs(asks).count() == 1  # what the functions print isn't beside it


def test_a_call_of_a_function_waits_for_the_button(notebook_page: NotebookPage, mastra_server: MastraServer) -> None:
    define = """from nbmastra import tool

ran = []

@tool(require_approval=True)
def head_of_table(rows: int) -> list[int]:
    \"\"\"The first rows.\"\"\"
    ran.append(rows)
    return list(range(rows))"""
    ask = f"%%mastra_stream client-echo --url {mastra_server.url} --tools head_of_table --out out\nlook"
    notebook_page.open("approve-function.ipynb", ["%load_ext nbmastra", define, ask, "ran, out.next.status"])
    notebook_page.run(0)
    notebook_page.run(1)
    notebook_page.start(2)
    view = notebook_page.cell(2)
    button = view.get_by_role("button", name="Approve")
    expect(button).to_be_visible()
    button.click()
    expect(view).to_contain_text('"k1"')
    notebook_page.run(3)
    assert notebook_page.output_text(3) == "([2], 'success')"
