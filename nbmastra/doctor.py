"""`nbmastra doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from nbmastra.client import MastraClient
from nbmastra.errors import ClientError, NbMastraError
from nbmastra.terminal import clean_line

__all__ = ["SUPPORTED_MASTRA", "Check", "examine", "report"]

SUPPORTED_MASTRA = ">= 1.29, < 2"
"""Versions of @mastra/core whose streams this package is made for; the tests run 1.36.0 and 1.71.0."""

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `remedy` says what to do, "" if nothing needs doing."""

    group: str
    name: str
    state: State
    detail: str
    remedy: str = ""


def examine(url: str | None = None) -> Iterator[Check]:
    """Look at everything, one finding at a time; the server last, since it may take its time to answer."""
    yield from _packages()
    yield from _kernel()
    yield from _front_end()
    yield from _browser()
    yield from _server(url)


def report(checks: Iterable[Check], *, as_json: bool = False) -> int:
    """Print findings as they come, or all of them as JSON; 1 if something is missing, else 0."""
    found: list[Check] = []
    for check in checks:
        if not as_json:
            _print(check, new_group=not found or found[-1].group != check.group)
        found.append(check)
    if as_json:
        print(json.dumps([asdict(check) for check in found], indent=2))
    return 1 if any(check.state == "missing" for check in found) else 0


_MARKS: dict[State, str] = {"ok": "ok", "warning": "!", "missing": "MISSING"}


def _print(check: Check, *, new_group: bool) -> None:
    if new_group:
        print(f"{check.group}:")
    print(f"  {_MARKS[check.state]:<8}{clean_line(check.name, 80):<30} {clean_line(check.detail, 300)}")
    if check.remedy:
        print(f"          → {clean_line(check.remedy, 300)}")
    sys.stdout.flush()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    yield Check("packages", "python", "ok", platform.python_version())
    for package in ("nbmastra", "pydantic", "anyio", "httpx2", "pandas", "ipywidgets", "anywidget"):
        found = _version(package)
        remedy = "" if found else f"pip install --force-reinstall {package}"
        yield Check("packages", package, "ok" if found else "missing", found or "not installed", remedy)
    for extra, package, what in (
        ("prices", "genai-prices", "costs in USD"),
        ("zstd", "zstandard", "recordings as .zst"),
    ):
        found = _version(package)
        remedy = "" if found else f"for {what}: pip install 'nbmastra[{extra}]'"
        yield Check("packages", package, "ok" if found else "warning", found or "not installed", remedy)


def _kernel() -> Iterator[Check]:
    found = _version("ipykernel")
    if found is None:
        yield Check("notebook", "ipykernel", "warning", "not installed", "for notebooks: pip install 'nbmastra[lab]'")
        return
    running = "ipykernel" in sys.modules and _in_kernel()
    subshells = _major(found) >= 7
    detail = f"{found}, {'this process is a kernel' if running else 'no kernel in this process'}"
    yield Check("notebook", "ipykernel", "ok", detail)
    yield Check(
        "notebook",
        "clicks while a cell runs",
        "ok" if subshells else "warning",
        "by kernel subshells" if subshells else "this kernel has no subshells: Stop waits for the cell to end",
        "" if subshells else "pip install -U 'ipykernel>=7', or use the kernel's interrupt",
    )


def _in_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    shell = cast("Any", get_ipython())
    return shell is not None and getattr(shell, "kernel", None) is not None


def _front_end() -> Iterator[Check]:
    front_end = _front_end_name()
    yield Check("notebook", "front end", "ok", front_end)
    lab = _version("jupyterlab")
    if lab is None:
        yield Check("notebook", "jupyterlab", "warning", "not installed here", "pip install 'nbmastra[lab]'")
    else:
        old = (_major(lab), _minor(lab)) < (4, 4)
        remedy = "pip install -U jupyterlab: from 4.4 on clicks work while a cell runs" if old else ""
        yield Check("notebook", "jupyterlab", "warning" if old else "ok", lab, remedy)
    for package, folder in (("jupyterlab_widgets", "@jupyter-widgets"), ("anywidget", "anywidget")):
        where = _labextension(folder)
        yield Check(
            "notebook",
            f"{package} extension",
            "ok" if where else "warning",
            str(where) if where else "not found beside this Python",
            "" if where else f"pip install {package} where JupyterLab itself runs",
        )


def _front_end_name() -> str:
    if "VSCODE_PID" in os.environ or "VSCODE_CWD" in os.environ:
        return "VS Code"
    if "COLAB_RELEASE_TAG" in os.environ:
        return "Colab"
    if "JPY_SESSION_NAME" in os.environ:
        return "Jupyter"
    return "terminal" if sys.stdout.isatty() else "none that is known"


def _labextension(name: str) -> Path | None:
    for prefix in (Path(sys.prefix), Path.home() / ".local"):
        folder = prefix / "share" / "jupyter" / "labextensions" / name
        if folder.exists():
            return folder
    return None


def _browser() -> Iterator[Check]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    yield Check(
        "development",
        "browser for tests",
        "ok" if found else "warning",
        found or "no Chromium on PATH",
        "" if found else "only for this project's own tests: apt-get install chromium",
    )


def _server(url: str | None) -> Iterator[Check]:
    try:
        client = MastraClient(url)
    except NbMastraError as error:
        yield Check("server", "address", "missing", str(error), "set MASTRA_API_URL, or give --url")
        return
    try:
        agents = client.agents().result(15)
    except (ClientError, TimeoutError) as error:
        yield Check("server", client.url, "missing", str(error), "start it (npx mastra dev), or give --url")
        return
    yield Check("server", client.url, "ok", f"answers, {len(agents)} agents")
    yield _server_version(client)


def _server_version(client: MastraClient) -> Check:
    try:
        versions = client.packages().result(15)
    except (ClientError, TimeoutError):
        versions = {}
    core = versions.get("@mastra/core", "")
    if not core:
        return Check(
            "server", "@mastra/core", "ok", f"the server doesn't tell its version (made for {SUPPORTED_MASTRA})"
        )
    supported = _major(core) == 1 and _minor(core) >= 29
    return Check(
        "server",
        "@mastra/core",
        "ok" if supported else "warning",
        f"{core} (made for {SUPPORTED_MASTRA})",
        "" if supported else "newer chunk types are kept as unknown ones; update nbmastra, or the server",
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def _major(version: str) -> int:
    return (_numbers(version) or [0])[0]


def _minor(version: str) -> int:
    return ([*_numbers(version), 0, 0])[1]
