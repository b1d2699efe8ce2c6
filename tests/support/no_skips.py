"""Pytest plugin: with the environment variable CI set, a skipped (or expected to fail) test is a failed one."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or not os.environ.get("CI"):
        return
    report.outcome = "failed"
    if hasattr(report, "wasxfail"):
        del report.wasxfail  # pytest doesn't count a failure that has it
    report.longrepr = f"a skip counts as a failure here: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report
