"""A finished run as plain output: HTML, markdown and text that need no kernel, no script and no stylesheet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt

from nbmastra.fold import Notice, ReasoningPart, SourcePart, TextPart
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.document import whole_text
from nbmastra.widgets.format import as_json, one_line, seconds, signature
from nbmastra.widgets.header import agent_name, status_of
from nbmastra.widgets.icons import look
from nbmastra.widgets.parts import source_words
from nbmastra.widgets.snapshot_html import entries, html_snapshot, mark, plain_call

__all__ = ["escaped", "safe_markdown", "snapshot"]


def snapshot(out: MastraModelOutput, first: MastraModelOutput | None = None) -> dict[str, str]:
    """The run as a mime bundle: text/html, text/markdown, text/plain.

    `first`: an earlier output of the same chain; all from there on is shown, as the view that followed it did.
    """
    outs = out.chain(first or out)
    bundle = {
        "text/html": html_snapshot(outs),
        "text/markdown": "\n\n".join(_markdown(outs)) + "\n",
        "text/plain": "\n".join(_plain(outs)),
    }
    return {mime: whole_text(text)[0] for mime, text in bundle.items()}  # no message could carry half a character


def _title(out: MastraModelOutput) -> str:
    model = one_line(out.state.model or "", 60)
    facts = ", ".join(filter(None, [model, seconds(out.elapsed_s)]))
    reason = "" if out.status == "success" else f": {one_line(out.status_reason)}"
    return f"{agent_name(out)} ({facts}) {look(status_of(out)).word.lower()}{reason}"


def _markdown(outs: list[MastraModelOutput]) -> Iterator[str]:
    out = outs[-1]
    yield f"{mark(status_of(out))} {escaped(_title(out))}"
    if outs[0].prompt:
        yield "> " + safe_markdown(outs[0].prompt[:4000]).replace("\n", "\n> ")
    for part, _, facts in entries(outs):
        if facts is not None:
            name, rest = signature(facts.name, facts.args)
            call = f"{name}{rest}".replace("`", "'")
            outcome = f" → {escaped(one_line(facts.outcome))}" if facts.outcome else ""
            word = "" if facts.status in ("success", "completed") else f" {look(facts.status).word}"
            yield f"- {mark(facts.status)}{word} `{call}`{outcome}"
        elif isinstance(part, ReasoningPart):
            continue
        elif isinstance(part, TextPart):
            yield safe_markdown(part.text)
        elif isinstance(part, Notice):
            yield f"**{escaped(one_line(part.title))}** {escaped(one_line(part.text, 500))}".rstrip()
        elif isinstance(part, SourcePart):
            words, url, host = source_words(part)
            yield (
                f"- [{escaped(words)}](<{url.replace('<', '%3C').replace('>', '%3E')}>) {host}"
                if url
                else f"- {escaped(words)}"
            )
    objects = [out.state.object for out in outs if out.state.object is not None]
    for part in objects:
        fence = "`" * 8  # no JSON text has eight in a row at the start of a line
        yield f"{fence}json\n{as_json(part.value, indent=2)[:20_000]}\n{fence}"


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$!&])")


def escaped(text: str) -> str:
    """Plain text as markdown that shows it."""
    return _SPECIAL.sub(r"\\\1", text)


_parser = MarkdownIt("commonmark", {"html": False})
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(r"!(?=\[)")
_LINK = re.compile(r"\](?=\(\s*<?(?!https?://|mailto:))", re.IGNORECASE)
_DEFINITION = re.compile(r"\](?=:\s*<?(?!https?://|mailto:))", re.IGNORECASE)


def safe_markdown(text: str) -> str:
    """A model's markdown for a reader that renders everything: no HTML, no images, links to the web only.

    Code blocks stay as they are; a code span that holds a tag shows its `<` as an entity.
    """
    text = _CONTROLS.sub("\ufffd", text)
    lines = text.split("\n")
    code: set[int] = set()
    for token in _parser.parse(text):
        if token.type in ("fence", "code_block") and token.map is not None and token.level == 0:
            code.update(range(*token.map))
    return "\n".join(line if number in code else _safe_line(line) for number, line in enumerate(lines))


def _safe_line(line: str) -> str:
    line = _TAG_START.sub("&lt;", line)
    line = _IMAGE.sub("!\\\\", line)
    return _DEFINITION.sub(r"\\]", _LINK.sub(r"\\]", line))


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _plain(outs: list[MastraModelOutput]) -> Iterator[str]:
    yield f"{mark(status_of(outs[-1]))} {_title(outs[-1])}"
    for part, _, facts in entries(outs):
        if facts is not None:
            yield plain_call(facts)
        elif type(part) is TextPart:
            yield _CONTROLS.sub("\ufffd", part.text)
        elif isinstance(part, Notice):
            yield f"{one_line(part.title)}. {one_line(part.text, 500)}".strip()
    for out in outs:
        if out.state.object is not None:
            yield as_json(out.state.object.value, indent=2)
