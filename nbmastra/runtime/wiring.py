"""Which extensions take part in a run, by the agent's settings and the run's options; in the order they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbmastra.runtime.extend import Extension
from nbmastra.runtime.goals import GoalKeeper, read_goal
from nbmastra.runtime.options import StreamOptions
from nbmastra.runtime.processors import AnswerProcessors, ChunkProcessors, ProcessorSet
from nbmastra.runtime.structured import StructuredOutput, read_structured
from nbmastra.runtime.structuring import StructuringModel
from nbmastra.runtime.task_completion import TaskCompletion, read_task_check

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent

__all__ = ["EXTENSION_OPTIONS", "make_extensions"]

EXTENSION_OPTIONS = frozenset(
    {"schema", "structured_output", "input_processors", "output_processors", "is_task_complete", "goal"}
)
"""Options that say which extensions there are."""


def make_extensions(agent: Agent, options: StreamOptions) -> list[Extension]:
    """New ones for each run, since they keep its state. Raises SettingsError."""
    processors = ProcessorSet(
        options.get("input_processors", agent.input_processors),
        options.get("output_processors", agent.output_processors),
    )
    structured = read_structured(options)
    check = read_task_check(options.get("is_task_complete"))
    goal = read_goal(options.get("goal", agent.goal))
    made: list[Extension] = [ChunkProcessors(processors), AnswerProcessors(processors)] if processors else []
    if structured is not None and structured.model is not None:
        made.append(StructuringModel(structured, structured.model))
    elif structured is not None:
        # Processors change the text that is read; the object is told before they judge the step, an error after it.
        output = StructuredOutput(structured)
        made[1:1] = [output]
        made.append(output.verdict)
    if check is not None:
        made.append(TaskCompletion(check))
    if goal is not None:
        made.append(GoalKeeper(goal, agent.goal_records))
    return made
