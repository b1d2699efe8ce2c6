"""`usage_df`: however it is grouped, and however recordings are cut or merged, it sums to what the fold counts."""

from __future__ import annotations

import json
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbmastra.errors import SettingsError
from nbmastra.frames import runs_df, steps_df, usage_df
from nbmastra.frames.usage import By
from nbmastra.output import MastraModelOutput
from nbmastra.recording import load_recording
from nbmastra.usage import FIELDS
from tests.support.runs import EXPECTED, Wire, call, finish, inside, recorded, start, step_finish, step_start, usage

GROUPINGS = get_args(By)
OWN = {"m": {"input": 1_000_000, "output": 2_000_000}}


def output(chunks: list[Wire]) -> MastraModelOutput:
    return MastraModelOutput.from_chunks(chunks).wait()


def total(frame: pd.DataFrame) -> dict[str, int]:
    """The sum by column; what no row has is left out."""
    return {name: int(frame[name].sum()) for name in FIELDS if frame[name].notna().any()}


# --- the public cases ------------------------------------------------------------------------------------------------

FIRST = usage(10, 2, cacheCreationInputTokens=900)
SECOND = usage(30, 4, cacheCreationInputTokens=4)
WHOLE = {"input_tokens": 40, "output_tokens": 6, "total_tokens": 46, "cache_creation_input_tokens": 904}
STEPS = [start(), step_start(), step_finish("tool-calls", FIRST), step_start(), step_finish("stop", SECOND)]
SILENT = [start(), step_start(), step_finish("tool-calls"), step_start(), step_finish()]
VARIANTS = {
    "both tell": [*STEPS, finish(used=usage(40, 6))],
    "only steps tell": [*STEPS, finish()],
    "only the finish tells": [*SILENT, finish(used=usage(40, 6, cacheCreationInputTokens=904))],
    "the finish nests it elsewhere": [*STEPS, {**finish(), "payload": {"usage": usage(40, 6)}}],
}


@pytest.mark.parametrize("by", GROUPINGS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_and_finish_are_never_counted_twice_and_nothing_is_lost(variant: str, by: By) -> None:
    """B14."""
    frame = output(VARIANTS[variant]).usage_df(by)
    assert total(frame) == WHOLE
    assert frame["reasoning_tokens"].isna().all()
    assert frame.attrs["reconciliation"]["complete"]


def test_what_only_the_finish_tells_is_a_row_without_a_step_and_named() -> None:
    """B14."""
    out = output(VARIANTS["only the finish tells"])
    frame = out.usage_df()
    assert frame["step"].isna().tolist() == [False, False, True]
    assert frame["total_tokens"].isna().tolist() == [True, True, False]
    assert frame.attrs["reconciliation"]["beyond_steps"] == [
        {"stream_id": out.stream_id, "path": "a", "turn": 0} | WHOLE
    ]


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_sub_agents_tokens_are_a_row_of_its_own_exactly_once(by: By) -> None:
    """B15."""
    used = usage(7, 3)
    out = output(
        [
            start("parent"),
            step_start(),
            call("c1", "agent-child"),
            inside("c1", step_finish(used=used, run="child")),
            inside("c1", finish(used=used, run="child")),
            step_finish(used=usage(50, 5)),
            finish(used=usage(50, 5)),
        ]
    )
    frame = out.usage_df(by)
    assert dict(zip(frame["path"], frame["total_tokens"], strict=True)) == {"parent": 55, "parent/agent-child": 10}
    assert out.total.usage.total_tokens == 55
    assert runs_df(out)["total_tokens"].tolist() == [65]


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_provider_keeps_its_own_total(by: By) -> None:
    """B16."""
    first = usage(10, 5, 115, reasoningTokens=100)
    second = {"inputTokens": 1, "outputTokens": 1}
    out = output([start(), step_start(), step_finish("tool-calls", first), step_start(), step_finish("stop", second)])
    assert total(out.usage_df(by)) == {
        "input_tokens": 11,
        "output_tokens": 6,
        "total_tokens": 117,
        "reasoning_tokens": 100,
    }


@pytest.mark.parametrize("names", EXPECTED)
def test_recordings_sum_to_what_their_turns_and_nested_runs_tell(names: str) -> None:
    out = MastraModelOutput.from_chunks(recorded(names)[0]).wait()
    told = [turn["usage"] for turn in EXPECTED[names]["turns"]] + [run["usage"] for run in EXPECTED[names]["nested"]]
    keys = {"input_tokens": "input", "output_tokens": "output", "total_tokens": "total"}
    for by in GROUPINGS:
        frame = out.usage_df(by)
        for column, key in keys.items():
            assert frame[column].sum() == sum(used[key] or 0 for used in told if used is not None)


# --- any stream ------------------------------------------------------------------------------------------------------

COUNT = st.integers(0, 9)
USED = st.none() | st.fixed_dictionaries(
    {"inputTokens": COUNT, "outputTokens": COUNT},
    optional={"totalTokens": COUNT, "reasoningTokens": COUNT, "cachedInputTokens": COUNT},
)
MODEL = st.sampled_from([None, "m", "other"])


def with_model(wire: Wire, model: str | None) -> Wire:
    return {**wire, "payload": {**wire["payload"], "metadata": {"modelId": model}}} if model else wire


@st.composite
def turns(draw: st.DrawFn, run: str, depth: int = 0) -> list[Wire]:
    chunks = [start(draw(st.sampled_from(["a", "b"])), run)]
    for number in range(draw(st.integers(0, 3))):
        chunks.append(step_start(run))
        if depth < 2 and draw(st.booleans()):
            id = f"c{number}"
            chunks.append({**call(id, draw(st.sampled_from(["f", "g"]))), "runId": run})
            chunks += [inside(id, inner) for inner in draw(turns(f"{run}.{number}", depth + 1))]
        if draw(st.integers(0, 5)):
            chunks.append(with_model(step_finish("stop", draw(USED), run=run), draw(MODEL)))
    if draw(st.integers(0, 5)):
        chunks.append(finish("stop", draw(USED), run))
    return chunks


STREAMS = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).flatmap(
    lambda numbers: st.tuples(*(turns(f"r{number}") for number in numbers)).map(lambda found: list(chain(*found)))
)


def folded(outs: list[MastraModelOutput]) -> dict[str, int]:
    """What the fold counts, zeros left out."""
    sums = {name: sum(getattr(out.state.grand_usage, name) or 0 for out in outs) for name in FIELDS}
    return {name: count for name, count in sums.items() if count}


def nonzero(frame: pd.DataFrame) -> dict[str, int]:
    return {name: count for name, count in total(frame).items() if count}


@settings(max_examples=25, deadline=None)
@given(STREAMS)
def test_rows_sum_to_the_folds_total_by_any_grouping(chunks: list[Wire]) -> None:
    out = output(chunks)
    for by in GROUPINGS:
        frame = out.usage_df(by)
        assert nonzero(frame) == folded([out])
        assert frame.attrs["reconciliation"]["complete"]
    assert nonzero(runs_df(out)) == folded([out])


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STREAMS, st.lists(st.integers(0, 40), max_size=2))
def test_rows_sum_to_the_folds_total_however_recordings_are_cut_and_merged(
    tmp_path: Path, chunks: list[Wire], cuts: list[int]
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    bounds = [0, *sorted(min(cut, len(chunks)) for cut in cuts), len(chunks)]
    for number, (first, last) in enumerate(pairwise(bounds)):
        lines = [{"nbmastra": 1, "stream_id": f"s{number}"}, *({"t": 0, "chunk": wire} for wire in chunks[first:last])]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{number}.jsonl").write_text(text)
    outs = [load_recording(path) for path in sorted(tmp_path.iterdir())]
    whole = usage_df(outs)
    for by in GROUPINGS:
        assert nonzero(usage_df(tmp_path, by)) == folded(outs)
        parts = pd.concat([usage_df(path, by) for path in sorted(tmp_path.iterdir())])
        assert nonzero(parts) == nonzero(whole)


def test_a_stream_that_came_twice_is_named(tmp_path: Path) -> None:
    for name, stream in (("a", "s1"), ("copy of a", "s1"), ("b", "s2")):
        lines = [{"nbmastra": 1, "stream_id": stream}, *({"t": 0, "chunk": wire} for wire in VARIANTS["both tell"])]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert usage_df(tmp_path).attrs["reconciliation"]["repeated_streams"] == ["s1"]
    assert usage_df(tmp_path / "a.jsonl").attrs["reconciliation"]["repeated_streams"] == []


# --- cost ------------------------------------------------------------------------------------------------------------


def priced(model: str | None, used: Any) -> list[Wire]:
    return [start(), step_start(), with_model(step_finish("stop", used), model), finish(used=used)]


@pytest.mark.parametrize("by", GROUPINGS)
def test_own_prices_give_the_cost_and_unknown_models_none(by: By) -> None:
    known, unknown = output(priced("m", usage(3, 1))), output(priced("home", usage(3, 1)))
    frame = usage_df([known, unknown], by, prices=OWN)
    assert frame["cost_usd"].tolist()[0] == 5.0
    assert frame["cost_usd"].isna().tolist() == [False, True]
    assert frame.attrs["reconciliation"]["unpriced_models"] == ["home"]
    assert steps_df(known, prices=OWN)["cost_usd"].tolist() == [5.0]
    assert runs_df([known, unknown], prices=OWN)["cost_usd"].isna().tolist() == [False, True]


def test_what_a_finish_tells_beyond_its_steps_is_priced_by_their_model() -> None:
    out = output([start(), step_start(), with_model(step_finish("stop", usage(3, 1)), "m"), finish(used=usage(2, 1))])
    frame = out.usage_df(prices=OWN)
    assert frame["cost_usd"].tolist() == [5.0, -1.0]
    assert out.usage_df("run", prices=OWN)["cost_usd"].tolist() == [4.0]


def test_a_grouping_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match="step, turn, run, model, agent"):
        usage_df([], "day")  # type: ignore[call-overload]


def test_rows_of_a_live_run_sum_to_its_total_at_each_look() -> None:
    step = [step_start(), step_finish("tool-calls", usage(3, 1))]
    out = MastraModelOutput.from_chunks(iter([start(), *step * 3000, finish(used=usage(9000, 3000))]))
    looks = 0
    while not out.done or not looks:
        assert out.usage_df("run").attrs["reconciliation"]["complete"]
        looks += 1
    assert total(out.usage_df("run"))["total_tokens"] == 12_000
