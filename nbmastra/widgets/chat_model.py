"""`ChatModel`: a conversation with an agent: what is said, what runs, and what the thread's memory holds.

send / rerun ──▶ agent.stream ──▶ out, which the views draw; the thread's memory, or this kernel, keeps what was said
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from nbmastra.engine import Job, get_engine
from nbmastra.errors import ControlError, SettingsError
from nbmastra.messages import MessageRecord
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.attachments import Attachment, attach
from nbmastra.widgets.chat_memory import ThreadMemory, thread_memory
from nbmastra.widgets.format import one_line

__all__ = ["ChatModel", "ChatTurn"]


@dataclass(eq=False, slots=True)
class ChatTurn:
    """What the user said, and the run that answers it."""

    text: str
    attachments: list[Attachment] = field(default_factory=list[Attachment])
    at: datetime = field(default_factory=lambda: datetime.now().astimezone())
    out: MastraModelOutput | None = None
    """The first run of the answer; `out.next` goes on where somebody had to be asked."""
    problem: str = ""
    """Why it couldn't begin."""

    @property
    def last(self) -> MastraModelOutput | None:
        """The newest run of the answer."""
        out = self.out
        while out is not None and out.next is not None:
            out = out.next
        return out

    @property
    def outs(self) -> list[MastraModelOutput]:
        """All runs of the answer, oldest first."""
        found: list[MastraModelOutput] = []
        out = self.out
        while out is not None:
            found.append(out)
            out = out.next
        return found

    @property
    def message(self) -> dict[str, Any]:
        """It as it is sent."""
        if not self.attachments:
            return {"role": "user", "content": self.text}
        parts = [part for one in self.attachments for part in one.parts]
        return {"role": "user", "content": [*parts, {"type": "text", "text": self.text}]}


class ChatModel:
    """A conversation, without anything to look at; views are told of what changes by `watch`."""

    def __init__(
        self,
        agent: Any,
        thread: str | None = None,
        *,
        resource: str = "user",
        suggestions: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if not callable(getattr(agent, "stream", None)):
            raise SettingsError(f"an agent is what has a method stream(prompt), not {agent!r:.60}")
        self.agent = agent
        self.name = one_line(str(getattr(agent, "name", None) or getattr(agent, "id", None) or "agent"), 60)
        self.resource = resource
        self.suggestions = [one_line(words, 200) for words in suggestions]
        self.options = options
        self.thread: str | None = None
        """The thread that memory keeps; None where this kernel keeps what was said."""
        self.turns: list[ChatTurn] = []
        self.earlier: list[MessageRecord] = []
        """What the thread held before."""
        self.attached: list[Attachment] = []
        """What goes with the next message."""
        self.problem = ""
        """Why memory couldn't be read."""
        self._memory: ThreadMemory | None = None
        self._watchers: list[Callable[[], None]] = []
        self._busy = False
        self._open(thread)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _open(self, thread: str | None) -> None:
        keeps = getattr(self.agent, "memory", None) is not None
        if thread is not None and hasattr(self.agent, "memory") and not keeps:
            raise SettingsError(f"{self.name} has no memory, so it keeps no thread: Agent(…, memory=Memory())")
        self.thread = thread or (str(uuid4()) if keeps else None)
        self._memory = None if self.thread is None else thread_memory(self.agent, self.thread, self.resource)
        if thread is not None and self._memory is not None:
            get_engine().start(self._recall, self._memory)

    async def _recall(self, memory: ThreadMemory) -> None:
        try:
            self.earlier = await memory.read()
        except Exception as error:
            self.problem = f"What was said earlier couldn't be read: {one_line(str(error), 300)}"
        self._tell()

    def new_thread(self, thread: str | None = None) -> None:
        """Begin anew: with a thread of that name, or one of its own. Raises ControlError while an answer is coming."""
        self._refuse_while_busy()
        self.turns, self.earlier, self.problem = [], [], ""
        self._open(thread)
        self._tell()

    # --- what is said -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True while an answer is coming."""
        last = self.turns[-1].last if self.turns else None
        return self._busy or (last is not None and not last.done)

    def _refuse_while_busy(self) -> None:
        if self.running:
            raise ControlError("an answer is coming: stop it first, or wait for its end")

    def send(self, text: str) -> Job[MastraModelOutput]:
        """Say something, with what is attached; gives the answer's output when it has begun.

        Raises SettingsError for an empty message, ControlError while an answer is coming.
        """
        self._refuse_while_busy()
        if not text.strip() and not self.attached:
            raise SettingsError("the message is empty")
        turn = ChatTurn(text, self.attached)
        self.attached, self._busy = [], True
        self.turns.append(turn)
        self._tell()
        return get_engine().start(self._answer, turn)

    def rerun(self, text: str | None = None) -> Job[MastraModelOutput]:
        """Take the last message and its answer back, from memory too, and say it again, or `text` in its place."""
        self._refuse_while_busy()
        if not self.turns:
            raise ControlError("nothing was said yet")
        before = self.turns.pop()
        turn = ChatTurn(before.text if text is None else text, before.attachments)
        if not turn.text.strip() and not turn.attachments:
            self.turns.append(before)
            raise SettingsError("the message is empty")
        self._busy = True
        self.turns.append(turn)
        self._tell()
        return get_engine().start(self._again, before, turn)

    async def _again(self, before: ChatTurn, turn: ChatTurn) -> MastraModelOutput:
        if self._memory is not None:
            try:
                records = await self._memory.read()
                place = next((i for i in reversed(range(len(records))) if records[i].role == "user"), -1)
                if place >= 0 and before.text.strip() in records[place].text:
                    await self._memory.forget([one.id for one in records[place:] if one.id])
            except Exception as error:
                turn.problem = f"The message couldn't be taken back: {one_line(str(error), 300)}"
                self._busy = False
                self._tell()
                raise
        return await self._answer(turn)

    async def _answer(self, turn: ChatTurn) -> MastraModelOutput:
        options = dict(self.options)
        messages: list[Any] = [turn.message]
        if self.thread is not None:
            options["memory"] = {**options.get("memory", {}), "thread": self.thread, "resource": self.resource}
        else:
            messages = [*self._said_before(turn), turn.message]
        try:
            started = self.agent.stream(messages, **options)
            out = started if isinstance(started, MastraModelOutput) else await started
        except Exception as error:
            turn.problem = str(error) or type(error).__name__
            raise
        else:
            turn.out = out
            out.on_done(self._tell)
            return out
        finally:
            self._busy = False
            self._tell()

    def _said_before(self, turn: ChatTurn) -> list[dict[str, Any]]:
        """The conversation as this kernel knows it, for agents that keep none."""
        said: list[dict[str, Any]] = []
        for before in self.turns:
            if before is turn:
                break
            answer = "".join(out.total.text for out in before.outs)
            if answer:  # what wasn't answered would stand twice in a row
                said += [before.message, {"role": "assistant", "content": answer}]
        return said

    def stop(self) -> None:
        """Stop the answer that is coming; what came is kept."""
        last = self.turns[-1].last if self.turns else None
        if last is not None:
            last.cancel()

    # --- attachments ------------------------------------------------------------------------------------------------

    def attach(self, value: Any, name: str = "") -> Attachment:
        """Send something with the next message: a DataFrame's head, a figure, a file's path, a value.

        Raises SettingsError for what is too large or can't be read.
        """
        made = attach(value, name)
        self.attached = [one for one in self.attached if one.name != made.name] + [made]
        self._tell()
        return made

    def detach(self, name: str) -> None:
        """Don't send it after all."""
        self.attached = [one for one in self.attached if one.name != name]
        self._tell()

    # --- views ------------------------------------------------------------------------------------------------------

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have `told` called, on any thread, when something has changed; gives what ends that."""
        self._watchers.append(told)
        return lambda: self._watchers.remove(told) if told in self._watchers else None

    def _tell(self) -> None:
        for told in list(self._watchers):
            told()

    @property
    def outs(self) -> list[MastraModelOutput]:
        """All runs of this conversation, oldest first."""
        return [out for turn in self.turns for out in turn.outs]

    def __repr__(self) -> str:
        thread = f", thread {one_line(self.thread, 40)}" if self.thread else ""
        return f"<Chat with {self.name}{thread}: {len(self.turns)} turns>"
