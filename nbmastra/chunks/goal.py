"""The special family, its second half: an agent's goal is judged."""

from __future__ import annotations

from nbmastra.chunks.payload import Number, Payload

__all__ = ["Goal", "GoalActivity", "ScorerResult"]


class ScorerResult(Payload):
    """What one scorer found."""

    score: Number | None = None
    """1 passed, 0 failed; also 0 when the scorer itself broke (see `errored`)."""
    passed: bool | None = None
    """True if the score is 1."""
    reason: str | None = None
    """Why, if the scorer says so."""
    scorer_id: str | None = None
    """Id of the scorer."""
    scorer_name: str | None = None
    """Name of the scorer."""
    duration: Number | None = None
    """Time it took, in milliseconds."""
    final_result: str | None = None
    """An answer that the scorer wrote, if any."""
    errored: bool | None = None
    """True if the scorer itself broke: its score says nothing."""


class GoalActivity(Payload):
    """One thing a judge did while it judged."""

    type: str | None = None
    """`tool-call`, `tool-result` or `reason`."""
    name: str | None = None
    """Name of the tool, for the first two."""
    message: str | None = None
    """What was done or thought, in words."""


class Goal(Payload):
    """One evaluation of the agent's goal; it comes twice, first with `pending`. A goal without a judge has none."""

    objective: str
    """What is to be reached."""
    iteration: int
    """Evaluations used, this one included."""
    max_runs: int
    """Evaluations after which the goal stops."""
    passed: bool
    """True if the goal is judged to be reached."""
    status: str
    """`active`, `paused` or `done`, after this evaluation."""
    results: list[ScorerResult]
    """What each scorer found; empty while pending."""
    reason: str | None = None
    """The judge's feedback, or why it stopped."""
    duration: Number
    """Time of the whole evaluation, in milliseconds."""
    timed_out: bool
    """True if the scorers took too long."""
    max_runs_reached: bool
    """True if the budget of evaluations is used up."""
    suppress_feedback: bool
    """True if the feedback isn't kept in memory."""
    paused_reason: str | None = None
    """Why the goal is paused: the judge broke, or the budget is used up."""
    waiting_for_user: bool | None = None
    """True if the judge wants a person to say something first; the goal stays active."""
    judge_failed: bool | None = None
    """True if the judge itself broke."""
    should_continue: bool | None = None
    """Whether the run goes on; only on an evaluation that is done."""
    pending: bool | None = None
    """True on the first of the two chunks, sent before the judging."""
    activity: list[GoalActivity] | None = None
    """What the judge did so far."""
