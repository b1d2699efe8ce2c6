"""What the task manager promises: states, slots, retries, time-outs, cancellation, suspension."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from nbmastra.errors import AlreadyResumed, ControlError, NotSuspended, SettingsError
from nbmastra.runtime.background.manager import BackgroundTaskManager, QueueFull
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.background.states import LIVE, TERMINAL, may_move
from nbmastra.tools import ToolContext, as_tool
from tests.runtime.background.conftest import Make


class Gate:
    """A tool that says when it has begun and waits to be let go; on the engine's loop."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.open = threading.Event()
        self.started = threading.Semaphore(0)

    async def work(self, n: int = 0) -> int:
        """Wait."""
        self.begun += 1
        self.started.release()
        try:
            await asyncio.to_thread(self.open.wait, 10)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return n

    def wait_started(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.started.acquire(timeout=10)


def end_of(manager: BackgroundTaskManager, task: BackgroundTask) -> BackgroundTask:
    return manager.wait_for_next(task.id, 20).result(25)


def kinds(manager: BackgroundTaskManager, task: BackgroundTask) -> list[str]:
    return [chunk["type"].removeprefix("background-task-") for chunk in manager.tasks.chunks(task.id)]


def test_terminal_states_are_final_and_only_resume_lets_a_suspended_task_run_again() -> None:
    acts = ("claim", "retry", "suspend", "resume", "end", "cancel")
    for state in TERMINAL:
        assert not any(may_move(state, to, act) for to in LIVE | TERMINAL for act in acts)  # type: ignore[arg-type]
    leaves = [(to, act) for to in LIVE for act in acts if may_move("suspended", to, act)]  # type: ignore[arg-type]
    assert leaves == [("pending", "resume")]


def test_a_task_runs_and_its_record_and_chunks_tell_it(make: Make) -> None:
    manager = make()

    async def research(topic: str, context: ToolContext) -> dict[str, str]:
        """Look it up."""
        context.writer.write({"pct": 50})
        return {"summary": topic}

    task = manager.enqueue(research, {"topic": "x"}, agent="a", thread="t", resource="u", run_id="r").result(10)
    done = end_of(manager, task)
    wire = done.to_wire()
    assert (wire["status"], wire["result"], wire["args"]) == ("completed", {"summary": "x"}, {"topic": "x"})
    assert wire["startedAt"] >= wire["createdAt"]
    assert wire["completedAt"] >= wire["startedAt"]
    assert (wire["agentId"], wire["threadId"], wire["timeoutMs"]) == ("a", "t", 300_000)
    assert kinds(manager, task) == ["running", "output", "completed"]
    [_, output, completed] = manager.tasks.chunks(task.id)
    assert output["payload"]["payload"]["payload"]["output"] == {"pct": 50}
    assert completed["payload"]["result"] == {"summary": "x"}
    assert [attempt["ended_as"] for attempt in manager.tasks.attempts(task.id)] == ["completed"]


def test_a_failing_task_is_retried_with_back_off_and_then_fails_with_its_error(make: Make) -> None:
    manager = make(retries={"max_retries": 2, "delay_s": 0.01})
    tries: list[int] = []

    def flaky() -> None:
        """Fails."""
        tries.append(1)
        raise ValueError("offline")

    done = end_of(manager, manager.enqueue(flaky).result(10))
    assert (done.status, len(tries), done.retry_count) == ("failed", 3, 2)
    assert done.error is not None
    assert done.error["message"] == "offline"
    assert "ValueError" in done.error["stack"]
    assert manager.retries.delay(1) < manager.retries.delay(2)


def test_an_error_that_is_not_worth_another_attempt_gets_none(make: Make) -> None:
    manager = make(retries={"max_retries": 5, "retryable": lambda error: not isinstance(error, ValueError)})

    def wrong() -> None:
        """Fails."""
        raise ValueError("wrong")

    assert end_of(manager, manager.enqueue(wrong).result(10)).retry_count == 0


def test_a_task_that_takes_too_long_is_timed_out_and_told_as_failed_and_its_slot_is_free(make: Make) -> None:
    manager, gate = make(global_concurrency=1), Gate()
    slow = manager.enqueue(gate.work, timeout_s=0.05).result(10)
    done = end_of(manager, slow)
    assert done.status == "timed_out"
    assert kinds(manager, slow) == ["running", "failed"]
    gate.open.set()
    assert end_of(manager, manager.enqueue(gate.work, {"n": 7}).result(10)).result == 7
    assert manager.get(slow.id).result(10) == done


def test_cancelling_reaches_an_async_tool_once_and_frees_its_slot_b38(make: Make) -> None:
    manager, gate = make(global_concurrency=1), Gate()
    task = manager.enqueue(gate.work).result(10)
    gate.wait_started()
    for _ in range(2):
        assert manager.cancel(task.id).result(10).status == "cancelled"
    other = manager.enqueue(gate.work, {"n": 3}).result(10)
    gate.wait_started()
    gate.open.set()
    assert end_of(manager, other).result == 3
    assert gate.cancelled == 1
    assert kinds(manager, task) == ["running", "cancelled"]


def test_a_late_result_never_overwrites_a_cancellation_b38(make: Make) -> None:
    manager, started, let_go, returned = make(global_concurrency=1), *(threading.Event() for _ in range(3))

    async def deaf() -> str:
        """Takes no cancellation."""
        started.set()
        while not let_go.is_set():
            try:
                await asyncio.to_thread(let_go.wait, 10)
            except asyncio.CancelledError:
                continue
        returned.set()
        return "late"

    def blocking(context: ToolContext) -> str:
        """Blocks its thread, and looks at the signal."""
        started.set()
        assert context.abort.wait_blocking(10)
        returned.set()
        return "late"

    for tool in (deaf, blocking):
        for event in (started, let_go, returned):
            event.clear()
        task = manager.enqueue(tool).result(10)
        assert started.wait(10)
        manager.cancel(task.id).result(10)
        free = manager.enqueue(lambda_tool("free")).result(10)
        assert end_of(manager, free).status == "completed"
        let_go.set()
        assert returned.wait(10)
        stays = manager.get(task.id).result(10)
        assert stays is not None
        assert (stays.status, stays.result) == ("cancelled", None)
        assert kinds(manager, task) == ["running", "cancelled"]


def lambda_tool(answer: Any) -> Any:
    def give() -> Any:
        """Give it."""
        return answer

    return give


def test_pending_and_suspended_tasks_can_be_cancelled_and_don_t_run_then_b38(make: Make) -> None:
    manager, gate = make(global_concurrency=1), Gate()

    def ask(context: ToolContext) -> None:
        """Ask."""
        context.suspend({"q": 1})

    asked = end_of(manager, manager.enqueue(ask).result(10))
    assert asked.status == "suspended"
    running = manager.enqueue(gate.work).result(10)
    gate.wait_started()
    pending = manager.enqueue(gate.work).result(10)
    for task in (asked, pending):
        assert manager.cancel(task.id).result(10).status == "cancelled"
    gate.open.set()
    end_of(manager, running)
    assert gate.begun == 1
    assert kinds(manager, pending) == ["cancelled"]
    with pytest.raises(NotSuspended):
        manager.resume(asked.id, 1).result(10)


def test_a_suspended_task_frees_its_slot_and_runs_again_with_its_data_once_b40(make: Make) -> None:
    manager, runs = make(global_concurrency=1), []

    async def review(draft: str, context: ToolContext) -> dict[str, Any]:
        """Ask somebody."""
        runs.append(context.resume_data)
        if context.resume_data is None:
            context.suspend({"draft": draft})
        return {"approved": context.resume_data}

    task = manager.enqueue(review, {"draft": "v1"}).result(10)
    waiting = end_of(manager, task)
    assert (waiting.status, waiting.suspend_payload) == ("suspended", {"draft": "v1"})
    assert waiting.suspended_at is not None
    assert end_of(manager, manager.enqueue(lambda_tool(1)).result(10)).status == "completed"
    both = [manager.resume(task.id, "yes") for _ in range(2)]
    errors = [error for error in (job_error(job) for job in both) if error is not None]
    assert [type(error) for error in errors] == [AlreadyResumed]

    async def over() -> BackgroundTask:
        while True:
            now = await manager.get(task.id)
            if now is not None and now.ended:
                return now
            await asyncio.sleep(0)

    done = asyncio.run(over())
    assert (done.status, done.result, done.suspend_payload) == ("completed", {"approved": "yes"}, None)
    assert runs == [None, "yes"]
    assert kinds(manager, task) == ["running", "suspended", "resumed", "completed"]


def job_error(job: Any) -> BaseException | None:
    try:
        job.result(10)
    except Exception as error:
        return error
    return None


def test_a_duplicate_dispatch_runs_nothing_again_b37(make: Make) -> None:
    manager, count = make(), []

    def once() -> int:
        """Count."""
        count.append(1)
        return len(count)

    def asks(context: ToolContext) -> None:
        """Count, and ask."""
        count.append(1)
        context.suspend("?")

    async def hangs() -> None:
        """Count, and take too long."""
        count.append(1)
        await asyncio.Event().wait()

    tools = {"completed": once, "suspended": asks, "timed_out": hangs}
    ends = {
        state: end_of(
            manager, manager.enqueue(tool, task_id=state, timeout_s=60 if tool is not hangs else 0.05).result(10)
        )
        for state, tool in tools.items()
    }
    for state, tool in tools.items():
        assert manager.enqueue(tool, task_id=state).result(10) == ends[state]
        manager.engine.start(_kick, manager).result(10)
    assert end_of(manager, manager.enqueue(lambda_tool(2)).result(10)).result == 2
    assert [task.status for task in ends.values()] == list(tools)
    assert [manager.get(state).result(10) for state in tools] == list(ends.values())
    assert len(count) == 3
    last = [kinds(manager, task) for task in ends.values()]
    assert last == [["running", "completed"], ["running", "suspended"], ["running", "failed"]]
    assert manager._hooks.keys() == {"suspended"}


async def _kick(manager: BackgroundTaskManager) -> None:
    manager.kick()


def test_slots_are_counted_per_agent_and_over_all_and_the_queue_is_first_in_first_out(make: Make) -> None:
    manager, gate = make(global_concurrency=3, per_agent_concurrency=2), Gate()
    tasks = [manager.enqueue(gate.work, {"n": n}, agent="ab"[n // 3]).result(10) for n in range(6)]
    gate.wait_started(3)
    running = manager.list(status="running", descending=False).result(10)
    assert [task.args["n"] for task in running] == [0, 1, 3]
    gate.open.set()
    assert [end_of(manager, task).result for task in tasks] == list(range(6))


def test_backpressure_rejects_or_says_that_the_caller_should_run_it(make: Make) -> None:
    gate = Gate()
    for kind in ("reject", "fallback-sync"):
        manager = make(global_concurrency=1, backpressure=kind)
        manager.enqueue(gate.work).result(10)
        gate.wait_started()
        with pytest.raises(QueueFull):
            manager.enqueue(gate.work).result(10)
    gate.open.set()


def test_lists_are_pages_with_a_total_filtered_and_ordered(make: Make) -> None:
    manager = make()
    tasks = [manager.enqueue(lambda_tool(n), agent="ab"[n % 2], thread=f"t{n}").result(10) for n in range(5)]
    for task in tasks:
        end_of(manager, task)
    page = manager.list(agent="a", per_page=2, page=1, descending=False).result(10)
    assert ([task.id for task in page.tasks], page.total) == ([tasks[4].id], 3)
    assert manager.list(thread="t3").result(10)[0].id == tasks[3].id
    assert manager.list(status=("pending", "running")).result(10).total == 0
    cut = tasks[2].created_at
    later = manager.list(from_date=cut).result(10).total
    assert later + manager.list(to_date=cut).result(10).total == 5
    with pytest.raises(SettingsError, match="no date"):
        manager.list(order_by="name")


def test_a_stream_begins_with_the_tasks_that_live_and_then_tells_what_happens(make: Make) -> None:
    manager, gate = make(), Gate()
    task = manager.enqueue(gate.work, {"n": 5}, agent="a").result(10)
    other = manager.enqueue(gate.work, {"n": 6}, agent="b").result(10)
    gate.wait_started(2)
    out = manager.stream(agent="a").result(10)
    seen = []
    for chunk in out.full_stream:
        seen.append(chunk.type)
        gate.open.set()
        if chunk.type == "background-task-completed":
            break
    assert seen == ["background-task-running", "background-task-completed"]
    assert [(one.id, one.status) for one in out.total.tasks] == [(task.id, "completed")]
    out.cancel()
    end_of(manager, other)


def test_old_tasks_are_forgotten_by_age_with_their_chunks(make: Make) -> None:
    manager = make(cleanup={"completed_s": 0.0, "failed_s": 3600.0})
    done = end_of(manager, manager.enqueue(lambda_tool(1)).result(10))

    def fails() -> None:
        """Fail."""
        raise ValueError

    failed = end_of(manager, manager.enqueue(fails).result(10))

    while not manager.engine.start(manager.clean).result(10):  # not before the clock has moved on
        pass
    assert manager.get(done.id).result(10) is None
    assert manager.get(failed.id).result(10) == failed
    assert manager.tasks.chunks(done.id) == []


def test_progress_is_throttled_and_every_end_is_told(make: Make) -> None:
    ended: list[str] = []
    manager = make(progress_throttle_s=60, on_complete=lambda task: ended.append(task.status))

    def chatty(context: ToolContext) -> None:
        """Write."""
        for n in range(50):
            context.writer.write(n)

    task = manager.enqueue(chatty).result(10)
    end_of(manager, task)
    assert kinds(manager, task) == ["running", "output", "completed"]
    manager.shutdown().result(10)
    assert ended == ["completed"]


def test_a_task_that_ended_can_be_started_anew_and_a_live_one_cannot(make: Make) -> None:
    manager, gate = make(), Gate()
    task = manager.enqueue(gate.work, {"n": 4}).result(10)
    gate.wait_started()
    with pytest.raises(ControlError, match="running"):
        manager.restart(task.id).result(10)
    gate.open.set()
    end_of(manager, task)
    again = manager.restart(task.id).result(10)
    assert again.id != task.id
    assert end_of(manager, again).result == 4
    with pytest.raises(ControlError, match="no task"):
        manager.cancel("nope").result(10)


def test_a_shutdown_leaves_what_still_runs_to_the_next_manager(make: Make, tmp_path: Path) -> None:
    gate, url = Gate(), f"sqlite:///{tmp_path}/tasks.db"
    manager = make(url)
    tasks = [manager.enqueue(gate.work, {"n": n}, max_retries=n, agent="a").result(10) for n in range(2)]
    gate.wait_started(2)
    manager.shutdown(0.01).result(10)
    gate.open.set()
    after = make(url)
    after.register("a", {"work": as_tool(gate.work)})
    ended = [end_of(after, task) for task in tasks]
    assert [task.status for task in ended] == ["failed", "completed"]
    assert ended[0].error is not None
    assert "kernel that ran it ended" in ended[0].error["message"]
    assert [one["ended_as"] for one in after.tasks.attempts(tasks[1].id)] == ["left behind", "completed"]
