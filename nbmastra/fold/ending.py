"""How a run ended: one status, one reason in words, and what the user must see of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["Ending", "decide"]


@dataclass(frozen=True, slots=True)
class Ending:
    """Status and reason of a run that is over; the notice that views show, if it needs one."""

    status: str
    reason: str
    notice_code: str = ""
    notice_level: str = ""
    notice_title: str = ""
    notice_text: str = ""


def decide(state: RunState, *, done: bool, cancelled: str, failure: str) -> Ending:
    """The ending of a stream, from what came and how it stopped. Source: WIRE, "Order, turns, endings".

    An error is the last word; then a processor's block, an abort, a question to the user, a finish.
    """
    turn = state.turn if state.turn is not None and state.turn.ended_at is not None else None
    finished = turn is not None and turn.finish_reason not in ("error", "abort", "tripwire")
    busy = any(not task.terminal and task.status != "suspended" for task in state.tasks.values())
    # More was to come: a continuation after the tasks, the second half of a client-tool run.
    expects_more = busy or (turn is not None and turn.awaits_caller)
    if state.error is not None:
        message = state.error.message
        return Ending("failed", message, "error", "error", "The run failed", message)
    if cancelled and (not finished or expects_more):
        return Ending("cancelled", cancelled, "cancelled", "info", "Stopped", cancelled)
    if state.tripwire is not None:
        return _tripwire(state.tripwire)
    if state.aborted:
        return Ending(
            "cancelled", "aborted at the server", "cancelled", "info", "Stopped", "The run was aborted at the server."
        )
    if state.waiting and (turn is None or not finished or turn.awaits_caller or turn.finish_reason == "suspended"):
        return _suspended(state)
    if turn is None and state.turn is not None and state.turn.finish_reason == "suspended":
        return _finished("suspended")
    if turn is not None and not (failure and expects_more):
        return _finished(turn.finish_reason)
    if done and state.events:
        return Ending("success", "the server ended the stream without a finish chunk")
    where = f"Chunk {state.events} was the last to arrive" if state.events else "No chunk arrived"
    if state.last_at is not None:
        where += f", at {state.last_at:.1f} s"
    cause = failure or "no end mark"
    text = f"{where} ({cause}). The run may still be going on at the server."
    return Ending("truncated", f"the connection ended before the run did: {cause}", "truncated", "warning", _CUT, text)


_CUT = "The connection ended before the run did"


def _tripwire(payload: dict[str, object]) -> Ending:
    reason = payload.get("reason")
    words = reason if isinstance(reason, str) and reason else "a processor blocked the run"
    processor = payload.get("processorId")
    title = (
        f"Stopped by processor {processor}" if isinstance(processor, str) and processor else "Stopped by a processor"
    )
    return Ending("tripwire", words, "tripwire", "error", title, f"Reason: {words}")


def _suspended(state: RunState) -> Ending:
    calls = list(state.waiting.values())
    names = ", ".join(dict.fromkeys(call.tool_name for call in calls))
    if any(call.status == "needs-approval" for call in calls):
        return Ending("suspended", f"{names} needs approval")
    return Ending("suspended", f"{names} waits for input")


def _finished(reason: str | None) -> Ending:
    if reason == "error":
        text = "the run finished with an error, without saying which"
        return Ending("failed", text, "error", "error", "The run failed", text)
    if reason == "tripwire":
        return _tripwire({})
    if reason == "abort":
        return Ending(
            "cancelled", "aborted at the server", "cancelled", "info", "Stopped", "The run was aborted at the server."
        )
    if reason == "suspended":
        return Ending("suspended", "the run waits for input")
    words = {"length": "the token limit was reached", "content-filter": "the provider's content filter stopped it"}
    return Ending("success", words.get(reason or "", reason or ""))
