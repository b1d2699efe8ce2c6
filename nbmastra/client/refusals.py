"""What a server's refusal means to the user: one exception per kind, its text made harmless."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from nbmastra.client.address import TOKEN_VARIABLE, ServerAddress, shown_url
from nbmastra.errors import BadRequest, ClientError, Conflict, NotFound, NotMastra, ServerError, Unauthorized

__all__ = ["clean", "not_mastra", "refusal"]

_MAX_MESSAGE = 500


def clean(text: str, limit: int = _MAX_MESSAGE) -> str:
    """Text of a server on one line, without control and direction characters, at most `limit` characters."""
    head = text[: 4 * limit]
    line = " ".join("".join(char if char.isprintable() else " " for char in head).split())
    return line if len(line) <= limit and len(text) <= len(head) else f"{line[: limit - 1]}…"


def refusal(address: ServerAddress, url: str, status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """The exception for an answer that is no success. Sources: WIRE "Transport", row errors; RFC 9110."""
    said, issues = _message(body)
    message = clean(address.hide(said))
    name = f"HTTP {status} {_phrase(status)}".rstrip()
    if status in (401, 403):
        return _unauthorized(address, url, status, message)
    if 300 <= status < 400:
        target = clean(shown_url(headers.get("location", ""))) or "another address"
        return NotMastra(f"{address.url} redirects to {target}: use that one", url=url, status_code=status)
    if status >= 500:
        text = f"the server failed: {message}" if message else f"the server failed ({name})"
        return ServerError(text, url=url, status_code=status)
    if not message:
        return not_mastra(address, url, f"answered {name}", status)
    if status == 400:
        details = clean(address.hide(_issues_text(issues)))
        return BadRequest(f"{message}: {details}" if details else message, url=url, issues=issues)
    if status == 404:
        return NotFound(message, url=url, status_code=404)
    if status == 409:
        return Conflict(message, url=url, status_code=409)
    return ServerError(f"{message} ({name})", url=url, status_code=status)


def not_mastra(address: ServerAddress, url: str, what: str, status: int | None = None) -> NotMastra:
    """Something answered, but no Mastra server does so."""
    return NotMastra(
        f"{address.url} {what} where a Mastra server has its API ({url}): is the address right?",
        url=url,
        status_code=status,
    )


def _unauthorized(address: ServerAddress, url: str, status: int, message: str) -> Unauthorized:
    said = f": {message}" if message else ""
    what = "refused the token" if address.has_credentials else "wants a token"
    hint = f"set {TOKEN_VARIABLE} or pass token="
    return Unauthorized(f"{address.url} {what} ({status}{said}); {hint}", url=url, status_code=status)


def _message(body: bytes) -> tuple[str, list[Any]]:
    """Mastra's error text and issues; "" if the body isn't Mastra's JSON."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return "", []
    if not isinstance(value, dict):
        return "", []
    answer = cast("dict[str, Any]", value)
    said = answer.get("error") or answer.get("message") or ""
    if isinstance(said, dict):
        said = cast("dict[str, Any]", said).get("message") or ""
    issues = answer.get("issues")
    text = said if isinstance(said, str) else json.dumps(said)
    return text, cast("list[Any]", issues) if isinstance(issues, list) else []


def _issues_text(issues: list[Any]) -> str:
    texts = [
        f"{issue.get('field', '')}: {issue.get('message', '')}".removeprefix("body: ")
        for issue in (cast("dict[str, Any]", i) for i in issues if isinstance(i, dict))
    ]
    return "; ".join(texts[:10]) + (f" and {len(texts) - 10} more" if len(texts) > 10 else "")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
