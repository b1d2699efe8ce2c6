"""The models against the type declarations of Mastra's npm package: nothing it can stream is without a model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbmastra.chunks import family, payload_model
from tests.chunks.test_seed_fields import wire_fields

pytestmark = pytest.mark.server

DECLARATIONS = Path(__file__).parents[1] / "mastra_server/node_modules/@mastra/core/dist/stream/types.d.ts"
NO_CHUNKS = {
    "openai-websocket": "a way to reach a provider",
    "text": "an entry in a tool call's own metadata",
    "tool": "an entry in a tool call's own metadata",
    "reason": "what a judge did, inside of a goal's payload",
    "reasoning": "an entry in a step's result, never streamed by itself",
}
WHOLE_CHUNKS = {"AgentChunkType", "WorkflowStreamEvent"}
LITERAL = r"(?:'[^']+'|`[^`]+`)"


@pytest.fixture(scope="module")
def source() -> str:
    assert DECLARATIONS.exists(), "run `make setup`: the reference server's packages are not installed"
    return re.sub(r"/\*.*?\*/", "", DECLARATIONS.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_declared_chunk_type_has_a_model_or_a_reason_not_to(source: str) -> None:
    unions = re.findall(rf"\btype\??: ({LITERAL}(?: \| {LITERAL})*);", source)
    literals = {literal.strip("'`") for union in unions for literal in union.split(" | ")}
    assert len(literals) > 70
    missing = [kind for kind in literals - NO_CHUNKS.keys() if family(kind.replace("${string}", "x")) == "unknown"]
    assert missing == []
    assert NO_CHUNKS.keys() <= literals
    assert all(family(kind) == "unknown" for kind in NO_CHUNKS)


def test_every_declared_field_of_every_payload_is_modelled(source: str) -> None:
    declared = list(re.finditer(rf"\btype: ({LITERAL});\s+(?:id: string;\s+)?payload: (?=(\w+|{{))", source))
    assert len(declared) > 60
    missing: list[str] = []
    for match in declared:
        kind, payload = match[1].strip("'`").replace("${string}", "x"), match[2]
        model = payload_model(kind)
        if model is not None and payload not in WHOLE_CHUNKS:
            keys = block_keys(source, match.end()) if payload == "{" else interface_keys(source, payload)
            missing += [f"{kind} {key}" for key in keys - wire_fields(model).keys()]
    assert missing == []


def interface_keys(source: str, name: str) -> set[str]:
    """Keys of an interface and of those that it extends or renames."""
    if renamed := re.search(rf"\btype {name} = (\w+)<", source):
        return interface_keys(source, renamed[1])
    match = re.search(rf"\b(?:interface|type) {name}\b[^{{;]*?(?:extends (\w+) |= )?(?={{)", source)
    assert match, name
    return block_keys(source, match.end()) | (interface_keys(source, match[1]) if match[1] else set())


def block_keys(source: str, start: int) -> set[str]:
    """Keys of the block of declarations that opens at `start`, those of inner blocks left out."""
    found: set[str] = set()
    depth = 0
    for line in source[start:].splitlines():
        if depth == 1 and (match := re.match(r"\s*(\w+)\??: ", line)):
            found.add(match[1])
        depth += line.count("{") - line.count("}")
        if depth <= 0:
            break
    return found
