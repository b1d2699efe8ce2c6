"""What the schema of a run says of its object, in a few words for views and terminals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from nbmastra.errors import ObjectError
from nbmastra.output.model_output import MastraModelOutput

__all__ = ["Verdict", "verdict"]


class Verdict(NamedTuple):
    """A status, words, and of each bad path why it doesn't fit. Words and paths may be hostile: clean them."""

    status: Literal["completed", "failed", "truncated", "info"]
    words: str
    bad: Mapping[str, str] = {}


def verdict(out: MastraModelOutput) -> Verdict | None:
    """What `await out.object` would say, in a few words; None while the run goes on and where nothing was asked for."""
    part, schema = out.state.object, out.schema
    if part is None or schema is None or part.rejected or not out.done:
        return None
    if not part.done and not (out.status == "success" and (part.complete or part.told)):
        return Verdict("truncated", "incomplete")
    try:
        schema.validate(part.value)
    except ObjectError as error:
        if part.fallback:
            return Verdict("info", "the fallback value: the answer did not fit")
        place = error.path or "its root"
        why = error.message.rpartition(f"{place}: ")[2]
        return Verdict("failed", f"does not fit at {place}", {error.path: why})
    except Exception as error:  # a validator of the user's own
        return Verdict("failed", f"could not be checked: {error or type(error).__name__}")
    return Verdict("completed", f"fits {schema.name or 'its schema'}")
