"""A kernel of the tests: a process with a manager on a store. `python -m tests.runtime.background.kernel URL WHAT`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import ToolContext, tool


@tool
def slow(folder: str, context: ToolContext) -> str:
    """Leave a mark for each attempt, and never end in the first."""
    mark = Path(folder) / f"attempt-{len(list(Path(folder).glob('attempt-*')))}"
    mark.touch()
    if mark.name == "attempt-0":
        context.abort.wait_blocking()
    return mark.name


@tool
def count(folder: str, n: int) -> int:
    """Leave a mark for each run."""
    with (Path(folder) / "runs").open("a") as file:
        file.write(f"{n}\n")
    return n


@tool
def review(context: ToolContext) -> str:
    """Ask."""
    if context.resume_data is None:
        context.suspend({"q": "ok?"})
    return f"said {context.resume_data}"


TOOLS = {one.name: one for one in (slow, count, review)}


@tool
def burn(seconds: float, context: ToolContext) -> int:
    """Compute, and say so before."""
    context.writer.write({"begins": True})
    end, sums = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        sums += 1
    return sums


@tool(background={"max_retries": 1})
def survey(folder: str, context: ToolContext) -> dict[str, Any]:
    """Never end in the first attempt; in the second, say what is known of the run."""
    mark = Path(folder) / "surveyed"
    if not mark.exists():
        mark.touch()
        context.abort.wait_blocking()
    said = [message["content"][0].get("text") for message in context.messages if message["role"] == "user"]
    return {"user_said": said, "request_context": context.request_context}


def surveyor(url: str, script: list[Any]) -> Agent:
    """An agent with that tool, and its memory in the same store."""
    manager = BackgroundTaskManager(url, poll_s=0.05)
    more: dict[str, Any] = {"memory": Memory(url), "background_tasks": manager}
    return Agent("surveyor", model=ScriptedModel(script), tools=[survey], **more)


AWAITED = {"disposition": "awaited"}


def main(url: str, what: str, folder: str) -> None:
    """Do one thing, say so, and wait to be killed."""
    manager = BackgroundTaskManager(url, poll_s=0.05)
    manager.register("a", TOOLS)
    match what:
        case "slow":
            manager.enqueue("slow", {"folder": folder}, agent="a", task_id="again", max_retries=1).result(30)
            manager.enqueue("slow", {"folder": f"{folder}/sub"}, agent="a", task_id="lost").result(30)
            asked = manager.enqueue("review", agent="a", task_id="asked").result(30)
            manager.wait_for_next(asked.id, 30).result(30)
            while not (Path(folder) / "attempt-0").exists() or not (Path(folder) / "sub" / "attempt-0").exists():
                time.sleep(0.01)
        case "count":
            for n in range(20):
                manager.enqueue("count", {"folder": folder, "n": n}, agent="a", task_id=f"n{n}").result(30)
        case "run":
            local = surveyor(url, [[call("survey", "s1", folder=folder, _background=AWAITED)], [say("Never said.")]])
            memory = {"thread": "t1", "resource": "u1"}
            context = {"tenant": "acme", "open": object()}
            out = local.stream("Survey it.", memory=memory, request_context=context).result(30)
            for chunk in out.full_stream:
                if chunk.type == "background-task-started":
                    break
            while not (Path(folder) / "surveyed").exists():
                time.sleep(0.01)
        case _:
            pass
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
