"""A pydantic-ai model as a model of ours: its requests, its errors, its connections."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, cast

import httpx2
from pydantic_ai import models
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from nbmastra.engine import Engine, get_engine
from nbmastra.errors import ModelError, SettingsError
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.held import close_with
from nbmastra.runtime.model import ModelEvent, ModelRequest, Raw, ResponseMetadata, ToolChoice, Warned
from nbmastra.runtime.provider_events import EventMapper
from nbmastra.runtime.provider_messages import provider_messages
from nbmastra.runtime.provider_metadata import jsonable

__all__ = ["ProviderModel", "clean"]

_NAMES = {
    "max_output_tokens": "max_tokens",
    "headers": "extra_headers",
}
_KNOWN = frozenset(ModelSettings.__annotations__)
_SECRET = re.compile(r"\b(?:sk|pk|gsk|xai|AIza|Bearer )[-_A-Za-z0-9*.]{8,}")
_PRIVATE_HEADERS = ("set-cookie", "authorization", "x-api-key")


class ProviderModel:
    """A model of pydantic-ai. Its connections are kept while it is used, and closed when the engine ends."""

    native_schema: bool

    def __init__(self, model: models.Model) -> None:
        self._model = model
        self._unused: weakref.finalize[..., ProviderModel] | None = None
        try:
            self.native_schema = bool(model.profile.get("supports_json_schema_output", False))
        except NotImplementedError:  # a model that chooses among others
            self.native_schema = False

    @property
    def model_id(self) -> str:
        """The model's name, as the provider has it."""
        return self._model.model_name

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._model.system

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Call the model. Raises ModelError, and SettingsError for a request that it can't take."""
        messages, parameters = provider_messages(request.messages), _parameters(request)
        settings, told = self._settings(request, parameters)
        if told:
            yield Warned(told)
        raw: list[Any] = []
        mapper = EventMapper()
        announced = False
        try:
            async with (
                self._connected(),
                model_request_stream(
                    self._model, messages, model_settings=settings, model_request_parameters=parameters
                ) as stream,
            ):
                tapped = _tap(stream, raw) if request.include_raw else False
                headers = _headers(stream)
                async for event in stream:
                    if not announced:
                        announced = True
                        yield _metadata(stream, headers)
                    if request.include_raw:
                        for value in raw if tapped else [event]:
                            yield Raw(jsonable(value))
                        raw.clear()
                    for ours in mapper.events(event):
                        yield ours
                for value in raw:
                    yield Raw(jsonable(value))
                if not announced:
                    yield _metadata(stream, headers)
                response = stream.get()
            _check_complete(response, self.provider)
            for ours in mapper.finish(response):
                yield ours
        except (ModelAPIError, UnexpectedModelBehavior, UserError, httpx2.HTTPError) as error:
            _raise(error, self.provider)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[None]:
        """The provider's connections: kept on the engine's loop, for this request alone on any other."""
        engine = get_engine()
        if engine.on_own_thread:
            if close_with(engine, self):
                self._unused = weakref.finalize(self, _close_soon, engine, self._model)
                self._unused.atexit = False
                await self._model.__aenter__()
            yield
            return
        async with self._model:
            yield

    async def aclose(self) -> None:
        """Close its connections."""
        if self._unused is not None:
            self._unused.detach()
        await self._model.__aexit__(None, None, None)

    def _settings(
        self, request: ModelRequest, parameters: ModelRequestParameters
    ) -> tuple[ModelSettings, list[dict[str, Any]]]:
        """The settings by pydantic-ai's names, and warnings of those that are left out."""
        settings: dict[str, Any] = {}
        told: list[dict[str, Any]] = []
        for name, value in request.settings.items():
            name = _NAMES.get(name, name)
            if value is None:
                continue
            if name in _KNOWN or name.partition("_")[0] in _PREFIXES:
                settings[name] = value
            else:
                told.append(_warning(name, f"no model has a setting {name!r}"))
        choice = _tool_choice(request.tool_choice, request.tools)
        if choice is not None:
            settings["tool_choice"] = choice
        for text in self._objections(settings, parameters):
            for name in [name for name in settings if re.search(rf"\b{re.escape(name)}\b", text)]:
                del settings[name]
                told.append(_warning(name, text))
        return cast("ModelSettings", settings), told

    def _objections(self, settings: dict[str, Any], parameters: ModelRequestParameters) -> list[str]:
        """What pydantic-ai says against the settings: by warnings of Python, which would go to nobody."""
        if not settings:
            return []
        with warnings.catch_warnings(record=True) as caught, suppress(UserError, NotImplementedError):
            warnings.simplefilter("always")
            self._model.prepare_request(cast("ModelSettings", settings.copy()), parameters)
        return [clean(str(warning.message)) for warning in caught]

    def __repr__(self) -> str:
        return f"<ProviderModel {self.provider}:{self.model_id}>"


def _warning(setting: str, message: str) -> dict[str, Any]:
    return {"type": "unsupported-setting", "setting": setting, "message": message}


def _close_soon(engine: Engine, model: models.Model) -> None:
    """Close the connections of a model that nobody holds any more; called by the garbage collector, on any thread."""

    async def close() -> None:
        await model.__aexit__(None, None, None)

    engine.call_soon(lambda: engine.start(close))


_PREFIXES = frozenset(name.partition(":")[0].partition("-")[0] for name in models.known_model_names()) | {"ollama"}


def _tool_choice(choice: ToolChoice, tools: Sequence[Any]) -> Any:
    if choice == "auto" or not tools:
        return None
    return choice if choice in ("none", "required") else [choice]


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, description=tool.description or None, parameters_json_schema=tool.parameters)
        for tool in request.tools
    ]
    if request.response_schema is None:
        return ModelRequestParameters(function_tools=tools)
    schema = OutputObjectDefinition(json_schema=request.response_schema, name="response")
    return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=schema)


def _metadata(stream: StreamedResponse, headers: Mapping[str, str] | None) -> ResponseMetadata:
    return ResponseMetadata(stream.provider_response_id, stream.model_name, stream.timestamp, headers)


class _Tap:
    """A provider's stream whose events are also noted."""

    def __init__(self, stream: Any, noted: list[Any]) -> None:
        self._stream = stream
        self._noted = noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._stream:
            self._noted.append(event)
            yield event


def _tap(stream: StreamedResponse, noted: list[Any]) -> bool:
    """Note what the provider's client library gives; False if pydantic-ai keeps it elsewhere for this model."""
    source: Any = getattr(stream, "_response", None)
    if not hasattr(source, "__aiter__"):
        return False
    stream._response = _Tap(source, noted)  # type: ignore[attr-defined]
    return True


def _headers(stream: StreamedResponse) -> Mapping[str, str] | None:
    response: Any = getattr(getattr(getattr(stream, "_response", None), "source", None), "response", None)
    headers: Any = getattr(response, "headers", None)
    if headers is None:
        return None
    return {name: value for name, value in headers.items() if name.lower() not in _PRIVATE_HEADERS}


def _check_complete(response: Any, provider: str) -> None:
    details = as_dict(response.provider_details)
    silent = response.provider_response_id and response.finish_reason is None and "finish_reason" not in details
    if response.state == "incomplete" or silent:
        raise ModelError(f"{provider} broke off in the middle of its answer", provider=provider, code="truncated")


def _raise(error: Exception, provider: str) -> NoReturn:
    """The error in our own words, without secrets. Raises ModelError, SettingsError."""
    if isinstance(error, UserError):
        raise SettingsError(f"{provider}: {clean(str(error))}") from None
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    code, retry_after = None, None
    message = str(error)
    if isinstance(error, ModelAPIError):
        code, retry_after = error.provider_error_code or error.provider_error_type, error.retry_after
        message = _said(error.body) or message
    raise ModelError(
        f"{provider}: {clean(message)}", status_code=status, retry_after_s=retry_after, code=code, provider=provider
    ) from None


def _said(body: object) -> str:
    """A provider's own words for an error, wherever in its answer they stand."""
    if isinstance(body, str):
        return body
    found = as_dict(body)
    return _said(found["error"]) if found.get("error") else str(found.get("message") or "")


def clean(text: str) -> str:
    """A provider's text on one line, at most 500 characters, without what looks like a key."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return _SECRET.sub("***", line)[:500]
