"""Markdown tokens → HTML that is safe to place: live with `nbm-` classes, in snapshots with literal styles.

Text is escaped where it is written, and every piece passes nh3 with an explicit allow-list before it leaves. Images
are never loaded: they become links that name their host. Links lead to http, https and mailto only; any other
destination is a hint on the label.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar
from urllib.parse import urlsplit

import nh3
from markdown_it.token import Token

from nbmastra.widgets.highlight import HIGHLIGHT_CLASSES, highlight
from nbmastra.widgets.mathml import MATH_ATTRIBUTES, MATH_TAGS, half_mathml, is_safe_tex, mathml

__all__ = ["Html", "escape", "render_code", "whole"]


def escape(text: str) -> str:
    """Any text as HTML that shows it, fit for element content and for quoted attributes."""
    return html.escape(whole(text))


def render_code(text: str, language: str) -> str:
    """A code block, coloured by `nbm-hl-` classes if the language is known and the code isn't too long."""
    return _LIVE.clean(f"{_LIVE_TAGS['pre']}<code>{_coloured(whole(text), language)}</code></pre>")


def whole(text: str) -> str:
    """The text without halves of surrogate pairs, which no message can carry: pairs joined, lone ones replaced."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_SURROGATE = re.compile("[\ud800-\udfff]")


def _coloured(code: str, language: str) -> str:
    runs = highlight(code, language)
    if runs is None:
        return _text(code)
    return "".join(f'<span class="{cls}">{_text(part)}</span>' if cls else _text(part) for cls, part in runs)


def _text(text: str) -> str:
    return html.escape(text, quote=False)


class Html:
    """Writes tokens whose inline content is parsed."""

    def __init__(self, *, snapshot: bool = False) -> None:
        self._snapshot = snapshot
        self._gate = _SNAPSHOT if snapshot else _LIVE

    def render(self, tokens: Iterable[Token], within: tuple[str, str] = ("", "")) -> str:
        """Safe HTML. `within` stands around it at the gate alone: a row is a row only inside a table."""
        before, after = within
        dirty = self._write(tokens)
        clean = self._gate.clean(before + dirty + after)
        if clean.startswith(before) and clean.endswith(after):
            return clean[len(before) : len(clean) - len(after)]
        return self._gate.clean(dirty)

    def _write(self, tokens: Iterable[Token]) -> str:
        out: list[str] = []
        ends: list[str] = []  # of the open links
        for token in tokens:
            if token.type == "inline":
                out.append(self._write(token.children or ()))
            elif token.type == "link_open":
                start, end = self._link(str(token.attrGet("href") or ""), str(token.attrGet("title") or ""))
                out.append(start)
                ends.append(end)
            elif token.type == "link_close":
                out.append(ends.pop())
            elif token.type == "image":
                out.append(self._image(token, in_link=bool(ends)))
            elif not token.hidden:
                write = self._writers.get(token.type)
                out.append(write(self, token) if write else self._tag(token))
        return "".join(out)

    def _tag(self, token: Token) -> str:
        if not token.tag:
            return ""
        return f"</{token.tag}>" if token.nesting < 0 else self._open(token.tag)

    def _open(self, tag: str, style: str = "") -> str:
        if not self._snapshot:
            return _LIVE_TAGS.get(tag) or f"<{tag}>"
        style += _STYLES.get(tag, "")
        return f'<{tag} style="{style}">' if style else f"<{tag}>"

    def _plain(self, token: Token) -> str:
        return self._literal(token.content)

    def _literal(self, text: str) -> str:
        text = _text(text)
        # Jupyter typesets $…$ and \(…\) in HTML output, but never across the edge of an element.
        return re.sub(r"[$\\]", r"<span>\g<0></span>", text) if self._snapshot else text

    def _break(self, token: Token) -> str:
        return "<br>" if token.type == "hardbreak" else "\n"

    def _list(self, token: Token) -> str:
        start = token.attrGet("start")
        opening = self._open(token.tag)
        return opening if start is None else f'{opening[:-1]} start="{int(start)}">'

    def _item(self, token: Token) -> str:
        checked = token.meta.get("checked")
        return self._open("li") + ("" if checked is None else "☑ " if checked else "☐ ")

    def _table(self, token: Token) -> str:
        if self._snapshot:
            return '<div style="overflow-x:auto" tabindex="0">' + self._open("table")
        return _SCROLL.format("Table") + '<table class="nbm-grid">'

    def _table_end(self, token: Token) -> str:
        return "</table></div>"

    def _cell(self, token: Token) -> str:
        align = str(token.attrGet("style") or "").removeprefix("text-align:")
        if self._snapshot:
            return self._open(token.tag, f"text-align:{align or 'left'};")
        cls = {"right": ' class="nbm-num"', "center": ' class="nbm-center"'}.get(align, "")
        return f'<th scope="col"{cls}>' if token.tag == "th" else f"<td{cls}>"

    def _code(self, token: Token) -> str:
        return f"{self._open('code')}{_text(token.content)}</code>"

    def _code_block(self, token: Token) -> str:
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        code = _text(token.content) if self._snapshot else _coloured(token.content, language)
        return f"{self._open('pre')}<code>{code}</code></pre>"

    def _definition(self, token: Token) -> str:
        url = str(token.meta["url"])
        start, end = self._link(url, str(token.meta["title"]))
        return f"{self._open('p')}[{_text(token.meta['label'])}]: {start}{_text(url)}{end}</p>"

    def _link(self, url: str, title: str) -> tuple[str, str]:
        if _CLICKABLE.fullmatch(url):
            hint = f' title="{escape(title)}"' if title else ""
            return f'<a href="{escape(url)}"{hint}>', "</a>"
        return f'<span title="{escape(url)}">', "</span>"

    def _image(self, token: Token, *, in_link: bool) -> str:
        url = str(token.attrGet("src") or "")
        text = _text(f"{_words(token.children or ()).strip() or 'image'} ({_host(url) or 'not shown'})")
        start, end = ("", "") if in_link else self._link(url, str(token.attrGet("title") or ""))
        return f"{start}{text}{end}"

    def _math(self, token: Token) -> str:
        tex, display = token.content.strip(), bool(token.meta["display"])
        if not token.meta["closed"] and not token.meta["half"]:
            return f"{self._open('p')}{self._literal(_written(token))}</p>"
        if self._snapshot:
            mark = "$$" if display else "$"
            shown = _text(f"{mark}{tex}{mark}") if is_safe_tex(tex) and "$" not in tex else None
        else:
            shown = half_mathml(tex, display) if token.meta["half"] else mathml(tex, display)
        if shown is None:
            shown = f"{self._open('code')}{_text(_written(token))}</code>"
        if token.type == "math_inline":
            return shown
        start, end = (self._open("p"), "</p>") if self._snapshot else (_SCROLL.format("Formula"), "</div>")
        return f"{start}{shown}{_text(token.info)}{end}"

    _writers: ClassVar[dict[str, Callable[[Html, Token], str]]] = {
        "bullet_list_open": _list,
        "code_block": _code_block,
        "code_inline": _code,
        "definition": _definition,
        "fence": _code_block,
        "hardbreak": _break,
        "list_item_open": _item,
        "math_block": _math,
        "math_inline": _math,
        "ordered_list_open": _list,
        "softbreak": _break,
        "table_close": _table_end,
        "table_open": _table,
        "td_open": _cell,
        "text": _plain,
        "text_special": _plain,
        "th_open": _cell,
    }


def _written(token: Token) -> str:
    """A formula as it stood in the text."""
    closer = {"\\[": "\\]", "\\(": "\\)"}.get(token.markup, token.markup)
    return token.markup + token.content + (closer if token.meta["closed"] else "")


def _words(tokens: Sequence[Token]) -> str:
    """The text of inline content, without its markup."""
    return "".join(
        _words(token.children) if token.children else " " if token.tag == "br" else token.content for token in tokens
    )


# No white space or control character, which browsers drop from a scheme. markdown-it has percent-encoded the rest.
_CLICKABLE = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20\x7f]+", re.IGNORECASE)


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "") if _CLICKABLE.fullmatch(url) or url.startswith("//") else ""
    except ValueError:
        return ""


_SCROLL = '<div class="nbm-md__scroll" tabindex="0" role="group" aria-label="{}">'
_LIVE_TAGS = {"pre": '<pre tabindex="0">'}

_HAIRLINE = "1px solid #80808059"
_MONO = "font-family:monospace;font-size:12px;"
_STYLES = {  # literal values that suit both themes; JupyterLab's sanitiser drops all others
    "blockquote": f"margin:0 0 8px;padding-left:11px;border-left:{_HAIRLINE}",
    "code": f"{_MONO}background:none",
    "hr": f"border:0;border-top:{_HAIRLINE}",
    "ol": "margin:0 0 8px;padding-left:22px",
    "p": "margin:0 0 8px",
    "pre": f"{_MONO}margin:0 0 8px;padding:6px 8px;border:{_HAIRLINE};white-space:pre-wrap;word-break:break-word",
    "table": "table-layout:auto;border-collapse:collapse;margin:0 0 8px;font-size:13px",
    "td": f"padding:3px 12px 3px 0;border:0;border-bottom:{_HAIRLINE}",
    "th": f"padding:3px 12px 3px 0;border:0;border-bottom:{_HAIRLINE};font-weight:400;opacity:.8",
    "ul": "margin:0 0 8px;padding-left:22px",
}
_TAGS = frozenset(
    "a blockquote br code div em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul".split()
)


def _gate(snapshot: bool) -> nh3.Cleaner:
    attributes = {"a": {"href", "title"}, "ol": {"start"}, "span": {"title"}}
    classes: dict[str, set[str]] = {}
    if snapshot:
        for tag in ("div", *_STYLES):
            attributes.setdefault(tag, set()).add("style")
    else:
        attributes |= {"div": {"tabindex", "role", "aria-label"}, "pre": {"tabindex"}, "th": {"scope"}}
        attributes |= {tag: set(MATH_ATTRIBUTES) for tag in MATH_TAGS}
        classes = {"div": {"nbm-md__scroll"}, "span": set(HIGHLIGHT_CLASSES), "table": {"nbm-grid"}}
        classes |= {tag: {"nbm-num", "nbm-center"} for tag in ("td", "th")}
    return nh3.Cleaner(
        tags=_TAGS if snapshot else _TAGS | MATH_TAGS,
        attributes=attributes,
        allowed_classes=classes,
        set_tag_attribute_values={"a": {"target": "_blank"}},
        link_rel="noopener noreferrer",
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
    )


_LIVE = _gate(snapshot=False)
_SNAPSHOT = _gate(snapshot=True)
