"""Running a call: on the loop or in a thread, with its prints, and with nothing that a tool raises ending the loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nbmastra.tools.context import ToolContext, ToolSuspended
from nbmastra.tools.printing import printing_to
from nbmastra.tools.results import to_json

__all__ = ["run_call"]


async def run_call(function: Callable[[], Any], context: ToolContext, *, threaded: bool) -> Any:
    """Call a function for a tool, in a thread or here, await what it gives if it can be, and make that JSON.

    When cancelled, the thread is left alone, and told by the context's abort signal.
    """
    context.begin()
    try:
        with printing_to(context.printed):
            value = await _in_thread(function, context.tool_name) if threaded else _guarded(function)
            if inspect.isawaitable(value):
                value = await _guarded_await(value)
            return to_json(value)
    except asyncio.CancelledError:
        context.abort.abort("the call was cancelled")
        raise
    finally:
        context.end()


def _guarded(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (SystemExit, KeyboardInterrupt, StopIteration) as error:
        raise _harmless(error) from error


async def _guarded_await(value: Any) -> Any:
    try:
        return await value
    except (SystemExit, KeyboardInterrupt) as error:
        raise _harmless(error) from error
    except BaseExceptionGroup as group:
        # A task group wraps what leaves it: a tool that suspends within one still suspends.
        suspended, _ = group.split(ToolSuspended)
        if suspended is None:
            raise
        raise _first(suspended) from None


def _first(group: BaseExceptionGroup[ToolSuspended]) -> ToolSuspended:
    inner = group.exceptions[0]
    return inner if isinstance(inner, ToolSuspended) else _first(inner)


def _harmless(error: BaseException) -> RuntimeError:
    """These would end the event loop, or be taken for something else by it."""
    return RuntimeError(f"the tool raised {type(error).__name__}{f': {error}' if str(error) else ''}")


async def _in_thread(function: Callable[[], Any], name: str) -> Any:
    """A thread of its own for each call, and a daemon: a tool that never ends holds up no other, nor the process."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(value)
        else:
            ended.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = _guarded(function)
            if not inspect.isawaitable(value):
                value = to_json(value)  # here, since a large table takes its time
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), name=f"nbmastra-tool-{name}", daemon=True).start()
    return await ended
