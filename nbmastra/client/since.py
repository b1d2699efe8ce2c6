"""Moments as one writes them: "7d", "24h", a date, a datetime."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from nbmastra.errors import SettingsError

__all__ = ["When", "moment_of", "span_of_time"]

When = datetime | date | timedelta | str
"""A datetime or date, ISO text of one, or how long ago: a timedelta or text like "7d", "24h", "30m", "2w"."""

_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(value: When, name: str, *, end_of_day: bool = False) -> datetime:
    """The moment, in UTC. What has no time zone is in that of this machine. Raises SettingsError.

    A date alone is its first moment, or its last for `end_of_day`.
    """
    try:
        return _moment(value, end_of_day).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise SettingsError(
            f"{name}={str(value)[:60]!r}: give a datetime, a date like 2026-11-30, or how long ago: 7d, 24h, 30m"
        ) from None


def _moment(value: object, end_of_day: bool) -> datetime:
    if isinstance(value, str):
        text = value.strip()
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        value = date.fromisoformat(text) if len(text) <= 10 else datetime.fromisoformat(text)
    if isinstance(value, timedelta):
        return datetime.now(UTC) - abs(value)
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time.max if end_of_day else time.min)
    raise ValueError


def span_of_time(since: When | None, until: When | None) -> tuple[datetime | None, datetime | None]:
    """Both ends in UTC. Raises SettingsError, also if nothing lies between them."""
    start = moment_of(since, "since") if since is not None else None
    end = moment_of(until, "until", end_of_day=True) if until is not None else None
    if start is not None and end is not None and end < start:
        raise SettingsError(f"since={str(since)[:60]!r} lies after until={str(until)[:60]!r}: exchange them")
    return start, end
