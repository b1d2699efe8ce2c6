"""What runs in a run: tool calls, background tasks, workflow steps. Plain state; only `RunState` changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nbmastra.errors import printable
from nbmastra.fold.parts import ErrorInfo, Part

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["CallStatus", "Task", "TaskStatus", "ToolCall", "ToolResult", "WorkflowStep"]

CallStatus = Literal[
    "streaming", "running", "pending", "success", "error", "suspended", "needs-approval", "denied", "cancelled"
]
"""streaming: arguments are being written; running: called; pending: waits for its caller to run it (client tools)."""
TaskStatus = Literal["pending", "running", "suspended", "completed", "failed", "cancelled", "timed_out"]


class ToolCall(Part):
    """One tool call, from its first argument to its result. Ids are unique within a step only.

    It also reads like the `tool-call` chunk of the same call: `call.payload.tool_name`, `call.payload.args`.
    """

    kind = "tool-call"
    type: ClassVar[str] = "tool-call"
    __slots__ = (
        "args",
        "args_error",
        "args_pieces",
        "background",
        "called_at",
        "denial_reason",
        "error",
        "from_",
        "has_result",
        "nested",
        "output",
        "outputs",
        "provider_executed",
        "provider_metadata",
        "result",
        "resume_schema",
        "run_id",
        "status",
        "suspend_payload",
        "task_id",
        "tool_call_id",
        "tool_name",
        "turn",
    )

    def __init__(self, step: int, at: float, tool_call_id: str, tool_name: str) -> None:
        super().__init__(step, at)
        self.turn = -1
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.run_id: str | None = None
        self.from_: str | None = None
        self.status: CallStatus = "streaming"
        self.args: Any = None
        self.args_pieces: list[str] = []
        self.args_error: str | None = None
        self.called_at: float | None = None
        self.has_result = False
        self.result: Any = None
        self.error: ErrorInfo | None = None
        self.output: Any = None
        self.outputs: list[Any] = []
        self.nested: list[RunState] = []
        self.background = False
        self.task_id: str | None = None
        self.provider_executed = False
        self.provider_metadata: dict[str, Any] | None = None
        self.suspend_payload: Any = None
        self.resume_schema: dict[str, Any] | None = None
        self.denial_reason: str | None = None

    @property
    def payload(self) -> ToolCall:
        """The call itself: chunk and call have the same attribute names."""
        return self

    @property
    def args_text(self) -> str:
        """The arguments as the model wrote them, valid JSON or not."""
        return "".join(self.args_pieces)

    @property
    def arguments_s(self) -> float | None:
        """Seconds the model took to write the arguments."""
        return None if self.called_at is None else self.called_at - self.started_at

    @property
    def duration_s(self) -> float | None:
        """Seconds from the call to its result; None while it is open."""
        return None if self.ended_at is None or self.called_at is None else self.ended_at - self.called_at

    @property
    def open(self) -> bool:
        """True until there is a result, an error, a denial or a cancellation."""
        return self.status in ("streaming", "running", "pending", "suspended", "needs-approval")

    def __repr__(self) -> str:
        call = f"{printable(self.tool_name)} {printable(self.tool_call_id)}"
        return f"<ToolCall {call} {self.status} step={self.step}>"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call; reads like a `tool-result` chunk (`result.payload.result`)."""

    call: ToolCall
    type: ClassVar[str] = "tool-result"

    @property
    def payload(self) -> ToolResult:
        """The result itself: chunk and result have the same attribute names."""
        return self

    @property
    def tool_call_id(self) -> str:
        """Id of the call, unique within its step."""
        return self.call.tool_call_id

    @property
    def tool_name(self) -> str:
        """Name of the tool."""
        return self.call.tool_name

    @property
    def args(self) -> Any:
        """The call's arguments."""
        return self.call.args

    @property
    def result(self) -> Any:
        """What the tool returned; None for an error."""
        return self.call.result

    @property
    def is_error(self) -> bool:
        """True if the tool failed or refused its arguments."""
        return self.call.status == "error"

    @property
    def error(self) -> ErrorInfo | None:
        """Why it failed."""
        return self.call.error

    @property
    def run_id(self) -> str | None:
        """Id of the run that made the call."""
        return self.call.run_id

    @property
    def from_(self) -> str | None:
        """Origin of the call."""
        return self.call.from_

    @property
    def provider_executed(self) -> bool:
        """True if the provider ran the tool."""
        return self.call.provider_executed


class Task(Part):
    """A background task. Terminal statuses are final: a late chunk doesn't reopen it."""

    kind = "task"
    __slots__ = (
        "agent_id",
        "args",
        "attempts",
        "completed_time",
        "error",
        "id",
        "outputs",
        "result",
        "resumed_at",
        "run_id",
        "running_at",
        "started_time",
        "status",
        "suspend_payload",
        "suspended_at",
        "suspended_s",
        "tool_call_id",
        "tool_name",
    )

    def __init__(self, step: int, at: float, id: str) -> None:
        super().__init__(step, at)
        self.id = id
        self.status: TaskStatus = "pending"
        self.tool_name = ""
        self.tool_call_id: str | None = None
        self.agent_id: str | None = None
        self.run_id: str | None = None
        self.args: Any = None
        self.result: Any = None
        self.error: ErrorInfo | None = None
        self.outputs: list[Any] = []
        self.suspend_payload: Any = None
        self.running_at: float | None = None
        self.suspended_at: float | None = None
        self.resumed_at: float | None = None
        self.suspended_s = 0.0
        self.attempts: int | None = None
        """How often it was tried, if the server tells."""
        self.started_time: str | None = None
        self.completed_time: str | None = None

    @property
    def queued_s(self) -> float | None:
        """Seconds it waited for a free slot; None if it wasn't seen to begin."""
        return None if self.running_at is None else self.running_at - self.started_at

    @property
    def running_s(self) -> float | None:
        """Seconds it ran, suspensions left out; None while it is open."""
        if self.running_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.running_at - self.suspended_s

    @property
    def terminal(self) -> bool:
        """True if nothing more can happen to it."""
        return self.status in ("completed", "failed", "cancelled", "timed_out")

    def __repr__(self) -> str:
        return f"<Task {printable(self.tool_name)} {printable(self.id[:8])} {self.status}>"


class WorkflowStep(Part):
    """A step of a workflow. `args` is its input; a suspended one waits for data, as a tool call may."""

    kind = "workflow-step"
    __slots__ = (
        "args",
        "error",
        "id",
        "name",
        "nested",
        "outputs",
        "progress",
        "result",
        "resume_schema",
        "run_id",
        "status",
        "suspend_payload",
    )

    def __init__(self, step: int, at: float, id: str, name: str) -> None:
        super().__init__(step, at)
        self.id = id
        self.name = name
        self.run_id: str | None = None
        self.status = "running"
        """running, waiting, suspended, success, error, cancelled, or the server's own word (skipped …)."""
        self.args: Any = None
        self.result: Any = None
        self.error: ErrorInfo | None = None
        self.outputs: list[Any] = []
        self.progress: dict[str, Any] | None = None
        self.nested: list[RunState] = []
        self.suspend_payload: Any = None
        self.resume_schema: dict[str, Any] | None = None

    @property
    def tool_call_id(self) -> str:
        """The step's id: what an answer to it names."""
        return self.id

    @property
    def tool_name(self) -> str:
        """The step's name."""
        return self.name

    @property
    def duration_s(self) -> float | None:
        """Seconds from its start to its end; None while it is open."""
        return None if self.ended_at is None else self.ended_at - self.started_at

    def __repr__(self) -> str:
        return f"<WorkflowStep {printable(self.name)} {self.status}>"
