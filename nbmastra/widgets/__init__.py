"""Live views, tables and snapshots of runs: the kernel renders, the browser places."""

from __future__ import annotations
