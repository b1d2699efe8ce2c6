"""The source and file family: what an answer cites and what it comes with."""

from __future__ import annotations

import base64
from typing import Any, cast

from nbmastra.chunks.payload import ProviderPayload

__all__ = ["Custom", "File", "FileData", "Source"]


class Source(ProviderPayload):
    """Something that the answer cites."""

    id: str
    """Id of the source."""
    source_type: str
    """`url` or `document`."""
    title: str
    """Title of the source; empty if the provider gives none."""
    mime_type: str | None = None
    """MIME type, of a document."""
    filename: str | None = None
    """File name, of a document that has one."""
    url: str | None = None
    """Address, of a `url` source; unchecked, it may have any scheme."""


class FileData(ProviderPayload):
    """A file that the model made."""

    data: str | dict[str, Any] | list[Any]
    """The file as base64 text, or its URL; a byte array arrives as an object `{"0": 137, "1": 80, …}`."""
    base64: str | None = None
    """The file as base64 text; absent where `data` is a URL or a byte array."""
    mime_type: str
    """MIME type of the file."""

    def content(self) -> bytes | None:
        """The file's bytes; None where only a URL came or the data can't be read."""
        data: Any = self.base64 or self.data
        try:
            if isinstance(data, str):
                head, mark, tail = data.partition(";base64,")
                return base64.b64decode(tail if mark and head.startswith("data:") else data, validate=True)
            if isinstance(data, dict):
                # A Uint8Array is written by index; Node's Buffer as {"type": "Buffer", "data": […]}.
                table = cast("dict[str, Any]", data)
                data = table.get("data") or [table[str(index)] for index in range(len(table))]
            return bytes(data)
        except (ValueError, TypeError, KeyError):
            return None


class File(FileData):
    """A file that belongs to the answer."""

    filename: str | None = None
    """File name, if the provider gives one."""


class Custom(ProviderPayload):
    """Content of a kind that only its provider knows."""

    kind: str
    """`provider.type`, such as `openai.compaction`."""
