from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import comm
import ipywidgets
import pytest

from tests.widgets.recording_comm import RecordingComm


@pytest.fixture(autouse=True)
def comms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RecordingComm]]:
    made: list[RecordingComm] = []

    def create(**options: Any) -> RecordingComm:
        made.append(RecordingComm(**options))
        return made[-1]

    monkeypatch.setattr(comm, "create_comm", create)
    yield made
    ipywidgets.Widget.close_all()
