"""What a docstring says of a function and its parameters."""

from __future__ import annotations

import inspect
import re
import warnings

from docstring_parser import Docstring, ParseError, parse

__all__ = ["describe"]


def describe(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The description, and what is said of each parameter; Google, NumPy, Sphinx and Epydoc sections are understood.

    A docstring that can't be read so is a description as a whole.
    """
    text = inspect.cleandoc(docstring or "").strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a strange docstring is no reason to warn
            found = parse(text)
    except (ParseError, ValueError, IndexError, RecursionError):
        return text, {}
    described = {param.arg_name.lstrip("*"): _joined(param.description or "") for param in found.params}
    return _description(found), {name: said for name, said in described.items() if said}


def _description(found: Docstring) -> str:
    parts = (found.short_description, found.long_description)
    gap = "\n\n" if found.blank_after_short_description else "\n"
    return gap.join(part.strip() for part in parts if part and part.strip())


def _joined(text: str) -> str:
    """Lines that were only broken to fit."""
    return re.sub(r"\s*\n\s*", " ", text).strip()
