"""Why a step or run ended, in one spelling."""

from __future__ import annotations

from typing import cast

__all__ = ["finish_reason"]

_SPELLINGS = {"tool_calls": "tool-calls", "content_filter": "content-filter"}


def finish_reason(value: object) -> str | None:
    """Why a step or run ended, in one spelling; None if it isn't said.

    `stop, length, tool-calls, content-filter, error, other, unknown`, and Mastra's `tripwire, retry, suspended, abort`.
    The documents write `tool_calls` and `content_filter`; newer providers nest it (`{"unified", "raw"}`). Other words
    stay as they are.
    """
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("unified")
    return _SPELLINGS.get(value, value) if isinstance(value, str) and value else None
