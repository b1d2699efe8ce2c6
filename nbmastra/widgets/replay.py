"""`Replay`: a recorded run that one moves through: its view, and above it a slider over time.

on_act (play, step, seek, speed) ──▶ Playback ──▶ out ──▶ RunView, which draws the run of that moment
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import anyio

from nbmastra.engine import Job, get_engine
from nbmastra.recording import ReplayedOutput, open_playback
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import number, one_line, seconds
from nbmastra.widgets.header import agent_name, status_of
from nbmastra.widgets.icons import AGAIN, BACK, FORWARD, PAUSE, PLAY, look
from nbmastra.widgets.live import Act
from nbmastra.widgets.placed import folded
from nbmastra.widgets.placement import show_bundle, widget_view
from nbmastra.widgets.run_view import RunView
from nbmastra.widgets.snapshot import snapshot

__all__ = ["Replay"]

_SPEEDS: tuple[float | None, ...] = (0.25, 0.5, 1, 2, 5, 10, 100, None)
_TICK_S = 0.1
"""How often the slider moves while it plays."""


class Replay(RunView):
    """A recording with a slider over time, play and pause, steps by chunk, and speed; space and arrow keys work, too.

    `out` is the run as of the moment shown, with its tables and values; `playback` moves it from code. `start` is where
    it opens (seconds), `speed` None plays all at once. Raises RecordingError, SettingsError.
    """

    _ticking: Job[None] | None = None
    out: ReplayedOutput  # pyright: ignore[reportIncompatibleVariableOverride]  # nothing else is ever put there

    def __init__(
        self,
        path: str | Path,
        *,
        start: float = 0.0,
        speed: float | None = 1.0,
        play: bool = False,
        schema: Any = None,
    ) -> None:
        self.playback = open_playback(path, speed, start=start, paused=not play, schema=schema)
        self._wanted: float | None = None
        super().__init__(self.playback.out)
        self._ticking = get_engine().start(self._tick)

    # --- drawing -----------------------------------------------------------------------------------------------------

    def begin(self, doc: Document) -> None:
        """The document at the start: header, slider, the run as far as it has come."""
        super().begin(doc)
        self._header.stoppable = False
        attrs = {"role": "toolbar", "aria-label": "Replay"}
        bar = doc.add(self._root, "div", "nbm-bar nbm-scrub", attrs=attrs, before=self._body)
        doc.set_attr(self._root, "tabindex", "-1")  # a click anywhere in it gives it the keys
        buttons = doc.add(bar, "span", "nbm-scrub__buttons")
        self._back = self._button(buttons, "back", "ArrowLeft", BACK, "One chunk back")
        self._play = self._button(buttons, "play", "Space", PLAY, "Play")
        self._forward = self._button(buttons, "forward", "ArrowRight", FORWARD, "One chunk forward")
        attrs = {"type": "range", "min": "0", "max": f"{self.playback.duration_s:.6f}", "step": "any"}
        attrs |= {"name": "position", "data-nbm-act": "seek", "aria-label": "Position", "value": "0"}
        self._slider = doc.add(bar, "input", "nbm-scrub__slider", attrs=attrs)
        self._time = doc.add(bar, "span", "nbm-scrub__time", html="")
        self._chunk = doc.add(bar, "span", "nbm-scrub__chunk nbm-muted nbm-ellipsis", html="")
        attrs = {"name": "speed", "data-nbm-act": "speed", "aria-label": "Speed"}
        speeds = doc.add(bar, "select", "nbm-input nbm-scrub__speed", attrs=attrs)
        own = self.playback.speed
        known = sorted({*_SPEEDS, own}, key=lambda speed: math.inf if speed is None else speed)
        for speed in known:
            chosen = {"selected": ""} if speed == own else {}
            doc.add(speeds, "option", text=_speed_words(speed), attrs={"value": str(speed or "max"), **chosen})
        self._update_header()
        self._update_bar()

    def _button(self, bar: str, act: str, key: str, icon: str, words: str) -> str:
        attrs = {"type": "button", "data-nbm-act": act, "data-nbm-repeat": "", "data-nbm-key": key}
        attrs |= {"aria-label": words, "title": words, "aria-keyshortcuts": key}
        return self.doc.add(bar, "button", "nbm-btn nbm-btn--icon", html=icon, attrs=attrs)

    def draw(self) -> None:
        """Show what is new, as one message; on the engine's loop."""
        with self.frame():
            super().draw()
            self._update_bar()

    def _update_header(self) -> None:
        self._header.update(self.out)
        self._parts.update()

    def _update_bar(self) -> None:
        doc, player = self.doc, self.playback
        at, whole, chunk = player.position_s, player.duration_s, player.chunk
        still = player.paused or player.at_end
        words = "Play again" if player.at_end else "Play" if player.paused else "Pause"
        doc.set_html(self._play, AGAIN if player.at_end else PLAY if player.paused else PAUSE)
        for name in ("aria-label", "title"):
            doc.set_attr(self._play, name, words)
        doc.set_attr(self._back, "disabled", None if chunk or at else "")
        doc.set_attr(self._forward, "disabled", "" if player.at_end else None)
        doc.set_attr(self._slider, "value", f"{at:.6f}")
        places = f"chunk {number(chunk)} of {number(player.chunks)}"
        doc.set_attr(self._slider, "aria-valuetext", f"{seconds(at)} of {seconds(whole)}, {places}")
        doc.set_text(self._time, f"{_clock(at, whole)} / {seconds(whole)}")
        kind = one_line(self.out.log.items[-1].type, 40) if chunk and self.out.log.items else ""
        doc.set_text(self._chunk, f"{places} {kind}".strip())
        doc.set_cls(self._root, "nbm nbm-run nbm-still" if still else "nbm nbm-run")

    async def _tick(self) -> None:
        player = self.playback
        while True:
            changed = player.changed
            playing = not player.paused
            if playing and player.at_end and self.out.done:
                player.pause()
            with self.frame():
                self._update_bar()
            with anyio.move_on_after(_TICK_S if playing else None):
                await changed.wait()

    def _end(self) -> None:
        """The end is a place like any other: the view stays, since one may go back."""
        self.ended.set()

    # --- acts --------------------------------------------------------------------------------------------------------

    def on_act(self, act: Act) -> None:
        """Hand it over to the engine's loop; while a slider is dragged, only where it is now counts."""
        if act.name == "seek":
            idle, self._wanted = self._wanted is None, _number(act.values.get("position"))
            if idle:
                get_engine().start(self._seek)
        elif act.name in ("play", "back", "forward", "speed"):
            get_engine().start(self._do, act)
        else:
            super().on_act(act)

    async def _seek(self) -> None:
        at, self._wanted = self._wanted, None
        if at is not None:
            self.playback.seek(at)

    async def _do(self, act: Act) -> None:
        player = self.playback
        if act.name == "speed":
            speed = act.values.get("speed")
            player.speed = None if speed == "max" else _number(speed) or player.speed
        elif act.name != "play":
            player.step(1 if act.name == "forward" else -1)
        elif player.at_end:
            player.seek(0.0)
            player.resume()
        elif player.paused:
            player.resume()
        else:
            player.pause()

    # --- shown -------------------------------------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        self._placement.add(widget_view(self), repr(self))
        show_bundle(self._fallback())

    def _fallback(self) -> dict[str, str]:
        """The whole run as plain output, folded: what a notebook without its kernel still shows."""
        bundle = snapshot(whole := self.playback.whole())
        facts = f"{agent_name(whole)}, {look(status_of(whole)).word.lower()}, {seconds(whole.elapsed_s)}"
        return folded("The whole run", bundle, facts)

    def __repr__(self) -> str:
        player = self.playback
        place = f"{player.position_s:.1f} of {player.duration_s:.1f} s, {player.chunk} of {player.chunks} chunks"
        return f"<Replay {one_line(self.out.agent or 'of a run', 60)} {place}>"

    def __del__(self) -> None:
        if self._ticking is not None:  # else it never came to be: there was no recording
            super().__del__()  # pyright: ignore[reportUnknownMemberType]

    def close(self) -> None:
        """Remove the view from every display; the run stops where it is."""
        if self._ticking is not None:
            self._ticking.cancel()
        self.playback.pause()
        super().close()


def _speed_words(speed: float | None) -> str:
    return "max" if speed is None else f"{speed:g}×"


def _clock(at: float, whole: float) -> str:
    """A time as it passes: it must not jump about as its last digits change."""
    return f"{at:.1f}" if whole < 60 else seconds(at) if at >= 60 else f"0:{int(at):02}"


def _number(value: object) -> float | None:
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and found >= 0 else None
