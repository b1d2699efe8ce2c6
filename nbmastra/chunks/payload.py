"""The base of all payload models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["Metadata", "Number", "Payload", "ProviderPayload", "Timestamp"]

Metadata = dict[str, Any]
"""Provider-specific metadata (`providerMetadata`), by provider name."""

Number = int | float
"""A JavaScript number: whole ones stay whole."""


def _from_ms(value: object) -> object:
    # Left to itself, pydantic would guess between seconds and milliseconds.
    if isinstance(value, Number) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / 1000, UTC)
        except (OverflowError, OSError):
            raise ValueError("no time that a calendar knows") from None
    return value


def _to_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Timestamp = Annotated[datetime, BeforeValidator(_from_ms), AfterValidator(_to_utc)]
"""A JavaScript `Date`, in UTC: on the wire ISO 8601 text or milliseconds since 1970."""


class Payload(BaseModel):
    """What a chunk says: snake_case attributes here, camelCase on the wire; keys we don't know are kept.

    Models are built at a type's first chunk (`defer_build`), so that importing a hundred of them costs little.
    """

    model_config = ConfigDict(
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        defer_build=True,
        protected_namespaces=(),
    )


class ProviderPayload(Payload):
    """A payload that a model provider may add metadata to."""

    provider_metadata: Metadata | None = None
    """What the model's provider adds, by provider name; None if it adds nothing."""
