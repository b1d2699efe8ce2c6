"""What providers note at the parts of an answer, such as signatures: by the names that Mastra's own models use.

They stand in chunks and in memory, and go back to the provider with the next request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from nbmastra.fold.reading import as_dict

__all__ = ["Note", "jsonable"]

_REDACTED = "redacted_thinking"  # pydantic-ai's id of an Anthropic thought that only its signature stands for
_SIGNED = "thought_signature"
_SIGNATURE = {
    "anthropic": "signature",
    "openai": "reasoningEncryptedContent",
    "google": "thoughtSignature",
}
_ID = {"openai": "itemId"}


@dataclass(frozen=True, slots=True)
class Note:
    """What pydantic-ai keeps at a part; `provider` is None where there is nothing."""

    provider: str | None = None
    id: str | None = None
    signature: str | None = None
    details: dict[str, Any] | None = None

    @classmethod
    def of(cls, part: Any) -> Note:
        """The note at a part of a pydantic-ai response."""
        details: dict[str, Any] = jsonable(getattr(part, "provider_details", None) or {})
        # Google signs texts and calls too; pydantic-ai keeps that among the details.
        signature = getattr(part, "signature", None) or details.pop(_SIGNED, None)
        return cls(part.provider_name, part.id, signature, details or None)

    def to_wire(self) -> dict[str, Any] | None:
        """As chunks have it: by the provider's name; None where there is nothing to tell."""
        if self.provider is None:
            return None
        if self.id == _REDACTED:
            return {self.provider: {"redactedData": self.signature}}
        values: dict[str, Any] = {
            _SIGNATURE.get(self.provider, "signature"): self.signature,
            _ID.get(self.provider, "id"): self.id,
            "details": self.details,
        }
        told = {name: value for name, value in values.items() if value is not None}
        return {self.provider: told} if told else None

    @classmethod
    def from_wire(cls, options: object) -> Note:
        """The note that a message's part holds in `providerOptions`."""
        for provider, value in as_dict(options).items():
            values = as_dict(value)
            if provider == "mastra" or not values:
                continue
            if (redacted := values.get("redactedData")) is not None:
                return cls(provider, _REDACTED, redacted)
            return cls(
                provider,
                values.get(_ID.get(provider, "id")),
                values.get(_SIGNATURE.get(provider, "signature")),
                as_dict(values.get("details")) or None,
            )
        return cls()

    def arguments(self, *, thinking: bool = False) -> dict[str, Any]:
        """The keyword arguments for a pydantic-ai part."""
        found: dict[str, Any] = {"provider_name": self.provider, "id": self.id, "provider_details": self.details}
        if thinking:
            found["signature"] = self.signature
        elif self.signature:
            found["provider_details"] = {**(self.details or {}), _SIGNED: self.signature}
        return found


def jsonable(value: Any) -> Any:
    """The value as plain JSON; what is none becomes its text."""
    return to_jsonable_python(value, fallback=str, serialize_unknown=True, inf_nan_mode="null")
