"""A run as somebody sees it who has a terminal and no notebook: what a real pseudo terminal's screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte

ROWS, COLUMNS = 30, 100


def screens(command: list[str], home: Path) -> Iterator[pyte.HistoryScreen]:
    """The screen of a command after each piece of its output, until it has ended."""
    screen = pyte.HistoryScreen(COLUMNS, ROWS, history=1000)
    stream = pyte.ByteStream(screen)
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MASTRA_", "NO_COLOR", "CI"))}
    env |= {"TERM": "xterm-256color", "HOME": str(home), "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env, close_fds=True)
    os.close(terminal)
    try:
        while True:
            try:
                piece = os.read(controller, 4096)
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                break
            stream.feed(piece)
            yield screen
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def lines(screen: pyte.HistoryScreen) -> list[str]:
    """All that was printed and stayed, also what has scrolled away."""
    gone = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in screen.history.top]
    return [*gone, *(line.rstrip() for line in screen.display)]


def test_a_terminal_shows_what_runs_while_it_runs_and_keeps_what_it_came_to(tmp_path: Path) -> None:
    """Calls, a sub-agent's calls, times that pass, tokens: as in a notebook; nothing of what was redrawn stays."""
    running: set[str] = set()
    screen = None
    for screen in screens([sys.executable, "-m", "nbmastra.cli", "demo", "--speed", "2"], tmp_path):
        shown = lines(screen)
        running.update(line.split("(")[0].strip() for line in shown if line.startswith("  ◌"))
        running.update(line.split(" · ")[0] for line in shown if line.startswith("Running · "))
    assert screen is not None
    assert {"◌ forecast", "◌ agent-route", "◌ rooms", "Running"} <= running
    shown = lines(screen)
    text = "\n".join(shown)
    assert "◌" not in text
    assert "Running" not in text
    assert not screen.cursor.hidden
    for once in ("→ forecast(", "← forecast", "  → legs(", "  ← legs", "✗ rooms", "Ride round the lake on Saturday"):
        assert text.count(once) == 1, once
    assert "tokens: 2,843 in, 1,280 cached, 653 out, 64 reasoning" in " ".join(" ".join(shown[-4:]).split())
