"""Memory: the threads of an agent, their messages, and how many of them a model is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from nbmastra.engine import Engine, Job
from nbmastra.errors import SettingsError
from nbmastra.runtime.model import Message
from nbmastra.runtime.store import Store, shared_store
from nbmastra.runtime.stored import recalled_messages, stored_messages

__all__ = ["Memory"]

T = TypeVar("T")


class Memory:
    """Threads and messages that outlive a run: `Agent(memory=Memory())`, or by themselves.

    store: a file's path, `sqlite:///path`, `sqlite://` (in memory), `postgresql+psycopg://user:password@host/database`
    or a `Store`; without it NBMASTRA_STORE, else a file in this user's data folder.
    last_messages: how many of a thread's latest messages a model is told, 10 as in Mastra; 0 for none, None for all.
    Raises SettingsError; its methods StoreError too.
    """

    def __init__(
        self,
        store: Store | str | Path | None = None,
        *,
        last_messages: int | None = 10,
        engine: Engine | None = None,
    ) -> None:
        self.store = store if isinstance(store, Store) else shared_store(store, engine=engine)
        self.last_messages = _count(last_messages)
        self._engine = engine or self.store.engine

    async def recall(self, thread: str, resource: str, *, last_messages: int | None = -1) -> list[Message]:
        """The latest messages of a thread as a model is asked with them, oldest first; none if it doesn't exist.

        last_messages: instead of this memory's own (-1). Raises SettingsError if the thread is another resource's.
        """
        last = self.last_messages if last_messages == -1 else _count(last_messages)
        return recalled_messages(await self.store.run(self.store.messages, thread, resource=resource, last=last))

    async def remember(
        self,
        thread: str,
        resource: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Add messages to a thread, which is made if there is none; gives the records that were written.

        Takes model messages (a tool's result goes to its call, of an earlier run too), UI messages and records. One
        with the `id` of a record replaces it, so that a growing answer can be written after each step. System
        messages aren't kept. Raises SettingsError if the thread is another resource's.
        """
        build = partial(_records, messages, time.time_ns() // 1_000_000)
        return await self.store.run(self.store.remember, thread, resource, build, title=title, metadata=metadata)

    def threads(
        self, *, resource: str | None = None, page: int = 0, per_page: int | None = None
    ) -> Job[list[dict[str, Any]]]:
        """Threads, the one last written to first: id, resourceId, title, metadata, createdAt, updatedAt."""
        return self._start(self.store.threads, resource=resource, page=page, per_page=per_page)

    def thread(self, thread: str) -> Job[dict[str, Any]]:
        """A thread's record. Raises SettingsError if there is none."""
        return self._start(self._known, thread)

    def messages(
        self, thread: str, *, resource: str | None = None, last: int | None = None
    ) -> Job[list[dict[str, Any]]]:
        """A thread's messages, oldest first, in a Mastra server's words: id, role, content {format, parts}, createdAt.

        resource: whose it must be. last: only so many of the latest. Raises SettingsError if there is no such thread.
        """

        def read() -> list[dict[str, Any]]:
            self._known(thread)
            return self.store.messages(thread, resource=resource, last=last)

        return self._start(read)

    def create_thread(
        self,
        title: str = "",
        metadata: Mapping[str, Any] | None = None,
        *,
        resource: str,
        thread: str | None = None,
    ) -> Job[dict[str, Any]]:
        """Make a thread, or give one a new title and metadata; without an id it gets one. Gives its record."""
        return self._start(self.store.save_thread, thread or str(uuid4()), resource, title=title, metadata=metadata)

    def delete_messages(self, thread: str, ids: Sequence[str]) -> Job[int]:
        """Delete messages of a thread by their ids; gives how many there were."""
        return self._start(self.store.delete_messages, thread, list(ids))

    def delete(self, thread: str, *, resource: str | None = None) -> Job[None]:
        """Delete a thread with its messages. Raises SettingsError if there is none."""

        def delete() -> None:
            if not self.store.delete_thread(thread, resource=resource):
                self._known(thread)

        return self._start(delete)

    def _known(self, thread: str) -> dict[str, Any]:
        found = self.store.thread(thread)
        if found is None:
            ids = [record["id"] for record in self.store.threads()]
            near = get_close_matches(thread, ids, 1)
            hint = (
                f"did you mean {near[0]!r}?" if near else ".threads() lists those that exist" if ids else "it is empty"
            )
            raise SettingsError(f"no thread {thread!r} in {self.store.address.shown}: {hint}")
        return found

    def _start(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> Job[T]:
        async def ask() -> T:
            return await self.store.run(function, *args, **kwargs)

        return self._engine.start(ask)

    def __repr__(self) -> str:
        told = "all messages" if self.last_messages is None else f"the last {self.last_messages} messages"
        where = "memory only" if self.store.address.in_memory else self.store.address.shown
        return f"<Memory in {where}, tells {told}: .threads(), .messages(thread), .delete(thread)>"


def _records(
    messages: Sequence[Mapping[str, Any]], now_ms: int, find: Callable[[str], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    return stored_messages(messages, now_ms=now_ms, find=find)


def _count(last_messages: int | None) -> int | None:
    if last_messages is False:  # as Mastra writes it
        return 0
    if last_messages is None or (type(last_messages) is int and last_messages >= 0):
        return last_messages
    raise SettingsError(f"last_messages is a number from 0, or None for all; not {last_messages!r}")
