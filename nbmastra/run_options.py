"""Options of a run, the same for magics and command line: what there is, how it is read, what the agent is told."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from nbmastra.config import settings
from nbmastra.engine import Job, get_engine
from nbmastra.errors import SettingsError
from nbmastra.output import MastraModelOutput

__all__ = ["RUN_OPTIONS", "Option", "bare_until_idle", "parse_line", "start_run", "stream_options"]


@dataclass(frozen=True)
class Option:
    """One option. Without `metavar` it is a switch; `convert` raises ValueError with the words for what it wants."""

    flags: tuple[str, ...]
    help: str
    metavar: str = ""
    convert: Callable[[str], Any] = str
    default: Any = None
    value_needed: bool = True
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the parsed values."""
        return self.flags[-1].lstrip("-").replace("-", "_")


def whole_number(text: str) -> int:
    """A number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("a whole number above 0")
    return int(text)


def idle_limit(text: str) -> bool | dict[str, int]:
    """What `--until-idle` or `--until-idle=MS` asks for."""
    if not text:
        return True
    try:
        return {"max_idle_ms": whole_number(text)}
    except ValueError:
        raise ValueError("milliseconds, like --until-idle=60000, or no value") from None


RUN_OPTIONS = (
    Option(("--url",), "the server, in place of MASTRA_API_URL", "URL"),
    Option(("--thread",), "the conversation this belongs to", "NAME"),
    Option(("--resource",), "whose thread it is (you)", "NAME"),
    Option(
        ("--until-idle",),
        "go on until background tasks are done, waiting at most MS milliseconds between turns",
        "MS",
        idle_limit,
        value_needed=False,
    ),
    Option(("--max-steps",), "at most so many steps", "N", whole_number),
)

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""", re.DOTALL)
_FLAG = re.compile(r"(--?[A-Za-z][\w-]*)(=?)")


def parse_line(
    line: str, options: Sequence[Option], *, agent_needed: bool = True, help_hint: str = ""
) -> tuple[str, dict[str, Any], str]:
    """Agent, option values and what stands behind them, as it is written. Options stand before or after the agent.

    Raises SettingsError that names the option and says what to write.
    """
    by_flag = {flag: option for option in options for flag in option.flags}
    values = {option.name: option.default for option in options}
    agent = ""
    position = 0
    while True:
        start = position + len(line[position:]) - len(line[position:].lstrip())
        if line.startswith("--", start) and not line[start + 2 : start + 3].strip():
            position = start + 2
            break
        flag = _FLAG.match(line, start)
        if flag is not None:
            position = _read_option(line, flag, by_flag, values, help_hint)
        elif agent or start == len(line):
            position = start
            _refuse_late_options(line[start:], by_flag)
            break
        else:
            agent, position = _word(line, start)
    if not agent and agent_needed:
        raise SettingsError(f"which agent? Name one after the magic; {help_hint}")
    return agent, values, line[position:].strip()


def _refuse_late_options(prompt: str, by_flag: Mapping[str, Option]) -> None:
    late = next((word for word in prompt.split() if word.startswith("--") and word.partition("=")[0] in by_flag), None)
    if late is not None:
        raise SettingsError(f"{late[:60]} stands within the prompt: write options before it, or -- in front of it")


def _read_option(
    line: str, flag: re.Match[str], by_flag: Mapping[str, Option], values: dict[str, Any], help_hint: str
) -> int:
    name, equals = flag[1], flag[2]
    option = by_flag.get(name)
    if option is None:
        close = get_close_matches(name, by_flag, 1)
        hint = f"did you mean {close[0]}?" if close else help_hint
        raise SettingsError(f"there is no option {name}: {hint}")
    position = flag.end()
    text = ""
    if not option.metavar:
        if equals:
            raise SettingsError(f"{name} takes no value: write {name} alone")
        values[option.name] = True
        return position
    if equals or option.value_needed:
        follows = line[position:]
        missing = not follows.strip() or (follows[0].isspace() if equals else follows.lstrip().startswith("--"))
        if missing:
            raise SettingsError(f"{name} needs a value: {name} {option.metavar}")
        text, position = _word(line, position)
    values[option.name] = convert(option, name, text)
    return position


def convert(option: Option, name: str, text: str) -> Any:
    """An option's value. Raises SettingsError."""
    if option.choices and text not in option.choices:
        raise SettingsError(f"{name} takes one of {', '.join(option.choices)}, not {text[:60]!r}")
    try:
        return option.convert(text)
    except ValueError as error:
        raise SettingsError(f"{name} takes {error}, not {text[:60]!r}") from None


def _word(line: str, position: int) -> tuple[str, int]:
    found = _TOKEN.match(line, position)
    assert found is not None
    double, single, plain = found[1], found[2], found[3]
    if double is not None:
        return re.sub(r"\\(.)", r"\1", double), found.end()
    return plain if single is None else single, found.end()


def bare_until_idle(words: Sequence[str]) -> list[str]:
    """The words with `--until-idle` written as `--until-idle=`, so that it doesn't take the next word as its value."""
    end = words.index("--") if "--" in words else len(words)
    return [f"{word}=" if word == "--until-idle" else word for word in words[:end]] + list(words[end:])


def stream_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent's `stream` is told; only what was given. Raises SettingsError."""
    given: dict[str, Any] = {
        name: values[name] for name in ("until_idle", "max_steps", "schema") if values.get(name) is not None
    }
    thread, resource = values.get("thread"), values.get("resource")
    if thread:
        given["memory"] = {"thread": thread, "resource": resource or settings.resource}
    elif resource:
        raise SettingsError("--resource says whose thread it is: give --thread too")
    return given


def start_run(agent: Any, prompt: str, options: Mapping[str, Any]) -> MastraModelOutput:
    """The run of any agent whose `stream` gives an output, or something to wait for that gives one.

    An interrupt meanwhile cancels. Raises what `stream` does, and SettingsError if it gives something else.
    """
    answer = agent.stream(prompt, **options)
    if not isinstance(answer, MastraModelOutput | Job) and inspect.isawaitable(answer):
        answer = get_engine().start(_await, answer)
    if isinstance(answer, Job):
        job = cast("Job[Any]", answer)
        try:
            answer = job.result()
        except KeyboardInterrupt:
            job.cancel()
            raise
    if not isinstance(answer, MastraModelOutput):
        raise SettingsError(f"{type(agent).__name__}.stream() gave {type(answer).__name__}, not an output")
    return answer


async def _await(answer: Awaitable[Any]) -> Any:
    return await answer
