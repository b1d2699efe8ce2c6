"""The magics: `%%mastra_stream AGENT`, `%mastra_stream AGENT prompt`, `%mastra`."""

from __future__ import annotations

import contextvars
import inspect
import keyword
import re
import sys
import threading
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, cast

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand

from nbmastra._version import __version__
from nbmastra.client import MastraClient, RemoteAgent
from nbmastra.completion import AgentIds, complete
from nbmastra.config import settings
from nbmastra.display import in_notebook, show, show_approvals, show_dashboard
from nbmastra.engine import interrupted_at_end
from nbmastra.errors import MastraStreamError, RunError, SettingsError, StreamTruncated
from nbmastra.output import MastraModelOutput
from nbmastra.recording import record
from nbmastra.run_options import RUN_OPTIONS, Option, parse_line, start_run, stream_options
from nbmastra.run_printer import RunPrinter, look_for, print_json, print_run
from nbmastra.task_commands import cancel_command, resume_command, tasks_command
from nbmastra.terminal import clean_line, clean_text
from nbmastra.tools import Tool, as_tools

__all__ = ["MastraMagics", "register", "unregister"]


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError("a variable's name")
    return text


OPTIONS = (
    *RUN_OPTIONS,
    Option(("--schema",), "a variable that says what the answer must be: pydantic model or JSON schema", "NAME"),
    Option(("--tools",), "functions of this notebook that the agent may call: names, with commas", "NAMES"),
    Option(("-o", "--out"), "the variable that the output is bound to, also when the run fails", "VAR", _variable),
    Option(("--background",), "return at once; the answer grows in this cell while others run"),
    Option(
        ("-f", "--format"),
        "markdown, text or json (the chunks, one a line)",
        "FORMAT",
        str,
        "markdown",
        choices=("markdown", "text", "json"),
    ),
    Option(("-q", "--quiet"), "show nothing"),
    Option(("--no-raise",), "a failed run doesn't mark the cell as failed"),
    Option(("--record",), "record the run in a file (.jsonl, .jsonl.gz)", "FILE"),
)
_LAST_DRAWING_S = 3.0
_HINT = "%mastra help lists the options"
_FIELD = re.compile(r"(?<!\{)\{([^\W\d]\w*)\}(?!\})")

_USAGE = """%%mastra_stream AGENT [options]     the cell's body is the prompt
%mastra_stream AGENT [options] prompt
%mastra list | use AGENT | url [URL] | approvals | history | help | version
%mastra dashboard [server | VARIABLE]     live: all runs of this kernel, the server's, or those of a variable
%mastra history [--last 7d] [--until TIME] [--agent AGENT] [--limit N] [-o VAR]
%mastra tasks [STATUS] | resume ID --data JSON | cancel ID     background tasks

AGENT is a variable that holds an agent, or else an agent's id on the server.
{name} in the prompt or in an option's value is a variable's value; what is no variable stays as it is.
"""


class RunInterrupted(KeyboardInterrupt):
    """The kernel's interrupt stopped a run: marks the cell as failed, in one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


@magics_class
class MastraMagics(Magics):
    """Runs in cells; one set per shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.agent = ""
        """The agent that `%mastra use` chose."""
        self.agent_ids = AgentIds(self._client)

    # --- %mastra_stream ----------------------------------------------------------------------------------------------

    @no_var_expand
    @line_cell_magic
    def mastra_stream(self, line: str, cell: str | None = None) -> None:
        """Ask an agent and show its answer as it comes; `%mastra help` lists the options."""
        if line.strip() in ("-h", "--help"):
            print(help_text())
            return
        agent_name, values, rest = parse_line(line, OPTIONS, agent_needed=not (cell and self.agent), help_hint=_HINT)
        prompt = self._filled(_prompt_of(agent_name, rest, cell))
        values = {key: self._filled(value) if isinstance(value, str) else value for key, value in values.items()}
        if values["schema"]:
            values["schema"] = self._schema(values["schema"])
        agent = self._find_agent(self._filled(agent_name or self.agent), values["url"])
        options = stream_options(values)
        if values["tools"]:
            # Of an agent of a server they are the caller's tools, of one of this kernel simply further ones.
            options["client_tools" if isinstance(agent, RemoteAgent) else "tools"] = self._tools(values["tools"])
        try:
            out = start_run(agent, prompt, options)
        except KeyboardInterrupt:
            raise RunInterrupted("interrupted before the run began") from None
        if values["out"]:
            self._names[values["out"]] = out
        if values["record"]:
            record(out, values["record"])
        if values["background"]:
            _show_in_background(out, values)
        else:
            _show_to_the_end(out, values)

    @property
    def _names(self) -> dict[str, Any]:
        return cast("dict[str, Any]", cast("Any", self.shell).user_ns)

    def _filled(self, text: str) -> str:
        """The text with `{name}` replaced where there is such a variable, and nothing else changed."""
        hidden: Mapping[str, Any] = cast("Any", self.shell).user_ns_hidden

        def value(match: re.Match[str]) -> str:
            name = match[1]
            names = self._names
            known = name in names and not (name in hidden and names[name] is hidden[name])
            return str(names[name]) if known else match[0]

        return _FIELD.sub(value, text)

    def _schema(self, name: str) -> Any:
        return self._named("--schema", name)

    def _named(self, option: str, name: str) -> Any:
        if name not in self._names:
            close = get_close_matches(name, self._names, 1)
            hint = f"did you mean {close[0]}?" if close else "define it in a cell first"
            raise SettingsError(f"{option} {name[:60]}: there is no such variable; {hint}")
        return self._names[name]

    def _tools(self, names: str) -> dict[str, Any]:
        """The functions by the names that the notebook gives them, or that their `@tool` does."""
        given = [name.strip() for name in names.split(",") if name.strip()]
        values = {name: self._named("--tools", name) for name in given}
        for name, value in values.items():
            if not callable(value) and not isinstance(value, Tool):
                raise SettingsError(f"--tools {name[:60]}: {type(value).__name__} is no function")
        return dict(as_tools(list(values.values())))

    def tool_variables(self) -> list[str]:
        """Variables that hold functions or tools, those that the shell put there left out."""
        hidden: Mapping[str, Any] = cast("Any", self.shell).user_ns_hidden
        return sorted(name for name, value in self._names.items() if name not in hidden and _may_be_tool(name, value))

    def _find_agent(self, name: str, url: str | None) -> Any:
        value = self._names.get(name)
        if not callable(getattr(value, "stream", None)):
            return self._client(url).agent(name)
        if url:
            raise SettingsError(
                f"--url is for agents of a server, and {name} is a variable here: leave one of them out"
            )
        return value

    def _client(self, url: str | None = None) -> MastraClient:
        return MastraClient(url or settings.url)

    # --- %mastra -----------------------------------------------------------------------------------------------------

    @no_var_expand
    @line_magic
    def mastra(self, line: str) -> None:
        """`%mastra list | use | url | approvals | dashboard | history | tasks | resume | cancel | help | version`."""
        command, _, argument = line.strip().partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "list": self._list,
            "use": self._use,
            "url": self._url,
            "approvals": self._approvals,
            "dashboard": self._dashboard,
            "history": self._history,
            "tasks": tasks_command,
            "resume": resume_command,
            "cancel": cancel_command,
            "help": lambda _: print(help_text()),
            "version": lambda _: print(f"nbmastra {__version__}"),
        }
        action = commands.get(command or "help")
        if action is None:
            close = get_close_matches(command, commands, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(commands)}"
            raise SettingsError(f"%mastra {command[:40]}: no such command; {hint}")
        action(self._filled(argument.strip()))

    def _list(self, _argument: str) -> None:
        here = agent_variables(self._names)
        if here:
            print(f"in this notebook: {', '.join(here)}")
        client = self._client()
        print(f"at {client.url}:\n{clean_text(repr(client.agents().result()))}")

    def _use(self, name: str) -> None:
        if not name:
            print(f"in use: {self.agent}" if self.agent else "no agent is in use: %mastra use AGENT")
            return
        if name not in agent_variables(self._names):
            self._client().agent(name).describe().result()  # a wrong name is told here, with those that exist
        self.agent = name
        print(f"%%mastra_stream without an agent asks {clean_line(name)}")

    def _approvals(self, _argument: str) -> None:
        """The server's runs that wait for somebody, of earlier kernels too: a table to act on."""
        waiting = self._client().suspended_runs().result()
        if waiting and in_notebook():
            show_approvals(waiting)
        else:
            print(clean_text(repr(waiting)))

    def _dashboard(self, name: str) -> None:
        """The runs of this kernel, of the server, or of a variable, live."""
        if not in_notebook():
            raise SettingsError("dashboards are for notebooks: %mastra tasks, approvals and history print here")
        if not name:
            show_dashboard(None, dashboard_runs(self._names))
        elif name == "server" and name not in self._names:
            show_dashboard(self._client())
        else:
            show_dashboard(self._named("%mastra dashboard", name))

    def _history(self, line: str) -> None:
        """What the server's agents did: a table."""
        import_module("nbmastra.history_summary").history_command(line, self._names)  # pandas, which no run needs

    def _url(self, url: str) -> None:
        client = self._client(url or None)  # refuses what is no address
        if url:
            settings.url = url
            self.agent_ids.forget()
        print(f"server: {client.url}")


def _prompt_of(agent: str, rest: str, cell: str | None) -> str:
    if cell is not None:
        if rest:
            raise SettingsError(f"the cell's body is the prompt: what is {rest[:40]!r} on the first line?")
        prompt = cell.removesuffix("\n")
        if not prompt.strip():
            raise SettingsError("the prompt is empty: write it below the magic's line")
        return prompt
    if not rest:
        raise SettingsError(f"the prompt is empty: %mastra_stream {agent} prompt")
    return rest


def _show_to_the_end(out: MastraModelOutput, values: Mapping[str, Any]) -> None:
    """Show a run until it is over. Raises for a failed one, and for an interrupted one."""
    try:
        with interrupted_at_end(out.cancel):
            if values["quiet"]:
                out.wait()
            elif values["format"] == "json":
                print_json(out, sys.stdout)
            elif _as_text(values):
                print_run(out, RunPrinter(out, look_for(sys.stdout)))
            else:
                shown = show(out)
                out.wait()
                shown.wait(_LAST_DRAWING_S)  # what the view leaves behind belongs into this cell, before it ends
    except KeyboardInterrupt:
        out.cancel()
        kept = f"; what came is kept in {values['out']}" if values["out"] else ""
        raise RunInterrupted(f"the run was stopped{kept}") from None
    if not values["no_raise"]:
        _raise_failure(out)


def _raise_failure(out: MastraModelOutput) -> None:
    reason = clean_line(out.status_reason, 500)
    if out.status == "failed":
        raise MastraStreamError(reason)
    if out.status == "truncated":
        raise StreamTruncated(reason)
    if out.status == "success" and out.schema is not None:
        try:
            out.object.result()
        except RunError as error:
            raise type(error)(clean_line(str(error), 500), partial=error.partial) from None


def _show_in_background(out: MastraModelOutput, values: Mapping[str, Any]) -> None:
    if values["quiet"]:
        return
    if not in_notebook():
        # The prompt is in use: nothing may be printed over what is being typed.
        where = f"{values['out']} is its output" if values["out"] else "-o VAR would give its output"
        print(f"the run goes on in the background; {where}")
    elif values["format"] == "markdown":
        show(out)
    else:
        printer = RunPrinter(out, look_for(sys.stdout))
        in_json = values["format"] == "json"
        work = partial(print_json, out, sys.stdout) if in_json else partial(print_run, out, printer)
        # In a copy of this cell's context, ipykernel sends to this cell what the thread prints.
        threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()


def _as_text(values: Mapping[str, Any]) -> bool:
    return not values["quiet"] and (
        values["format"] == "text" or (values["format"] == "markdown" and not in_notebook())
    )


def help_text() -> str:
    """How the magics are written, and their options."""
    rows: list[tuple[str, str]] = []
    for option in OPTIONS:
        value = f" {option.metavar}" if option.value_needed else f"[={option.metavar}]"
        rows.append((", ".join(option.flags) + (value if option.metavar else ""), option.help))
    width = max(len(row[0]) for row in rows)
    return _USAGE + "\noptions:\n" + "\n".join(f"  {flags:<{width}}  {text}" for flags, text in rows)


MastraMagics.mastra_stream.__doc__ = f"Ask an agent and show its answer as it comes.\n\n{help_text()}"


def agent_variables(names: Mapping[str, Any]) -> list[str]:
    """Variables that hold an agent."""
    return sorted(name for name, value in names.items() if not name.startswith("_") and _is_agent(value))


def dashboard_variables(names: Mapping[str, Any]) -> list[str]:
    """Variables that hold what a dashboard can show: runs, comparisons, chats, task managers, clients."""
    return sorted(name for name, value in names.items() if not name.startswith("_") and _has_runs(value))


def dashboard_runs(names: Mapping[str, Any]) -> list[MastraModelOutput]:
    """The runs that variables hold, oldest first."""
    found = {id(value): value for value in names.values() if isinstance(value, MastraModelOutput)}
    return sorted(found.values(), key=lambda out: out.created_at)


def _has_runs(value: Any) -> bool:
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return bool(items) and all(isinstance(one, MastraModelOutput) for one in items)
    if isinstance(value, MastraModelOutput | MastraClient):
        return True
    is_manager = callable(getattr(value, "enqueue", None))
    return not isinstance(value, type) and (is_manager or isinstance(getattr(value, "outs", None), list))


def _is_agent(value: Any) -> bool:
    """A manager of tasks streams too, but is asked nothing."""
    return callable(getattr(value, "stream", None)) and not isinstance(value, type) and not hasattr(value, "enqueue")


def _may_be_tool(name: str, value: Any) -> bool:
    return not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, Tool))


def register(shell: Any) -> None:
    """Add the magics and their completion to a shell."""
    unregister(shell)
    if in_notebook():
        import_module("nbmastra.widgets.run_view")  # now, so that the first answer need not wait for it
    magics = MastraMagics(shell)
    shell.register_magics(magics)
    matcher = complete(
        magics.agent_ids,
        lambda: agent_variables(shell.user_ns),
        OPTIONS,
        magics.tool_variables,
        lambda: dashboard_variables(shell.user_ns),
    )
    shell.Completer.custom_matchers.append(matcher)
    shell.mastra_matcher = matcher


def unregister(shell: Any) -> None:
    """Take them away."""
    for kind, name in (("line", "mastra_stream"), ("cell", "mastra_stream"), ("line", "mastra")):
        shell.magics_manager.magics[kind].pop(name, None)
    matcher = shell.__dict__.pop("mastra_matcher", None)
    if matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(matcher)
