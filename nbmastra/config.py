"""Settings of this process, for magics and command line."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from pathlib import Path

from nbmastra.errors import RecordingError, SettingsError
from nbmastra.hooks import hooks
from nbmastra.output import MastraModelOutput
from nbmastra.recording import record

__all__ = ["Settings", "configure", "settings"]


@dataclass
class Settings:
    """What `configure` sets.

    url: the server that the magics use; None for the client's own default.
    resource: whose threads are meant where only a thread is named.
    record_dir: where every run is recorded, each in a file of its own; None for nowhere.
    """

    url: str | None = field(repr=False)  # it may hold a token
    resource: str
    record_dir: Path | None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "notebook"


settings = Settings(url=None, resource=_user(), record_dir=None)


def configure(*, url: str | None = None, resource: str | None = None, record_dir: str | Path | None = None) -> Settings:
    """Set what is given for the rest of this process, leave the rest, and give all of it. Raises SettingsError.

    url: the server that the magics use.
    resource: whose threads are meant where only a thread is named; at first your user name on this machine.
    record_dir: a directory in which every run of this process is recorded from now on, replays left out.
    """
    for name, value in (("url", url), ("resource", resource), ("record_dir", record_dir)):
        if value is not None and not str(value).strip():
            raise SettingsError(f"{name}= is empty: leave it out to keep what is set")
    settings.url = url or settings.url
    settings.resource = resource or settings.resource
    settings.record_dir = Path(record_dir).expanduser() if record_dir else settings.record_dir
    if settings.record_dir is not None:
        hooks.started = _journal
    return settings


def _journal(out: MastraModelOutput) -> None:
    folder = settings.record_dir
    if folder is None or "recording" in out.context:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record(out, folder)
    except (OSError, RecordingError) as error:  # the run itself goes on, and says so
        out.state.notice("recording", "warning", "The run is not recorded", 0.0, str(error))
