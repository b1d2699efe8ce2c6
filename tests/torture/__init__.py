"""Kernels that are killed in the middle of their tasks: `python -m tests.torture`, and what must hold afterwards."""

from __future__ import annotations
