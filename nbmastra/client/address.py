"""Where the server is, and the secrets that go with it: kept apart, so that what is shown never holds them."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from nbmastra.errors import SettingsError

__all__ = ["DEFAULT_URL", "TOKEN_VARIABLE", "URL_VARIABLE", "SecretHeaders", "ServerAddress", "shown_url"]

DEFAULT_URL = "http://localhost:4111"
URL_VARIABLE = "MASTRA_API_URL"
TOKEN_VARIABLE = "MASTRA_API_TOKEN"

_TOKEN_KEYS = ("token", "apiKey", "api_key", "access_token")
_HIDDEN = "***"


class SecretHeaders(dict[str, str]):
    """Request headers whose values show in no repr."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, _HIDDEN))


@dataclass(frozen=True)
class ServerAddress:
    """A server: `url` as it is shown, `api` where its routes are, `headers` that every request carries."""

    url: str
    api: str
    headers: SecretHeaders = field(default_factory=SecretHeaders)

    @classmethod
    def of(
        cls, url: str | None = None, *, token: str | None = None, headers: Mapping[str, str] | None = None
    ) -> ServerAddress:
        """An address from what the user gave, then MASTRA_API_URL and MASTRA_API_TOKEN, then http://localhost:4111.

        User and password in the URL become a Basic header, a `?token=` there becomes the token. Raises SettingsError.
        """
        parts = _split(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        url_token = _token_of(parts)
        given = SecretHeaders({name: _header(name, value) for name, value in (headers or {}).items()})
        if "authorization" not in {name.lower() for name in given}:
            token = token or url_token
            if token:
                given["Authorization"] = f"Bearer {_header('token', token)}"
            elif parts.username is not None:
                given["Authorization"] = _basic(parts)
            elif from_environment := os.environ.get(TOKEN_VARIABLE):
                given["Authorization"] = f"Bearer {_header(TOKEN_VARIABLE, from_environment)}"
        path = parts.path.rstrip("/").removesuffix("/api")
        shown = f"{parts.scheme}://{_host(parts)}{path}"
        return cls(shown, f"{shown}/api", given)

    def hide(self, text: str) -> str:
        """The text without any of this address's secrets: a server may repeat what it was sent."""
        for value in self.headers.values():
            for secret in {value, value.rpartition(" ")[2]}:
                if len(secret) >= 6:
                    text = text.replace(secret, _HIDDEN)
        return text

    @property
    def has_credentials(self) -> bool:
        """True if requests carry an Authorization header."""
        return "authorization" in {name.lower() for name in self.headers}


def shown_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{_host(parts)}{parts.path}" if parts.hostname else parts.path
    except ValueError:
        return ""


def _split(url: str) -> SplitResult:
    text = url.strip() if "://" in url else f"http://{url.strip()}"
    # The address isn't repeated in the error: a mistyped one may hold a password.
    wrong = SettingsError(f"the server's address is not a URL: write it like {DEFAULT_URL}")
    if not text.isprintable() or any(map(str.isspace, text)):
        raise wrong
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise wrong from None
    if not valid:
        raise wrong
    return parts


def _token_of(parts: SplitResult) -> str | None:
    query = dict(parse_qsl(parts.query))
    tokens = [query.pop(key) for key in _TOKEN_KEYS if key in query]
    if query:
        keys = ", ".join(sorted(query))
        raise SettingsError(
            f"the server's address has a query ({keys[:100]}): leave it out, or give token= or headers="
        )
    return tokens[0] if tokens else None


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return host if parts.port is None else f"{host}:{parts.port}"


def _basic(parts: SplitResult) -> str:
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _header(name: str, value: str) -> str:
    # Checked here, because the HTTP library would put the value into its error.
    text = value.strip()
    if not text.isascii() or not text.isprintable():
        raise SettingsError(f"{name}: has characters that an HTTP header can't carry")
    return text
