"""One call of a caller's tool: what the server asked for, running it, and what the model is told of it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import SettingsError, ToolInputError
from nbmastra.fold.reading import as_dict, as_text
from nbmastra.output import Answer
from nbmastra.tools import Tool, ToolContext, ToolSuspended

__all__ = ["ClientCall", "Emit", "make_context", "prepare_answer", "run_call", "run_calls"]

Emit = Callable[[Chunk], None]

_APPROVAL_SCHEMA = (
    '{"type":"object","properties":{"approved":{"type":"boolean"},"reason":{"type":"string"}},"required":["approved"]}'
)
_PACKAGE = str(Path(__file__).parents[1])
_STACK_FRAMES = 4


@dataclass(eq=False)
class ClientCall:
    """A call as the server streamed it; `result` is what the model is told, once there is something."""

    id: str
    name: str
    run_id: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    args: Any = None
    called: bool = False
    answered: bool = False
    """True if the server itself has dealt with it."""
    approved: bool = False
    declined: str | None = None
    """Why somebody declined it; empty without a reason, None if nobody did."""
    resume_data: Any = None
    result: Any = None
    question: dict[str, Any] | None = None
    """What it asked of somebody, as the wire dict of the chunk."""

    def arguments(self) -> str | Mapping[str, Any] | None:
        """The model's own text: a server turns text that is no JSON into {} without a word, newer ones repair it."""
        text = "".join(self.pieces)
        return text if text and not self.named_args else self.args

    @property
    def named_args(self) -> dict[str, Any]:
        """The arguments as the server read them; {} if they are no object."""
        return as_dict(self.args)

    def message_part(self) -> dict[str, Any]:
        """Its result as a part of a tool message."""
        about = {"type": "tool-result", "toolCallId": self.id, "toolName": self.name}
        return {**about, "input": self.args if self.args is not None else {}, "result": self.result}

    def chunk(self, kind: str, **payload: Any) -> Chunk:
        """A chunk about it, as a server would send it."""
        return parse_chunk(self._wire(kind, payload))

    def ask(self, kind: str, **payload: Any) -> Chunk:
        """As `chunk`, for a question: kept, so that it can be asked again."""
        self.question = self._wire(kind, payload)
        return parse_chunk(self.question)

    def _wire(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        about = {"toolCallId": self.id, "toolName": self.name, "args": self.args}
        return {"type": kind, "runId": self.run_id, "from": "AGENT", "payload": {**about, **payload}}


async def run_call(
    call: ClientCall, tools: Mapping[str, Tool], context: ToolContext, emit: Emit, *, always_ask: bool = False
) -> bool:
    """Run it and emit the chunk of its result; False if it waits for somebody. Raises only if cancelled.

    `always_ask`: every call needs an approval, whatever its tool says.
    """
    tool = tools.get(call.name)
    if call.declined is not None:
        call.result = {"error": f"The user declined this call.{f' {call.declined}' if call.declined else ''}"}
        approval = {"id": call.id, "approved": False, **({"reason": call.declined} if call.declined else {})}
        emit(call.chunk("tool-output-denied", approval=approval))
        return True
    try:
        if tool is None:
            raise LookupError(f"there is no tool {call.name[:80]!r} here; there are: {', '.join(tools) or 'none'}")
        arguments = tool.parse(call.arguments())
        if not call.approved and (always_ask or await tool.needs_approval(call.named_args)):
            emit(call.ask("tool-call-approval", resumeSchema=_APPROVAL_SCHEMA))
            return False
        call.result = await tool.run(arguments, context)
        emit(call.chunk("tool-result", result=call.result))
    except ToolInputError as error:
        call.result = error.to_result()
        emit(call.chunk("tool-result", result=call.result))
    except ToolSuspended as suspended:
        schema = {"resumeSchema": suspended.resume_schema} if suspended.resume_schema else {}
        emit(call.ask("tool-call-suspended", suspendPayload=suspended.data, **schema))
        return False
    except Exception as error:
        message = str(error) or type(error).__name__
        call.result = {"error": f"{type(error).__name__}: {message}"}
        told = {"name": type(error).__name__, "message": message, "stack": _stack(error)}
        emit(call.chunk("tool-error", error=told))
    return True


def make_context(call: ClientCall, emit: Emit, **about: Any) -> ToolContext:
    """What the call's tool gets; what it writes and prints becomes chunks of the run."""
    return ToolContext(
        tool_call_id=call.id,
        tool_name=call.name,
        run_id=call.run_id,
        resume_data=call.resume_data,
        write=lambda value: emit(call.chunk("tool-output", output=value)),
        custom=lambda chunk: emit(parse_chunk({**chunk, "runId": call.run_id, "from": "AGENT"})),
        printed=lambda text: emit(call.chunk("tool-output", output=text)),
        **about,
    )


def _stack(error: Exception) -> str:
    """The last lines of the traceback, those of the user's own code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_PACKAGE)]
    lines = traceback.format_list(frames[-_STACK_FRAMES:])
    return "".join([*lines, *traceback.format_exception_only(error)]).strip()[:4000]


async def run_calls(
    calls: list[ClientCall], run: Callable[[ClientCall], Awaitable[bool]], *, limit: int
) -> list[ClientCall]:
    """Run calls, at most `limit` at the same time; gives those that wait. Cancelled, it cancels them."""
    free = asyncio.Semaphore(limit)

    async def run_one(call: ClientCall) -> bool:
        async with free:
            return await run(call)

    tasks = {asyncio.create_task(run_one(call)): call for call in calls}
    try:
        await asyncio.wait(tasks)
        return [call for task, call in tasks.items() if not task.result()]
    finally:
        for task in tasks:
            task.cancel()


def prepare_answer(call: ClientCall, answer: Answer, reason: str | None, data: Any) -> None:
    """Note on a call that waited what somebody answered. Raises SettingsError."""
    decision = as_dict(data).get("approved")
    if answer == "approve":
        call.approved = True
    elif answer == "decline":
        call.declined = reason or ""
    elif isinstance(decision, bool) and not call.approved:
        call.approved = decision
        call.declined = None if decision else as_text(as_dict(data).get("reason"))
    elif data is None:
        raise SettingsError("a call that waits for data is resumed with some")
    else:
        call.approved, call.resume_data = True, data
