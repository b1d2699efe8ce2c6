"""Addresses and their secrets."""

from __future__ import annotations

import pytest

from nbmastra.client.address import TOKEN_VARIABLE, URL_VARIABLE, ServerAddress, shown_url
from nbmastra.errors import SettingsError

SECRET = "sk-very-secret-1"


@pytest.mark.parametrize(
    ("given", "url", "api"),
    [
        (None, "http://localhost:4111", "http://localhost:4111/api"),
        ("http://localhost:4111", "http://localhost:4111", "http://localhost:4111/api"),
        ("http://localhost:4111/", "http://localhost:4111", "http://localhost:4111/api"),
        ("http://localhost:4111/api", "http://localhost:4111", "http://localhost:4111/api"),
        ("http://localhost:4111/api/", "http://localhost:4111", "http://localhost:4111/api"),
        (" localhost:4111 ", "http://localhost:4111", "http://localhost:4111/api"),
        ("https://Agents.Example.org/team", "https://agents.example.org/team", "https://agents.example.org/team/api"),
        ("http://[::1]:4111", "http://[::1]:4111", "http://[::1]:4111/api"),
        (f"http://ada:{SECRET}@host:1/api?token={SECRET}#{SECRET}", "http://host:1", "http://host:1/api"),
    ],
)
def test_a_server_is_found_with_and_without_api(given: str | None, url: str, api: str) -> None:
    address = ServerAddress.of(given)
    assert (address.url, address.api) == (url, api)
    assert SECRET not in repr(address)


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://a b", "http://x:port", "http://x:99999", "http://x:0", "http://x\ny", "://"]
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SettingsError, match="http://localhost:4111") as caught:
        ServerAddress.of(url.replace("http://", f"http://ada:{SECRET}@") if url != "http://" else url)
    assert SECRET not in str(caught.value)


def test_a_query_in_the_address_is_refused_by_its_names_only() -> None:
    with pytest.raises(SettingsError, match="key") as caught:
        ServerAddress.of(f"http://x?key={SECRET}")
    assert SECRET not in str(caught.value)


def test_the_token_comes_from_the_argument_then_the_address_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "from-environment")
    monkeypatch.setenv(URL_VARIABLE, "http://example.org/api")

    def sent(url: str | None = None, token: str | None = None, headers: dict[str, str] | None = None) -> str:
        return ServerAddress.of(url, token=token, headers=headers).headers["Authorization"]

    assert ServerAddress.of().url == "http://example.org"
    assert sent() == "Bearer from-environment"
    assert sent("http://x?apiKey=from-url") == "Bearer from-url"
    assert sent("http://x?token=from-url", token=" given ") == "Bearer given"
    assert sent("http://ada:s%40me@x") == "Basic YWRhOnNAbWU="
    assert sent(token="given", headers={"Authorization": "Own scheme"}) == "Own scheme"


def test_without_a_token_no_authorization_is_sent() -> None:
    assert not ServerAddress.of().headers
    assert not ServerAddress.of().has_credentials
    assert ServerAddress.of(headers={"authorization": "x"}).has_credentials


def test_secrets_show_in_no_repr_and_are_hidden_in_what_a_server_repeats() -> None:
    address = ServerAddress.of("http://x", token=SECRET, headers={"X-Api-Key": "key-123456"})
    assert SECRET not in repr(address)
    assert "key-123456" not in repr(address)
    assert "X-Api-Key" in repr(address)
    assert address.hide(f"bad token {SECRET}, bad key key-123456") == "bad token ***, bad key ***"


@pytest.mark.parametrize("token", ["a\nb", "schlüssel", "a\x00b"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ServerAddress.of(token=token)
    assert token not in str(caught.value)


def test_a_shown_url_has_no_secrets() -> None:
    assert shown_url(f"https://ada:{SECRET}@x:1/p?token={SECRET}#{SECRET}") == "https://x:1/p"
    assert shown_url("/login?next=1") == "/login"
    assert shown_url("http://[bad") == ""
