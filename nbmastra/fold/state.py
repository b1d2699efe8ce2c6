"""`RunState`: the one fold. Chunks in, everything that anyone shows out; synchronous, no I/O.

    start ─▶ step-start ─▶ deltas, tool calls, results … ─▶ step-finish ─┬▶ step-start … (a further step)
      ▲                                                                  └▶ finish ─┬▶ close()
      └───────────── a continuation, or the second half of a client-tool run ◀─────┘

Chunks of one family are handled by one module; this one keeps what they share. A stream may begin in the middle
(resumed, observed): turn and step are then made when first needed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from nbmastra.chunks import Chunk, UnknownChunk
from nbmastra.errors import ChunkError
from nbmastra.fold import control, network, tasks, text, tools, workflow
from nbmastra.fold.calls import Task, ToolCall, WorkflowStep
from nbmastra.fold.ending import Ending, decide
from nbmastra.fold.objects import ObjectText
from nbmastra.fold.parts import DataPart, ErrorInfo, Notice, ObjectPart, Part, TextPart
from nbmastra.fold.turns import Step, Turn
from nbmastra.usage import Usage, sum_usage

__all__ = ["RunState"]

Handler = Callable[["RunState", Chunk, float], None]
_HANDLERS: dict[str, Handler] = {
    **text.HANDLERS,
    **tools.HANDLERS,
    **tasks.HANDLERS,
    **control.HANDLERS,
    **workflow.HANDLERS,
    **network.HANDLERS,
}

_head_of = attrgetter("head")
_AT_ONCE = {**text.AT_ONCE, **tools.AT_ONCE}

MAX_DEPTH = 40
"""Sub-agents within sub-agents are folded this deep; what lies deeper is kept as tool output."""


class RunState:
    """The state of one run, or of a stream of several turns; `nested` runs have one each.

    Append-only, so that readers can hold an index: `parts`, `steps`, `turns`, `tool_calls`, `notices`, `text_pieces`,
    `reasoning_pieces`, and `changes` (parts as they are touched, repeats collapsed: look at the last entry again).
    """

    def __init__(
        self,
        *,
        depth: int = 0,
        parent_call: ToolCall | WorkflowStep | None = None,
        expect_object: bool = False,
        array_object: bool = False,
        answered: Iterable[str] = (),
    ) -> None:
        self.depth = depth
        self.parent_call = parent_call
        self.expect_object = expect_object
        self.array_object = array_object
        self.answered = set(answered)
        """Tool calls that this stream goes on from: a replayed suspension of theirs isn't one."""

        self.replayed: set[str] = set()
        """Those of them whose old question came again."""

        self.parts: list[Part] = []
        self.changes: list[Part] = []
        self.steps: list[Step] = []
        self.turns: list[Turn] = []
        self.tool_calls: list[ToolCall] = []
        self.tasks: dict[str, Task] = {}
        self.nested: list[RunState] = []
        self.workflow_steps: list[WorkflowStep] = []
        self.result: Any = None
        """What a workflow or an agent network gave."""
        self.notices: list[Notice] = []
        self.text_pieces: list[str] = []
        self.reasoning_pieces: list[str] = []
        self.objects: list[ObjectPart] = []
        self.data: dict[tuple[str, str], DataPart] = {}
        """Data parts that have an id, by type and id."""
        self.waiting: dict[int, ToolCall | WorkflowStep] = {}
        """Calls and workflow steps that wait for an approval or for data, by identity."""

        self.turn: Turn | None = None
        self.step: Step | None = None
        self.run_ids: list[str] = []
        self.agent_id: str | None = None
        self.error: ErrorInfo | None = None
        self.error_turn = -1
        """Number of the turn that failed."""
        self.tripwire: dict[str, Any] | None = None
        self.aborted = False
        self.ending: Ending | None = None

        self.counts: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.decode_errors = 0
        self.bad_payloads = 0
        self.times = array("d")
        """Arrival of each chunk, in seconds; beside it its turn and step, -1 where there is none."""
        self.turn_of = array("i")
        self.step_of = array("i")
        self.inner_of: dict[int, RunState] = {}
        """Chunks that carried one of a run inside of this one, by number: the innermost such run."""
        self.first_token_at: float | None = None
        self.finish_usage = Usage()
        self.usage_reports = 0
        """How often tokens were reported, nested runs included: whoever watches a budget looks when it changes."""
        self.messages_chunk: Chunk | None = None
        self._closed_at = 0.0

    # --- what came -----------------------------------------------------------------------------------------------

    def apply(self, chunk: Chunk, at: float) -> None:
        """Take in one chunk that arrived `at` seconds after the stream's start. Never raises for what a server sent."""
        kind = chunk.type
        self.counts[kind] += 1
        handler = _HANDLERS.get(kind)
        try:
            if handler is not None:
                handler(self, chunk, at)
            elif kind.startswith("data-"):
                control.on_data(self, chunk, at)
            elif kind.startswith(network.EVENTS):
                network.on_event(self, chunk, at)
            elif isinstance(chunk, UnknownChunk):
                self.unknown[kind] += 1
        except (ChunkError, RecursionError) as error:
            self.bad_payload(chunk, at, error)
        self.times.append(at)
        self.turn_of.append(self.turn.index if self.turn is not None else -1)
        self.step_of.append(self.step.index if self.step is not None else -1)

    def apply_all(self, chunks: Sequence[Chunk], at: float) -> None:
        """Take in chunks that arrived together: the same as `apply` to each, but deltas in a row as one."""
        for head, group in groupby(chunks, _head_of):
            row = list(group)
            at_once = _AT_ONCE.get(head.type)
            if at_once is None or len(row) == 1 or not at_once(self, row, at):
                for chunk in row:
                    self.apply(chunk, at)
                continue
            self.counts[head.type] += len(row)
            self.times.extend(array("d", (at,)) * len(row))
            self.turn_of.extend(array("i", (self.turn.index if self.turn is not None else -1,)) * len(row))
            self.step_of.extend(array("i", (self.step.index if self.step is not None else -1,)) * len(row))

    def apply_nested(self, run: RunState, chunk: Chunk, at: float) -> None:
        """Take in a chunk of a run inside of this one."""
        before, number = run.usage_reports, run.events
        run.apply(chunk, at)
        self.inner_of[self.events] = run.inner_of.pop(number, run)
        self.usage_reports += run.usage_reports - before

    def close(self, at: float, *, done: bool = False, cancelled: str = "", failure: str = "", code: str = "") -> None:
        """The stream is over: settle the status and everything that is still open. The first call counts.

        `done`: its end mark came. `cancelled`: why this side stopped it. `failure`: what broke the connection.
        `code`: the notice's code where it isn't the status (idle, budget).
        """
        if self.ending is not None:
            return
        self.ending = decide(self, done=done, cancelled=cancelled, failure=failure)
        self._closed_at = at
        if self.ending.status == "suspended" and self.turn is not None:
            self.turn.finish_reason = self.turn.finish_reason or "suspended"
        for part in self.open_parts():
            if isinstance(part, TextPart):
                self._end_text(part, at)
            else:
                part.ended_at = at
                self.touch(part)
        for run in self.nested:
            run.close(at, done=done, cancelled=cancelled, failure=failure)
        tools.settle_calls(self, at)
        workflow.settle_steps(self, at)
        if self.depth == 0 and self.ending.notice_title:
            self.notice(
                code or self.ending.notice_code,
                self.ending.notice_level,
                self.ending.notice_title,
                at,
                self.ending.notice_text,
            )

    # --- what is asked -------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """running, success, failed, suspended, tripwire, cancelled or truncated."""
        return self.ending.status if self.ending is not None else "running"

    @property
    def status_reason(self) -> str:
        """Why the run ended so; "" while it runs."""
        return self.ending.reason if self.ending is not None else ""

    @property
    def run_id(self) -> str | None:
        """Id of the first run of the stream."""
        return self.run_ids[0] if self.run_ids else None

    @property
    def events(self) -> int:
        """How many chunks came."""
        return len(self.times)

    @property
    def usage(self) -> Usage:
        """Tokens over all turns, sub-agents not counted."""
        return sum_usage(turn.usage for turn in self.turns)

    @property
    def grand_usage(self) -> Usage:
        """Tokens over all turns and all nested runs, each counted once."""
        return self.usage + sum_usage(run.grand_usage for run in self.nested)

    @property
    def text(self) -> str:
        """The answers of all turns, joined."""
        return "".join(turn.text for turn in self.turns)

    @property
    def object(self) -> ObjectPart | None:
        """The newest object that no processor rejected."""
        return next((part for part in reversed(self.objects) if not part.rejected), None)

    @property
    def last_at(self) -> float | None:
        """Arrival of the last chunk, in seconds."""
        return self.times[-1] if self.times else None

    @property
    def ended_at(self) -> float | None:
        """When the run ended, in seconds: its last chunk, or when it was cancelled or cut off; None while it runs."""
        if self.ending is None:
            return None
        cut = self.ending.status in ("cancelled", "truncated")
        return self._closed_at if cut or self.last_at is None else self.last_at

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from the stream's start to its first delta."""
        return self.first_token_at

    @property
    def model(self) -> str | None:
        """The model of the newest step that names one."""
        return next((step.model for step in reversed(self.steps) if step.model), None)

    @property
    def settling(self) -> bool:
        """True if the run said its last word, though the server may leave the connection open."""
        tripwire = self.tripwire
        if self.error is not None or (tripwire is not None and self._turn_open and tripwire.get("retry") is not True):
            return True
        return (
            bool(self.waiting) and self._turn_open and not any(call.status == "running" for call in self._step_calls())
        )

    @property
    def _turn_open(self) -> bool:
        return self.turn is None or self.turn.ended_at is None

    def _step_calls(self) -> Iterable[ToolCall]:
        return self.step.calls.values() if self.step is not None else ()

    def open_parts(self) -> list[Part]:
        """Text, reasoning and objects that may still grow."""
        step = self.step
        if step is None:
            return []
        objects = [part for part in step.parts if isinstance(part, ObjectPart) and part.ended_at is None]
        return [*step.open_text.values(), *step.open_reasoning.values(), *objects]

    # --- what the handlers share ---------------------------------------------------------------------------------

    def add(self, part: Part) -> None:
        """A new part, at the end of the run and of its step."""
        self.parts.append(part)
        if self.step is not None and part.step == self.step.index:
            self.step.parts.append(part)
        self.touch(part)

    def touch(self, part: Part) -> None:
        """A part has changed: views will look at it."""
        changes = self.changes
        if not changes or changes[-1] is not part:
            changes.append(part)

    def token(self, at: float) -> None:
        """A delta came: the first one is timed."""
        if self.first_token_at is None:
            self.first_token_at = at
        if self.step is not None and self.step.first_token_at is None:
            self.step.first_token_at = at

    def current_turn(self, at: float, run_id: str | None = None) -> Turn:
        """The open turn; made if the stream began in the middle."""
        turn = self.turn
        if turn is None or turn.ended_at is not None:
            turn = self.turn = Turn(len(self.turns), at)
            self.turns.append(turn)
            self.step = None
        self.note_run(run_id, turn)
        return turn

    def current_step(self, at: float, run_id: str | None = None) -> Step:
        """The open step; made if the stream began in the middle or a step-start is missing."""
        step = self.step
        if step is None or step.ended_at is not None:
            step = self.begin_step(at, run_id)
        return step

    def begin_step(self, at: float, run_id: str | None = None) -> Step:
        """Start a further step of the open turn."""
        turn = self.current_turn(at, run_id)
        if self.step is not None and self.step.ended_at is None:
            self.end_step(self.step, at)
        step = self.step = Step(len(self.steps), turn.index, at, run_id)
        self.steps.append(step)
        turn.steps.append(step)
        return step

    def end_step(self, step: Step, at: float) -> None:
        """A step is over: so are the texts in it."""
        step.ended_at = at
        for part in [*step.open_text.values(), *step.open_reasoning.values()]:
            self._end_text(part, at)
        step.open_text.clear()
        step.open_reasoning.clear()
        for part in step.parts:
            if isinstance(part, ObjectPart) and part.ended_at is None:
                part.ended_at = at
                self.touch(part)

    def reject_step(self, step: Step) -> None:
        """A processor threw the step's answer away: its text and objects don't count."""
        step.rejected = True
        for part in step.parts:
            if isinstance(part, TextPart | ObjectPart):
                part.rejected = True
                self.touch(part)

    def note_run(self, run_id: str | None, turn: Turn) -> None:
        """Remember a run id, once per stream and turn."""
        if run_id and (not turn.run_ids or turn.run_ids[-1] != run_id):
            if run_id not in turn.run_ids:
                turn.run_ids.append(run_id)
            if run_id not in self.run_ids:
                self.run_ids.append(run_id)

    def grow_text(self, part: TextPart, piece: str) -> None:
        """Add a delta to a text or reasoning part."""
        piece = part.append(piece)
        if piece:
            self._show(part, piece)

    def _end_text(self, part: TextPart, at: float) -> None:
        piece = part.end(at)
        if piece:
            self._show(part, piece)
        self.touch(part)

    def end_text(self, part: TextPart, at: float) -> None:
        """A text or reasoning part is complete."""
        self._end_text(part, at)

    def _show(self, part: TextPart, piece: str) -> None:
        if part.kind == "text":
            self.text_pieces.append(piece)
            text.feed_object(self, piece)
        else:
            self.reasoning_pieces.append(piece)
        self.touch(part)

    def nested_run(self, call: ToolCall | WorkflowStep, run_id: str) -> RunState | None:
        """The run inside of a tool call or workflow step that a nested chunk belongs to; None if it lies too deep."""
        run = next((run for run in reversed(call.nested) if run_id in run.run_ids), None)
        if run is None and self.depth + 1 < MAX_DEPTH:
            run = RunState(depth=self.depth + 1, parent_call=call)
            run.run_ids.append(run_id)
            call.nested.append(run)
            self.nested.append(run)
        return run

    def new_object(self, at: float) -> ObjectPart:
        """An object begins in the open step; a second one in the same step replaces the first."""
        step = self.current_step(at)
        part = ObjectPart(step.index, at)
        self.objects.append(part)
        self.add(part)
        return part

    def object_text(self) -> ObjectText:
        """A reader for an object's text."""
        return ObjectText(wrapped=self.array_object)

    def bad_payload(self, chunk: Chunk, at: float, error: Exception) -> None:
        """A chunk's payload can't be read: count it and say so."""
        self.bad_payloads += 1
        self.notice("bad-payload", "warning", "A chunk could not be read", at, str(error), event=chunk.event)

    def notice(
        self, code: str, level: str, title: str, at: float, text: str = "", *, event: int = -1, detail: Any = None
    ) -> Notice:
        """Something the user must see."""
        notice = Notice(-1, at, code, level, title, text, event=event, detail=detail)
        self.notices.append(notice)
        self.add(notice)
        return notice

    def __repr__(self) -> str:
        return (
            f"<RunState {self.status} {self.events} chunks, {len(self.turns)} turns, {len(self.steps)} steps, "
            f"{len(self.tool_calls)} tool calls>"
        )
