"""Text, reasoning and structured objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nbmastra.chunks import Chunk
from nbmastra.fold.parts import FilePart, ObjectPart, ReasoningPart, SourcePart, TextPart
from nbmastra.fold.reading import as_dict, as_text, read, read_row
from nbmastra.fold.turns import Step

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["AT_ONCE", "HANDLERS", "feed_object"]


class _Delta(msgspec.Struct, gc=False):
    text: str
    id: str | None = None


_DELTA = msgspec.json.Decoder(_Delta)


def on_text_start(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    _open_text(state, step, as_text(as_dict(chunk.raw_payload()).get("id")), at)


def on_text_delta(state: RunState, chunk: Chunk, at: float) -> None:
    delta = read(chunk, _DELTA, _Delta)
    step = state.step
    if step is None or step.ended_at is not None:
        step = state.current_step(at, chunk.run_id)
    id = delta.id or ""
    part = step.open_text.get(id)
    if part is None:
        part = _open_text(state, step, id, at)
    if step.first_token_at is None:
        state.token(at)
    state.grow_text(part, delta.text)


def grow_at_once(state: RunState, chunks: Sequence[Chunk], at: float) -> bool:
    """Text or reasoning deltas of the same head, as one; False, and no text added, if one isn't just more of its text.

    Network reads bring a hundred at a time when a server is fast, and the fold is what a fast stream waits for.
    """
    step = state.step
    if step is None or step.ended_at is not None or chunks[0].head.whole is not None:
        return False
    is_text = chunks[0].type == "text-delta"
    if is_text and (state.expect_object or step.object is not None):
        return False
    try:
        deltas = read_row(chunks, _DELTA)
    except ValueError:
        return False
    id = deltas[0].id or ""
    pieces = [delta.text for delta in deltas]
    if len({delta.id for delta in deltas}) > 1 or "" in pieces:
        return False
    for chunk, piece in zip(chunks, pieces, strict=True):
        chunk.kept_delta = piece
    part = step.open_text.get(id) if is_text else step.open_reasoning.get(id)
    if part is None:
        part = (_open_text if is_text else _open_reasoning)(state, step, id, at)
    if not part.append_all(pieces):
        return False
    if step.first_token_at is None:
        state.token(at)
    (state.text_pieces if is_text else state.reasoning_pieces).extend(pieces)
    state.touch(part)
    return True


def on_text_end(state: RunState, chunk: Chunk, at: float) -> None:
    if state.step is not None:
        part = state.step.open_text.pop(as_text(as_dict(chunk.raw_payload()).get("id")), None)
        if part is not None:
            state.end_text(part, at)


def _open_text(state: RunState, step: Step, id: str, at: float) -> TextPart:
    old = step.open_text.get(id)
    if old is not None:
        if not old.pieces:
            return old
        state.end_text(old, at)
    part = step.open_text[id] = TextPart(step.index, at, id)
    state.add(part)
    return part


def on_reasoning_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    part = _open_reasoning(state, step, as_text(payload.get("id")), at)
    _note_signature(part, payload)


def on_reasoning_delta(state: RunState, chunk: Chunk, at: float) -> None:
    delta = read(chunk, _DELTA, _Delta)
    step = state.current_step(at, chunk.run_id)
    id = delta.id or ""
    part = step.open_reasoning.get(id)
    if part is None:
        part = _open_reasoning(state, step, id, at)
    if step.first_token_at is None:
        state.token(at)
    state.grow_text(part, delta.text)


def on_reasoning_end(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    if state.step is not None:
        part = state.step.open_reasoning.pop(as_text(payload.get("id")), None)
        if part is not None:
            _note_signature(part, payload)
            state.end_text(part, at)


def on_reasoning_signature(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    id = as_text(payload.get("id"))
    part = step.open_reasoning.get(id)
    if part is None:
        known = [p for p in step.parts if isinstance(p, ReasoningPart) and p.id == id]
        part = known[-1] if known else _open_reasoning(state, step, id, at)
    _note_signature(part, payload)
    state.touch(part)


def on_redacted_reasoning(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    part = _open_reasoning(state, step, as_text(payload.get("id")), at)
    part.redacted = True
    _note_signature(part, payload)
    state.touch(part)


def _open_reasoning(state: RunState, step: Step, id: str, at: float) -> ReasoningPart:
    old = step.open_reasoning.get(id)
    if old is not None:
        if not old.pieces:
            return old
        state.end_text(old, at)
    part = step.open_reasoning[id] = ReasoningPart(step.index, at, id)
    state.add(part)
    return part


def _note_signature(part: ReasoningPart, payload: dict[str, Any]) -> None:
    metadata = as_dict(payload.get("providerMetadata"))
    if metadata:
        part.provider_metadata = metadata
    nested = (as_text(as_dict(value).get("signature")) for value in metadata.values())
    part.signature = as_text(payload.get("signature")) or next(filter(None, nested), None) or part.signature


def on_source(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    state.add(SourcePart(step.index, at, chunk, as_dict(chunk.raw_payload())))


class _File(msgspec.Struct, gc=False, rename="camel"):
    mime_type: Any = None
    media_type: Any = None


_FILE = msgspec.json.Decoder(_File)


def on_file(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    file = read(chunk, _FILE, _File)
    mime = as_text(file.mime_type) or as_text(file.media_type)
    state.add(FilePart(step.index, at, chunk, mime or "application/octet-stream"))


def on_object(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    part = _open_object(state, step)
    if part is None:
        value = chunk.object
        state.array_object = state.array_object or isinstance(value, list)
        # A word is what a server makes of `{"result": word}`, so the text isn't followed.
        part = _begin_object(state, step, at, follow=not isinstance(value, str))
    part.note(chunk)
    state.touch(part)


def on_object_result(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    part = _open_object(state, step) or _begin_object(state, step, at)
    metadata = chunk.metadata if b'"fallback"' in chunk.body else None
    part.finish(chunk.object, at, fallback=metadata is not None and metadata.get("fallback") is True)
    state.touch(part)


def feed_object(state: RunState, piece: str) -> None:
    """Text came: if an object is expected or has begun, it is (also) the object's JSON."""
    step = state.step
    if step is None:
        return
    part = step.object
    if part is None:
        if not state.expect_object or not piece.strip() or piece.lstrip()[0] not in "{[":
            return
        _begin_object(state, step, step.started_at)
        return
    if part.ended_at is None and part.feed(piece):
        state.touch(part)


def _open_object(state: RunState, step: Step) -> ObjectPart | None:
    return step.object if step.object is not None and step.object.ended_at is None else None


def _begin_object(state: RunState, step: Step, at: float, *, follow: bool = True) -> ObjectPart:
    part = step.object = state.new_object(at)
    if not follow:
        return part
    reader = state.object_text()
    for other in step.parts:
        if type(other) is TextPart:
            for piece in other.pieces:
                reader.feed(piece)
    part.follow(reader)
    return part


HANDLERS = {
    "text-start": on_text_start,
    "text-delta": on_text_delta,
    "text-end": on_text_end,
    "reasoning-start": on_reasoning_start,
    "reasoning-delta": on_reasoning_delta,
    "reasoning-end": on_reasoning_end,
    "reasoning-signature": on_reasoning_signature,
    "redacted-reasoning": on_redacted_reasoning,
    "reasoning-file": on_file,
    "source": on_source,
    "file": on_file,
    "object": on_object,
    "object-result": on_object_result,
}
AT_ONCE = {"text-delta": grow_at_once, "reasoning-delta": grow_at_once}
