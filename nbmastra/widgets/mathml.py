"""TeX formulas → MathML, without trusting either the TeX or the converter."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from xml.etree import ElementTree

from latex2mathml.converter import convert_to_element

__all__ = ["MATH_ATTRIBUTES", "MATH_TAGS", "half_mathml", "is_safe_tex", "mathml"]

MATH_TAGS = frozenset(
    "math menclose mfrac mi mmultiscripts mn mo mover mpadded mphantom mroot mrow ms mspace msqrt mstyle msub msubsup"
    " msup mtable mtd mtext mtr munder munderover".split()
)
# No colours: they couldn't suit every theme. No voffset, lspace or href.
MATH_ATTRIBUTES = frozenset(
    "accent columnalign columnlines columnspacing depth display displaystyle fence form height largeop linethickness"
    " mathvariant maxsize minsize movablelimits notation rowlines rowspacing scriptlevel separator stretchy"
    " width".split()
)

_LONGEST = 4000
# Commands that define others (which may then grow without end), link, style, load or reach outside the formula. They
# are refused for MathJax too, which typesets the TeX of a snapshot.
_UNSAFE = re.compile(
    r"\\(?:[gex]?def|let|futurelet|(?:re|provide)?newcommand|renewcommand|providecommand|(?:re)?newenvironment"
    r"|renewenvironment|DeclareMathOperator|csname|catcode|begingroup|require|href|url|class|style|cssId|data|html\w*"
    r"|includegraphics|unicode|char|mmlToken|texttip|tooltip|mathtip|toggle|enclose|bbox|verb|label|ref|eqref"
    r"|raise|lower|move(?:left|right)|rule|[hkm]skip|[hm]space|m?kern|llap|rlap|smash)(?![A-Za-z])"
)
_LENGTH = re.compile(r"[+-]?(?:\d|\d?\.\d+)(?:em|ex|mu|pt|px)|0")


def is_safe_tex(tex: str) -> bool:
    """Whether a formula does no more than look like one."""
    return len(tex) <= _LONGEST and _UNSAFE.search(tex) is None


@lru_cache(maxsize=128)
def mathml(tex: str, display: bool) -> str | None:
    """A `<math>` element, text in it escaped; None if the TeX is unsafe or can't be read."""
    if not is_safe_tex(tex):
        return None
    try:
        math = convert_to_element(tex, xmlns="", display="block" if display else "inline")
    except Exception:  # the converter raises whatever its tables and iterators raise, RecursionError too
        return None
    del math.attrib["xmlns"]
    for element in math.iter():
        if element.text:
            # The converter writes symbols as references; its own output undoes all escaping to show them.
            element.text = html.unescape(element.text)
        for name in ("width", "height", "depth"):
            if name in element.attrib and _LENGTH.fullmatch(element.attrib[name]) is None:
                del element.attrib[name]  # a formula doesn't reach over the page
    return ElementTree.tostring(math, encoding="unicode", short_empty_elements=False)


def half_mathml(tex: str, display: bool) -> str | None:
    """The same for a formula that is still being written: up to where it can be read, "" if that is nothing yet."""
    for _ in range(4):
        tex = re.sub(r"(?:\\[A-Za-z]*|[_^$&]|\s)+\Z", "", tex)
        if not tex:
            return ""
        shown = mathml(_completed(tex), display)
        if shown is not None or "\\" not in tex or not is_safe_tex(tex):
            return shown
        tex = tex[: tex.rfind("\\")]  # a command without all of its arguments
    return ""


_SCOPE = re.compile(r"\\[{}\\]|\\(?:begin|end)\s*\{([A-Za-z]+\*?)\}|\\left(?![A-Za-z])|\\right(?![A-Za-z])|[{}]")


def _completed(tex: str) -> str:
    """The formula with every open brace, environment and `\\left` closed."""
    closers: list[str] = []
    for match in _SCOPE.finditer(tex):
        found = match[0]
        if found == "{":
            closers.append("}")
        elif found.startswith("\\begin"):
            closers.append(f"\\end{{{match[1]}}}")
        elif found == "\\left":
            closers.append("\\right.")
        elif (found == "}" or found.startswith(("\\end", "\\right"))) and closers:
            closers.pop()
    return tex + "".join(reversed(closers))
