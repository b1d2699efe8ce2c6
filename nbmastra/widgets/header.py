"""The bar above a run and the bar below it: who runs, how far it is, what it took."""

from __future__ import annotations

from nbmastra.fold import RunState
from nbmastra.output import MastraModelOutput
from nbmastra.output import run_cost as cost
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import number, one_line, seconds
from nbmastra.widgets.icons import COPY, STOP, status_html
from nbmastra.widgets.markdown import escape

__all__ = ["FootBar", "HeaderBar", "agent_name", "cost", "status_of", "tokens_per_second"]


def status_of(out: MastraModelOutput) -> str:
    """The status to show: that of the run, or what a suspended one needs."""
    if out.status == "suspended":
        approval = any(call.status == "needs-approval" for call in out.waiting)
        return "needs-approval" if approval else "needs-input" if out.waiting else "suspended"
    return out.status


def agent_name(out: MastraModelOutput) -> str:
    """The agent's name or id, as far as it is known."""
    return one_line(out.agent or out.state.agent_id or "an agent", 60)


def tokens_per_second(state: RunState) -> float | None:
    """Output tokens per second between each step's first token and its end; None if nothing was reported."""
    tokens, time = 0, 0.0
    for step in state.steps:
        if step.usage.output_tokens and step.first_token_at is not None and step.ended_at is not None:
            tokens += step.usage.output_tokens
            time += step.ended_at - step.first_token_at
    return tokens / time if tokens and time > 0.05 else None


class HeaderBar:
    """Status, agent, model, time, tokens, Stop."""

    def __init__(self, doc: Document, parent: str, out: MastraModelOutput) -> None:
        self._doc = doc
        self._root = parent
        bar = doc.add(parent, "div", "nbm-bar")
        self._status = doc.add(bar, "span", "nbm-mark", html="")
        self._title = doc.add(bar, "span", "nbm-bar__title", html="")
        self._about = doc.add(bar, "span", "nbm-bar__about nbm-ellipsis", html="")
        metrics = doc.add(bar, "dl", "nbm-metrics")
        time = doc.add(metrics, "div")
        doc.add(time, "dt", "nbm-sr", text="time")
        self._time = doc.add(time, "dd", html="")
        self._numbers = {
            words: self._number(metrics, words) for words in ("tokens", "to first token", "tokens/s", "cost")
        }
        attrs = {"type": "button", "data-nbm-act": "stop"}
        self.stop = doc.add(bar, "button", "nbm-btn", html=f"{STOP}Stop", attrs=attrs)
        self.stoppable = True
        """False where the run isn't one that can be stopped: there is no button then."""

    def _number(self, metrics: str, words: str) -> tuple[str, str]:
        pair = self._doc.add(metrics, "div", attrs={"hidden": ""})
        self._doc.add(pair, "dt", text=words)
        return pair, self._doc.add(pair, "dd", html="")

    def update(self, out: MastraModelOutput) -> None:
        """Show how far the run is."""
        doc, state = self._doc, out.state
        agent = agent_name(out)
        doc.set_attr(self._root, "aria-label", f"Run of {agent}")
        doc.set_html(self._status, status_html(status_of(out), dot=True))
        doc.set_text(self._title, agent)
        doc.set_text(self._about, self._facts(out))
        doc.set_attr(self.stop, "aria-label", f"Stop this run of {agent}")
        doc.set_attr(self.stop, "hidden", "" if out.done or not self.stoppable else None)
        if out.done:
            doc.since(self._time, None)
            doc.set_text(self._time, seconds(out.elapsed_s))
        elif not doc.ticks(self._time):
            doc.since(self._time, out.elapsed_s)
        total, first, speed = state.usage.total_tokens, state.time_to_first_token_s, tokens_per_second(state)
        self._set("tokens", None if total is None else number(total))
        self._set("to first token", None if first is None else seconds(first))
        self._set("tokens/s", None if speed is None else f"{speed:.0f}")

    def _facts(self, out: MastraModelOutput) -> str:
        facts = [one_line(out.state.model or "", 60)]
        thread, resource = out.context.get("thread"), out.context.get("resource")
        if isinstance(thread, str) and thread:
            owner = f" of {one_line(resource, 40)}" if isinstance(resource, str) and resource else ""
            facts.append(f"thread {one_line(thread, 40)}{owner}")
        return ", ".join(filter(None, facts))

    def _set(self, words: str, value: str | None) -> None:
        pair, node = self._numbers[words]
        self._doc.set_attr(pair, "hidden", "" if value is None else None)
        if value is not None:
            self._doc.set_text(node, value)


class FootBar:
    """What a finished run took."""

    def __init__(self, doc: Document, parent: str, out: MastraModelOutput) -> None:
        bar = doc.add(parent, "div", "nbm-bar nbm-bar--foot")
        pairs = "".join(f"<div><dt>{words}</dt><dd>{escape(value)}</dd></div>" for value, words in used(out.state))
        doc.add(bar, "dl", "nbm-metrics", html=pairs)
        doc.add(bar, "span", "nbm-spacer")
        run_id = out.run_id
        if run_id:
            doc.add(bar, "span", "nbm-mono nbm-ellipsis", text=f"run {one_line(run_id, 36)}")
            attrs = {"type": "button", "aria-label": f"Copy run id {one_line(run_id, 36)}", "data-nbm-copy": run_id}
            doc.add(bar, "button", "nbm-btn nbm-btn--plain nbm-btn--icon", html=COPY, attrs=attrs)


def used(state: RunState) -> list[tuple[str, str]]:
    """What the run used, as (number, word) pairs; what wasn't reported is left out."""
    usage = state.usage
    pairs = [
        (usage.input_tokens, "in"),
        (usage.cached_input_tokens, "cached"),
        (usage.output_tokens, "out"),
        (usage.reasoning_tokens, "reasoning"),
    ]
    facts = [(number(value), word) for value, word in pairs if value is not None]
    facts = facts or [("–", "tokens not reported")]
    nested = sum(run.grand_usage.total_tokens or 0 for run in state.nested)
    if nested:
        facts.append((number(nested), "in sub-agents"))
    spent = cost(state)
    if spent is not None:
        facts.append((f"${spent:.4f}", ""))
    for count, word in ((len(state.turns), "turn"), (len(state.steps), "step"), (len(state.tool_calls), "tool call")):
        if count > (word == "turn"):
            facts.append((number(count), word if count == 1 else f"{word}s"))
    return facts
