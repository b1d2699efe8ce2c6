"""The base of all payload models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["Metadata", "Payload"]

Metadata = dict[str, Any]
"""Provider-specific metadata (`providerMetadata`), by provider name."""


class Payload(BaseModel):
    """What a chunk says: snake_case attributes here, camelCase on the wire; keys we don't know are kept.

    Models are built at a type's first chunk (`defer_build`), so that importing a hundred of them costs little.
    """

    model_config = ConfigDict(
        extra="allow", alias_generator=to_camel, populate_by_name=True, frozen=True, defer_build=True, protected_namespaces=()
    )
