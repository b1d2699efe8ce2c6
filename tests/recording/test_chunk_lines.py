"""Lines of a recording are read by the block; how they are cut into blocks is no matter."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.recording.chunk_lines import ChunkLines

PLAIN = [
    b'{"t":%d,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"x%d"}}}' % (at, at)
    for at in range(4)
]
ODD = [
    b"",
    b"  ",
    b"{broken",
    b'{"t":1,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"text":"\xff"}}}',
    b'{"t":2.5,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"text":"\\ud83d"}}}',
    b'{"t": 1, "chunk": {"type": "start", "runId": "r", "from": "AGENT", "payload": {"id": "a"}}}',
    b'{"t":3,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"text":"x"},"metadata":{"a":1}}}',
    b'{"t":3,"chunk":{"type":"data-x","data":{"payload":{}}}}',
    b'{"t":"1","chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"x"}}}',
    b'{"t":1,"raw":"{\\"type\\":\\"start\\",\\"payload\\":{}}"}',
    b'{"t":1,"chunk":7}',
    b"[1]",
    b'{"end":7}',
    b'{"end":{"status":"success","done":true,"t":9.5}}',
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PLAIN * 5 + ODD), max_size=20), st.lists(st.integers(1, 7), max_size=20))
def test_every_cut_into_blocks_gives_the_same_chunks_and_times(lines: list[bytes], sizes: list[int]) -> None:
    blocks: list[list[bytes]] = []
    rest = lines
    for size in [*sizes, len(lines)]:
        blocks.append(rest[:size])
        rest = rest[size:]
    whole, one_by_one = ChunkLines(blocks), ChunkLines([line] for line in lines)
    assert _read(whole) == _read(one_by_one)
    assert whole.ended == one_by_one.ended


def test_a_broken_line_is_a_decode_error_and_the_lines_around_it_are_read() -> None:
    lines = ChunkLines([[PLAIN[0], b"{broken", PLAIN[1]]])
    assert [kind for _, kind, _, _ in _read(lines)] == ["text-delta", "decode-error", "text-delta"]
    assert lines.ended.failure == "the recording stops before the run ended"


def _read(lines: ChunkLines) -> list[tuple[float, str, bytes, int]]:
    return [
        (at, chunk.type, chunk.to_json(), chunk.event)
        for times, chunks in lines
        for at, chunk in zip(times, chunks, strict=True)
    ]
