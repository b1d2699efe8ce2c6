"""`RunList`: the runs that a dashboard shows, and who is told when one of them changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nbmastra.hooks import hooks
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.format import number, one_line
from nbmastra.widgets.header import agent_name, cost, status_of
from nbmastra.widgets.run_words import asked_words

__all__ = ["Listed", "RunList"]


@dataclass(eq=False, slots=True)
class Listed:
    """A run of the list, from its first output on."""

    first: MastraModelOutput

    @property
    def outs(self) -> list[MastraModelOutput]:
        """The run, and what went on from it, oldest first."""
        found: list[MastraModelOutput] = []
        out: MastraModelOutput | None = self.first
        while out is not None:
            found.append(out)
            out = out.next
        return found

    @property
    def out(self) -> MastraModelOutput:
        """The newest of them."""
        return self.outs[-1]

    @property
    def status(self) -> str:
        """The run's status, or what it waits for."""
        return status_of(self.out)

    @property
    def waits(self) -> bool:
        """True if it waits for somebody."""
        return self.status in ("needs-approval", "needs-input", "suspended")

    @property
    def title(self) -> str:
        """What was asked; where that isn't known, the run's id."""
        first = self.first
        thread = first.context.get("thread")
        known = first.prompt or (f"Thread {thread}" if isinstance(thread, str) else "") or first.run_id or "Run"
        return one_line(known, 120)

    @property
    def elapsed_s(self) -> float:
        """The time of all its outputs."""
        return sum(out.elapsed_s for out in self.outs)

    @property
    def about(self) -> str:
        """Who ran it, and what it used, or why it ended."""
        out, facts = self.out, [agent_name(self.first)]
        asked = asked_words(out)
        if asked or (out.done and out.status != "success"):
            facts.append(asked or one_line(out.status_reason, 80))
            return ", ".join(filter(None, facts))
        counted = [one.state.usage.total_tokens for one in self.outs]
        tokens = [count for count in counted if count is not None]
        if tokens:
            facts.append(f"{number(sum(tokens))} tokens")
        spent = [amount for one in self.outs if (amount := cost(one.state)) is not None]
        if spent and out.done:
            facts.append(f"${sum(spent):.4f}")
        return ", ".join(facts)


class RunList:
    """Runs, newest last; `all_started` adds each run of this kernel that begins and that `wanted` accepts.

    The kernel's runs reach it only as long as somebody holds it.
    """

    def __init__(
        self,
        outs: Iterable[MastraModelOutput] = (),
        *,
        all_started: bool = False,
        wanted: Callable[[MastraModelOutput], bool] | None = None,
    ) -> None:
        self.runs: list[Listed] = []
        self._watchers: list[Callable[[], None]] = []
        self._listens: list[Callable[[], None]] = []
        self._known: set[str] = set()
        for out in outs:
            self.add(out)
        if all_started:
            self._listen(wanted)

    def _listen(self, wanted: Callable[[MastraModelOutput], bool] | None) -> None:
        def started(out: MastraModelOutput) -> None:
            runs = here()
            # What no agent answers is no run, but what a table of tasks reads, for example.
            if runs is not None and out.agent is not None and (wanted is None or wanted(out)):
                runs.add(out)

        def forget(_: object = None) -> None:
            if started in hooks.listeners:
                hooks.listeners.remove(started)

        here = weakref.ref(self, forget)
        self._forget = forget
        hooks.listeners.append(started)

    def add(self, out: MastraModelOutput) -> None:
        """List a run; what goes on from one that is listed is that one, and a second time changes nothing."""
        first = out.chain()[0]
        if first.stream_id in self._known or out.stream_id in self._known:
            return
        self._known |= {first.stream_id, out.stream_id}
        self.runs.append(Listed(first))
        self._follow(out)
        self.tell()

    def _follow(self, out: MastraModelOutput) -> None:
        here = weakref.ref(self)

        def ended() -> None:
            runs = here()
            if runs is not None:
                runs.tell()

        def goes_on(after: MastraModelOutput) -> None:
            runs = here()
            if runs is not None:
                runs._known.add(after.stream_id)
                runs._follow(after)
                runs.tell()

        self._listens += [out.on_done(ended), out.on_next(goes_on)]

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have `told` called, on any thread, when a run is new, over or goes on; gives what ends that."""
        self._watchers.append(told)
        return lambda: self._watchers.remove(told) if told in self._watchers else None

    def tell(self) -> None:
        """Something has changed."""
        for told in list(self._watchers):
            told()

    def close(self) -> None:
        """Take no more runs in, and listen to none."""
        while self._listens:
            self._listens.pop()()
        if hasattr(self, "_forget"):
            self._forget()
