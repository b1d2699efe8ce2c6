"""What a run consists of, in the order it came. Plain state; `RunState` changes it, nobody else.

Times (`*_at`) are seconds since the start of the stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from nbmastra.chunks import Chunk
from nbmastra.errors import printable

if TYPE_CHECKING:
    from nbmastra.fold.objects import ObjectText

__all__ = [
    "DataPart",
    "ErrorInfo",
    "FilePart",
    "GoalPart",
    "Notice",
    "ObjectPart",
    "Part",
    "ReasoningPart",
    "SourcePart",
    "TextPart",
]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as the wire tells it: any JSON value, read as far as it goes. `message` is never empty."""

    message: str
    name: str = "Error"
    status_code: int | None = None
    stack: str | None = None
    details: Any = None


class Part:
    """Something that stands in a run at one place; `step` is its step's number in the run, -1 outside of steps."""

    kind: ClassVar[str] = ""
    __slots__ = ("ended_at", "rejected", "started_at", "step")

    def __init__(self, step: int, at: float) -> None:
        self.step = step
        self.started_at = at
        self.ended_at: float | None = None
        self.rejected = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} step={self.step}>"


class TextPart(Part):
    """Text that grows: `pieces` only ever gets longer, so readers can hold an index."""

    kind = "text"
    __slots__ = ("_held", "id", "pieces")

    def __init__(self, step: int, at: float, id: str) -> None:
        super().__init__(step, at)
        self.id = id
        self.pieces: list[str] = []
        self._held = ""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)

    def append(self, piece: str) -> str:
        """Add a delta; returns what may be shown: half an emoji is held back until its other half comes."""
        if self._held or (not piece.isascii() and _LONE_SURROGATE.search(piece)):
            piece = self._whole(self._held + piece)
        if piece:
            self.pieces.append(piece)
        return piece

    def append_all(self, pieces: list[str]) -> bool:
        """Add deltas as they are; False, and nothing done, if a half emoji is among them."""
        text = "".join(pieces)
        if self._held or (not text.isascii() and _LONE_SURROGATE.search(text)):
            return False
        self.pieces.extend(pieces)
        return True

    def end(self, at: float) -> str:
        """Close the part; returns the last piece, if half a character was held back."""
        self.ended_at = at
        piece, self._held = ("\ufffd", "") if self._held else ("", "")
        if piece:
            self.pieces.append(piece)
        return piece

    def _whole(self, text: str) -> str:
        self._held = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self._held, text = text[-1], text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def __repr__(self) -> str:
        text = self.text
        return f"<{type(self).__name__} step={self.step} {text if len(text) <= 60 else text[:57] + '...'!r}>"


class ReasoningPart(TextPart):
    """What a model thought; `signature` proves it to the provider, `redacted` means that its text is withheld."""

    kind = "reasoning"
    __slots__ = ("provider_metadata", "redacted", "signature")

    def __init__(self, step: int, at: float, id: str) -> None:
        super().__init__(step, at, id)
        self.signature: str | None = None
        self.provider_metadata: dict[str, Any] | None = None
        self.redacted = False


class ObjectPart(Part):
    """A structured object: `value` as far as it has come, `path` the newest place in it."""

    kind = "object"
    __slots__ = ("_last", "_shown", "_text", "chunks", "done", "fallback", "final")

    def __init__(self, step: int, at: float) -> None:
        super().__init__(step, at)
        self._text: ObjectText | None = None
        self._last: Chunk | None = None
        self._shown: tuple[Chunk | None, Any] = (None, None)
        self.chunks = 0
        self.done = False
        self.fallback = False
        """True if the answer didn't fit, and the final object is what was agreed on for that case."""
        self.final: Any = None

    @property
    def value(self) -> Any:
        """The object so far; None before anything of it is known. Don't change it."""
        if self.done:
            return self.final
        if self._text is not None and not self.told:
            return self._text.value
        if self._last is not self._shown[0]:
            self._shown = self._last, self._last.object if self._last is not None else None
        return self._shown[1]

    @property
    def told(self) -> bool:
        """True if the value is the one that chunks tell, since no text or none that is JSON has it."""
        has_text = self._text is not None and self._text.started and not self._text.failed
        return not has_text and (self.chunks > 0 or self.done)

    @property
    def complete(self) -> bool:
        """True if the object is final, or its JSON is closed."""
        return self.done or (self._text is not None and self._text.complete)

    @property
    def path(self) -> tuple[str | int, ...]:
        """Where the newest value stands, for example ("legs", 1, "km"); () if unknown."""
        return () if self.done or self._text is None or self.told else self._text.path

    @property
    def closed_elements(self) -> int:
        """How many elements of an array are complete."""
        if not self.done and not self.told:
            return self._text.closed_elements if self._text is not None else 0
        value = self.value
        if not isinstance(value, list):
            return 0
        count = len(cast("list[Any]", value))
        return count if self.done or self.ended_at is not None else max(count - 1, 0)

    def follow(self, text: ObjectText) -> None:
        """Read the object from the step's text, which costs as much as the text is long."""
        self._text = text

    def feed(self, piece: str) -> bool:
        """Text of the step; returns False if the object isn't read from it."""
        if self._text is None or self._text.failed:
            return False
        self._text.feed(piece)
        return True

    def note(self, chunk: Chunk) -> None:
        """An `object` chunk: the whole object so far; read only if the text can't be."""
        self._last = chunk
        self.chunks += 1

    def show(self, value: Any) -> None:
        """The object so far, where a chunk has it in its payload."""
        self._last, self._shown = None, (None, value)
        self.chunks += 1

    def finish(self, value: Any, at: float, *, fallback: bool = False) -> None:
        """The final object."""
        self.done = True
        self.fallback = fallback
        self.final = value
        self.ended_at = at


class SourcePart(Part):
    """A source that the answer rests on; `url` is what the model or tool said, unchecked."""

    kind = "source"
    __slots__ = ("chunk", "id", "source_type", "title", "url")

    def __init__(self, step: int, at: float, chunk: Chunk, payload: dict[str, Any]) -> None:
        super().__init__(step, at)
        self.chunk = chunk
        self.id = _text(payload.get("id"))
        self.source_type = _text(payload.get("sourceType"))
        self.title = _text(payload.get("title"))
        self.url = _text(payload.get("url"))

    @property
    def payload(self) -> Any:
        """The chunk's payload model."""
        return self.chunk.payload


class FilePart(Part):
    """A file that the model made; its data stays in the chunk until asked for."""

    kind = "file"
    __slots__ = ("chunk", "mime_type")

    def __init__(self, step: int, at: float, chunk: Chunk, mime_type: str) -> None:
        super().__init__(step, at)
        self.chunk = chunk
        self.mime_type = mime_type

    @property
    def payload(self) -> Any:
        """The chunk's payload model."""
        return self.chunk.payload

    @property
    def base64(self) -> str:
        """The data as base64, as the wire gives it; "" if there is none."""
        payload = self.chunk.raw_payload()
        return _text(payload.get("base64")) or _text(payload.get("data"))


class DataPart(Part):
    """A `data-*` chunk; one with the id of an earlier one takes its place."""

    kind = "data"
    __slots__ = ("data", "id", "transient", "type")

    def __init__(self, step: int, at: float, chunk: Chunk) -> None:
        super().__init__(step, at)
        self.type = chunk.type
        self.update(chunk)

    def update(self, chunk: Chunk) -> None:
        """Take over a chunk's data."""
        top = chunk.to_wire()
        self.data: Any = top.get("data")
        self.id: str = _text(top.get("id"))
        self.transient = bool(top.get("transient"))


class GoalPart(Part):
    """One evaluation of a goal, or of the completion scorers (`type` is-task-complete); `pending` until judged."""

    kind = "goal"
    __slots__ = ("payload", "type")

    def __init__(self, step: int, at: float, type: str, payload: dict[str, Any]) -> None:
        super().__init__(step, at)
        self.type = type
        self.payload = payload

    @property
    def iteration(self) -> Any:
        """Number of the evaluation, from 1."""
        return self.payload.get("iteration")

    @property
    def pending(self) -> bool:
        """True until it is judged."""
        return bool(self.payload.get("pending"))

    @property
    def passed(self) -> bool:
        """True if the judge was content."""
        return bool(self.payload.get("passed"))


class Notice(Part):
    """Something the user must see: `level` error, warning or info. Text is hostile until a view has escaped it."""

    kind = "notice"
    __slots__ = ("code", "detail", "event", "level", "text", "title", "tool_call_id")

    def __init__(
        self,
        step: int,
        at: float,
        code: str,
        level: str,
        title: str,
        text: str = "",
        *,
        event: int = -1,
        detail: Any = None,
    ) -> None:
        super().__init__(step, at)
        self.code = code
        self.level = level
        self.title = title
        self.text = text
        self.event = event
        self.detail = detail
        self.tool_call_id: str | None = None

    def __repr__(self) -> str:
        return f"<Notice {printable(self.code)}: {printable(self.title)}>"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
