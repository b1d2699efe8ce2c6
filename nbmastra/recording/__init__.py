"""Recordings: a run as a file, written while it goes on, replayed as often as one likes.

{"nbmastra": 1, "created": …, "agent": …, "prompt": …, "stream_id": …, …}     what the run is
{"t": 0.412, "chunk": {…}}                                                    each chunk, when it came (seconds)
{"end": {"status": "success", "reason": "stop", "done": true, "t": 3.1, …}}   how it ended, if it did

The chunks are the bytes that came. Lines are flushed as they come, so a file whose writer was killed is good up to its
last whole line. `.gz` and `.zst` files are compressed the same way. Headers and tokens are never written.
"""

from __future__ import annotations

from nbmastra.recording.agents import RecordedAgent, demo_recording
from nbmastra.recording.dumps import from_client_js
from nbmastra.recording.journal import record
from nbmastra.recording.lines import json_line
from nbmastra.recording.playback import Playback, ReplayedOutput
from nbmastra.recording.reader import Recording, load_recording, open_playback, open_recording, replay
from nbmastra.recording.traces import TraceRuns, runs_of_trace

__all__ = [
    "Playback",
    "RecordedAgent",
    "Recording",
    "ReplayedOutput",
    "TraceRuns",
    "demo_recording",
    "from_client_js",
    "json_line",
    "load_recording",
    "open_playback",
    "open_recording",
    "record",
    "replay",
    "runs_of_trace",
]
