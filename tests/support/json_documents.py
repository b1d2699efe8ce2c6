"""Random JSON documents in many spellings, random cuts, and what it means that a value only grows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

# Whole strings are drawn, not characters: that is ten times faster, and the writer below varies how they are written.
PLAIN = st.sampled_from(
    [
        "",
        "a",
        "ab",
        '"',
        "\\",
        "\\u12",
        "/\n\t\b",
        "é",
        "a\u2028",
        "😀",
        "😀é\ufffd",
        ",}]:",
        "\x7f\x00",
        " 0 ",
        "true",
        "long " * 5,
    ]
)
STRINGS = PLAIN | st.sampled_from(
    [
        "\ud800",
        "\udc00",
        "\ud83d",
        "\ud83dx",
        "\ude00\ud83d",
        "\udc00\ude00",
        "é\ud800\ud800",
        "\ud83d😀\ude00",
        "\ud83d\\\ud83d",
    ]
)
SEEDS = st.integers(0, 2**32)
NUMBERS = st.sampled_from([0, -0.0, 1, -17, 10**30, 1.5, 1e300, -2.5e-7, 5e-324, 0.1]) | st.integers(-1000, 1000)


def values(strings: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    scalars = strings | NUMBERS | st.booleans() | st.none()
    return st.recursive(
        scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(strings, v, max_size=4), max_leaves=10
    )


@st.composite
def documents(draw: st.DrawFn, strings: st.SearchStrategy[str] = STRINGS, duplicates: bool = True) -> str:
    """A value written in a random style: white space, escapes, surrogates as \\uXXXX or raw, duplicate keys."""
    rng = random.Random(draw(SEEDS))

    def space() -> str:
        return rng.choice(["", "", "", " ", "\n\t", "\r"])

    def escape(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        digits = [f"{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
        return '"' + "".join("\\u" + (d.upper() if rng.random() < 0.3 else d) for d in digits) + '"'

    def write(value: Any) -> str:
        if isinstance(value, dict):
            fields = [(key, write(item)) for key, item in value.items()]
            if duplicates and fields and rng.random() < 0.3:
                fields.insert(0, (rng.choice(fields)[0], rng.choice(["1", "[]", '{"z":[2]}', '"old"'])))
            inside = ",".join(f"{space()}{write(key)}{space()}:{space()}{item}{space()}" for key, item in fields)
            return "{" + (inside or space()) + "}"
        if isinstance(value, list):
            return "[" + (",".join(space() + write(item) + space() for item in value) or space()) + "]"
        if isinstance(value, str) and rng.random() < 0.3:
            return escape(value)
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)

    return space() + write(draw(values(strings))) + space()


def pieces(text: str, rng: random.Random) -> Iterator[str]:
    longest = rng.choice([1, 3, 8, 40])
    while text:
        size = rng.randint(0, longest)
        yield text[:size]
        text = text[size:]


def grows(before: Any, after: Any) -> bool:
    """Nothing that `before` shows is lost or another in `after`; strings, lists, dicts and numbers may be longer."""
    if isinstance(before, str):
        return isinstance(after, str) and after.startswith(before)
    if isinstance(before, list):
        return isinstance(after, list) and len(before) <= len(after) and all(map(grows, before, after))
    if isinstance(before, dict):
        return isinstance(after, dict) and all(key in after and grows(item, after[key]) for key, item in before.items())
    if isinstance(before, int | float) and not isinstance(before, bool):
        return isinstance(after, int | float) and not isinstance(after, bool)  # a number shows as far as it has come
    return type(before) is type(after) and before == after
