"""What a chat reads of its thread's memory, and takes back from it: a local agent's memory, or a server's."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, cast

from nbmastra.errors import NotFound, SettingsError
from nbmastra.messages import MessageRecord, message_records

__all__ = ["ThreadMemory", "thread_memory"]

_PAGE = 100
_MAX_PAGES = 50


class ThreadMemory(Protocol):
    """The messages of one thread. Everything raises what the source does, but for a thread that isn't there yet."""

    async def read(self) -> list[MessageRecord]:
        """Its messages, oldest first."""
        ...

    async def forget(self, ids: Sequence[str]) -> None:
        """Delete messages."""
        ...


class _Local(Protocol):
    def messages(self, thread: str, *, resource: str | None = None) -> Awaitable[list[dict[str, Any]]]: ...
    def delete_messages(self, thread: str, ids: Sequence[str]) -> Awaitable[Any]: ...


class _Remote(Protocol):
    def messages(
        self, *, resource: str | None = None, page: int | None = None, per_page: int | None = None
    ) -> Awaitable[list[dict[str, Any]]]: ...
    def delete_messages(self, ids: Sequence[str]) -> Awaitable[Any]: ...


class _LocalThread:
    def __init__(self, memory: _Local, thread: str, resource: str) -> None:
        self._memory, self._thread, self._resource = memory, thread, resource

    async def read(self) -> list[MessageRecord]:
        try:
            found = await self._memory.messages(self._thread, resource=self._resource)
        except SettingsError as error:
            if "no thread" in str(error):
                return []
            raise
        return message_records(found)

    async def forget(self, ids: Sequence[str]) -> None:
        await self._memory.delete_messages(self._thread, ids)


class _RemoteThread:
    def __init__(self, thread: _Remote, resource: str) -> None:
        self._thread, self._resource = thread, resource

    async def read(self) -> list[MessageRecord]:
        found: list[dict[str, Any]] = []
        for page in range(_MAX_PAGES):
            try:
                more = await self._thread.messages(resource=self._resource, page=page, per_page=_PAGE)
            except NotFound:
                return []
            found += more
            if len(more) < _PAGE:
                break
        return message_records(found)

    async def forget(self, ids: Sequence[str]) -> None:
        await self._thread.delete_messages(ids)


def thread_memory(agent: Any, thread: str, resource: str) -> ThreadMemory | None:
    """The memory that holds an agent's thread; None if it has none that can be read."""
    memory = getattr(agent, "memory", None)
    if callable(getattr(memory, "messages", None)):
        return _LocalThread(cast("_Local", memory), thread, resource)
    if callable(getattr(agent, "thread", None)):
        return _RemoteThread(agent.thread(thread), resource)
    return None
