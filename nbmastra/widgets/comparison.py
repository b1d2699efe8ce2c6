"""`Comparison`: every prompt asked of every agent, a few at a time; `CompareView` shows it, `df()` is its table.

queued ──limit──▶ running ──▶ ended, or waits for an answer ──▶ running again, with what goes on
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import anyio

from nbmastra.engine import Job, get_engine, interruptible
from nbmastra.errors import SettingsError
from nbmastra.hooks import hooks
from nbmastra.messages import Messages, message_records, wire_messages
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.format import one_line
from nbmastra.widgets.header import cost, status_of

if TYPE_CHECKING:
    import pandas as pd  # only for its types

    from nbmastra.prices import OwnPrices

__all__ = ["Cell", "Comparison"]

_OPEN = ("queued", "running")
_WAITING = ("needs-approval", "needs-input", "suspended")


@dataclass(eq=False, slots=True)
class Cell:
    """One prompt asked of one agent; both by their number."""

    number: int
    prompt: int
    agent: int
    out: MastraModelOutput | None = None
    """The run, or what goes on from it after an answer; None before it has begun, and if it couldn't."""
    problem: str = ""
    """Why it couldn't begin."""
    stopped: bool = False

    @property
    def status(self) -> str:
        """queued, running, failed, cancelled, success …; for one that waits, what it waits for."""
        if self.out is not None:
            return status_of(self.out)
        return "cancelled" if self.stopped else "failed" if self.problem else "queued"

    @property
    def answer(self) -> str:
        """What it said by now."""
        return self.out.total.text if self.out is not None else ""

    @property
    def chain(self) -> list[MastraModelOutput]:
        """The run and those it goes on from, oldest first."""
        return [] if self.out is None else self.out.chain()

    @property
    def tokens(self) -> int | None:
        """What it used, all of its chain; None if nothing was reported."""
        found = [out.state.usage.total_tokens for out in self.chain]
        return sum(count for count in found if count is not None) if any(c is not None for c in found) else None

    @property
    def cost_usd(self) -> float | None:
        """What that cost; None if it isn't known."""
        found = [cost(out.state) for out in self.chain]
        return sum(cast("list[float]", found)) if found and None not in found else None


class Comparison:
    """Runs of `compare`: they go on whether they are shown or not. `await` it, or `.wait()`, until none runs any more.

    `cells`, row by row, have all that is known by now; `outs` the runs that have begun.
    """

    def __init__(self, agents: Any, prompts: Messages | Iterable[Messages], *, limit: int = 4, **options: Any) -> None:
        self.agents = _named(agents)
        """The agents by the names that they are shown by."""
        self.prompts = _prompts(prompts)
        if type(limit) is not int or limit < 1:
            raise SettingsError(f"limit= is a whole number above 0, not {limit!r:.40}")
        self.limit = limit
        self.options = options
        count = len(self.agents)
        self.cells = [Cell(n, n // count, n % count) for n in range(count * len(self.prompts))]
        self._watchers: list[Callable[[Cell], None]] = []
        self._stopped = False
        self._job: Job[None] = get_engine().start(self._run)

    # --- running ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        free = anyio.Semaphore(self.limit)
        async with anyio.create_task_group() as group:
            for cell in self.cells:
                await free.acquire()
                group.start_soon(self._run_cell, cell, free)

    async def _run_cell(self, cell: Cell, free: anyio.Semaphore) -> None:
        try:
            await self._begin(cell)
            if cell.out is not None:
                await self._follow(cell, cell.out)
        finally:
            free.release()

    async def _begin(self, cell: Cell) -> None:
        cell.stopped = self._stopped
        if not cell.stopped:
            agent = list(self.agents.values())[cell.agent]
            try:
                started = agent.stream(self.prompts[cell.prompt], **self.options)
                out = started if isinstance(started, MastraModelOutput) else await started
                if not isinstance(out, MastraModelOutput):
                    raise SettingsError(f"its stream() gave {type(out).__name__}, not an output")
            except Exception as error:  # one agent's failure is a cell's, not the whole's
                cell.problem = str(error) or type(error).__name__
            else:
                cell.out = out
                if self._stopped:
                    out.cancel()
        self._tell(cell)

    async def _follow(self, cell: Cell, out: MastraModelOutput) -> None:
        seen = 0
        while not out.log.closed:
            await out.log.wait(seen)
            seen = len(out.log.items)
            self._tell(cell)
        self._tell(cell)
        if out.status == "suspended":
            out.on_next(lambda after: self._go_on(cell, after))

    def _go_on(self, cell: Cell, out: MastraModelOutput) -> None:
        cell.out = out
        get_engine().start(self._follow, cell, out)

    def stop(self) -> None:
        """Stop the runs that go on, and begin no more; returns at once, what came is kept."""
        self._stopped = True
        for cell in self.cells:
            if cell.out is not None:
                cell.out.cancel()

    def watch(self, told: Callable[[Cell], None]) -> Callable[[], None]:
        """Have `told` called, on the engine's loop, with each cell that has changed; gives what ends that."""
        self._watchers.append(told)
        return lambda: self._watchers.remove(told) if told in self._watchers else None

    def _tell(self, cell: Cell) -> None:
        for told in list(self._watchers):
            told(cell)

    # --- what came --------------------------------------------------------------------------------------------------

    @property
    def outs(self) -> list[MastraModelOutput]:
        """The runs that have begun, row by row; of an answered one what goes on."""
        return [cell.out for cell in self.cells if cell.out is not None]

    @property
    def done(self) -> bool:
        """True if nothing runs any more, though something may wait for an answer."""
        return not any(cell.status in _OPEN for cell in self.cells)

    @property
    def waiting(self) -> list[Cell]:
        """The cells that wait for an answer."""
        return [cell for cell in self.cells if cell.status in _WAITING]

    def words(self, prompt: int) -> str:
        """A prompt as a text: what the user says last in it."""
        said = message_records(wire_messages(self.prompts[prompt]))
        return next((record.text for record in reversed(said) if record.role == "user"), "")

    def __getitem__(self, place: tuple[int, int | str]) -> Cell:
        """`comparison[prompt, agent]`: a cell by the prompt's number and the agent's number or name."""
        prompt, agent = place
        number = list(self.agents).index(agent) if isinstance(agent, str) else range(len(self.agents))[agent]
        return self.cells[range(len(self.prompts))[prompt] * len(self.agents) + number]

    def df(self, *, prices: OwnPrices | None = None) -> pd.DataFrame:
        """One row per cell, at any moment: prompt, agent, status, answer, then the columns of `runs_df`.

        Of a run that was answered it has what went on. Raises SettingsError without `import nbmastra`.
        """
        if hooks.frame is None:
            raise SettingsError("tables need `import nbmastra`")
        begun = [cell for cell in self.cells if cell.out is not None]
        runs: Any = [cell.out for cell in begun]
        frame: pd.DataFrame = hooks.frame("runs_df", runs, {"prices": prices})
        frame.index = [cell.number for cell in begun]  # pyright: ignore[reportAttributeAccessIssue]  # pandas takes a list
        frame = frame.reindex(range(len(self.cells)))
        names = list(self.agents)
        columns: dict[str, list[str]] = {
            "prompt": [self.words(cell.prompt) for cell in self.cells],
            "agent": [names[cell.agent] for cell in self.cells],
            "status": [cell.out.status if cell.out is not None else cell.status for cell in self.cells],
            "answer": [cell.answer for cell in self.cells],
        }
        frame = frame.drop(columns=["prompt", "status"])
        for place, (name, values) in enumerate(columns.items()):
            frame.insert(place, name, values)
        for cell in self.cells:
            if cell.problem:
                frame.loc[cell.number, "error_message"] = cell.problem
        return frame

    # --- waiting, shown ---------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Comparison:
        """Block until nothing runs any more (TimeoutError after `timeout` seconds); an interrupt stops all."""
        with interruptible(self.stop, blocking=True):
            self._job.result(timeout)
        return self

    def __await__(self) -> Generator[Any, None, Comparison]:
        return self._ended().__await__()

    async def _ended(self) -> Comparison:
        with interruptible(self.stop):
            await self._job
        return self

    def __repr__(self) -> str:
        ended = sum(cell.status not in _OPEN for cell in self.cells)
        tip = "" if self.done else ": await it, or display it"
        size = f"{len(self.agents)} agents on {len(self.prompts)} prompts"
        return f"<Comparison of {size}, {ended} of {len(self.cells)} ended{tip}>"


def _named(agents: Any) -> dict[str, Any]:
    """Agents by name, a number behind a name that several have. Raises SettingsError."""
    if isinstance(agents, Mapping):
        found = dict(cast("Mapping[str, Any]", agents))
    else:
        ones = list(cast("Sequence[Any]", agents)) if isinstance(agents, list | tuple) else [agents]
        found: dict[str, Any] = {}
        for one in ones:
            name = base = str(getattr(one, "name", None) or getattr(one, "id", None) or "agent")
            number = 2
            while name in found:
                name, number = f"{base} {number}", number + 1
            found[name] = one
    for one in found.values():
        if not callable(getattr(one, "stream", None)):
            raise SettingsError(f"agents are what has a method stream(prompt), not {one!r:.60}")
    if not found:
        raise SettingsError("compare() takes at least one agent")
    return {one_line(name, 60): one for name, one in found.items()}


def _prompts(prompts: Any) -> list[Messages]:
    """The prompts, each a text, a message or a list of messages. Raises SettingsError."""
    if isinstance(prompts, str | Mapping):
        prompts = [prompts]
    found = list(prompts)
    for prompt in found:
        wire_messages(prompt)
    if not found:
        raise SettingsError("compare() takes at least one prompt")
    return found
