"""A run as text: plain for pipes and files, with markdown and colours on a terminal. What it says is cleaned first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
from nbmastra.output import MastraModelOutput
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

    def update(self) -> None:
        """Print what has come since the last time."""
        changes = self._state.changes
        start, self._seen = max(self._seen - 1, 0), len(changes)  # the last entry may have changed once more
        for part in changes[start : self._seen]:
            if isinstance(part, TextPart):
                self._text(part)
            elif not self._text_only:
                self._other(part)
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
            self._look.line(ending_line(self._out), "dim" if self._out.status == "success" else "warning")
        self._look.flush()

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
    if call.status == "streaming":
        return []
    story = [(f"→ {signature(call.tool_name, call.args)}", "call")]
    if call.ended_at is not None and not call.open:
        took = "" if call.duration_s is None else f"  {duration(call.duration_s)}"
        name = clean_line(call.tool_name, 60)
        if call.status == "success":
            story.append((f"← {name}{took}  {short(call.result)}", "result"))
        else:
            why = call.error.message if call.error else call.denial_reason or ""
            words = clean_line(why) or call.status
            story.append((f"✗ {name}{took}  {words}", "error" if call.status == "error" else "warning"))
    return story


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
    usage = state.grand_usage
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
    if usage.reported:
        counts = ((usage.input_tokens, "in"), (usage.output_tokens, "out"))
        known = [f"{count:,} {way}" for count, way in counts if count is not None]
        facts.append(f"tokens: {', '.join(known) or f'{usage.total_tokens or 0:,}'}")
    facts.append(duration(out.elapsed_s))
    if thread := out.context.get("thread"):
        facts.append(f"thread {clean_line(str(thread), 60)} of {clean_line(str(out.context.get('resource')), 60)}")
    return " · ".join(facts)


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
    with interrupted_at_end(out.cancel):
        while True:
            closed = out.done  # before looking: what came before the end must not be missed
            seen = len(out.log)
            printer.update()
            if closed:
                break
            out.log.wait_blocking(seen, printer.wait_s)
        printer.close()


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
