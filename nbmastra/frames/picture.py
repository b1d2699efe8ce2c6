"""`Picture`: a chart that shows itself as a drawing of its own, so that it needs neither kernel nor network later on.

The drawing is SVG, as an image for light pages and one for dark pages; a style sheet shows the right one. Where a front
end takes the sheet away (JupyterLab, of notebooks that it doesn't trust), the light one stands there on white. Inline
SVG would be taken away as well there, and leave its words behind.
"""

from __future__ import annotations

import base64
import json
import struct
import xml.etree.ElementTree as ET
import zlib
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from nbmastra.errors import SettingsError

__all__ = ["COLOURS", "Picture", "need_extra"]

_SVG = "http://www.w3.org/2000/svg"
_TAGS = {"svg", "g", "path", "rect", "line", "circle", "text", "tspan", "title", "desc", "defs", "clipPath"}
_LINKS = ("href", "on", "style")  # attributes that begin so do more than draw
_TOLD = {"bar", "rect mark"}
"""Marks that say what they are; charts give them a `description`."""


class Colour(NamedTuple):
    """What stands in a chart, and on white; what stands for it on black."""

    light: str
    dark: str
    hatched: bool = False


COLOURS: dict[str, Colour] = {
    "fg": Colour("#212121", "#e0e0e0"),
    "muted": Colour("#5f5f5f", "#b0b0b0"),
    "line": Colour("#dddddd", "#424242"),
    "accent": Colour("#1976d2", "#42a5f5"),
    "mid": Colour("#7fb2e5", "#2f6296"),
    "soft": Colour("#dcebf9", "#1d3348"),
    "grey": Colour("#767676", "#9a9a9a"),
    "err": Colour("#b71c1c", "#ef6c63"),
    "wait": Colour("#7a7a7a", "#9e9e9e", hatched=True),
    "warn": Colour("#8f5600", "#f5b94a", hatched=True),
    "violet": Colour("#6a4fb3", "#b39ddb"),
    "teal": Colour("#00796b", "#4db6ac"),
    "ochre": Colour("#a86400", "#ffb74d"),
    "rose": Colour("#b0275f", "#f06292"),
    "olive": Colour("#5b7119", "#b4cf66"),
}
_NAMES = {colour.light: name for name, colour in COLOURS.items()}
_DARK = ".nbm-light{display:none!important}", ".nbm-dark{display:block!important}"
_LIGHT = ".nbm-dark{display:none!important}", ".nbm-light{display:block!important}"


def _where(page: str, rules: tuple[str, str]) -> str:
    return "".join(f"{page} .nbm-picture {rule}" for rule in rules)


_STYLE = "".join(
    (
        f"@media(prefers-color-scheme:dark){{{_where('', _DARK)}}}",
        _where('[data-jp-theme-light="true"]', _LIGHT),
        _where('[data-jp-theme-light="false"]', _DARK),
        _where("body.vscode-light", _LIGHT),
        _where("body.vscode-dark", _DARK),
    )
)


class Picture:
    """A chart as it is seen and saved. `chart` is the altair chart, to go on with; `description` says it in words."""

    def __init__(self, chart: Any, description: str) -> None:
        self.chart = chart
        self.description = description

    @cached_property
    def _drawing(self) -> ET.Element:
        """The chart as SVG: elements that draw, and nothing else."""
        spec = self.chart.to_dict(validate=False)  # checked as it was put together
        version = ".".join(spec["$schema"].rpartition("/v")[2].split(".")[:2])
        root = ET.fromstring(_vl_convert().vegalite_to_svg(json.dumps(spec), vl_version=version))
        _clean(root)
        return root

    @cached_property
    def svg(self) -> str:
        """The drawing on white, a document of its own."""
        return _document(self._drawing, self.description, dark=False)

    def png(self, scale: float = 2) -> bytes:
        """The drawing on white as PNG, at `scale` times its size."""
        return _packed(bytes(_vl_convert().svg_to_png(self.svg, scale=scale)))

    @cached_property
    def html(self) -> str:
        """The drawing for light and for dark pages."""
        dark = _document(self._drawing, self.description, dark=True)
        images = (
            _image("nbm-light", "block", self.svg, self.description),
            _image("nbm-dark", "none", dark, self.description),
        )
        return f'<div class="nbm-picture"><style>{_STYLE}</style>{"".join(images)}</div>'

    def save(self, path: str | Path) -> Path:
        """Write it as `.svg`, `.png`, `.html`, or `.json` (the chart's Vega-Lite). Raises SettingsError."""
        path = Path(path).expanduser()
        match path.suffix:
            case ".svg":
                data = self.svg.encode()
            case ".png":
                data = self.png()
            case ".html":
                title = escape(self.description)
                data = f'<!doctype html><meta charset="utf-8"><title>{title}</title>{self.html}\n'.encode()
            case ".json":
                data = json.dumps(self.chart.to_dict(), indent=1).encode()
            case _:
                raise SettingsError(f"{path.name}: give a name that ends in .svg, .png, .html or .json")
        try:
            path.write_bytes(data)
        except OSError as error:
            raise SettingsError(f"can't write {path}: {error.strerror or error}") from None
        return path

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, Any]:
        return {"text/html": self.html, "image/png": self.png(), "text/plain": self.description}

    def __repr__(self) -> str:
        return f"<Picture {self.description}>"


def _image(name: str, display: str, svg: str, words: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    style = f"display:{display};max-width:100%;height:auto"
    return f'<img class="{name}" style="{style}" alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def _packed(png: bytes) -> bytes:
    """The same picture in a third of the bytes: the converter's packing is quick, and notebooks are kept."""
    head, chunks, at = png[:8], list[tuple[bytes, bytes]](), 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += size + 12
    pixels = zlib.compress(zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT")), 6)
    before = [(kind, data) for kind, data in chunks if kind not in (b"IDAT", b"IEND")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (*before, (b"IDAT", pixels), (b"IEND", b""))
    ]
    return head + b"".join(parts)


def need_extra() -> Any:
    """The altair package. Raises SettingsError if the extra isn't installed."""
    try:
        import altair
    except ImportError:
        raise SettingsError("pictures need `pip install 'nbmastra[plot]'`") from None
    _vl_convert()
    return altair


def _vl_convert() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise SettingsError("pictures need `pip install 'nbmastra[plot]'`") from None
    return vl_convert


def _clean(element: ET.Element) -> None:
    """Take away what doesn't draw. Labels are text of models and tools; a page must only ever show them."""
    for child in list(element):
        if child.tag.removeprefix(f"{{{_SVG}}}") not in _TAGS:
            element.remove(child)
        else:
            _clean(child)
    told = element.get("aria-label") if element.get("aria-roledescription") in _TOLD else None
    for name in list(element.attrib):
        if name.rpartition("}")[2].startswith(_LINKS) or name.startswith("aria-") or name == "role":
            del element.attrib[name]
    if told:
        ET.SubElement(element, f"{{{_SVG}}}title").text = told  # for the pointer; the picture as a whole has its words


def _document(drawing: ET.Element, description: str, *, dark: bool) -> str:
    """The drawing as text: on white, or for a dark page."""
    ET.register_namespace("", _SVG)
    root = ET.fromstring(ET.tostring(drawing))
    root.set("role", "img")
    root.set("aria-label", description)
    for element in root.iter():
        for name in ("fill", "stroke"):
            known = _NAMES.get(element.get(name, ""))
            if known is not None:
                colour = COLOURS[known]
                hatch = colour.hatched and name == "fill"
                element.set(name, f"url(#hatch-{known})" if hatch else colour.dark if dark else colour.light)
    hatches = ET.SubElement(root, f"{{{_SVG}}}defs")
    for name, colour in COLOURS.items():
        if colour.hatched:
            box = {"id": f"hatch-{name}", "width": "4", "height": "4", "patternUnits": "userSpaceOnUse"}
            pattern = ET.SubElement(hatches, f"{{{_SVG}}}pattern", box | {"patternTransform": "rotate(45)"})
            ink = colour.dark if dark else colour.light
            ET.SubElement(pattern, f"{{{_SVG}}}rect", {"width": "1.4", "height": "4", "fill": ink})
    if not dark:
        root.insert(0, ET.Element(f"{{{_SVG}}}rect", {"width": "100%", "height": "100%", "fill": "#ffffff"}))
    return ET.tostring(root, encoding="unicode")
