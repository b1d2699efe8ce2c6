"""Fixtures of all tests; each group lives in `tests/support`."""

from __future__ import annotations

import signal

import pytest

pytest_plugins = [
    "tests.support.no_skips",
    "tests.support.conformance",
    "tests.support.feed",
    "tests.support.mastra",
    "tests.support.postgres",
    "tests.support.kernel",
    "tests.support.lab",
]


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT, and so would every process that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Playwright's sync API leaves an event loop running in the main thread: async tests must come before it starts.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
    for item in items:
        if item.get_closest_marker("browser") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))  # a page and a kernel take half a minute on a busy machine
