"""Client of a Mastra server."""

from __future__ import annotations
