"""Tools of tasks on a Dask cluster: what they write comes back as they write it.

here                                   scheduler                    a worker
run ─ submit(key, pickled call) ─────▶ places it ────────────────▶ run_call: begins once, or says that it was lost
inbox ◀────────────── events of this client ◀──────────────────── log_event(key, what the tool writes)
run ◀──────────────── the future ◀──────────────────────────────── its end: result, suspended, error
run is cancelled ─ release(key) ─────▶ forgets it ───────────────▶ the key is gone: abort signal, cancellation
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import uuid
import weakref
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from nbmastra.errors import SettingsError
from nbmastra.runtime.background.executor import TaskProcessError, check_sendable, give_end, pickled_call, take
from nbmastra.runtime.background.worker import call_tool
from nbmastra.tools import AbortSignal, Tool, ToolContext

__all__ = ["ADDRESS_VARIABLE", "DaskExecutor", "run_call"]

ADDRESS_VARIABLE = "DASK_SCHEDULER_ADDRESS"
_LOOK_S = 0.1
_KEPT_EVENTS = 1000
_LOST = "the cluster's worker that ran the task was lost"


class DaskExecutor:
    """Each task as a task of a Dask cluster, whose workers need nbmastra too: tools that outgrow this machine.

    client: a `distributed.Client` (not an asynchronous one), a cluster, or a scheduler's address; by default what
    DASK_SCHEDULER_ADDRESS says. One that is made here is closed by `close`. A task whose worker is lost fails with
    TaskProcessError, and is tried again as its `max_retries` allow: Dask itself never runs it twice. The time in which
    it waits for a worker counts for its time-out. Functions must be picklable; the context has no messages. Raises
    SettingsError.
    """

    def __init__(self, client: Any = None) -> None:
        if find_spec("distributed") is None:
            raise SettingsError("a DaskExecutor needs Dask: pip install 'nbmastra[dask]'")
        where = client if client is not None else os.environ.get(ADDRESS_VARIABLE)
        if not where:
            raise SettingsError(f"no cluster: DaskExecutor(client), or {ADDRESS_VARIABLE}=tcp://host:8786")
        if getattr(where, "asynchronous", False):
            raise SettingsError("the cluster's client is asynchronous: give one made without asynchronous=True")
        self._where = where
        self._own = not hasattr(where, "submit")
        self._client: Any = None if self._own else where
        self._lock = threading.Lock()

    def check(self, tool: Tool) -> None:
        """Raises SettingsError for what no other process could run."""
        check_sendable(tool, "a DaskExecutor")

    async def run(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the tool on a worker. Raises TaskProcessError, ToolInputError, ToolSuspended."""
        tool.parse(arguments)  # what is wrong with them is no matter of the cluster
        work = pickled_call(tool, arguments, context)
        client: Any = self._client or await asyncio.to_thread(self._connect)
        key = f"{tool.name}-{uuid.uuid4()}"
        inbox = _Inbox()
        post = _posts.get(client) or _posts.setdefault(client, _Post(client))
        post.inboxes[key] = inbox
        future: Any = None
        try:
            try:
                # Anew each time: a scheduler that was restarted knows of no subscriptions.
                client.subscribe_topic(post.topic, post.distribute)
                future = client.submit(run_call, post.topic, key, work, key=key, pure=False, retries=0)
            except Exception as error:
                raise TaskProcessError(f"the cluster took no task: {str(error)[:300]}") from None
            future.add_done_callback(lambda _: inbox.put(("ended", None)))  # pyright: ignore[reportUnknownLambdaType]
            async for kind, value in inbox:
                if kind == "ended":
                    break
                take(context, kind, value)
            kind, value = await _result(client, future)
            return give_end(kind, value)
        finally:
            del post.inboxes[key]
            if future is not None:
                future.release()  # if it still runs, its worker hears that nobody wants it
                # The mark that says that it has begun.
                client.loop.add_callback(lambda: _quietly(client.scheduler.event_clear(name=key)))

    def close(self) -> None:
        """Leave the cluster, if this executor has connected to it by itself."""
        with self._lock:
            client, self._client = self._client, None if self._own else self._client
        if self._own and client is not None:
            client.close()

    def _connect(self) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = import_module("distributed").Client(self._where, set_as_default=False)
                except Exception as error:
                    raise TaskProcessError(f"the cluster can't be reached: {str(error)[:300]}") from None
            return self._client

    def __repr__(self) -> str:
        return f"<DaskExecutor on {type(self._where).__name__}>"  # an address may tell too much


class _Inbox:
    """What comes for one call, from the client's thread to the engine's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def put(self, item: tuple[str, Any]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> tuple[str, Any]:
        return await self._queue.get()


class _Post:
    """What comes for all calls of a client, as events of one topic."""

    def __init__(self, client: Any) -> None:
        self.topic = f"nbmastra-{client.id}"
        self.inboxes: dict[str, _Inbox] = {}
        self._client = weakref.ref(client)
        self._events = 0

    async def distribute(self, event: tuple[float, str]) -> None:
        """Called on the client's loop for each event, in their order."""
        key, kind, value = json.loads(event[1])
        if key in self.inboxes:
            self.inboxes[key].put((kind, value))
        self._events += 1
        client = self._client()
        if client is not None and self._events % _KEPT_EVENTS == 0:  # the scheduler would keep 100,000 of them
            client.loop.add_callback(
                lambda: _quietly(client.run_on_scheduler(_drop_events, topic=self.topic, asynchronous=True))
            )


_posts: weakref.WeakKeyDictionary[Any, _Post] = weakref.WeakKeyDictionary()


def _drop_events(topic: str, dask_scheduler: Any = None) -> None:
    """On the scheduler: forget what has been sent."""
    dask_scheduler._broker.truncate(topic)


async def _quietly(work: Any) -> None:
    with suppress(Exception):  # tidying up for others: a scheduler that is gone has forgotten everything
        await work


async def _result(client: Any, future: Any) -> tuple[str, Any]:
    """The end of a call that is done. On the engine's loop; the client has its own."""
    distributed: Any = import_module("distributed")

    async def gather() -> Any:
        return await client.gather(future, asynchronous=True)

    try:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(gather(), client.loop.asyncio_loop))
    except distributed.scheduler.KilledWorker:
        raise TaskProcessError(_LOST) from None
    except distributed.client.FutureCancelledError:
        raise TaskProcessError("the cluster has forgotten the task: its scheduler was lost or restarted") from None
    except Exception as error:
        raise TaskProcessError(f"the cluster couldn't run the task: {str(error)[:300]}", type(error).__name__) from None


# --- on a worker ---------------------------------------------------------------------------------------------------


def run_call(topic: str, key: str, work: bytes) -> tuple[str, Any]:
    """One call on a worker, in a thread of its pool; gives its end."""
    distributed: Any = import_module("distributed")
    worker: Any = distributed.get_worker()
    if _has_begun(distributed, worker, key):
        return "lost", _LOST

    def tell(kind: str, value: Any) -> None:
        worker.log_event(topic, json.dumps([key, kind, value]))

    return asyncio.run(_watched(worker, key, work, tell))


def _has_begun(distributed: Any, worker: Any, key: str) -> bool:
    """Whether the call has begun before; from now on it has. Dask runs again what a lost worker ran, this doesn't."""
    if distributed.utils.sync(worker.loop, worker.scheduler.event_is_set, name=key):
        return True
    distributed.utils.sync(worker.loop, worker.scheduler.event_set, name=key)
    return False


async def _watched(worker: Any, key: str, work: bytes, tell: Any) -> tuple[str, Any]:
    abort = AbortSignal()
    call = asyncio.create_task(call_tool(work, tell, abort))
    while not call.done():
        await asyncio.wait({call}, timeout=_LOOK_S)
        state = worker.state.tasks.get(key)
        if state is None or state.state not in ("executing", "long-running"):
            abort.abort("the task was cancelled")
            call.cancel()
            break
    try:
        return await call
    except asyncio.CancelledError:
        return "lost", "the task was cancelled"
