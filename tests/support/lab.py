"""A real JupyterLab, a real Chromium, and a notebook open in it."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.support.processes import running, wait_until_answering
from tests.support.setup_browser import find_chromium

CHROMIUM_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PATIENCE_MS = 60_000  # for a kernel's start on a busy machine; a failed expectation is reported then
# The toolbar's indicator says "idle" before the kernel is connected, and a cell that is run then is not run at all.
KERNEL_IS_IDLE = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  const kernel = context?.isReady && context.session?.kernel;
  return Boolean(kernel) && kernel.connectionStatus === "connected" && kernel.status === "idle";
}"""
FAILURE_PICTURES = Path("test-results")

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab without token, its notebooks in `root`."""

    url: str
    root: Path
    log: Path

    def write_notebook(self, name: str, cells: list[str]) -> Path:
        """A new, unsigned notebook with one code cell per source."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return path

    def end_sessions(self) -> None:
        """Shut every kernel down, so that the next test starts alone."""
        with urllib.request.urlopen(f"{self.url}/api/sessions") as response:
            sessions = json.load(response)
        for session in sessions:
            request = urllib.request.Request(f"{self.url}/api/sessions/{session['id']}", method="DELETE")
            urllib.request.urlopen(request).close()


@contextmanager
def run_lab(directory: Path) -> Iterator[Lab]:
    """Run JupyterLab of this environment on a free port; settings, caches and notebooks stay below `directory`."""
    home, root, settings = directory / "home", directory / "root", directory / "settings"
    notification = settings / "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    for folder in (home, root, notification.parent):
        folder.mkdir(parents=True)
    notification.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    # HOME moves everything a user may have configured out of sight: Jupyter's, IPython's and our own settings.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_", "MASTRA_"))}
    env |= {"HOME": str(home), "IPYTHONDIR": str(home / ".ipython"), "PYTHONUNBUFFERED": "1"}
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": "0",
        "ServerApp.root_dir": str(root),
        "ServerApp.open_browser": "False",
        "ServerApp.allow_root": "True",
        "ServerApp.disable_check_xsrf": "True",
        "IdentityProvider.token": "",
        "LabApp.user_settings_dir": str(settings),
        "LabApp.workspaces_dir": str(directory / "workspaces"),
        "LabApp.expose_app_in_browser": "True",
        "JupyterNotebookApp.expose_app_in_browser": "True",
    }
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    log = directory / "jupyter.log"
    with running(command, r"(http://127\.0\.0\.1:\d+)/lab", log, cwd=root, env=env) as (_, found):
        lab = Lab(found[1], root, log)
        wait_until_answering(f"{lab.url}/api")
        yield lab
        lab.end_sessions()


@dataclass
class NotebookPage:
    """One notebook open in JupyterLab; cells are counted from 0."""

    lab: Lab
    page: Page
    path: Path = field(default=Path())
    place: str = "lab/tree"
    """Where the server shows notebooks: JupyterLab's, or `notebooks` for Notebook 7."""

    def open(self, name: str, cells: list[str] | None = None) -> None:
        """Open a notebook, a new one if `cells` are given, and wait until its kernel is idle."""
        if cells is not None:
            self.lab.write_notebook(name, cells)
        self.path = self.lab.root / name
        self.page.goto(f"{self.lab.url}/{self.place}/{name}?reset")
        self.wait_idle()

    def reload(self) -> None:
        """Reload the page as a user does; the kernel goes on, so this doesn't wait until it is idle."""
        self.page.goto(f"{self.lab.url}/{self.place}/{self.path.relative_to(self.lab.root)}")
        expect(self.cell(0)).to_be_visible()

    def wait_idle(self) -> None:
        """Wait until the kernel is connected and runs nothing."""
        expect(self.cell(0)).to_be_visible()
        self.page.wait_for_function(KERNEL_IS_IDLE)

    def cell(self, i: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(i)

    def prompt(self, i: int) -> Locator:
        """`[ ]:` before a run, `[*]:` while it runs or waits, `[3]:` after it."""
        return self.cell(i).locator(".jp-InputPrompt").first

    def start(self, i: int) -> None:
        """Run a cell as a user does (click, Shift+Enter), without waiting for its end."""
        before = self.prompt(i).inner_text()
        self.cell(i).locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        expect(self.prompt(i)).not_to_have_text(before)

    def wait_done(self, i: int) -> None:
        expect(self.prompt(i)).to_have_text(re.compile(r"\[\d+\]"))

    def run(self, i: int) -> Locator:
        """Run a cell to its end and give its outputs."""
        self.start(i)
        self.wait_done(i)
        return self.outputs(i)

    def outputs(self, i: int) -> Locator:
        """The outputs of a cell, one element each."""
        return self.cell(i).locator(".jp-OutputArea-output")

    def output_text(self, i: int) -> str:
        return "\n".join(self.outputs(i).all_inner_texts())

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def command(self, name: str, **args: Any) -> None:
        """Run one of JupyterLab's commands and wait for it."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => {})", [name, args]
        )

    def interrupt(self) -> None:
        self.command("notebook:interrupt-kernel")

    def save(self) -> nbformat.NotebookNode:
        """Save as Ctrl+S does and read the file back."""
        self.command("docmanager:save")
        return nbformat.read(self.path, as_version=4)

    def theme(self, name: Literal["light", "dark", "dark high contrast"]) -> None:
        self.command("apputils:change-theme", theme=f"JupyterLab {name.title()}")
        expect(self.page.locator(f'body[data-jp-theme-name="JupyterLab {name.title()}"]')).to_be_attached()
        light = "true" if name == "light" else "false"
        expect(self.page.locator(f'body[data-jp-theme-light="{light}"]')).to_be_attached()

    def screenshot(self, path: Path, what: Locator | None = None) -> None:
        """A picture of the page, or of one element; looked at by people, so transitions are finished first."""
        (what or self.page).screenshot(path=path, animations="disabled")


@pytest.fixture(scope="session")
def jupyter_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab, shared by all browser tests."""
    with run_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the session."""
    executable = find_chromium()
    if executable is None:
        raise RuntimeError("no Chromium: run `make setup`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page in a browser context of its own; a failed test leaves its picture in `test-results/`."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    failed_before = request.session.testsfailed
    yield page
    if request.session.testsfailed > failed_before:
        page.screenshot(path=FAILURE_PICTURES / f"{request.node.name}.png")
    context.close()


@pytest.fixture
def notebook_page(jupyter_lab: Lab, page: Page) -> Iterator[NotebookPage]:
    """An empty page for `open()`; kernels are shut down after the test."""
    yield NotebookPage(jupyter_lab, page)
    jupyter_lab.end_sessions()
