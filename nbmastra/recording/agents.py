"""A recording in an agent's place, and the recorded runs that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbmastra.engine import Job, get_engine
from nbmastra.errors import RecordingError
from nbmastra.output import MastraModelOutput
from nbmastra.recording.reader import read_header, replay

__all__ = ["RecordedAgent", "demo_recording"]


class RecordedAgent:
    """A recording in an agent's place: whatever it is asked, it gives the same run again, at `speed` times its pace."""

    def __init__(self, path: str | Path, *, speed: float | None = 1.0) -> None:
        self.path = Path(path)
        self.speed = speed
        agent = read_header(self.path).get("agent")
        self.id: str = agent if isinstance(agent, str) else "recording"

    def stream(self, messages: Any = None, *, schema: Any = None, **_options: Any) -> Job[MastraModelOutput]:
        """The run; `await` gives its output. The prompt and other options change nothing."""

        async def start() -> MastraModelOutput:
            return replay(self.path, self.speed, schema=schema)

        return get_engine().start(start)

    def __repr__(self) -> str:
        return f"<RecordedAgent {self.id} from {self.path.name}>"


def demo_recording(name: str = "trip") -> Path:
    """A recorded run that comes with the package. Raises RecordingError for a name that it doesn't have."""
    folder = Path(__file__).parents[1] / "demo"
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        names = ", ".join(sorted(path.stem for path in folder.glob("*.jsonl")))
        raise RecordingError(f"no demo {name!r}; there is {names}")
    return path
