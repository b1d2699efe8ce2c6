"""What axe-core finds wrong with the widgets: nothing; in JupyterLab, light, dark, in high contrast and narrow."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.axe import violations
from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

SETUP = """\
import json
from types import SimpleNamespace
import anyio
from pydantic import BaseModel, Field
import nbmastra
from nbmastra import Agent, MastraModelOutput, Replay, RunView, demo_recording, diff, load_recording, snapshot, tool
from nbmastra.testing import ScriptedModel, call, fail, file, say, source, think

class Leg(BaseModel):
    place: str
    km: float = Field(le=100)

def chunk(kind, **payload):
    return {"type": kind, "runId": "r", "from": "AGENT", "payload": payload}

def run(*chunks, ends=True, **about):
    async def given():
        yield chunk("start", id="rider")
        yield chunk("step-start")
        for item in chunks:
            yield item
        if not ends:
            await anyio.sleep_forever()
        yield chunk("step-finish", stepResult={"reason": "stop"}, output={})
        yield chunk("finish", stepResult={"reason": "stop"}, output={})
    return MastraModelOutput.from_chunks(given(), prompt="Where do I ride?", **about)

def text(words):
    return chunk("text-delta", id="t", text=words)

def tool_call(id, name, **args):
    return chunk("tool-call", toolCallId=id, toolName=name, args=args)

def view(out):
    display(RunView(out)._repr_mimebundle_()[0], raw=True)  # the view itself, not what takes its place

finished = load_recording(demo_recording())
legs = [{"place": "Clères", "km": 24}, {"place": "Tôtes", "km": 410}, {"place": "Dieppe", "km": 41.5}]
"""

WIDGETS = {
    "a running run": """\
found = [{"h": n, "kmh": n * 2} for n in range(9)]
view(run(chunk("reasoning-delta", id="q", text="Thinking."), text("# Routes\\n\\n| a |\\n|-|\\n| 1 |\\n\\n`x`"),
    tool_call("c1", "forecast", place="Rouen"), tool_call("c2", "wind", hours=[1, 2]),
    chunk("tool-result", toolCallId="c2", toolName="wind", result=found), ends=False))
""",
    "a finished run": "view(finished)",
    "a failed run": """\
view(run(text("So"), chunk("tool-error", toolCallId="c1", toolName="f", error={"name": "TypeError", "message": "no"}),
    chunk("error", error={"message": "provider went away", "name": "E", "statusCode": 503, "stack": "at x"})))
""",
    "an approval and a form": """\
schema = {"type": "object", "required": ["speed"], "properties": {"speed": {"type": "number", "title": "Speed"},
    "bag": {"type": "string", "enum": ["day bag", "panniers"]}, "night": {"type": "boolean"}}}
async def answer(*_args, **_more): ...
control = SimpleNamespace(can=frozenset({"approve", "decline", "resume"}), answer=answer)
out = run(tool_call("c1", "book", train="14:06"), tool_call("c2", "ask"), chunk("tool-call-approval", toolCallId="c1",
    toolName="book", args={"train": "14:06"}), chunk("tool-call-suspended", toolCallId="c2", toolName="ask",
    suspendPayload={"question": "How fast?"}, resumeSchema=json.dumps(schema)), control=control).wait()
view(out)
""",
    "an array being written": """\
view(run(text(json.dumps({"elements": legs})[:-8]), ends=False, schema=list[Leg]))
""",
    "an object that fits": "view(run(text(json.dumps(legs[0])), schema=Leg).wait())",
    "an object that does not": "view(run(text(json.dumps(legs[1])), schema=Leg).wait())",
    "a replay": "Replay(demo_recording(), start=4)",
    "runs that wait": """\
from nbmastra.widgets.approvals import ApprovalsView
asked = SimpleNamespace(tool_call_id="c1", tool_name="ask", args={"a": 1}, suspend_payload={"q": "?"})
ApprovalsView([SimpleNamespace(agent="rider", run_id="r1", calls=[asked], suspended_at=None)])
""",
    "a snapshot": "display(snapshot(finished), raw=True)",
    "a snapshot of an array": """\
display(snapshot(run(text(json.dumps({"elements": legs})), schema=list[Leg]).wait()), raw=True)
""",
    "tool calls": "nbmastra.ToolCallsTable(finished)",
    "tasks": "nbmastra.TasksTable(finished)",
    "a timeline": "nbmastra.Timeline(finished)",
    "usage": "nbmastra.UsageView(finished)",
    "a dashboard": "nbmastra.Dashboard([finished])",
    "a chat": "nbmastra.Chat(Agent('rider', model=ScriptedModel([[say('Hello')]])))",
    "a comparison of two runs": "diff(finished, run(text('else')).wait())",
}


NARROW = """async () => {
  const shown = [...document.querySelectorAll("[data-axe]")];
  for (const el of shown) Object.assign(el.style, { flex: "none", width: "320px" });
  const found = [];
  for (const el of shown) {
    el.scrollIntoView();  // what is out of sight isn't drawn again
    const box = el.querySelector(".nbm") ?? el;
    const wide = () => box.scrollWidth > box.clientWidth + 1;
    for (let frame = 0; frame < 300 && (frame < 5 || wide()); frame++) await new Promise(requestAnimationFrame);
    if (wide()) found.push(`${el.dataset.axe}: ${box.scrollWidth} px wide`);
  }
  return found;
}"""


@pytest.mark.timeout(600)
def test_axe_finds_nothing_wrong_light_dark_in_high_contrast_and_narrow(notebook_page: NotebookPage) -> None:
    page = notebook_page.page
    notebook_page.open("axe.ipynb", [SETUP, *WIDGETS.values()])
    notebook_page.command("notebook:run-all-cells")
    notebook_page.wait_done(len(WIDGETS))
    for i, name in enumerate(WIDGETS, 1):
        shown = notebook_page.outputs(i).filter(has=page.locator(".nbm, details, table")).first
        shown.scroll_into_view_if_needed()
        shown.evaluate("(el, name) => { el.dataset.axe = name; }", name)
        shown.evaluate("el => el.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    expect(page.locator("[data-axe]")).to_have_count(len(WIDGETS))
    found: list[str] = []
    for theme in ("light", "dark", "dark high contrast"):
        notebook_page.theme(theme)  # type: ignore[arg-type]
        found += [f"{theme}, {problem}" for problem in violations(page, "[data-axe]")]
    found += page.evaluate(NARROW)
    found += [f"narrow, {problem}" for problem in violations(page, "[data-axe]")]
    print(*found, sep="\n")  # all of it, where pytest would cut
    assert found == []
