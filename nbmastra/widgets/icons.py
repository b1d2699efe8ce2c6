"""Icons and status marks as HTML; every status has a shape and a word, colour comes third."""

from __future__ import annotations

from dataclasses import dataclass

from nbmastra.widgets.document import text_html

__all__ = [
    "AGAIN",
    "BACK",
    "CHEVRON",
    "CLIP",
    "COPY",
    "CROSS",
    "DOT",
    "FORWARD",
    "PAUSE",
    "PEN",
    "PLAY",
    "SEARCH",
    "SEND",
    "STOP",
    "Look",
    "icon",
    "look",
    "status_html",
]


def _svg(paths: str, cls: str = "nbm-icon") -> str:
    return f'<svg class="{cls}" viewBox="0 0 16 16" aria-hidden="true">{paths}</svg>'


_SHAPES = {
    "ring-dashed": '<circle cx="8" cy="8" r="5.5" stroke-dasharray="2.2 2.2"/>',
    "arc": '<circle cx="8" cy="8" r="5.5" opacity=".3"/><path d="M8 2.5A5.5 5.5 0 0 1 13.5 8"/>',
    "bars": '<path d="M5.5 4v8M10.5 4v8"/>',
    "check": '<path d="M3.5 8.5l3 3 6-7"/>',
    "ring-struck": '<circle cx="8" cy="8" r="5.5"/><path d="M4.2 11.8l7.6-7.6"/>',
    "cross": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "clock": '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.8V8l2.2 1.6"/>',
    "octagon": '<path d="M5.5 2.5h5l3 3v5l-3 3h-5l-3-3v-5z"/><path d="M8 5.2v3.4M8 10.9v.1"/>',
    "line-broken": '<path d="M1.5 8h3.5M11 8h3.5M6.2 5v6M9.8 5v6"/>',
    "info": '<circle cx="8" cy="8" r="5.5"/><path d="M8 7.4v3.2M8 5.2v.1"/>',
}
CHEVRON = _svg('<path d="M5.5 2.5L11 8l-5.5 5.5"/>', "nbm-chev")
COPY = _svg('<path d="M5.5 5.5h7v8h-7z"/><path d="M3.5 10.5v-8h7"/>')
STOP = _svg('<path d="M3.5 3.5h9v9h-9z"/>', "nbm-icon nbm-icon--solid")
PLAY = _svg('<path d="M5 3l8 5-8 5z"/>', "nbm-icon nbm-icon--solid")
PAUSE = _svg('<path d="M4.5 3.5h2.5v9H4.5zM9 3.5h2.5v9H9z"/>', "nbm-icon nbm-icon--solid")
AGAIN = _svg('<path d="M12.6 5.6A5.2 5.2 0 1 0 13.2 8"/><path d="M13 2.6v3.2H9.8"/>')
BACK = _svg('<path d="M3.5 3h2v10h-2zM13 3v10L6.5 8z"/>', "nbm-icon nbm-icon--solid")
FORWARD = _svg('<path d="M10.5 3h2v10h-2zM3 3v10l6.5-5z"/>', "nbm-icon nbm-icon--solid")
PEN = _svg('<path d="M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3z"/>')
CLIP = _svg('<path d="M10.5 5.5l-4.6 4.6a1.6 1.6 0 0 0 2.3 2.3l4.6-4.7a3 3 0 0 0-4.3-4.2L3.9 8.2"/>')
SEND = _svg('<path d="M8 13V3.5M4 7.5l4-4 4 4"/>')
CROSS = _svg('<path d="M4.5 4.5l7 7M11.5 4.5l-7 7"/>')
SEARCH = _svg('<circle cx="7" cy="7" r="4"/><path d="M10 10l3.5 3.5"/>')
DOT = '<span class="nbm-dot" aria-hidden="true"></span>'


@dataclass(frozen=True, slots=True)
class Look:
    """How a status looks: its icon's shape, its word, and the class that colours it."""

    shape: str
    word: str
    tone: str


_LOOKS = {
    "pending": Look("ring-dashed", "Pending", "pending"),
    "running": Look("arc", "Running", "running"),
    "streaming": Look("arc", "Running", "running"),
    "suspended": Look("bars", "Suspended", "suspended"),
    "needs-approval": Look("bars", "Needs approval", "suspended"),
    "needs-input": Look("bars", "Needs input", "suspended"),
    "success": Look("check", "Completed", "completed"),
    "completed": Look("check", "Completed", "completed"),
    "cancelled": Look("ring-struck", "Cancelled", "cancelled"),
    "denied": Look("ring-struck", "Declined", "cancelled"),
    "failed": Look("cross", "Failed", "failed"),
    "error": Look("cross", "Failed", "failed"),
    "timed_out": Look("clock", "Timed out", "timed_out"),
    "tripwire": Look("octagon", "Tripwire", "tripwire"),
    "truncated": Look("line-broken", "Truncated", "truncated"),
    "info": Look("info", "Note", "pending"),
}


def look(status: str) -> Look:
    """How a status of a run, call or task looks; one we don't know is shown by its own word."""
    return _LOOKS.get(status) or Look("ring-dashed", status, "pending")


def icon(status: str) -> str:
    """The icon of a status."""
    return _svg(_SHAPES[look(status).shape])


def status_html(status: str, *, word: bool = True, dot: bool = False) -> str:
    """Icon and word of a status; `word=False` leaves the word to screen readers, `dot` draws running as a dot."""
    seen = look(status)
    mark = DOT if dot and seen.shape == "arc" else icon(status)
    hidden = "" if word else ' class="nbm-sr"'
    return f'<span class="nbm-status nbm-status--{seen.tone}">{mark}<span{hidden}>{text_html(seen.word)}</span></span>'
