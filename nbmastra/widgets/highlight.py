"""Source code → runs of text with one of a few `nbm-hl-` classes, which the stylesheet colours."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pygments import token as kinds
from pygments.lexer import Lexer
from pygments.lexers import (
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType]  # its stub leaves the options without types
)
from pygments.util import ClassNotFound

__all__ = ["HIGHLIGHT_CLASSES", "highlight"]

# The language is the model's word, the code too: only common lexers, and no text on which they take seconds.
_LANGUAGES = frozenset(
    "bash c c++ cpp cs csharp css diff docker dockerfile go graphql html ini java javascript js json jsonc jsx julia"
    " kotlin lua powershell ps1 py python python3 r rb ruby rs rust scala sh shell sql swift toml ts tsx"
    " typescript xml yaml yml zsh".split()
)

_LONGEST = 20_000
_LONGEST_LINE = 400

_Kind = Any  # pygments' token types: a tree made at run time
_CLASSES: dict[_Kind, str] = {
    kinds.Keyword: "nbm-hl-k",
    kinds.Operator.Word: "nbm-hl-k",
    kinds.Keyword.Constant: "nbm-hl-a",
    kinds.Name.Builtin: "nbm-hl-b",
    kinds.Name.Exception: "nbm-hl-b",
    kinds.Name.Function: "nbm-hl-f",
    kinds.Name.Class: "nbm-hl-f",
    kinds.Name.Decorator: "nbm-hl-d",
    kinds.Comment.Preproc: "nbm-hl-d",
    kinds.Generic.Heading: "nbm-hl-d",
    kinds.Generic.Subheading: "nbm-hl-d",
    kinds.Name.Tag: "nbm-hl-t",
    kinds.Name.Attribute: "nbm-hl-p",
    kinds.Literal.String: "nbm-hl-s",
    kinds.Literal.Number: "nbm-hl-n",
    kinds.Comment: "nbm-hl-c",
    kinds.Generic.Inserted: "nbm-hl-i",
    kinds.Generic.Deleted: "nbm-hl-x",
}
HIGHLIGHT_CLASSES = frozenset(_CLASSES.values())


def highlight(code: str, language: str) -> list[tuple[str, str]] | None:
    """(class or "", text) runs that join to the code; None if the language isn't known or the code is too long."""
    lexer = _lexer(language.lower())
    if lexer is None or len(code) > _LONGEST or max(map(len, code.split("\n"))) > _LONGEST_LINE:
        return None
    runs: list[tuple[str, str]] = []
    try:
        tokens = list(lexer.get_tokens(code))
    except Exception:  # an error in one of the many lexers costs the colours, not the view
        return None
    for kind, text in tokens:
        cls = _class_of(kind)
        if runs and (cls == runs[-1][0] or text.isspace()):  # space needs no colour, so it needs no span of its own
            runs[-1] = runs[-1][0], runs[-1][1] + text
        else:
            runs.append((cls, text))
    return runs if "".join(text for _, text in runs) == code else None


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    if language not in _LANGUAGES:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:  # an older pygments
        return None


@lru_cache(maxsize=512)
def _class_of(kind: _Kind) -> str:
    while kind:
        if kind in _CLASSES:
            return _CLASSES[kind]
        kind = kind.parent
    return ""
