"""A page that runs the browser half of a live widget, with a model of the tests' own instead of Jupyter's."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from nbmastra.widgets.document import Document
from nbmastra.widgets.live import LiveWidget


class Front:
    """The page as a kernel sees it: documents are made by the real `Document`, messages are its operations."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.doc = Document()
        self.seq = 0
        script = LiveWidget()._esm
        html = (Path(__file__).parent / "live_page.html").read_text("utf-8")
        page.set_content(html.replace('"__LIVE_JS__"', json.dumps(script).replace("</", "<\\/")))
        page.wait_for_function("window.ready")
        page.add_style_tag(content=(files("nbmastra.widgets") / "static" / "nbmastra.css").read_text("utf-8"))

    def boot(self) -> dict[str, Any]:
        self.doc.take()
        return {"id": "w", "seq": self.seq, "nodes": self.doc.state()}

    def start(self) -> None:
        self.page.evaluate("boot => start(boot)", self.boot())

    def display(self) -> None:
        self.page.evaluate("(window.shown ??= []).push(display())")

    def message(self) -> dict[str, Any]:
        self.seq += 1
        return {"seq": self.seq, "ops": self.doc.take()}

    def send(self) -> None:
        self.page.evaluate("async message => { receive(message); await painted(); }", self.message())

    def html(self, number: int = 0) -> str:
        return self.page.evaluate("number => shown[number].el.innerHTML", number)

    def sent(self) -> list[Any]:
        return [message for message in self.page.evaluate("sent") if message["act"] != "seen"]


@pytest.fixture
def front(page: Page) -> Front:
    return Front(page)
