"""Comms without a kernel: messages are kept instead of sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from comm.base_comm import BaseComm


class RecordingComm(BaseComm):
    """A comm whose messages are kept instead of sent."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[tuple[str, Any]] = []
        self._news = threading.Condition()
        super().__init__(**options)

    def publish_msg(self, msg_type: str, data: Any = None, **_rest: Any) -> None:
        with self._news:
            self.sent.append((msg_type, data))
            self._news.notify_all()

    def custom(self) -> list[Any]:
        return [data["content"] for kind, data in self.sent if kind == "comm_msg" and data["method"] == "custom"]

    def wait_until(self, true: Callable[[], bool], timeout: float = 5) -> None:
        """Return when something is true, which only a message can make so."""
        with self._news:
            assert self._news.wait_for(true, timeout)
