"""What the scenarios' agents have besides tools: processors and scorers, as `tests/mastra_server` has them."""

from __future__ import annotations

import json
from typing import Any


class BlockSecrets:
    id = name = "block-secrets"

    def process_output_stream(self, part: dict[str, Any], abort: Any) -> dict[str, Any]:
        if part["type"] == "text-delta" and "SECRET" in part["payload"]["text"]:
            abort("secret in output", metadata={"rule": "secrets"})
        return part


class BlockQuestions:
    id = name = "block-questions"

    def process_input(self, messages: list[Any], abort: Any) -> list[Any]:
        if "?" in json.dumps(messages):
            abort("no questions", metadata={"rule": "questions"})
        return messages


class NoRudeness:
    id = name = "no-rudeness"

    def process_output_step(self, text: str, abort: Any, retry_count: int) -> None:
        if "rude" in text and not retry_count:
            abort("be polite", retry=True, metadata={"rule": "manners"})


class NeverSatisfied:
    id = name = "never-satisfied"

    def process_output_step(self, abort: Any, retry_count: int) -> None:
        abort(f"not good enough ({retry_count})", retry=True)


PROCESSORS = {one.id: one for one in (BlockSecrets(), BlockQuestions(), NoRudeness(), NeverSatisfied())}


class SaysFinished:
    id = name = "says-finished"

    def __call__(self, run: Any) -> tuple[float, str]:
        finished = "finished" in run.output
        return (1.0, "it says finished") if finished else (0.0, "it does not say finished yet")


def scorer(name: str) -> Any:
    """The scorer of this name."""
    return {"says-finished": SaysFinished()}[name]
