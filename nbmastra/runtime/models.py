"""From what a user calls a model to the model."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nbmastra.runtime.model import Model

__all__ = ["find_model"]


def find_model(value: Any) -> Model:
    """The model of a name ("openai:gpt-5-mini"), of a pydantic-ai model, or the model itself.

    Raises SettingsError for what is none of them, or what isn't installed or set up.
    """
    if isinstance(value, Model):
        return value
    # Loaded at need: the providers' libraries are an extra, and large.
    return import_module("nbmastra.runtime.providers").resolve_model(value)
