"""Comms without a kernel: messages are kept instead of sent."""

from __future__ import annotations

from typing import Any

from comm.base_comm import BaseComm


class RecordingComm(BaseComm):
    """A comm whose messages are kept instead of sent."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[tuple[str, Any]] = []
        super().__init__(**options)

    def publish_msg(self, msg_type: str, data: Any = None, **_rest: Any) -> None:
        self.sent.append((msg_type, data))

    def custom(self) -> list[Any]:
        return [data["content"] for kind, data in self.sent if kind == "comm_msg" and data["method"] == "custom"]
