"""Model names and pydantic-ai models as models of agents. What pydantic-ai itself does is loaded at first use."""

from __future__ import annotations

import importlib
import re
from difflib import get_close_matches
from typing import Any

from nbmastra.errors import SettingsError
from nbmastra.runtime.model import Model

__all__ = ["known_models", "resolve_model"]

_EXTRA = "pip install 'nbmastra[models]'"
_LOCAL = ("ollama", "vllm", "litellm", "openrouter", "azure", "deepseek", "together")  # of which no model is listed
_OURS = ("openai", "anthropic", "google", "google-genai")  # of the extra `models`


def resolve_model(model: object) -> Model:
    """The model of a name like `openai:gpt-6-luna`, of a pydantic-ai `Model`, or a `Model` of ours as it is.

    Raises SettingsError: an unknown name (with the nearest), what to install, which key to set.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str):
        return _adapter().ProviderModel(_infer(model))
    if type(model).__module__.partition(".")[0] == "pydantic_ai" or _is_pydantic_model(model):
        adapter = _adapter()
        if isinstance(model, adapter.models.Model):
            return adapter.ProviderModel(model)
    raise SettingsError(
        f"model= takes a name such as 'openai:gpt-6-luna', a pydantic-ai Model or a ScriptedModel; not {model!r:.60}"
    )


def known_models() -> tuple[str, ...]:
    """Names that `resolve_model` knows; providers have more than these. Raises SettingsError without the extra."""
    return (*_adapter().models.known_model_names(), "test")


def _is_pydantic_model(model: object) -> bool:
    return any(base.__module__.startswith("pydantic_ai.") for base in type(model).__mro__)


def _adapter() -> Any:
    try:
        return importlib.import_module("nbmastra.runtime.provider_model")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("nbmastra"):
            raise
        raise SettingsError(f"models of providers need pydantic-ai: {_EXTRA}") from None


def _infer(name: str) -> Any:
    models, exceptions = _adapter().models, importlib.import_module("pydantic_ai.exceptions")
    name = name.strip()
    try:
        return models.infer_model(name)
    except ImportError as error:
        raise SettingsError(f"model {name!r} needs {_to_install(name, str(error))}") from None
    except (exceptions.UserError, ValueError) as error:
        raise SettingsError(_refusal(name, str(error))) from None
    except Exception as error:  # a client library that finds no credentials raises what it likes
        raise SettingsError(f"model {name!r} can't be set up: {_adapter().clean(str(error))}") from None


def _to_install(name: str, said: str) -> str:
    found = re.search(r"pip install [\"']?pydantic-ai-slim\[([\w-]+)\]", said)
    extra = found[1] if found else name.partition(":")[0]
    return f"a package: {_EXTRA}" if extra in _OURS else f"a package: pip install 'pydantic-ai-slim[{extra}]'"


def _nearest(name: str) -> str | None:
    known = known_models()
    provider, colon, model = name.rpartition(":")
    if same := [other for other in known if model and other.partition(":")[2] == model]:
        return min(same, key=len) if not provider else get_close_matches(name, same, 1, 0)[0]
    if similar := get_close_matches(name, known, 1, 0.6):
        return similar[0]
    prefixes = {other.partition(":")[0] for other in known} | set(_LOCAL)
    similar = get_close_matches(provider, prefixes, 1, 0.7) if colon else []
    return f"{similar[0]}:{model}" if similar else None


def _refusal(name: str, said: str) -> str:
    """What pydantic-ai refuses, as one line about our own words."""
    if said.startswith("Unknown model"):
        nearest = _nearest(name[:80])
        hint = f"did you mean {nearest!r}?" if nearest else "write provider:model, such as 'openai:gpt-6-luna'"
        return f"unknown model {name[:80]!r}: {hint}"
    variables = list(dict.fromkeys(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", said)))
    if variables:
        return f"model {name!r} needs {' or '.join(variables)}: set it in the environment, or by os.environ in a cell"
    return f"model {name!r} can't be set up: {_adapter().clean(said)}"
