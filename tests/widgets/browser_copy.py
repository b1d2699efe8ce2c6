"""What a display knows of a document: its operations applied, written anew from their description."""

from __future__ import annotations

from typing import Any

from nbmastra.widgets.document import Op

METHODS = {
    "+": "add",
    "=": "cut",
    "c": "cls",
    "a": "attrs",
    "s": "since",
    "-": "remove",
    "r": "rename",
    "t": "pace",
}


class BrowserCopy:
    """Nodes as the browser keeps them; `apply` fails on anything that it couldn't follow."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.rate = 1.0
        self.nodes: dict[str, Any] = {
            id: {**node, "k": list(node["k"]), "a": dict(node["a"])} for id, node in state.items()
        }

    def apply(self, ops: list[Op]) -> None:
        for kind, id, *rest in ops:
            getattr(self, METHODS[kind])(id, *rest)

    def add(
        self,
        id: str,
        parent: str,
        before: str | int,
        tag: str = "",
        cls: str = "",
        attrs: dict[str, str] | None = None,
        html: str | None = None,
    ) -> None:
        assert id not in self.nodes
        kids = self.nodes[parent]["k"]
        kids.insert(len(kids) if before == 0 else kids.index(before), id)
        self.nodes[id] = {"p": parent, "t": tag, "c": cls, "a": dict(attrs or {}), "h": html, "k": [], "s": None}

    def cut(self, id: str, keep: int, add: str) -> None:
        units = (self.nodes[id]["h"] or "").encode("utf-16-le")
        assert 2 * keep <= len(units)
        self.nodes[id]["h"] = units[: 2 * keep].decode("utf-16-le") + add

    def cls(self, id: str, cls: str = "") -> None:
        self.nodes[id]["c"] = cls

    def attrs(self, id: str, changes: dict[str, str | None]) -> None:
        for name, value in changes.items():
            if value is None:
                self.nodes[id]["a"].pop(name, None)
            else:
                self.nodes[id]["a"][name] = value

    def since(self, id: str, seconds: float | None = None) -> None:
        self.nodes[id]["s"] = seconds

    def remove(self, id: str) -> None:
        self.nodes[self.nodes[id]["p"]]["k"].remove(id)
        below = [id]
        while below:
            below += self.nodes.pop(below.pop())["k"]

    def rename(self, root: str, names: dict[str, str]) -> None:
        assert not set(names.values()) & self.nodes.keys()
        for was, now in names.items():
            self.nodes[now] = self.nodes.pop(was)
        for now in (root, *names.values()):
            node = self.nodes[now]
            node["p"] = names.get(node["p"], node["p"])
            node["k"] = [names.get(kid, kid) for kid in node["k"]]

    def pace(self, _root: str, rate: float) -> None:
        self.rate = rate

    def shown(self) -> dict[str, Any]:
        """The document, with absent and empty html alike."""
        return {id: {**node, "h": node["h"] or ""} for id, node in self.nodes.items()}
