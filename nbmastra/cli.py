"""The command line: `nbmastra stream AGENT PROMPT`, `demo`, `replay FILE`, `runs FOLDER`, …"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from nbmastra._version import __version__
from nbmastra.client import MastraClient
from nbmastra.doctor import examine, report
from nbmastra.errors import NbMastraError, RunError, SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.recording import record, replay
from nbmastra.run_options import RUN_OPTIONS, Option, bare_until_idle, start_run, stream_options
from nbmastra.run_printer import RunPrinter, look_for, print_json, print_run
from nbmastra.terminal import clean_line, clean_text

__all__ = ["main"]

FAILED, USAGE, SUSPENDED, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141
_EXIT_CODES = {"success": 0, "suspended": SUSPENDED, "cancelled": INTERRUPTED}
_EPILOG = """exit codes: 0 the run completed; 1 it failed, was blocked or cut off, or could not start; 2 wrong usage;
3 it waits for an approval or for data; 130 it was stopped (Ctrl-C stops it and keeps what came)

server: --url, or MASTRA_API_URL, or http://localhost:4111; a token only in MASTRA_API_TOKEN"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    args = _parser().parse_args(bare_until_idle(sys.argv[1:] if argv is None else argv))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            cast("Any", stream).reconfigure(errors="replace")  # a pipe may not be able to carry what a model writes
    try:
        code = args.command(args)
        sys.stdout.flush()
    except NbMastraError as error:
        _complain(str(error))
        return USAGE if isinstance(error, SettingsError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; so that flushing at exit doesn't complain either:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


# --- commands --------------------------------------------------------------------------------------------------------


def _stream(args: argparse.Namespace) -> int:
    values = {**vars(args), "schema": _read_schema(args.schema_file)}
    prompt = sys.stdin.read() if args.prompt == ["-"] else " ".join(args.prompt)
    if not prompt.strip():
        raise SettingsError("the prompt is empty")
    agent = MastraClient(args.url).agent(args.agent)
    return _show(start_run(agent, prompt, stream_options(values)), args)


def _demo(args: argparse.Namespace) -> int:
    from nbmastra.demo import PROMPT, demo_agent  # here: no other command needs agents of its own

    return _show(start_run(demo_agent(speed=args.speed), PROMPT, {}), args)


def _replay(args: argparse.Namespace) -> int:
    return _show(replay(args.file, args.speed, start=args.start), args)


def _agents(args: argparse.Namespace) -> int:
    agents = MastraClient(args.url).agents().result()
    if args.json:
        rows = [{"id": a.id, "name": a.name, "model": a.model, "tools": a.tools, "agents": a.agents} for a in agents]
        print(json.dumps(rows, indent=2))
    else:
        print(clean_text(repr(agents)))
    return 0


def _doctor(args: argparse.Namespace) -> int:
    return report(examine(args.url), as_json=args.json)


def _runs(args: argparse.Namespace) -> int:
    from nbmastra.frames import runs_df  # pandas is slow to load, and few commands need it
    from nbmastra.run_list import run_lines

    runs, errors = runs_df(args.folder, strict=False)
    if args.status:
        runs = runs.loc[runs["status"] == args.status, :]
    if args.json:
        print(runs.to_json(orient="records", date_format="iso", indent=2))
    else:
        for line in run_lines(runs, limit=args.limit):
            print(line)
    for source, message in zip(errors["source"], errors["error_message"], strict=True):
        _complain(f"left out {source}: {message}")
    return 0


def _export(args: argparse.Namespace) -> int:
    from nbmastra.frames import export

    rows = export(args.folder, args.file, args.table)
    print(f"{args.file}: {rows:,} rows of {args.table}")
    return 0


def _diff(args: argparse.Namespace) -> int:
    from nbmastra.run_diff import diff

    found = diff(args.a, args.b)
    if args.json:
        print(found.df.to_json(orient="records", indent=2, default_handler=str))
    else:
        print(found)
    return 0 if found.same else FAILED


def _show(out: MastraModelOutput, args: argparse.Namespace) -> int:
    """Print a run to its end; its exit code."""
    journal = record(out, args.record) if getattr(args, "record", None) else None
    try:
        if args.json:
            print_json(out, sys.stdout)
        else:
            look = look_for(sys.stdout, plain=args.quiet, no_color=args.no_color)
            print_run(out, RunPrinter(out, look, text_only=args.quiet))
    finally:
        out.cancel()
        if journal is not None:
            journal.result(timeout=5)
    if args.json or args.quiet:
        _tell_failure(out)
    return _exit_code(out)


def _exit_code(out: MastraModelOutput) -> int:
    if out.status == "success" and out.schema is not None:
        try:
            out.object.result()
        except RunError as error:
            _complain(str(error))
            return FAILED
    return _EXIT_CODES.get(out.status, FAILED)


def _tell_failure(out: MastraModelOutput) -> None:
    if out.status not in ("success", "cancelled"):
        _complain(f"{out.status}: {out.status_reason}")


def _read_schema(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        schema = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"--schema-file: can't read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"--schema-file: {path} isn't JSON: {error}") from None
    if not isinstance(schema, dict):
        raise SettingsError(f'--schema-file: {path} holds no JSON schema: one is an object like {{"type": …}}')
    return cast("dict[str, Any]", schema)


def _complain(message: str) -> None:
    print(f"nbmastra: {clean_line(message, 1000)}", file=sys.stderr)


# --- what can be written ---------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"nbmastra: {message}; see `{self.prog} --help`\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="nbmastra",
        description="Watch Mastra agents from the command line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"nbmastra {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    stream = _command(commands, "stream", _stream, "send a prompt to an agent and print its answer as it comes")
    stream.add_argument("agent", metavar="AGENT", help="an agent's id; `nbmastra agents` lists them")
    stream.add_argument("prompt", metavar="PROMPT", nargs="+", help="what to ask; - reads it from standard input")
    for option in RUN_OPTIONS:
        _add(stream, option)
    stream.add_argument("--schema-file", type=Path, metavar="FILE", help="JSON schema that the answer must fit")
    stream.add_argument("--record", type=Path, metavar="FILE", help="record the run (.jsonl, .jsonl.gz)")
    _add_look(stream)

    demo = _command(commands, "demo", _demo, "ask an agent that needs no server and no key")
    again = _command(commands, "replay", _replay, "show a recorded run once more")
    again.add_argument("file", type=Path, metavar="FILE")
    again.add_argument("--start", type=float, metavar="S", default=0.0, help="what came in the first S seconds at once")
    for command in (demo, again):
        command.add_argument(
            "--speed", type=_speed, default=1.0, metavar="X", help="times its own pace, like 10; max: all at once"
        )
        _add_look(command)

    runs = _command(commands, "runs", _runs, "list the recorded runs of a folder: how they ended, tokens, cost")
    runs.add_argument("folder", type=Path, metavar="FOLDER", help="where recordings are; or one recording")
    runs.add_argument("--status", metavar="STATUS", help="only those that ended so: failed, success, suspended …")
    runs.add_argument("--limit", type=int, metavar="N", default=50, help="print the newest N (50)")
    runs.add_argument("--json", action="store_true", help="all of them as JSON")

    export = _command(commands, "export", _export, "write a table of recorded runs as a .parquet or .csv file")
    export.add_argument("folder", metavar="FOLDER", help="where recordings are; a recording, or a pattern")
    export.add_argument("file", type=Path, metavar="FILE", help="what to write; Parquet needs nbmastra[big]")
    export.add_argument(
        "--table", metavar="TABLE", default="chunks_df", help="runs_df, steps_df, usage_df, tool_calls_df … (chunks_df)"
    )

    differ = _command(commands, "diff", _diff, "compare two recorded runs; exit code 1 if they differ")
    differ.add_argument("a", type=Path, metavar="A", help="a recording")
    differ.add_argument("b", type=Path, metavar="B", help="the one to compare it with")
    differ.add_argument("--json", action="store_true", help="all that was compared, as JSON")

    agents = _command(commands, "agents", _agents, "list the server's agents")
    _add(agents, RUN_OPTIONS[0])
    agents.add_argument("--json", action="store_true", help="as JSON")

    doctor = _command(commands, "doctor", _doctor, "check packages, notebook and server, and say what is missing")
    _add(doctor, RUN_OPTIONS[0])
    doctor.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _command(commands: Any, name: str, function: Callable[[argparse.Namespace], int], what: str) -> _Parser:
    parser: _Parser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(command=function)
    return parser


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    def read(text: str) -> Any:
        try:
            return option.convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"takes {error}, not {text[:60]!r}") from None

    metavar = option.metavar if option.value_needed else f"[={option.metavar}]"
    parser.add_argument(*option.flags, type=read, metavar=metavar, help=option.help, default=option.default)


def _add_look(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the chunks as JSON, one a line")
    parser.add_argument("-q", "--quiet", action="store_true", help="print the answer's text and nothing else")
    parser.add_argument("--no-color", action="store_true", help="no colours on a terminal")


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
        if 0 < speed < float("inf"):
            return speed
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"takes a number above 0 or max, not {text[:60]!r}")


if __name__ == "__main__":
    sys.exit(main())
