"""Who runs a task: a kernel's name, from which others on the same machine tell whether it still lives."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from pathlib import Path

__all__ = ["make_owner", "surely_alive", "surely_dead"]


def make_owner() -> str:
    """A name for this process and this manager: machine, process, when that began, and a number of its own."""
    return f"{_machine()}:{os.getpid()}:{_began(os.getpid())}:{uuid.uuid4().hex}"


def surely_dead(owner: str) -> bool:
    """True if its process is known to be gone: only for those of this machine; others have their lease alone."""
    return _same_process(owner) is False


def surely_alive(owner: str) -> bool:
    """True if its process is known to run, though its lease may be over: a sleeping laptop, a debugger."""
    return _same_process(owner) is True


def _same_process(owner: str) -> bool | None:
    machine, pid, began, *_ = [*owner.split(":"), "", "", ""]
    if not machine or machine != _machine() or not pid.isdigit() or not began:
        return None
    return _began(int(pid)) == began


def _machine() -> str:
    """This boot of this machine, and the container: process numbers mean the same there. "" where nobody knows."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{socket.gethostname()} {boot} {space}".encode()).hexdigest()[:16]


def _began(pid: int) -> str:
    """When a process began, in ticks since boot; "" if it doesn't run (a zombie neither) or nobody can say."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else fields[18]
