"""A real Jupyter kernel without a front end: cells in, what each of them showed out."""

from __future__ import annotations

import os
import queue
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

PATIENCE_S = 60


@dataclass
class Shown:
    """What landed in one cell."""

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def text(self) -> str:
        """Its standard output and error."""
        return "".join(m["content"]["text"] for m in self.messages if m["msg_type"] == "stream")

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """The contents of its messages of some types."""
        return [m["content"] for m in self.messages if m["msg_type"] in kinds]


@dataclass
class Cell:
    """A cell that was sent to the kernel."""

    kernel: Kernel
    id: str

    @property
    def shown(self) -> Shown:
        """What has landed in it by now, as far as it was read."""
        return self.kernel.cells[self.id]

    def wait_for(self, text: str) -> None:
        """Wait until its output holds a text."""
        while text not in self.shown.text:
            self.kernel.read_message()

    def reply(self, timeout: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for its end: the reply's content, all of its output read."""
        replies = self.kernel.replies
        while self.id not in replies:
            reply = self.kernel.client.get_shell_msg(timeout=timeout)
            replies[reply["parent_header"]["msg_id"]] = reply["content"]
        while not any(state["execution_state"] == "idle" for state in self.shown.of("status")):
            self.kernel.read_message()
        return replies[self.id]


@dataclass
class Kernel:
    """A running kernel."""

    manager: KernelManager
    client: BlockingKernelClient
    cells: dict[str, Shown] = field(default_factory=lambda: defaultdict(Shown))
    replies: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def start(self, code: str) -> Cell:
        """Send a cell."""
        return Cell(self, self.client.execute(code, store_history=True))

    def run(self, code: str) -> Shown:
        """Run a cell that has to succeed."""
        cell = self.start(code)
        reply = cell.reply()
        assert reply["status"] == "ok", reply
        return cell.shown

    def fail(self, code: str) -> tuple[dict[str, Any], Shown]:
        """Run a cell that has to fail: its reply and what it showed."""
        cell = self.start(code)
        reply = cell.reply()
        assert reply["status"] == "error", cell.shown.text
        return reply, cell.shown

    def interrupt(self) -> None:
        """What "Interrupt kernel" does."""
        self.manager.interrupt_kernel()

    def read_message(self, timeout: float = PATIENCE_S) -> None:
        """Wait for the next message and put it to its cell."""
        try:
            message = self.client.get_iopub_msg(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("the kernel sent nothing") from None
        self.cells[message["parent_header"].get("msg_id", "")].messages.append(message)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A Python kernel with the magics loaded, shared by a module's tests."""
    manager = KernelManager(kernel_name="python3")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MASTRA_")}
    home = tmp_path_factory.mktemp("kernel")
    manager.start_kernel(env={**env, "IPYTHONDIR": str(home)}, cwd=str(home))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        kernel = Kernel(manager, client)
        kernel.run("%load_ext nbmastra\nimport nbmastra")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
