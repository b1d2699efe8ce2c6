"""The lanes of a timeline: turns, steps, calls, runs in them and background tasks, from top to bottom.

They follow a run as it grows: `update` looks only at what the fold touched since the last time, so that the cost of a
whole run grows with what happens in it. A run that goes on after an answer is a further leg, at its own offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nbmastra.fold import Part, RunState, Step, Task, ToolCall, Turn, WorkflowStep
from nbmastra.fold.stretches import (
    Stretch,
    call_stretches,
    step_stretches,
    task_stretches,
    turn_of_task,
    turn_stretches,
)
from nbmastra.usage import Usage, sum_usage
from nbmastra.widgets.format import one_line

__all__ = ["Lane", "Lanes"]

_WAITING = ("suspended", "needs-approval")
_TOP, _FLOW, _TASKS = range(3)  # what stands below a lane, in this order: turns, steps or calls; a workflow's; tasks


@dataclass(slots=True, eq=False)
class Lane:
    """One line. Times are seconds since the first leg's start; `end` None while it goes on."""

    key: str
    kind: str
    """turn, step, tool, agent, workflow-step or task."""
    name: str
    depth: int
    parent: Lane | None
    turn: str = ""
    """Key of the turn's lane that it is in."""
    status: str = ""
    stretches: list[Stretch] = field(default_factory=list[Stretch])
    first: float | None = None
    """When the first token came."""
    usage: Usage = field(default_factory=Usage)
    speed: float | None = None
    model: str = ""
    note: str = ""
    """What a gap behind it waited for."""
    before: list[Stretch] = field(default_factory=list[Stretch])
    """Of earlier legs."""
    below: tuple[list[Lane], list[Lane], list[Lane]] = field(default_factory=lambda: ([], [], []))

    @property
    def own(self) -> list[Stretch]:
        """Its stretches without the gap behind it."""
        return [part for part in self.stretches if part.kind != "gap"]

    @property
    def start(self) -> float:
        """When it began."""
        return self.stretches[0].start

    @property
    def end(self) -> float | None:
        """When it ended; None while it goes on."""
        ends = [part.end for part in self.own]
        return None if None in ends else max(end for end in ends if end is not None)

    def walk(self) -> Iterator[Lane]:
        """It and what is below it, from top to bottom."""
        yield self
        for group in self.below:
            for lane in group:
                yield from lane.walk()


class Lanes:
    """All lanes of a run and of what goes on from it. Not thread-safe: one thread at a time."""

    def __init__(self) -> None:
        self.by_key: dict[str, Lane] = {}
        self._root = Lane("", "", "", -1, None)
        self._touched: dict[Lane, str | None] = {}
        self._leg: _Follower | None = None
        self._turns = 0
        self._run_id: str | None = None
        self.longest_gap: float | None = None
        """The longest time between two turns."""

    def begin(self, state: RunState, offset: float = 0.0) -> None:
        """A further leg: what is followed from now on."""
        self.update()
        if self._leg is not None:
            self._leg.leave(offset)
        self._leg = _Follower(self, state, self._root, offset)

    def update(self) -> list[tuple[Lane, str | None]]:
        """The lanes that are new or may have changed since the last time, and of new ones the key they stand behind.

        The key is None for a lane that is told again; "" stands for the top.
        """
        if self._leg is not None:
            self._leg.update()
        found, self._touched = list(self._touched.items()), {}
        return found

    def __iter__(self) -> Iterator[Lane]:
        return (lane for lane in self._root.walk() if lane is not self._root)

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def turns(self) -> int:
        """How many turns there are."""
        return len(self._root.below[_TOP])

    # --- for the followers ------------------------------------------------------------------------------------------

    def add(self, key: str, kind: str, name: str, parent: Lane, group: int) -> Lane:
        """A new lane below another, at the end of its group."""
        key = self._free(key)
        lane = Lane(key, kind, name, parent.depth + 1, None if parent is self._root else parent, parent.turn)
        if kind == "turn":
            lane.turn = key
        after = _last_until(parent, group)
        parent.below[group].append(lane)
        self.by_key[key] = lane
        self._touched[lane] = after.key
        return lane

    def touch(self, lane: Lane) -> None:
        """It may have changed."""
        self._touched.setdefault(lane, None)

    def _free(self, key: str) -> str:
        """Ids of calls are unique within a step only."""
        number, free = 1, key
        while free in self.by_key or not free:
            number += 1
            free = f"{key}#{number}"
        return free

    def new_turn(self, turn: Turn, *, answered: bool) -> Lane:
        """The lane of a turn; the first one of a further leg may still be the turn that asked."""
        goes_on = answered and self._run_id is not None and turn.run_id == self._run_id
        self._turns += not goes_on
        number = self._turns
        self._run_id = turn.run_id
        name = f"Turn {number}, continued" if goes_on else f"Turn {number}"
        return self.add(f"turn:{self.turns}", "turn", name, self._root, _TOP)

    def gap(self, seconds: float) -> None:
        """There was a gap."""
        self.longest_gap = max(seconds, self.longest_gap or 0.0)


def _last_until(parent: Lane, group: int) -> Lane:
    """The lane that a new one at the end of a group stands behind."""
    lane, groups = parent, parent.below[: group + 1]
    while (last := next((below[-1] for below in reversed(groups) if below), None)) is not None:
        lane, groups = last, last.below
    return lane


class _Follower:
    """Lanes of one state, and by `inner` of the runs in it."""

    def __init__(self, lanes: Lanes, state: RunState, parent: Lane, offset: float) -> None:
        self._lanes, self._state, self._parent, self._offset = lanes, state, parent, offset
        self._seen = 0
        self._turns: list[Lane] = []
        self._steps: list[Lane] = []
        self._step_lanes: dict[int, Lane] = {}
        self._parts: dict[Part, Lane] = {}
        self._inner: dict[RunState, _Follower] = {}
        self._open: dict[Lane, Turn | Step] = {}
        self._base = lanes.turns if state.depth == 0 else 0
        self._closed = False
        self._gap: Stretch | None = None
        self._reports = -1

    def update(self) -> None:
        """Look at what is new, and at what is open."""
        state = self._state
        closes = state.ending is not None and not self._closed
        self._closed = state.ending is not None
        for turn in state.turns[len(self._turns) :] if state.depth == 0 else ():
            lane = self._lanes.new_turn(turn, answered=not self._turns)
            self._turns.append(lane)
            self._open[lane] = turn
        for step in state.steps[len(self._steps) :]:
            self._new_step(step)
        changes = state.changes
        new = changes[max(0, self._seen - 1) :]  # the last one may have changed again
        self._seen = len(changes)
        tasks = False
        for part in dict.fromkeys([*self._parts, *new] if closes else new):  # at its end, what was open has one
            if isinstance(part, ToolCall | WorkflowStep):
                self._call(part)
            elif isinstance(part, Task):
                self._task(part)
                tasks = True
        for lane, about in list(self._open.items()):
            if isinstance(about, Turn):
                self._turn(lane, about, tasks)
            else:
                self._step(lane, about)

    def leave(self, offset: float) -> None:
        """Another leg begins: what waits for an answer has waited until then."""
        end = self._at(self._state.ended_at)
        for lane in list(self._parts.values()):
            if lane.status in _WAITING and end is not None:
                lane.before = [*lane.stretches, Stretch("suspended", end, offset)]
                lane.stretches = lane.before
                self._lanes.touch(lane)
        if self._turns and end is not None and offset > end:
            lane = self._turns[-1]
            lane.stretches = [*lane.own, Stretch("gap", end, offset)]
            lane.note = "waiting for an answer"
            self._lanes.gap(offset - end)
            self._lanes.touch(lane)

    def _at(self, at: float | None) -> float | None:
        return None if at is None else round(at + self._offset, 4)

    def _moved(self, found: list[Stretch]) -> list[Stretch]:
        """As seen from the first leg; nothing is open after the end."""
        over = self._state.ended_at
        moved: list[Stretch] = []
        for kind, start, end in found:
            end = max(start, over) if end is None and over is not None else end
            moved.append(Stretch(kind, round(start + self._offset, 4), self._at(end)))
        return moved

    def _turn(self, lane: Lane, turn: Turn, tasks: bool) -> None:
        turns = self._state.turns
        after = turns[turn.index + 1] if turn.index + 1 < len(turns) else None
        found = turn_stretches(turn, after)
        if after is None and turn.ended_at is not None and self._state.ending is None:
            found.append(Stretch("gap", turn.ended_at, None))  # the run goes on: who knows how long
        gap = found[1] if len(found) > 1 else None
        if gap is not None and (tasks or gap != self._gap):
            lane.note, self._gap = self._awaited(gap), gap
        if after is not None:
            del self._open[lane]
            if gap is not None:
                self._lanes.gap(after.started_at - gap.start)
        if turn.ended_at is not None:
            lane.usage = turn.usage  # until then it is added up: asking for it costs as much as the turn has steps
        lane.stretches = self._moved(found)
        self._lanes.touch(lane)

    def _awaited(self, gap: Stretch) -> str:
        """The tasks that ran in a gap."""
        names = [
            one_line(task.tool_name, 40)
            for task in self._state.tasks.values()
            if (task.ended_at is None or task.ended_at > gap.start) and (gap.end is None or task.started_at < gap.end)
        ]
        few = list(dict.fromkeys(names))
        return f"waiting for {', '.join(few[:2])}{f' and {len(few) - 2} more' if len(few) > 2 else ''}" if few else ""

    def _new_step(self, step: Step) -> None:
        top = self._state.depth == 0
        parent = self._turns[step.turn] if top and step.turn < len(self._turns) else self._parent
        number = len(parent.below[_TOP]) + 1 if top else len(self._steps) + 1
        key = f"step:{self._base + step.turn}.{number - 1}"
        if not top:
            key = f"{self._parent.key}/{key}"
        lane = self._lanes.add(key, "step", f"Step {number}", parent, _TOP)
        self._steps.append(lane)
        self._open[lane] = step

    def _step(self, lane: Lane, step: Step) -> None:
        lane.stretches = self._moved(step_stretches(step, parts=False))
        lane.first = self._at(step.first_token_at)
        lane.usage, lane.model = step.usage, one_line(step.model or "", 60)
        lane.speed = step.output_tokens_per_s if step.ended_at is not None else None
        if step.ended_at is not None and step is not self._state.steps[-1]:
            del self._open[lane]
            if lane.parent is not None and lane.parent.kind == "turn" and self._state.turns[step.turn].ended_at is None:
                lane.parent.usage += step.usage
        self._lanes.touch(lane)

    def _call(self, call: ToolCall | WorkflowStep) -> None:
        lane = self._parts.get(call)
        if lane is None:
            lane = self._parts[call] = self._new_call(call)
        found = call_stretches(call)
        lane.kind = found[0].kind
        if call.status in _WAITING:
            found = [Stretch("suspended", part.start, part.end) for part in found]
        lane.stretches = [*lane.before, *self._moved(found)]
        lane.status = call.status
        for state in list(call.nested):
            inner = self._inner.get(state)
            if inner is None:
                inner = self._inner[state] = _Follower(self._lanes, state, lane, self._offset)
            inner.update()
            if inner._reports != state.usage_reports:
                inner._reports = state.usage_reports
                lane.usage = sum_usage(run.grand_usage for run in call.nested)
            lane.first = self._at(state.first_token_at) if lane.first is None else lane.first
        self._lanes.touch(lane)

    def _known(self, key: str) -> Lane | None:
        """What waited for an answer in an earlier leg."""
        known = self._lanes.by_key.get(key)
        return known if known is not None and known.before and known.status in _WAITING else None

    def _new_call(self, call: ToolCall | WorkflowStep) -> Lane:
        known = self._known(call.tool_call_id)
        if known is not None:
            return known
        is_step = isinstance(call, WorkflowStep)
        inside = 0 <= call.step < len(self._steps) and not is_step
        parent = self._steps[call.step] if inside else self._parent
        name = one_line(call.tool_name or call.tool_call_id, 80)
        return self._lanes.add(call.tool_call_id, "tool", name, parent, _FLOW if is_step else _TOP)

    def _task(self, task: Task) -> None:
        lane = self._parts.get(task)
        if lane is None:
            turn = turn_of_task(task, self._state.steps, len(self._turns))
            parent = self._turns[turn] if 0 <= turn < len(self._turns) else self._parent
            lane = self._known(task.id) or self._lanes.add(task.id, "task", "", parent, _TASKS)
            self._parts[task] = lane
        lane.name = one_line(task.tool_name or "task", 80)
        lane.stretches = [*lane.before, *self._moved(task_stretches(task))]
        lane.status = task.status
        self._lanes.touch(lane)
