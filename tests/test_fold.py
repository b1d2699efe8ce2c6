"""The fold: recordings at every cut against the hand-made truth, random streams, and nonsense."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbmastra.chunks import Chunk, make_chunk, parse_chunk
from nbmastra.chunks.envelope import Heads
from nbmastra.client.decode import ChunkDecoder, RecordDecoder
from nbmastra.fold import Part, RunState, TextPart
from nbmastra.output import Batch, Ended, MastraModelOutput
from tests.support.random_runs import Facts, nonsense, runs
from tests.support.runs import DATA, EXPECTED, Wire, decode, expected, fold, numbers, recorded, recording, summary, text

EVERY_CUT_UP_TO = 10 * 1024
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STATUSES = {"success", "failed", "suspended", "tripwire", "cancelled", "truncated"}


# --- recordings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", EXPECTED)
def test_a_recording_means_what_was_read_from_it_by_hand(names: str) -> None:
    chunks, done = recorded(names)
    state = fold(chunks, done=done)
    assert summary(state) == expected(names)
    assert EXPECTED[names]["reason_contains"] in state.status_reason.lower()


class _Pieces:
    """A source that gives chunks as they came in pieces of a stream."""

    def __init__(self, batches: Iterable[list[Chunk]], done: bool) -> None:
        self._batches = batches
        self.done = done

    async def batches(self) -> Any:
        for chunks in self._batches:
            batch: Batch = None, chunks
            yield batch

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("name", [name for name in EXPECTED if "+" not in name])
def test_every_cut_gives_the_same_chunks_and_the_same_run(name: str) -> None:
    """Bytes to decoder to output. Cuts within the same event give the same pieces of chunks, so these run once."""
    data = recording(name)
    whole, done = decode([data])
    lines = [chunk.to_json() for chunk in whole]
    pieces: set[int] = set()
    for cut in _cuts(data):
        decoder = ChunkDecoder()
        first = decoder.feed(data[:cut])
        both = first + decoder.feed(data[cut:]) + decoder.close()
        assert [chunk.to_json() for chunk in both] == lines
        assert decoder.done == done
        pieces.add(len(first))
    for count in pieces:
        out = MastraModelOutput().start(_Pieces([whole[:count], whole[count:]], done)).wait()
        assert summary(out.state) == expected(name)
        _says_the_same_everywhere(out)


def _cuts(data: bytes) -> Iterable[int]:
    if len(data) <= EVERY_CUT_UP_TO:
        return range(len(data) + 1)
    ends = [at for at in range(len(data)) if data.startswith(b"\n\n", at)]
    some = random.Random(len(data)).sample(range(len(data)), 200)
    return sorted({*(end + shift for end in ends[::3] for shift in (0, 1, 2)), *some, len(data)})


def _says_the_same_everywhere(out: MastraModelOutput) -> None:
    assert [chunk.type for chunk in out] == [chunk.type for chunk in out.log.items]
    assert "".join(out.text_stream) == "".join(
        part.text for part in out.state.parts if isinstance(part, TextPart) and part.kind == "text"
    )
    assert "".join(out.reasoning_stream) == out.total.reasoning
    if out.status not in ("failed", "truncated"):
        assert out.text.result() == out.turns[0].text
        assert out.usage.result() == out.turns[0].usage
        assert [step.text for step in out.steps.result()] == [step.text for step in out.turns[0].steps]
    if out.state.object is not None:
        assert list(out.object_stream)[-1] == out.object.result() == out.state.object.value


def test_a_suspended_stream_and_its_resumption_are_one_run_whose_tokens_count_once() -> None:
    chunks, done = recorded("approve.sse+approve-approved.sse")
    state = fold(chunks, done=done)
    [turn] = state.turns
    assert (state.status, turn.text, turn.finish_reason) == ("success", "Deployed.", "stop")
    assert [(call.tool_name, call.status, call.args) for call in state.tool_calls] == [
        ("deploy", "success", {"target": "prod"})
    ]
    assert turn.usage.total_tokens == 21
    assert not state.waiting


# --- random streams --------------------------------------------------------------------------------------------------


RECORDED = sorted(path.name for path in DATA.glob("*/*.sse") if not path.name.startswith("observe"))


@pytest.mark.parametrize("name", [*RECORDED, "workflow.records"])
def test_looking_only_at_changes_shows_all_of_a_recording(name: str) -> None:
    """What a view does: look again at the last change it knew, and at those after it."""
    [path] = DATA.glob(f"*/{name}")
    decoder = RecordDecoder() if path.suffix == ".records" else ChunkDecoder()
    state = RunState()
    shown: dict[int, Any] = {}
    seen = 0
    for event, item in enumerate(decoder.feed(path.read_bytes())):
        state.apply(item, float(event))
        shown.update((id(part), _look_of(part)) for part in state.changes[max(seen - 1, 0) :])
        seen = len(state.changes)
        assert {id(part): _look_of(part) for part in state.parts} == shown, item
    state.close(99.0, done=decoder.done)
    shown.update((id(part), _look_of(part)) for part in state.changes[max(seen - 1, 0) :])
    assert {id(part): _look_of(part) for part in state.parts} == shown


@QUICK
@given(runs())
def test_a_run_says_what_it_was_made_of(facts: Facts) -> None:
    state = fold(facts.chunks)
    assert state.status == "success"
    assert state.text_pieces == facts.texts
    assert [[step.text for step in turn.steps] for turn in state.turns] == facts.turns
    assert [turn.text for turn in state.turns] == facts.answers
    assert [(call.tool_call_id, call.status, call.args) for call in state.tool_calls] == facts.calls
    assert {task.id: task.status for task in state.tasks.values()} == facts.tasks
    assert not state.notices
    assert state.events == len(facts.chunks) == len(state.times) == len(state.step_of)


@QUICK
@given(runs())
def test_tokens_of_steps_turns_and_run_agree_and_nested_ones_count_once(facts: Facts) -> None:
    state = fold(facts.chunks)
    assert [turn.usage.total_tokens for turn in state.turns] == facts.used
    assert sum(step.usage.total_tokens or 0 for step in state.steps) == state.usage.total_tokens == sum(facts.used)
    assert state.grand_usage.total_tokens == sum(facts.used) + facts.nested_used
    assert state.usage_reports >= 2 * len(facts.used)


@QUICK
@given(runs())
def test_no_call_is_left_open_but_those_of_running_tasks(facts: Facts) -> None:
    state = fold(facts.chunks)
    still_open = [call for call in state.tool_calls if call.open]
    assert all(call.background and facts.tasks[call.task_id or ""] == "running" for call in still_open)
    assert all(call.duration_s is not None and call.duration_s >= 0 for call in state.tool_calls if not call.open)


@QUICK
@given(runs(), st.data())
def test_looking_only_at_changes_shows_all_of_it(facts: Facts, data: st.DataObject) -> None:
    """What a view does: after some chunks, look again at the last change it knew, and at those after it."""
    state = RunState()
    shown: dict[int, Any] = {}
    seen = 0

    def look() -> int:
        changes = state.changes[max(seen - 1, 0) :]
        shown.update((id(part), _look_of(part)) for part in changes)
        return len(state.changes)

    stop = data.draw(st.integers(0, len(facts.chunks)))
    for event, wire in enumerate(facts.chunks[:stop]):
        state.apply(parse_chunk(wire), float(event))
        if data.draw(st.booleans()):
            seen = look()
    state.close(float(stop))
    look()
    assert {id(part): _look_of(part) for part in state.parts} == shown


def _look_of(part: Part) -> dict[str, Any]:
    names = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    look = {name: getattr(part, name) for name in names if not name.startswith("_")}
    if "nested" in look:
        look["nested"] = [(run.events, run.status) for run in look["nested"]]
    return {name: list(value) if isinstance(value, list) else value for name, value in look.items()}


@QUICK
@given(runs(), st.data())
def test_every_beginning_of_a_stream_is_a_run(facts: Facts, data: st.DataObject) -> None:
    stop = data.draw(st.integers(0, len(facts.chunks)))
    state = fold(facts.chunks[:stop], done=data.draw(st.booleans()))
    assert state.status in STATUSES
    assert state.status_reason
    assert state.text_pieces == facts.texts[: len(state.text_pieces)]
    assert not [call for call in state.tool_calls if call.open and not call.background]
    assert not [part for part in state.parts if isinstance(part, TextPart) and part.ended_at is None]


TORN_BODIES = [
    b'{"type":"text-delta","runId":"r","from":"AGENT","payload":%b}' % body
    for body in (
        b'{"id":"t","text":"a"}\n{"id":"t","text":"b"}',  # two payloads in one chunk, and chunks with none:
        b"",  # read as lines of one text, they would make up for each other
        b" ",
        b'{"id":"t",\n"text":"c"}',
        b'{"id":"t","text":"d"},{"id":"t"',
        b'"text":"e"}',
    )
]


@QUICK
@given(runs(), st.data())
def test_chunks_that_come_together_say_what_they_say_one_by_one(facts: Facts, data: st.DataObject) -> None:
    odd = [text(""), text("\ud83c"), text("\udf89"), {**text("x"), "metadata": {}}, text("y", id="other")]
    chunks = [parse_chunk(wire) for wire in facts.chunks]
    for wire in data.draw(st.lists(st.sampled_from([*odd, *TORN_BODIES]), max_size=6)):
        chunks.insert(data.draw(st.integers(0, len(chunks))), parse_chunk(wire))
    together, alone = RunState(), RunState()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(chunks)), max_size=4)))
    for at, (begin, end) in enumerate(pairwise([0, *cuts, len(chunks)])):
        together.apply_all(chunks[begin:end], float(at))
        for chunk in chunks[begin:end]:
            alone.apply(chunk, float(at))
    for state in (together, alone):
        state.close(9.0)
    assert summary(together) == summary(alone)
    for name in ("times", "turn_of", "step_of", "counts", "text_pieces", "reasoning_pieces"):
        assert getattr(together, name) == getattr(alone, name)
    assert [_look_of(part) for part in together.parts] == [_look_of(part) for part in alone.parts]
    assert len(together.changes) == len(alone.changes)
    for chunk in chunks:
        if chunk.kept_delta is not None:
            assert chunk.kept_delta == parse_chunk(chunk.to_json()).delta


@QUICK
@given(runs())
def test_a_chunk_means_the_same_however_it_is_written(facts: Facts) -> None:
    """Key order and spaces decide between the decoder's fast and slow ways."""
    as_sent = fold(facts.chunks)
    reordered = [json.dumps(dict(reversed(wire.items()))) for wire in facts.chunks]
    spaced = [json.dumps(wire, indent=1) for wire in facts.chunks]
    for lines in (reordered, spaced):
        assert summary(fold([parse_chunk(line) for line in lines])) == summary(as_sent)
    again = [parse_chunk(parse_chunk(wire).to_json()) for wire in facts.chunks]
    assert summary(fold(again)) == summary(as_sent)


@given(st.text(st.sampled_from("aé🎉\ud83c\udf89"), max_size=8), st.data())
def test_a_character_cut_in_two_deltas_is_shown_when_it_is_whole(whole: str, data: st.DataObject) -> None:
    """JavaScript cuts strings between the halves of an emoji."""
    units = whole.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(units) // 2), max_size=4)))
    pieces = _split(units, cuts)
    state = fold([text(piece) for piece in pieces])
    shown = "".join(state.text_pieces)
    assert shown == units.decode("utf-16-le", "replace")
    assert shown == state.text
    for piece in state.text_pieces:
        piece.encode()


def _split(units: bytes, cuts: list[int]) -> list[str]:
    ends = [2 * cut for cut in cuts] + [len(units)]
    pieces, at = [], 0
    for end in ends:
        pieces.append(units[at:end].decode("utf-16-le", "surrogatepass"))
        at = end
    return pieces


# --- nonsense --------------------------------------------------------------------------------------------------------


def _nonsense(seed: int, count: int) -> list[Chunk]:
    chance, heads = random.Random(seed), Heads()
    chunks: list[Chunk] = []
    for _ in range(count):
        try:
            chunks.append(make_chunk(nonsense(chance), heads, len(chunks)))
        except (ValueError, RecursionError):
            continue  # the decoder makes a decode-error chunk of it
    return chunks


@pytest.mark.parametrize("expect_object", [False, True])
def test_nonsense_never_raises_and_is_counted(expect_object: bool) -> None:
    for seed in range(250):
        chunks = _nonsense(seed, 30)
        state = fold(chunks, done=seed % 2 > 0, expect_object=expect_object)
        assert state.events == len(chunks)
        assert state.bad_payloads == sum(notice.code == "bad-payload" for notice in state.notices)
        assert state.decode_errors <= state.counts["decode-error"]
        assert state.status in STATUSES
        summary(state)
        state.text.encode()
        numbers(state.grand_usage)


@QUICK
@given(runs(), st.integers(0, 1000), st.data())
def test_nonsense_in_a_run_takes_nothing_from_its_text(facts: Facts, seed: int, data: st.DataObject) -> None:
    chunks: list[Wire | Chunk] = [*facts.chunks]
    for unknown in _nonsense(seed, 5):
        chunks.insert(data.draw(st.integers(0, len(chunks))), unknown)
    shown = "".join(fold(chunks).text_pieces)
    assert all(piece in shown for piece in facts.texts)


def test_an_invalid_body_is_told_once_and_the_run_goes_on() -> None:
    broken = make_chunk(b'{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t"}}', Heads(), 7)
    state = fold([text("a"), broken, text("b")])
    assert state.text == "ab"
    assert state.bad_payloads == 1
    [notice] = [notice for notice in state.notices if notice.code == "bad-payload"]
    assert (notice.event, notice.level) == (7, "warning")
    assert "text-delta" in notice.text


@pytest.mark.parametrize("payload", [None, {}, {"output": None}, {"stepResult": None}, {"output": 5}, [], "x"])
def test_a_finish_that_says_nothing_readable_is_a_finish_all_the_same(payload: Any) -> None:
    """B56 asks the same of the tables."""
    chunks = [{"type": kind, "runId": "r", "from": "AGENT", "payload": payload} for kind in ("step-finish", "finish")]
    state = fold([text("a"), *chunks], done=False)
    assert (state.status, state.text, len(state.turns), len(state.steps)) == ("success", "a", 1, 1)
    assert not state.usage.reported


def test_closing_twice_changes_nothing() -> None:
    state = fold([text("a")], done=False)
    state.close(9.0, cancelled="too late")
    assert state.status == "truncated"
    assert [notice.code for notice in state.notices] == ["truncated"]


def test_an_output_fed_by_hand_is_finished_once() -> None:
    out = MastraModelOutput()
    out.feed([parse_chunk(text("a"))], 0.5)
    out.finish(Ended(done=True, at=2.0))
    out.finish(Ended(cancelled="too late"))
    assert (out.status, out.text.result(), out.elapsed_s) == ("success", "a", 0.5)
