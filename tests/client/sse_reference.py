"""The event stream rules of the standard, as slowly and literally as possible: what the decoder is compared with."""

from __future__ import annotations

import re


def reference_events(stream: bytes) -> list[bytes]:
    """Data of every finished event of a whole stream, as bytes; nothing is interpreted."""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    pieces = re.split(rb"\r\n|\n|\r", stream)
    finished_lines = pieces[:-1]
    events: list[bytes] = []
    buffer: bytes = b""
    for line in finished_lines:
        if line == b"":
            if buffer:
                events.append(buffer[:-1])
            buffer = b""
            continue
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            buffer += value + b"\n"
    return events
