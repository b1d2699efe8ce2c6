"""What reaches a terminal: text, and nothing that a terminal takes for a command."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from nbmastra import MastraModelOutput, demo_recording, load_recording, parse_chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.rich_look import RichLook
from nbmastra.run_printer import PlainLook, RunPrinter, ending_line, print_json, print_run, signature
from nbmastra.terminal import TextCleaner, clean_json, clean_line, clean_text

STREAMS = Path(__file__).parent / "data/streams"
COMMAND = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
OUR_SEQUENCES = re.compile("\x1b\\[[0-9;]*m|\x1b\\[[0-9]*[AKJ]|\x1b\\[\\?25[lh]|\r")
"""What rich writes by itself: styles, cursor up, erase, show and hide the cursor."""

HOSTILE = [
    ("\x1b[31mred\x1b[0m ok", "red ok"),
    ("\x1b]0;title\x07hi", "hi"),
    ("\x1b]52;c;ZXZpbA==\x07copied", "copied"),
    ("a\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
    ("\x1bPq#0;2;0;0;0\x1b\\picture", "picture"),
    ("\x9b31m\x9d0;title\x9cX\x85", "X"),
    ("safe\rEVIL\r\nnext", "safe\nEVIL\nnext"),
    ("abc\b\b\bxyz\x7f\x00", "abcxyz"),
    ("\x1b", ""),
    ("\x1b[", ""),
    ("\x1b]0;never ends\nnext line", "0;never ends\nnext line"),
    ("\x1b]0;cut short by \x1b[31mred", "0;cut short by red"),
    ("x\x1b(0y\x1bcz\x1b7", "xyz"),
    ("\x1b\x1b[2J", ""),
    ("user\u202egnp.exe\u202c\u2066x\u2069", "usergnp.exex"),
    ("half \ud83d of \ude00, whole \ud83d\ude00", "half \ufffd of \ufffd, whole 😀"),
    ("tab\tnew\nline", "tab\tnew\nline"),
]


def cleaned(pieces: list[str]) -> str:
    cleaner = TextCleaner()
    return "".join(map(cleaner.feed, pieces)) + cleaner.close()


@pytest.mark.parametrize(("hostile", "clean"), HOSTILE)
def test_commands_vanish_and_text_stays_at_every_cut(hostile: str, clean: str) -> None:
    assert clean_text(hostile) == clean
    for count in range(1, 4):
        for cuts in itertools.combinations(range(1, len(hostile)), count):
            ends = (0, *cuts, len(hostile))
            assert cleaned([hostile[a:b] for a, b in itertools.pairwise(ends)]) == clean


pieces_of_trouble = st.sampled_from([*"\x1b[]PX^_\x9b\x9d\x90\x9c\x07\\;019mKAJ\r\n\b\x7f \ud83d\ude00\u202e", "text"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(pieces_of_trouble, st.text(max_size=5)), max_size=30))
def test_no_prefix_of_any_stream_carries_a_command(pieces: list[str]) -> None:
    cleaner = TextCleaner()
    shown = ""
    for piece in pieces:
        shown += cleaner.feed(piece)
        assert not COMMAND.search(shown)
    shown += cleaner.close()
    assert not COMMAND.search(shown)
    assert shown == clean_text("".join(pieces))


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf"])))
def test_text_without_commands_is_unchanged(text: str) -> None:
    assert clean_text(text) == text


def test_a_string_without_end_is_text_and_holds_up_nothing() -> None:
    cleaner = TextCleaner()
    assert "x" * 4000 in cleaner.feed("\x1b]0;" + "x" * 10_000)
    assert cleaner.feed("more") == "more"


def test_a_line_is_one_line_and_short() -> None:
    assert clean_line("a\n\x1b[31mb\tc") == "a b c"
    assert clean_line("x" * 1000, 10) == "x" * 9 + "…"
    assert len(clean_line("\x1b[31m" * 1000 + "end", 10)) <= 10


@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_clean_json_is_the_same_value_without_commands(value: Any) -> None:
    line = clean_json(json.dumps(value, ensure_ascii=False))
    assert not COMMAND.search(line)
    assert json.loads(line) == value


# --- runs ------------------------------------------------------------------------------------------------------------


def run_of(name: str) -> MastraModelOutput:
    chunks = ChunkDecoder().feed((STREAMS / f"{name}.sse").read_bytes())
    return MastraModelOutput.from_chunks(chunks, agent=name).wait(10)


def plain(out: MastraModelOutput, *, text_only: bool = False) -> str:
    file = io.StringIO()
    print_run(out, RunPrinter(out, PlainLook(file), text_only=text_only))
    return file.getvalue()


def on_terminal(out: MastraModelOutput, width: int = 80) -> str:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, width=width, height=24, highlight=False, markup=False, emoji=False
    )
    print_run(out, RunPrinter(out, RichLook(console)))
    return file.getvalue()


def evil_chunks(evil: str) -> list[dict[str, Any]]:
    """A run in which everything that can be text is hostile."""

    def chunk(type: str, **payload: Any) -> dict[str, Any]:
        return {"type": type, "runId": "r", "from": "AGENT", "payload": payload}

    return [
        chunk("start", id=evil),
        chunk("step-start"),
        chunk("reasoning-start", id="r"),
        *(chunk("reasoning-delta", id="r", text=char) for char in evil),
        chunk("reasoning-end", id="r"),
        chunk("text-start", id="t"),
        *(
            chunk("text-delta", id="t", text=char)
            for char in f"# {evil}\n\n```{evil}\n{evil}\n```\n\n[{evil}]({evil})\n"
        ),
        chunk("text-end", id="t"),
        chunk("source", id="s", sourceType="url", url=f"https://x/{evil}", title=evil),
        chunk("file", mimeType=evil, base64="AA=="),
        chunk("tool-call", toolCallId="1", toolName=evil, args={evil: evil}),
        chunk("tool-result", toolCallId="1", toolName=evil, result={evil: [evil]}),
        chunk("tool-call", toolCallId="2", toolName=evil, args={}),
        chunk("tool-error", toolCallId="2", toolName=evil, error={"message": evil}),
        {"type": f"data-{evil}", "data": {evil: evil}},
        chunk("error", error={"message": evil, "name": evil}),
    ]


@pytest.mark.parametrize("evil", [hostile for hostile, _ in HOSTILE])
def test_nothing_a_run_says_reaches_the_terminal_as_a_command(evil: str) -> None:
    out = MastraModelOutput.from_chunks(evil_chunks(evil), agent=evil, context={"thread": evil, "resource": evil})
    out.wait(10)
    assert not COMMAND.search(plain(out))
    assert not COMMAND.search(plain(out, text_only=True))
    assert not COMMAND.search(OUR_SEQUENCES.sub("", on_terminal(out)))
    assert not COMMAND.search(ending_line(out))
    file = io.StringIO()
    print_json(out, file)
    assert not COMMAND.search(file.getvalue())


def test_json_lines_are_the_chunks() -> None:
    out = MastraModelOutput.from_chunks(evil_chunks("\x1b[31m\x9b\u202e"))
    file = io.StringIO()
    print_json(out, file)
    assert [json.loads(line) for line in file.getvalue().splitlines()] == [chunk.to_wire() for chunk in out.log.items]


def test_a_run_in_plain_text() -> None:
    lines = plain(run_of("tools")).splitlines()
    assert lines[0] == "Let me look that up."
    assert lines[1] == '→ weather(city="Paris")'
    assert re.fullmatch(r'← weather  \d+ ms  {"celsius": 21}', lines[2])
    assert re.fullmatch(r"✗ weather  \d+ ms  no such city", lines[4])
    assert lines[5] == "It is 21 °C in Paris."
    assert lines[6].startswith("tools · Completed · scripted-1 · 2 steps · 2 tool calls · tokens: 45 in, 20 out · ")


def test_text_only_is_the_text_and_nothing_else() -> None:
    assert plain(run_of("tools"), text_only=True) == "Let me look that up.\nIt is 21 °C in Paris.\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("error", "! The run failed: provider went away"),
        ("approve", "! approve asks to run deploy"),
        ("approve", "Suspended: deploy needs approval"),
        ("aborted", "Stopped: aborted at the server"),
        ("tripwire", "secret in output"),
        ("durable-cut", "! The connection ended before the run did"),
        ("background-until-idle", "… research runs in the background"),
        ("goal", "goal, evaluation 3: not yet reached"),
        ("data", 'data-build-log: {"line": "module 3 of 3"}'),
        ("text", "source: Example https://example.com/a"),
    ],
)
def test_every_ending_and_every_part_is_told(name: str, said: str) -> None:
    out = run_of(name)
    assert said in plain(out)
    assert said in " ".join(OUR_SEQUENCES.sub("", on_terminal(out, 500)).split())


def test_printing_a_run_as_it_comes_gives_the_same_as_printing_it_at_its_end() -> None:
    for path in sorted(STREAMS.glob("*.sse")):
        chunks = ChunkDecoder().feed(path.read_bytes())
        live, file = MastraModelOutput(), io.StringIO()
        printer = RunPrinter(live, PlainLook(file), text_only=True)
        generator = random.Random(path.name)
        while chunks:
            count = generator.randint(1, 5)
            live.feed(chunks[:count], 0.0)
            del chunks[:count]
            printer.update()
        printer.close()
        assert file.getvalue() == plain(live_copy(path), text_only=True)


def live_copy(path: Path) -> MastraModelOutput:
    return MastraModelOutput.from_chunks(ChunkDecoder().feed(path.read_bytes())).wait(10)


def test_text_is_printed_before_the_run_is_over() -> None:
    file = io.StringIO()
    out = MastraModelOutput()
    printer = RunPrinter(out, PlainLook(file))
    for piece in ("Hel", "lo"):
        out.feed([parse_chunk(text_delta(piece))], 0.0)
        printer.update()
        assert file.getvalue() == "Hello"[: 3 if piece == "Hel" else 5]


def text_delta(piece: str) -> dict[str, Any]:
    return {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": piece}}


def test_markdown_is_rendered_on_a_terminal_and_links_say_where_they_lead() -> None:
    text = "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[bank](https://evil.example/)\n"
    chunks = [text_delta(piece) for piece in re.findall(r"(?s).{1,3}", text)]
    shown = on_terminal(MastraModelOutput.from_chunks(chunks))
    words = OUR_SEQUENCES.sub("", shown)
    assert "https://evil.example/" in words
    assert "|---|" not in words
    assert "\x1b]8" not in shown


def test_the_demo_on_a_small_terminal_ends_with_all_of_it() -> None:
    shown = OUR_SEQUENCES.sub("", on_terminal(load_recording(demo_recording()), 60))
    for words in ("They have two days", "Ride round the lake on Saturday", "Lakeside meadow", "83.8 km", "2,843 in"):
        assert words in shown


def test_signatures_are_as_python_writes_calls() -> None:
    assert signature("weather", {"city": "Paris", "days": 3}) == 'weather(city="Paris", days=3)'
    assert signature("weather", None) == "weather()"
    assert len(signature("x" * 500, {"a" * 100: "b" * 10_000})) < 400
