"""What a live run costs the notebook server, counted on the wire of a real kernel."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import zmq
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.server  # twenty seconds of streaming

DELTAS, PIECE = 20_000, "streamed 20 chars !\n"
CODE = f"""
import asyncio, time
from nbmastra import MastraModelOutput
from nbmastra.widgets.run_view import RunView

def chunk(kind, payload):
    return {{"type": kind, "runId": "r", "from": "AGENT", "payload": payload}}

async def paced():
    yield chunk("start", {{"id": "a"}})
    yield chunk("step-start", {{}})
    began = time.perf_counter()
    for number in range({DELTAS}):
        wait = began + number / 1000 - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield chunk("text-delta", {{"id": "t", "text": {PIECE!r}}})
    yield chunk("text-delta", {{"id": "t", "text": "the last token"}})
    yield chunk("step-finish", {{"stepResult": {{"reason": "stop"}}, "output": {{}}}})
    yield chunk("finish", {{"stepResult": {{"reason": "stop"}}, "output": {{}}}})

out = MastraModelOutput.from_chunks(paced())
view = RunView(out)
display(view)
out.wait()
view.ended.wait(10)
"""


@dataclass
class Wire:
    """Messages on iopub: kind, size of all frames, content."""

    messages: list[tuple[str, int, Any]] = field(default_factory=list)

    def read(self, socket: zmq.Socket[bytes], stop: threading.Event) -> None:
        while not stop.is_set():
            if socket.poll(100):
                frames = socket.recv_multipart()
                at = frames.index(b"<IDS|MSG>")
                kind = json.loads(frames[at + 2])["msg_type"]
                self.messages.append((kind, sum(map(len, frames)), json.loads(frames[at + 5])))


def test_a_fast_long_answer_stays_within_the_budget() -> None:
    """B48: at most 31 messages a second and 3.2 bytes a character live, 6 for the snapshot; the last token is shown."""
    manager, client = start_new_kernel(kernel_name="python3")
    context = zmq.Context[Any]()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(f"tcp://127.0.0.1:{manager.iopub_port}")
    client.iopub_channel.stop()  # one subscriber, as a notebook server is
    wire, stop = Wire(), threading.Event()
    reader = threading.Thread(target=wire.read, args=(socket, stop))
    reader.start()
    try:
        asked = client.execute(CODE)
        while (reply := client.get_shell_msg(timeout=90))["parent_header"]["msg_id"] != asked:
            pass
        assert reply["content"]["status"] == "ok", reply["content"]
        client.execute("0", silent=True)
        client.get_shell_msg(timeout=10)
    finally:
        stop.set()
        reader.join()
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        context.destroy(linger=0)
    characters = DELTAS * len(PIECE)
    live = [size for kind, size, content in wire.messages if kind == "comm_msg"]
    replaced = [(size, content) for kind, size, content in wire.messages if kind == "update_display_data"]
    opened = sum(size for kind, size, _ in wire.messages if kind == "comm_open")
    print(f"{len(live)} messages, {sum(live) / characters:.2f} bytes a character, opened with {opened} bytes")
    assert len(wire.messages) <= 31 * 20
    assert sum(live) + opened <= 3.2 * characters
    ((size, content),) = replaced
    assert size <= 6 * characters
    assert "the last token" in content["data"]["text/html"]
    last = [c for kind, _, c in wire.messages if kind == "comm_msg" and "ops" in c["data"].get("content", {})]
    assert any("the last token" in json.dumps(message) for message in last[-3:])
