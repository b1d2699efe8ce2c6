"""The version: one place for package, build and user agent."""

from __future__ import annotations

__version__ = "0.1.0"
