"""What our markdown is: CommonMark with tables, strikethrough, task lists and math, parsed block by block.

Two things differ from CommonMark, so that a streamed text never changes what is already closed: a reference
definition is one top-level line, it is shown, and it serves the blocks after it, not those before; a display formula
(`$$` or `\\[` at the start of a line) runs to its end or to the next empty line.

`half=True` parses the last piece of a text that is still being written: what is open at its end (emphasis, code, a
link, a formula) is taken as closed there, so that no marker is seen before its meaning is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from markdown_it import MarkdownIt, helpers
from markdown_it.rules_block import StateBlock, reference, table
from markdown_it.rules_inline import StateInline, autolink, backtick, image, link
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

__all__ = ["Block", "References", "defined", "inline_tokens", "is_settled", "parse_blocks", "shown_end"]

References = dict[str, Any]
"""Reference definitions by normalised label, as markdown-it keeps them: `{"href": …, "title": …}`."""


@dataclass(slots=True)
class Block:
    """A top-level block: its kind (`paragraph`, `bullet_list`, `fence` …), its lines and its tokens."""

    kind: str
    start: int
    end: int
    tokens: list[Token]

    def has_end(self) -> bool:
        """Whether its last line ends it, whatever follows."""
        token = self.tokens[0]
        if self.kind == "fence":
            lines = token.content.count("\n") + (token.content[-1:] not in ("", "\n"))
            return lines < self.end - self.start - 1
        return self.kind in ("heading", "hr", "definition") or bool(token.meta.get("closed"))


def parse_blocks(text: str) -> list[Block]:
    """The top-level blocks of a text with `\\n` line ends; inline content isn't parsed yet."""
    tokens: list[Token] = []
    _PARSER.block.parse(text, _PARSER, {}, tokens)
    blocks: list[Block] = []
    level = 0
    for token in tokens:
        if level == 0:
            start, end = token.map or (0, 0)
            blocks.append(Block(token.type.removesuffix("_open"), start, end, []))
        blocks[-1].tokens.append(token)
        level += token.nesting
    return blocks


def defined(block: Block, references: References) -> References:
    """The references that hold after the block; the first definition of a label counts."""
    if block.kind != "definition":
        return references
    meta = block.tokens[0].meta
    return {meta["id"]: {"href": meta["url"], "title": meta["title"]}, **references}


def inline_tokens(text: str, references: References, *, half: bool = False) -> list[Token]:
    """The tokens of a block's inline content."""
    if half:
        text = text[:-_RAGGED] + _RAGGED_END.sub("", text[-_RAGGED:])
    return _inline(text, references, half).tokens


def is_settled(text: str) -> list[Token] | None:
    """The tokens of inline content to which nothing that follows can belong; None if something is still open.

    An opening `*`, `[` or backtick run that found no partner could find it later, at any distance; a formula is
    at most 1,000 characters long.
    """
    state = _inline(text, {}, False)
    if any(mark.open and mark.end < 0 for mark in state.delimiters):
        return None
    plain = "".join(token.content for token in state.tokens if token.type == "text")
    depth = 0
    for bracket in re.findall(r"[\[\]]", plain):
        depth = depth + 1 if bracket == "[" else max(depth - 1, 0)
    tail = text[-_DOLLAR_REACH:]
    if depth or "`" in plain or ("$" in tail and "$" in plain) or re.search(r"\\[(\[]|<[^\s<>]*\Z", tail):
        return None
    return state.tokens


def _inline(text: str, references: References, half: bool) -> StateInline:
    state = StateInline(text, _PARSER, {"references": references, "half": half}, [])
    _PARSER.inline.tokenize(state)
    for rule in _PARSER.inline.ruler2.getRules(""):
        rule(state)
    return state


# --- the line that is being written ---

_CONTAINERS = r"(?:\s|>|[-+*](?=\s)|\d{1,9}[.)](?=\s))*+"
# What may begin a block and may also be something else, until one more character tells.
_UNDECIDED = re.compile(
    _CONTAINERS
    + r"""(?:
        \d{0,9}[.)]? | \#{1,6}\s* | [-\s]+ | [*\s]+ | [_\s]+ | =+\s* | \+ | [|:\-\s]+ | [$\\!<&\[]{1,2} | \[[ xX]?\]?
        | `{1,2} | `{3,}[^`]* | ~{1,2} | ~{3,}.*                        # a fence's language must not flip
        | \$\$(?:(?!\$\$).)*+(?:\$\$[\s.,;]*)? | \\\[(?:(?!\\\]).)*+(?:\\\][\s.,;]*)?  # or a sentence begins so
    )""",
    re.VERBOSE,
)
_DEFINITION = re.compile(r" {0,3}\[(?:[^\[\]\\]|\\.)*+(?:\\|\](?::.*)?)?")
_LONGEST_DEFINITION = 2000
_LONGEST_HEADER = 2000
_DELIMITERS = re.compile(r"[|:\-\s]*")


def shown_end(text: str, *, in_table: bool = False) -> int:
    """How much of a growing text may be shown: its last line is held back while it could become another kind of
    block, and a table's first row until the second line tells that it is one."""
    start = text.rfind("\n") + 1
    line = text[start:]
    if in_table and _is_row(line) and line.strip(" |"):
        return len(text)
    if not in_table:
        above = text.rfind("\n", 0, max(start - 1, 0)) + 1
        if start and _is_row(text[above:start]):
            if _DELIMITERS.fullmatch(line) and not _is_row(text[text.rfind("\n", 0, max(above - 1, 0)) + 1 : above]):
                return above
        elif _is_row(line) and len(line) <= _LONGEST_HEADER:
            return start
    if _UNDECIDED.fullmatch(line) or (len(line) <= _LONGEST_DEFINITION and _DEFINITION.fullmatch(line)):
        return start
    return len(text)


def _is_row(line: str) -> bool:
    return line.lstrip(" ").startswith("|")


# --- blocks ---


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """markdown-it's rule, kept to one line of the top level: titles and destinations on later lines would make a
    visible paragraph vanish."""
    if state.level or state.eMarks[start] - state.bMarks[start] > _LONGEST_DEFINITION:
        return False
    lines, state.lineMax = state.lineMax, start + 1
    try:
        return reference(state, start, start + 1, silent)
    finally:
        state.lineMax = lines


_MOST_COLUMNS = 64


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """GitHub's rule, but not for absurd widths: a row of two characters would fill hundreds of cells."""
    if start + 1 >= end or _line(state, start + 1).count("|") > _MOST_COLUMNS:
        return False
    return table(state, start, end, silent)


_DISPLAY = {"$$": "$$", "\\[": "\\]"}


def _display_math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.is_code_block(start):
        return False
    first = _line(state, start)
    opener = first[:2]
    closer = _DISPLAY.get(opener)
    if closer is None:
        return False
    content, closed, after = first[2:].partition(closer)
    if closed and (after.strip(" .,;") or not _is_tex(opener, content)):
        return False  # a sentence that begins with a formula, or with escaped brackets
    line = start + 1
    while not closed and line < end and not state.isEmpty(line) and state.sCount[line] >= state.blkIndent:
        more, closed, after = _line(state, line).partition(closer)
        content += "\n" + more
        line += 1
    if silent:
        return True
    state.line = line
    token = state.push("math_block", "math", 0)
    token.map = [start, line]
    token.content = content
    token.markup = opener
    token.info = after.strip()
    token.meta = {"display": True, "closed": bool(closed), "half": False}
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


# --- inline ---

_DOLLAR_REACH = 1000
_BRACKET_REACH = 4000
_HALF_MATH = 500
_DOLLAR = re.compile(rf"\$(?![\s$])((?:[^$\\`]|\\.){{1,{_DOLLAR_REACH}}}+)(?<!\s)\$(?!\d)", re.DOTALL)
_PRICE = re.compile(r"\d.*?(?<![\\A-Za-z{])[A-Za-z]{2}", re.DOTALL)  # "5 and " in "$5 and …$": a number, then a word
_TEX_ONLY = re.compile(r"\\[^$]|[\^_={}]")
_TEX = re.compile(r"[\\^_={}<>+*/|\d]")
_WORD = re.compile(r"[^\W\d_]{3}")
_CLOSERS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}


def _is_tex(opener: str, content: str) -> bool:
    """Words alone in `\\[sic\\]` or `\\(never\\)` are words in escaped brackets."""
    return opener == "$$" or _TEX.search(content) is not None or _WORD.search(content) is None


def _math(state: StateInline, silent: bool) -> bool:
    src, pos, last = state.src, state.pos, state.posMax
    if src[pos] not in "$\\":
        return False
    opener = src[pos : pos + 2]
    closer = _CLOSERS.get(opener)
    closed = True
    if closer is not None:
        end = src.find(closer, pos + 2, min(last, pos + _BRACKET_REACH))
        if end < 0:
            if not (state.env["half"] and last - pos <= _HALF_MATH):
                return False
            closed, end = False, last
        content, after = src[pos + 2 : end], end + 2
        if not content.strip() or not _is_tex(opener, content):
            return False
    else:
        if opener[0] != "$" or (pos and src[pos - 1].isalnum()):
            return False
        match = _DOLLAR.match(src, pos, last)
        if match is not None:
            content, after = match[1], match.end()
            if _PRICE.match(content) and not _TEX_ONLY.search(content):
                return False
        else:
            content, after, closed = src[pos + 1 : last], last, False
            if not state.env["half"] or re.match(r"[\s\d$]|.*\$", content, re.DOTALL) or len(content) > 200:
                return False
            if not _TEX_ONLY.search(content):
                # "$x" may become a formula or be a price, a variable, a word: a word is soon over, then we know
                if re.search(r"\s", content) or len(content) > 20:
                    return False
                content = ""
    if not silent and content:
        token = state.push("math_inline", "math", 0)
        token.content = content
        token.markup = opener if closer else "$"
        token.meta = {"display": opener in _DISPLAY, "closed": closed, "half": not closed}
    state.pos = min(after, last)
    return True


_HALF_CODE = 300


def _code(state: StateInline, silent: bool) -> bool:
    src, pos, last = state.src, state.pos, state.posMax
    if src[pos] != "`":
        return False
    if state.env["half"] and last - pos <= _HALF_CODE:
        start = pos
        while start < last and src[start] == "`":
            start += 1
        if re.search(rf"(?<!`)`{{{start - pos}}}(?!`)", src[start:last]) is None:
            if not silent:
                token = state.push("code_inline", "code", 0)
                token.content = src[start:last].replace("\n", " ").strip()
            state.pos = last
            return True
    return backtick(state, silent)


# A label, and perhaps the beginning of what follows it. "[1" is more often a citation than a link: left as it is.
_HALF_LINK = re.compile(r"\[(?!\d+\]?\Z)([^\[\]\n]{0,300})(?:\](?:\((?:[^()\n]|\([^()\n]*+\)?)*+|\[[^\[\]\n]*)?)?\Z")


def _link(state: StateInline, silent: bool) -> bool:
    return link(state, silent) or _half_label(state, state.pos, silent)


def _image(state: StateInline, silent: bool) -> bool:
    return image(state, silent) or (state.src[state.pos] == "!" and _half_label(state, state.pos + 1, silent))


def _half_label(state: StateInline, pos: int, silent: bool) -> bool:
    if silent or not state.env["half"] or state.src[pos : pos + 1] != "[":
        return False
    last = state.posMax
    match = _HALF_LINK.match(state.src, pos, last)
    if match is None:
        return False
    state.pos, state.posMax = match.span(1)
    _PARSER.inline.tokenize(state)
    state.pos = state.posMax = last
    return True


_LABEL_REACH = 1000
_MOST_HOPELESS = 100


def _link_label(state: StateInline, start: int, disableNested: bool = False) -> int:
    """markdown-it's helper, which reads to the end of the text for every `[` without a partner: not if there are
    many."""
    return -1 if start in _hopeless(state) else helpers.parseLinkLabel(state, start, disableNested)


def _hopeless(state: StateInline) -> frozenset[int]:
    known: dict[str, frozenset[int]] = state.env.setdefault("hopeless", {})
    if state.src not in known:
        opened: list[int] = []
        hopeless: list[int] = []
        for bracket in re.finditer(r"[\[\]]", state.src):
            if bracket[0] == "[":
                opened.append(bracket.start())
            elif opened and bracket.start() - (start := opened.pop()) > _LABEL_REACH:
                hopeless.append(start)
        hopeless += opened
        # A few may have their partner hidden by code or an escape, which this count doesn't see.
        known[state.src] = frozenset(hopeless if len(hopeless) > _MOST_HOPELESS else ())
    return known[state.src]


_AUTOLINK = re.compile(r"<(?:https?://|mailto:|[^\s<>:/]+@)", re.IGNORECASE)  # not "vector<std::string>"
_HALF_AUTOLINK = re.compile(r"<(https?://[^\s<>]*)\Z", re.IGNORECASE)


def _autolink(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] != "<":
        return False
    match = _HALF_AUTOLINK.match(state.src, state.pos, state.posMax) if state.env["half"] else None
    if match is not None:
        if not silent:
            state.append_pending(match[1])
        state.pos = state.posMax
        return True
    return _AUTOLINK.match(state.src, state.pos) is not None and autolink(state, silent)


_HALF_EMPHASIS = 400
_MOST_HALF_EMPHASIS = 8


def _close_emphasis(state: StateInline) -> None:
    """Give the last opening markers that no other pair encloses their closing ones, at the end of the text."""
    if not state.env["half"]:
        return
    marks = state.delimiters
    enclosed = -1
    openers: list[Delimiter] = []
    for index, mark in enumerate(marks):
        enclosed = max(enclosed, mark.end)
        if mark.open and mark.end < 0 and index > enclosed:
            openers.append(mark)
    length, token = 0, len(state.tokens)
    for mark in reversed(openers[-_MOST_HALF_EMPHASIS:]):
        length += sum(len(text.content) for text in state.tokens[mark.token : token])
        token = mark.token
        if length > _HALF_EMPHASIS:
            break
        state.push("text", "", 0).content = state.tokens[mark.token].content
        mark.end = len(marks)
        marks.append(Delimiter(mark.marker, mark.length, len(state.tokens) - 1, -1, open=False, close=True))


# Markers at the very end of a half-written text, which mean nothing yet.
_RAGGED = 64
_RAGGED_END = re.compile(r"(?:!?\[|[*_~`\\\s]|&#?\w{0,10}|(?:(?<=\s)|^)\$\$?|<(?:https?:?/?)?)++\Z")


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Every destination is parsed as one, so that it isn't shown raw; the renderer decides what may be clicked."""
        return True


def _parser() -> MarkdownIt:
    options = {"html": False, "maxNesting": 40, "inline_definitions": True, "tasklists": True}
    parser = _Markdown("commonmark", options)
    # typed as the module it holds, but there to be replaced
    parser.helpers = SimpleNamespace(  # pyright: ignore[reportAttributeAccessIssue]
        parseLinkLabel=_link_label,
        parseLinkDestination=helpers.parseLinkDestination,
        parseLinkTitle=helpers.parseLinkTitle,
    )
    parser.enable("strikethrough")
    parser.disable(["html_block", "html_inline"])
    # As in GitHub's parser, and unlike markdown-it's own order, a line that begins another block is no table's head.
    parser.block.ruler.before("lheading", "gfm_table", _table, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.at("reference", _reference)
    parser.block.ruler.before("fence", "math", _display_math, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "math", _math)
    parser.inline.ruler.at("backticks", _code)
    parser.inline.ruler.at("link", _link)
    parser.inline.ruler.at("image", _image)
    parser.inline.ruler.at("autolink", _autolink)
    parser.inline.ruler2.after("balance_pairs", "half", _close_emphasis)
    return parser


_PARSER = _parser()
