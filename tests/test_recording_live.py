"""Recordings of runs that go on, are cut or killed; written while they are read."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from nbmastra import (
    MastraModelOutput,
    load_recording,
    record,
)
from nbmastra.frames import errors_df
from tests.test_recording import recorded, text_chunk, told, zstd

WRITER = """
    import sys, time
    from nbmastra import MastraModelOutput, record

    def chunks():
        for number in range(100_000):
            yield {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": f"{number} "}}
            if number == 500:
                print("ready", flush=True)
                sys.stdin.readline()

    out = MastraModelOutput.from_chunks(chunks(), agent="endless")
    record(out, sys.argv[1])
    out.wait()
"""


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_recording_survives_the_death_of_its_writer(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.stdin.write(b"\n")
            process.stdin.flush()
            while not path.exists() or path.stat().st_size < 5000:  # the file's first bytes may still be on their way
                os.sched_yield()
        finally:
            process.kill()
    loaded = load_recording(path)
    count = len(loaded.log)
    assert count > 0
    assert loaded.total.text == "".join(f"{number} " for number in range(count))
    assert loaded.status == "truncated"
    assert loaded.agent == "endless"


def test_a_process_that_ends_writes_how_the_run_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    code = (
        textwrap.dedent(WRITER)
        .replace("out.wait()", "next(iter(out.text_stream))")
        .replace("sys.stdin.readline()", "time.sleep(60)")
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=30, capture_output=True)
    loaded = load_recording(path)
    assert (loaded.status, loaded.status_reason) == ("cancelled", "the kernel is shutting down")
    assert loaded.total.text.startswith("0 1 2 ")


def test_compressed_files_are_read_by_what_they_are_not_by_name(tmp_path: Path) -> None:
    plain = recorded(tmp_path, "one ", "two")
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert told(load_recording(packed)) == told(load_recording(plain))


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: gzip.compress(data) + bytes(512), zstd])
def test_a_compressed_file_of_several_parts_is_read_to_its_end(tmp_path: Path, compress: Any) -> None:
    plain = recorded(tmp_path, "one ", "two")
    data = plain.read_bytes()
    packed = tmp_path / "packed.jsonl.z"
    packed.write_bytes(b"".join(compress(data[at : at + 50]) for at in range(0, len(data), 50)))
    assert told(load_recording(packed)) == told(load_recording(plain))


def test_recordings_that_were_joined_are_read_to_the_first_end_and_the_rest_is_told(tmp_path: Path) -> None:
    path = recorded(tmp_path, "one ", "two")
    once = path.read_bytes()
    path.write_bytes(once + b"\n \n")
    whole = load_recording(path)
    assert whole.state.decode_errors == 0
    path.write_bytes(once * 3)
    loaded = load_recording(path)
    assert (loaded.total.text, loaded.status, loaded.state.decode_errors) == ("one two", whole.status, 1)
    assert any("what follows the run's end isn't read" in message for message in errors_df(path)["error_message"])


def test_a_directory_gets_a_file_named_after_the_run(tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks([text_chunk("x")], agent="weather/../../x")
    path = record(out, tmp_path).result(10)
    assert path.parent == tmp_path
    assert "weather" in path.name
    assert load_recording(path).stream_id == out.stream_id


def test_secrets_are_not_written(tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks(
        [text_chunk("x")],
        context={
            "url": "http://ada:hunter2@host:4111/base?token=hunter3",
            "thread": "t1",
            "headers": {"Authorization": "Bearer hunter4"},
            "token": "hunter5",
            "api_key": "hunter6",
        },
    )
    path = record(out, tmp_path / "run.jsonl").result(10)
    assert "hunter" not in path.read_text()
    assert load_recording(path).context["url"] == "http://host:4111/base"
    assert load_recording(path).context["thread"] == "t1"
