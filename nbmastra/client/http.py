"""Requests to one server over the engine's shared connections: connecting is retried, every failure is one clear error.

Coroutines here run on the engine's loop.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import anyio
import httpx2
from pydantic_core import PydanticSerializationError, to_jsonable_python

from nbmastra._version import __version__
from nbmastra.client.address import ServerAddress
from nbmastra.client.decode import DEFAULT_MAX_EVENT_BYTES
from nbmastra.client.refusals import clean, not_mastra, refusal
from nbmastra.engine import Engine, get_engine
from nbmastra.errors import ClientError, ServerTimeout, ServerUnreachable, SettingsError

__all__ = ["ByteStream", "Http"]

_CONNECT_TIMEOUT_S = 10.0
_PAUSES_S = (0.2, 0.5)  # between three tries to connect
_LOCAL = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_MAX_ERROR_BYTES = 64 * 1024
_KEEP_IDLE_S = 3.0  # less than the 5 s after which Node closes an idle connection


class ByteStream:
    """The body of a stream that has begun: `async for` gives its bytes as they come, `aclose` ends the request."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.broken = ""
        """Why the connection ended before the body did; "" if it didn't."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self._response.aiter_bytes()) as pieces:
                async for data in pieces:
                    yield data
        except httpx2.HTTPError as error:
            self.broken = _reason(error)

    async def aclose(self) -> None:
        """Close the connection, or give it back if the body was read to its end."""
        await self._response.aclose()


class Http:
    """How a client asks its server. `timeout`: seconds until an answer must have begun, None to wait for ever."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        timeout: float | None = 60.0,
        max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES,
        engine: Engine | None = None,
    ) -> None:
        try:
            httpx2.URL(address.api)
        except httpx2.InvalidURL as error:
            raise SettingsError(f"the server's address can't be used: {_reason(error)}") from None
        self.address = address
        self.timeout = timeout
        self.max_event_bytes = max_event_bytes
        self.engine = engine or get_engine()

    def __repr__(self) -> str:
        return f"<Http {self.address.url}>"

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """The JSON that a route answers. Raises ClientError."""
        return await self._json("GET", path, None, params, self.timeout)

    async def post(
        self, path: str, body: object = None, params: Mapping[str, Any] | None = None, *, patient: bool = False
    ) -> Any:
        """The JSON that a route answers to a JSON body; `patient` waits as long as it takes. Raises ClientError."""
        return await self._json("POST", path, body, params, None if patient else self.timeout)

    async def stream(
        self,
        path: str,
        body: object = None,
        params: Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        content_type: str = "text/event-stream",
    ) -> ByteStream:
        """The stream that a route answers, once its headers are in; whoever gets it closes it. Raises ClientError."""
        try:
            with anyio.fail_after(self.timeout):
                response = await self._send(method, path, body, params, content_type)
        except TimeoutError:
            raise self._too_late(path) from None
        if _content_type(response) == content_type:
            return ByteStream(response)
        await response.aclose()
        raise self._other_content(path, response, "a stream")

    async def _json(
        self, method: str, path: str, body: object, params: Mapping[str, Any] | None, limit_s: float | None
    ) -> Any:
        try:
            with anyio.fail_after(limit_s):
                response = await self._send(method, path, body, params, "application/json")
                data = await self._read(response, path)
        except TimeoutError:
            raise self._too_late(path) from None
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise self._other_content(path, response, "JSON") from None

    async def _send(
        self, method: str, path: str, body: object, params: Mapping[str, Any] | None, accept: str
    ) -> httpx2.Response:
        """An answer's headers. A refusal is raised."""
        headers = {"Accept": accept, "User-Agent": f"nbmastra/{__version__}", **self.address.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        client = _pool(self.engine)
        connect_s = _CONNECT_TIMEOUT_S if self.timeout is None else min(_CONNECT_TIMEOUT_S, self.timeout)
        request = client.build_request(
            method,
            self._url(path),
            params={key: value for key, value in (params or {}).items() if value is not None},
            content=None if body is None else _json_bytes(body),
            headers=headers,
            timeout=httpx2.Timeout(None, connect=connect_s),
        )
        response = await self._connect(client, request)
        if response.is_success:
            return response
        data = await self._read(response, path, _MAX_ERROR_BYTES)
        raise refusal(self.address, self._url(path), response.status_code, response.headers, data)

    async def _connect(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        # Only establishing a connection is tried again: a request that was sent may have started a run.
        pauses = iter(_PAUSES_S)
        while True:
            try:
                return await client.send(request, stream=True)
            except httpx2.ConnectError as error:
                pause = next(pauses, None)
                if pause is None:
                    raise self._unreachable(error) from None
            except httpx2.ConnectTimeout as error:
                raise self._unreachable(error) from None
            except httpx2.HTTPError as error:
                raise self._no_answer(error) from None
            await anyio.sleep(pause)

    async def _read(self, response: httpx2.Response, path: str, limit: int | None = None) -> bytes:
        """A whole body, or as much as is enough for an error; the connection is closed or given back."""
        data = bytearray()
        try:
            async with aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    data += piece
                    if limit is not None and len(data) >= limit:
                        break
        except httpx2.HTTPError as error:
            if limit is None:
                raise self._no_answer(error) from None
        return bytes(data)

    def _url(self, path: str) -> str:
        return f"{self.address.api}{path}"

    def _unreachable(self, error: httpx2.HTTPError) -> ClientError:
        url, reason = self.address.url, _reason(error)
        if isinstance(error, httpx2.ConnectTimeout):
            text = f"no connection to {url} in time"
        elif "refused" in reason or "All connection attempts failed" in reason:
            text = f"nothing answers at {url}: is the server running? (npx mastra dev)"
        else:
            text = f"no connection to {url}: {reason}"
        return ServerUnreachable(text, url=url)

    def _no_answer(self, error: httpx2.HTTPError) -> ClientError:
        text = f"the connection to {self.address.url} ended without an answer: {_reason(error)}"
        return ServerUnreachable(self.address.hide(text), url=self.address.url)

    def _too_late(self, path: str) -> ClientError:
        text = f"{self.address.url} gave no answer within {self.timeout:g} s; timeout= allows more"
        return ServerTimeout(text, url=self._url(path))

    def _other_content(self, path: str, response: httpx2.Response, wanted: str) -> ClientError:
        kind = clean(_content_type(response), 60) or "no content type"
        what = f"answered with {kind} instead of {wanted}"
        return not_mastra(self.address, self._url(path), what, response.status_code)


def _pool(engine: Engine) -> httpx2.AsyncClient:
    """The connections that all clients of an engine share."""
    client: httpx2.AsyncClient | None = engine.resources.get("http")
    if client is None:
        # Never through a proxy of the environment.
        direct: dict[str, httpx2.AsyncBaseTransport | None] = dict.fromkeys(_LOCAL)
        client = httpx2.AsyncClient(
            # Shared by clients with different tokens, so no cookies.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_IDLE_S),
            mounts=direct,
        )
        engine.resources["http"] = client
        engine.on_close(client.aclose)
    return client


def _json_bytes(body: object) -> bytes:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_jsonable_python)
        return text.encode()
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        raise SettingsError(f"the request holds something that isn't JSON: {clean(str(error), 200)}") from None


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _reason(error: Exception) -> str:
    return clean(str(error), 200) or type(error).__name__
