"""An agent of this kernel in a real JupyterLab: it streams, asks for approval, goes on, and shows its tables."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

AGENT = '''\
%load_ext nbmastra
from nbmastra import Agent, tool
from nbmastra.testing import ScriptedModel, call, say

@tool(require_approval=True)
def deploy(target: str) -> dict:
    """Deploys."""
    print(f"deploying to {target}")
    return {"deployed": target}

script = [[say("I deploy it."), call("deploy", target="prod")], [say("**Deployed** to prod.")]]
ops = Agent("ops", model=ScriptedModel(script, delay_s=0.01), tools=[deploy])
'''
ASK = "%%mastra_stream ops --out run\nDeploy, please."
TABLE = "run.next.tool_calls_df()[['tool_name', 'status']]"


def test_a_local_agent_asks_in_its_cell_and_goes_on_when_it_is_approved(notebook_page: NotebookPage) -> None:
    notebook_page.open("ops.ipynb", [AGENT, ASK, TABLE])
    notebook_page.run(0)
    notebook_page.run(1)
    output = notebook_page.outputs(1)
    expect(output).to_contain_text("deploy")
    output.get_by_role("button", name=re.compile("Approve")).first.click()
    expect(output).to_contain_text("Deployed to prod.")
    notebook_page.run(2)
    expect(notebook_page.outputs(2)).to_contain_text("success")
