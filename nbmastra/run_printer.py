"""A run as text: plain for pipes and files, with markdown and colours on a terminal. What it says is cleaned first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TextIO, cast

from nbmastra.engine import interrupted_at_end
from nbmastra.fold import (
    DataPart,
    FilePart,
    GoalPart,
    Notice,
    Part,
    ReasoningPart,
    SourcePart,
    Task,
    TextPart,
    ToolCall,
)
from nbmastra.output import MastraModelOutput, run_cost, verdict
from nbmastra.recording import json_line
from nbmastra.rich_look import rich_look
from nbmastra.terminal import TextCleaner, clean_json, clean_line

__all__ = ["Look", "PlainLook", "RunPrinter", "ending_line", "look_for", "print_json", "print_run"]

STATUS_WORDS = {
    "success": "Completed",
    "failed": "Failed",
    "suspended": "Suspended",
    "tripwire": "Blocked",
    "cancelled": "Stopped",
    "truncated": "Cut off",
}
_MAX_VALUE = 160
_MAX_INSIDE = 50
"""So many lines tell what goes on inside of a call."""
_MAX_RUNNING = 5
"""So many calls and tasks that run are named; the rest is counted."""


class Look(Protocol):
    """Where and how a run is printed; texts are clean."""

    def text(self, piece: str) -> None:
        """A piece of the answer."""
        ...

    def reasoning(self, piece: str) -> None:
        """A piece of what the model thinks."""
        ...

    def end(self) -> None:
        """Text or reasoning is over, for now: what follows begins on a line of its own."""
        ...

    def line(self, text: str, style: str = "") -> None:
        """One line; `style` is call, result, error, warning, info or dim."""
        ...

    def running(self, lines: Sequence[str]) -> None:
        """What runs just now, below all else, until it is called again."""
        ...

    def flush(self) -> None:
        """What was given so far is to be seen."""
        ...

    @property
    def wait_s(self) -> float | None:
        """Seconds until a further `flush` would show more; None if it wouldn't."""
        ...


class PlainLook:
    """Text and lines as they come, without reasoning."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._begun = False

    def text(self, piece: str) -> None:
        """A piece of the answer."""
        if piece:
            self._file.write(piece)
            self._begun = not piece.endswith("\n")

    def reasoning(self, piece: str) -> None:
        """Left out: whoever reads a pipe wants the answer."""

    def end(self) -> None:
        """End the line, if one has begun."""
        if self._begun:
            self._file.write("\n")
            self._begun = False

    def line(self, text: str, style: str = "") -> None:
        """One line, whatever its style."""
        self._file.write(f"{text}\n")

    def running(self, lines: Sequence[str]) -> None:
        """Left out: what is printed stays."""

    def flush(self) -> None:
        """Write the file's buffer out."""
        self._file.flush()

    @property
    def wait_s(self) -> float | None:
        """Nothing is held back."""
        return None


def look_for(file: TextIO, *, plain: bool = False, no_color: bool = False) -> Look:
    """The look that suits where a run is printed to: a terminal or not."""
    if plain or not file.isatty():
        return PlainLook(file)
    return rich_look(file, no_color=no_color)


class RunPrinter:
    """Prints what is new in a run at each `update`; `text_only` leaves out all but the answer's text."""

    def __init__(self, out: MastraModelOutput, look: Look, *, text_only: bool = False) -> None:
        self._state = out.state
        self._out = out
        self._look = look
        self._text_only = text_only
        self._seen = 0
        self._printed: dict[int, int] = {}
        """Of each text part, how many of its pieces were printed; of a call, how much of its story."""
        self._current: TextPart | None = None
        self._cleaner = TextCleaner()
        self._running: dict[int, ToolCall | Task] = {}

    def update(self) -> None:
        """Print what has come since the last time."""
        changes = self._state.changes
        start, self._seen = max(self._seen - 1, 0), len(changes)  # the last entry may have changed once more
        for part in changes[start : self._seen]:
            if isinstance(part, TextPart):
                self._text(part)
            elif not self._text_only:
                self._other(part)
        self._look.running(() if self._text_only or self._out.done else self._now())
        self._look.flush()

    @property
    def wait_s(self) -> float | None:
        """Seconds until `update` should be called though nothing came; None if that isn't needed."""
        return self._look.wait_s

    def close(self) -> None:
        """Print the rest, and how the run ended."""
        self.update()
        self._end_text()
        if not self._text_only:
            judged = verdict(self._out)
            if judged is not None:
                why = "".join(f": {clean_line(reason)}" for reason in judged.bad.values())
                style = {"completed": "dim", "failed": "error"}.get(judged.status, "warning")
                self._look.line(f"object: {clean_line(judged.words)}{why}", style)
            self._look.line(ending_line(self._out), "dim" if self._out.status == "success" else "warning")
        self._look.flush()

    def leave(self) -> None:
        """Take what is redrawn off the screen, whatever has happened."""
        self._look.running(())
        self._look.end()

    def _now(self) -> list[str]:
        """What runs just now, and the run itself."""
        now, state = self._out.elapsed_s, self._state
        calls = list(self._running.values())
        lines = [f"  {_doing(call)}  {duration(max(now - _since(call), 0))}" for call in calls[:_MAX_RUNNING]]
        if len(calls) > _MAX_RUNNING:
            lines.append(f"  … and {len(calls) - _MAX_RUNNING} more")
        facts = ["Running", _count(len(state.steps), "step"), *_tokens(self._out), duration(now)]
        return [*lines, " · ".join(facts)]

    def _text(self, part: TextPart) -> None:
        done = self._printed.get(id(part), 0)
        pieces = part.pieces[done:]
        self._printed[id(part)] = done + len(pieces)
        if not pieces or (isinstance(part, ReasoningPart) and self._text_only):
            return
        if part is not self._current:
            self._end_text()
            self._current = part
        self._give(self._cleaner.feed("".join(pieces)))

    def _give(self, piece: str) -> None:
        (self._look.reasoning if isinstance(self._current, ReasoningPart) else self._look.text)(piece)

    def _end_text(self) -> None:
        if self._current is not None:
            self._give(self._cleaner.close())
            self._look.end()
            self._current = None

    def _other(self, part: Part) -> None:
        if isinstance(part, ToolCall | Task):
            if part.ended_at is None and part.status in ("streaming", "running", "pending"):
                self._running[id(part)] = part
            else:
                self._running.pop(id(part), None)
        told = self._printed.get(id(part), 0)
        lines = _STORIES.get(type(part), _nothing)(part)
        if len(lines) > told:
            self._end_text()
            self._printed[id(part)] = len(lines)
            for text, style in lines[told:]:
                self._look.line(text, style)


# --- the story of a part: lines that only ever become more -----------------------------------------------------------

_Story = list[tuple[str, str]]


def _call(call: ToolCall) -> _Story:
    return [] if call.status == "streaming" else [(_begun(call), "call"), *_within(call), *_ended(call)]


def _begun(call: ToolCall) -> str:
    return f"→ {signature(call.tool_name, call.args)}"


def _ended(call: ToolCall) -> _Story:
    if call.ended_at is None or call.open:
        return []
    took = "" if call.duration_s is None else f"  {duration(call.duration_s)}"
    name = clean_line(call.tool_name, 60)
    if call.status == "success":
        return [(f"← {name}{took}  {short(call.result)}", "result")]
    why = call.error.message if call.error else call.denial_reason or ""
    return [(f"✗ {name}{took}  {clean_line(why) or call.status}", "error" if call.status == "error" else "warning")]


def _within(call: ToolCall) -> _Story:
    """What a sub-agent called, or what a tool wrote meanwhile, in the order in which it came."""
    if not call.nested:
        return [
            (f"  {clean_line(text if isinstance(text, str) else short(text))}", "dim")
            for text in call.outputs[:_MAX_INSIDE]
        ]
    told = sorted(_inner(call, "  "), key=lambda line: line[0])
    return [(text, style) for _, text, style in told[:_MAX_INSIDE]]


def _inner(call: ToolCall, indent: str) -> Iterator[tuple[float, str, str]]:
    for run in call.nested:
        for inner in run.tool_calls[:_MAX_INSIDE]:
            if inner.status == "streaming":
                continue
            yield inner.called_at or inner.started_at, f"{indent}{_begun(inner)}", "call"
            yield from _inner(inner, indent + "  ")
            for text, style in _ended(inner):
                yield inner.ended_at or inner.started_at, f"{indent}{text}", style


def _doing(call: ToolCall | Task) -> str:
    return f"◌ {signature(call.tool_name or '', call.args)}" + ("  in the background" if isinstance(call, Task) else "")


def _since(call: ToolCall | Task) -> float:
    return (call.running_at if isinstance(call, Task) else call.called_at) or call.started_at


def _task(task: Task) -> _Story:
    name = clean_line(task.tool_name or task.id, 60)
    story = [(f"… {name} runs in the background", "dim")]
    if task.terminal:
        story.append((f"… {name} is {task.status.replace('_', ' ')}", "dim"))
    return story


def _notice(notice: Notice) -> _Story:
    if notice.code == "cancelled":  # the last line says it
        return []
    text = clean_line(notice.text, 500)
    return [(f"! {clean_line(notice.title)}{': ' if text else ''}{text}", notice.level)]


def _source(part: SourcePart) -> _Story:
    title, url = clean_line(part.title), clean_line(part.url, 500)
    return [(" ".join(filter(None, ("source:", title, url))), "dim")]


def _file(part: FilePart) -> _Story:
    return [(f"file: {clean_line(part.mime_type, 80)}", "dim")]


def _data(part: DataPart) -> _Story:
    if part.type == "data-signal":  # Mastra's notes to itself
        return []
    return [(f"{clean_line(part.type, 60)}: {short(part.data)}", "dim")]


def _goal(part: GoalPart) -> _Story:
    if part.pending:
        return []
    words = "reached" if part.passed else "not yet reached"
    return [(f"goal, evaluation {clean_line(str(part.iteration), 10)}: {words}", "dim")]


def _nothing(_part: Any) -> _Story:
    return []


_STORIES: dict[type[Part], Callable[[Any], _Story]] = {
    ToolCall: _call,
    Task: _task,
    Notice: _notice,
    SourcePart: _source,
    FilePart: _file,
    DataPart: _data,
    GoalPart: _goal,
}


def signature(name: str, args: Any) -> str:
    """A call as Python would write it: `weather(city="Paris")`."""
    if isinstance(args, Mapping):
        given = cast("Mapping[str, Any]", args).items()
        inner = ", ".join(f"{clean_line(key, 40)}={short(value, 80)}" for key, value in given)
    else:
        inner = "" if args is None else short(args)
    return f"{clean_line(name, 60)}({clean_line(inner, 300)})"


def short(value: Any, limit: int = _MAX_VALUE) -> str:
    """A value as JSON on one line."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = "…"
    return clean_line(text, limit)


def ending_line(out: MastraModelOutput) -> str:
    """How a run ended and what it used, on one line."""
    state = out.state
    facts = [STATUS_WORDS.get(out.status, out.status.capitalize())]
    if out.status in ("suspended", "cancelled") and out.status_reason:  # the others have a notice that says why
        facts[0] += f": {clean_line(out.status_reason)}"
    if out.agent:
        facts.insert(0, clean_line(out.agent, 60))
    if state.model:
        facts.append(clean_line(state.model, 60))
    if len(state.turns) > 1:
        facts.append(f"{len(state.turns)} turns")
    facts.append(_count(len(state.steps), "step"))
    if state.tool_calls:
        facts.append(_count(len(state.tool_calls), "tool call"))
    facts += _tokens(out)
    facts.append(duration(out.elapsed_s))
    if thread := out.context.get("thread"):
        facts.append(f"thread {clean_line(str(thread), 60)} of {clean_line(str(out.context.get('resource')), 60)}")
    return " · ".join(facts)


def _tokens(out: MastraModelOutput) -> list[str]:
    """What was used by now, [] if nothing was reported; what is cached is a part of what went in."""
    usage = out.state.grand_usage
    if not usage.reported:
        return []
    counts = (
        (usage.input_tokens, "in"),
        (usage.cached_input_tokens, "cached"),
        (usage.output_tokens, "out"),
        (usage.reasoning_tokens, "reasoning"),
    )
    known = [f"{count:,} {way}" for count, way in counts if count]
    spent = run_cost(out.state)
    return [
        f"tokens: {', '.join(known) or f'{usage.total_tokens or 0:,}'}",
        *([] if spent is None else [f"${spent:.4f}"]),
    ]


def duration(seconds: float) -> str:
    """Seconds for people: 12 ms, 3.4 s, 2 min 5 s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def print_run(out: MastraModelOutput, printer: RunPrinter) -> None:
    """Print a run to its end, in this thread. An interrupt cancels it, and is raised when all that came is printed."""
    try:
        with interrupted_at_end(out.cancel):
            while True:
                closed = out.done  # before looking: what came before the end must not be missed
                seen = len(out.log)
                printer.update()
                if closed:
                    break
                out.log.wait_blocking(seen, printer.wait_s)
            printer.close()
    finally:
        printer.leave()


def print_json(out: MastraModelOutput, file: TextIO) -> None:
    """Print a run's chunks to its end, each as JSON on a line of its own, in this thread. Interrupts as `print_run`."""
    printed = 0
    with interrupted_at_end(out.cancel):
        while True:
            closed = out.done  # before looking: what came before the end must not be missed
            chunks = out.log.items[printed:]
            printed += len(chunks)
            for chunk in chunks:
                line = json_line(chunk)
                raw = {"type": chunk.type, "raw": chunk.to_json().decode("utf-8", "replace")}
                file.write(clean_json(json.dumps(raw) if line is None else line.decode()) + "\n")
            file.flush()
            if closed:
                return
            out.log.wait_blocking(printed)
