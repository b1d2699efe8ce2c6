"""Bytes to chunks: any cut, any line end, nothing lost, nothing invented."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.chunks import Chunk
from nbmastra.client.decode import ChunkDecoder, RecordDecoder
from nbmastra.errors import EventTooLarge
from tests.client.sse_reference import reference_events

STREAMS = Path(__file__).parents[1] / "data" / "streams"
RECORDINGS = sorted(STREAMS.glob("*.sse"))
ASTRONAUT = "año 日本 👩‍🚀"


def wire(kind: str, text: str) -> str:
    chunk = {"type": kind, "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": text}}
    return json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))


def decode(pieces: Iterable[bytes], decoder: ChunkDecoder | RecordDecoder | None = None) -> list[Chunk]:
    decoder = decoder or ChunkDecoder()
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)]
    return chunks + decoder.close()


def seen(chunks: list[Chunk]) -> list[tuple[str, int, bytes]]:
    return [(type(chunk).__name__, chunk.event, chunk.to_json()) for chunk in chunks]


def cuts(size: int) -> Iterable[int]:
    """Every position of a small stream, some hundreds of a large one, odd and even."""
    return range(size + 1) if size <= 10_000 else range(0, size + 1, size // 300 | 1)


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def expected_chunks(stream: bytes) -> list[Any]:
    """What a decoder may give for a stream, by the reference: values, or the raw text of what is no chunk."""
    found: list[Any] = []
    for data in reference_events(stream):
        if data == b"[DONE]":
            break
        if not data.strip():
            continue
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        plain = isinstance(value, dict) and isinstance(value.get("type"), str)
        found.append(value if plain else data.decode("utf-8", "backslashreplace"))
    return found


def given_chunks(chunks: list[Chunk]) -> list[Any]:
    return [chunk.payload["raw"] if chunk.type == "decode-error" else chunk.to_wire() for chunk in chunks]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_cut_of_a_recording_gives_the_same_chunks(path: Path) -> None:
    data = path.read_bytes()
    whole = seen(decode([data]))
    assert [json.loads(text) for _, _, text in whole] == expected_chunks(data)
    assert [event for _, event, _ in whole] == list(range(len(whole)))
    for cut in cuts(len(data)):
        assert seen(decode([data[:cut], data[cut:]])) == whole, cut


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_one_byte_at_a_time_gives_the_same_chunks(path: Path) -> None:
    data = path.read_bytes()
    assert seen(decode(one_by_one(data))) == seen(decode([data]))


@pytest.mark.parametrize("line_end", [b"\r", b"\r\n"], ids=["CR", "CRLF"])
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_line_end_gives_the_same_chunks(path: Path, line_end: bytes) -> None:
    data = path.read_bytes()
    whole = seen(decode([data]))
    other = data.replace(b"\n", line_end)
    assert seen(decode([other])) == whole
    assert seen(decode(other[i : i + 7] for i in range(0, len(other), 7))) == whole


def test_the_end_marker_is_seen_exactly_where_a_recording_has_it() -> None:
    for path in RECORDINGS:
        data = path.read_bytes()
        decoder = ChunkDecoder()
        decode([data], decoder)
        assert decoder.done == data.endswith(b"data: [DONE]\n\n"), path.name
        assert decoder.pending == 0


def test_b01_a_character_cut_anywhere_stays_whole() -> None:
    data = f"data: {wire('text-delta', ASTRONAUT)}\n\n".encode()
    for pieces in [one_by_one(data), *([data[:cut], data[cut:]] for cut in range(len(data) + 1))]:
        [chunk] = decode(pieces)
        assert chunk.delta == ASTRONAUT


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_b02_only_cr_and_lf_end_a_line(separator: str) -> None:
    text = f"a{separator}b"
    escaped = wire("text-delta", text + "\x1e\x0b\x0c").encode()
    [chunk] = decode(one_by_one(b"data: " + escaped + b"\n\n"))
    assert chunk.delta == text + "\x1e\x0b\x0c"
    # Unescaped control characters are no JSON; that they end no line shows in the text that is kept.
    [broken] = decode([f"data: {{{text}\x0b\x0c\x1c\x1d\x1e}}\n\n".encode()])
    assert broken.payload["raw"] == f"{{{text}\x0b\x0c\x1c\x1d\x1e}}"


def test_b02_only_the_byte_1e_ends_a_record() -> None:
    text = "a\u2028b\u0085c\x1ed"
    record = wire("text-delta", text).encode() + b"\x1e"
    assert b"\x1e" not in record[:-1]
    for pieces in ([record], one_by_one(record)):
        [chunk] = decode(pieces, RecordDecoder())
        assert chunk.delta == text


def test_b04_the_space_after_the_colon_is_optional_and_only_one_is_removed() -> None:
    stream = f"data:{wire('text-delta', ' x')}\n\ndata:  {wire('text-delta', ' y')}\n\ndata:[DONE]\n\n".encode()
    for cut in range(len(stream) + 1):
        decoder = ChunkDecoder()
        assert [chunk.delta for chunk in decode([stream[:cut], stream[cut:]], decoder)] == [" x", " y"]
        assert decoder.done


def test_b05_mixed_line_ends_cut_anywhere_make_no_extra_event() -> None:
    pieces = [
        b'data: {"type":"start",',
        b'"runId":"r","from":"AGENT","payload":{}}\r',
        b"\n",
        b"\n",
        b"data: [DONE]\r\r",
    ]
    stream = b"".join(pieces)
    for variant in (pieces, one_by_one(stream), *([stream[:cut], stream[cut:]] for cut in range(len(stream) + 1))):
        decoder = ChunkDecoder()
        assert [chunk.type for chunk in decode(variant, decoder)] == ["start"]
        assert decoder.done
        assert decoder.events == 1
        assert decoder.pending == 0


def test_b07_half_an_event_is_never_emitted_and_known_to_be_pending() -> None:
    first = f"data: {wire('text-delta', 'Hel')}\n\n".encode()
    second = f"data: {wire('text-delta', 'lo')}\n\n".encode()
    for cut in range(1, len(second)):
        decoder = ChunkDecoder()
        assert [chunk.delta for chunk in decode([first + second[:cut]], decoder)] == ["Hel"]
        assert decoder.pending > 0
        assert not decoder.done
    decoder = ChunkDecoder()
    assert [chunk.delta for chunk in decode([first], decoder)] == ["Hel"]
    assert decoder.pending == 0
    assert not decoder.done


def test_b34_one_large_line_in_small_pieces_is_read_in_linear_time() -> None:
    def seconds(size: int) -> float:
        data = b'data: {"type":"file","runId":"r","from":"AGENT","payload":{"data":"' + b"x" * size + b'"}}\n\n'
        pieces = [data[i : i + 1024] for i in range(0, len(data), 1024)]
        start = time.process_time()
        [chunk] = decode(pieces)
        assert len(chunk.body) > size
        return time.process_time() - start

    assert seconds(8_000_000) < 2


def test_a_large_event_of_many_lines_is_joined_once() -> None:
    lines = ["{", '"type":"x",', *['"k":1,'] * 200_000, '"z":0}']
    data = "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    start = time.process_time()
    [chunk] = decode(data[i : i + 1024] for i in range(0, len(data), 1024))
    assert time.process_time() - start < 2
    assert chunk.type == "x"


def test_comments_and_other_fields_are_ignored() -> None:
    event = wire("text-delta", "x")
    stream = f"\ufeff: connected\n\nid: 7\nevent: message\nretry: 10\nunknown\n: c\ndata: {event}\n\nevent: ping\n\n"
    assert [chunk.delta for chunk in decode(one_by_one(stream.encode()))] == ["x"]


def test_a_byte_order_mark_is_removed_at_the_start_only() -> None:
    event = f"data: {wire('text-delta', 'x')}\n\n".encode()
    bom = b"\xef\xbb\xbf"
    assert [chunk.delta for chunk in decode(one_by_one(bom + event))] == ["x"]
    assert [chunk.delta for chunk in decode([bom + event + event])] == ["x", "x"]
    assert [chunk.delta for chunk in decode([event + bom + event])] == ["x"]


def test_blank_data_is_a_keep_alive() -> None:
    stream = f"data\n\ndata:\n\ndata: \n\ndata: {wire('text-delta', 'x')}\n\n".encode()
    [chunk] = decode([stream])
    assert chunk.event == 0


def test_data_of_several_lines_is_one_chunk() -> None:
    pretty = json.dumps(json.loads(wire("text-delta", "x")), indent=2)
    stream = "".join(f"data: {line}\n" for line in pretty.split("\n")) + "\n"
    [chunk] = decode(one_by_one(stream.encode()))
    assert chunk.to_wire() == json.loads(pretty)
    assert chunk.delta == "x"


def test_nothing_is_read_behind_the_end_marker() -> None:
    event = f"data: {wire('text-delta', 'x')}\n\n".encode()
    stream = event + b"data: [DONE]\n\n" + event
    for cut in range(len(stream) + 1):
        decoder = ChunkDecoder()
        assert len(decode([stream[:cut], stream[cut:]], decoder)) == 1
        assert decoder.done
        assert decoder.pending == 0
    assert not decode([b"data: [DONE]\n\n" + event])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>oops", "Expecting value"),
        (b"42", "not int"),
        (b"null", "not NoneType"),
        (b'["a"]', "not list"),
        (b'{"runId":"r"}', "type"),
        (b'{"type":7}', "type"),
        (b'{"type":"text-delta","runId":"r","from":"AGENT","payl', "Unterminated"),
        (b"[" * 100_000, "recursion"),
        (b'{"type":"\xff\xfe"}', "utf-8"),
    ],
)
def test_an_unreadable_envelope_becomes_a_decode_error_and_the_stream_goes_on(data: bytes, reason: str) -> None:
    good = f"data: {wire('text-delta', 'x')}\n\n".encode()
    decoder = ChunkDecoder()
    before, bad, after = decode([good + b"data: " + data + b"\n\n" + good], decoder)
    assert (before.delta, after.delta) == ("x", "x")
    assert bad.type == "decode-error"
    assert bad.event == 1
    assert bad.payload["event"] == 1
    assert bad.payload["raw"] == data.decode("utf-8", "backslashreplace")
    assert reason in bad.payload["error"]
    assert len(bad.payload["error"]) <= 200
    assert decoder.events == 3


def test_bytes_that_are_no_utf_8_are_kept_in_the_payload() -> None:
    body = b'data: {"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"\xff\xfe"}}\n\n'
    [chunk] = decode([body])
    assert chunk.type == "text-delta"
    assert chunk.to_json() == body[6:-2]


@pytest.mark.parametrize("decoder_type", [ChunkDecoder, RecordDecoder])
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_an_event_above_the_cap_is_refused_after_those_before_it(
    decoder_type: type[ChunkDecoder | RecordDecoder], piece: int
) -> None:
    def framed(text: str) -> bytes:
        event = wire("text-delta", text)
        return (f"data: {event}\n\n" if decoder_type is ChunkDecoder else f"{event}\x1e").encode()

    limit = len(framed("x" * 50).rstrip(b"\n\x1e"))
    stream = framed("a") + framed("x" * 50) + framed("x" * 51) + framed("b")
    decoder = decoder_type(max_event_bytes=limit)
    chunks: list[Chunk] = []

    def feed_all() -> None:
        for i in range(0, len(stream), piece):
            chunks.extend(decoder.feed(stream[i : i + piece]))
        decoder.close()

    with pytest.raises(EventTooLarge, match="max_event_bytes") as caught:
        feed_all()
    assert [chunk.delta for chunk in chunks] == ["a", "x" * 50]
    assert caught.value.limit == limit
    with pytest.raises(EventTooLarge):
        decoder.feed(b"more")


@pytest.mark.parametrize("start", [b"data: ", b": comment ", b"data: {}\ndata: ", b"data: {}\r"])
def test_an_endless_event_is_refused_before_it_fills_the_memory(start: bytes) -> None:
    pieces = [start, *[b"x" * 1000] * 20]
    with pytest.raises(EventTooLarge):
        decode(pieces, ChunkDecoder(max_event_bytes=10_000))


def test_a_workflow_recording_gives_the_same_chunks_at_every_cut() -> None:
    data = (STREAMS / "workflow.records").read_bytes()
    whole = seen(decode([data], RecordDecoder()))
    assert [json.loads(text) for _, _, text in whole] == [json.loads(r) for r in data.split(b"\x1e") if r]
    for cut in range(len(data) + 1):
        assert seen(decode([data[:cut], data[cut:]], RecordDecoder())) == whole
    cut_decoder = RecordDecoder()
    assert len(decode([data[:-1]], cut_decoder)) == len(whole) - 1
    assert cut_decoder.pending > 0


def test_a_record_that_is_no_chunk_becomes_a_decode_error() -> None:
    bad, good = decode([b'oops\x1e\n\x1e{"type":"workflow-start"}\x1e'], RecordDecoder())
    assert bad.payload["raw"] == "oops"
    assert (good.type, good.event) == ("workflow-start", 1)


JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CHUNK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text-delta", "data-x", "brand-new", "tripwire"])},
    optional={
        "runId": st.sampled_from(["r1", "r2"]),
        "from": st.just("AGENT"),
        "payload": JSON_TEXT,
        "metadata": JSON_TEXT,
        "data": JSON_TEXT,
    },
)
NEWLINE = st.sampled_from(["\n", "\r", "\r\n"])
FIELD = st.sampled_from(["data: ", "data:", "data:  "])


@st.composite
def event_text(draw: st.DrawFn) -> str:
    """One event, mostly a compact chunk, with line ends, fields and comments as they may come."""
    if draw(st.booleans()):
        return f"data: {json.dumps(draw(CHUNK), ensure_ascii=False, separators=(',', ':'))}\n\n"
    indent = draw(st.sampled_from([None, 1]))
    body = draw(
        CHUNK.map(lambda chunk: json.dumps(chunk, ensure_ascii=False, indent=indent))
        | JSON_TEXT.map(json.dumps)
        | st.text(alphabet='{}[]":,ab \u2028\u0085é👩\x1e\x0b', max_size=12)
        | st.sampled_from(["", "[DONE]"])
    )
    lines = [draw(FIELD) + line for line in re.split("[\r\n]", body)]
    extra = st.sampled_from([": ping", "id: 1", "event: x", "retry: 3", "data", "dataset: no", "oops", ":"])
    for line in draw(st.lists(extra, max_size=2)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    return "".join(line + draw(NEWLINE) for line in lines) + draw(NEWLINE)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(event_text(), max_size=6).map("".join),
    st.sampled_from(["", "\ufeff"]),
    st.sampled_from(["", "data: [DONE]\n\n", "data: half", 'data: {"type":"x"}\n', "\r"]),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_any_stream_at_any_cuts_equals_the_standard(events: str, start: str, end: str, positions: list[int]) -> None:
    stream = (start + events + end).encode()
    edges = [0, *sorted(p for p in positions if p <= len(stream)), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    chunks = decode(pieces)
    assert given_chunks(chunks) == expected_chunks(stream)
    assert [chunk.event for chunk in chunks] == list(range(len(chunks)))
