"""All tests, those with a browser beside the others: `python tests/support/run_tests.py [PYTEST ARGUMENTS]`.

Each half waits much of its time, for pages or for processes, so that together they take little longer than one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

NO_TESTS = 5
"""Pytest's answer when nothing was selected: of one half only, that is what the arguments asked for."""


def main(arguments: list[str]) -> int:
    command = [sys.executable, "-u", "-m", "pytest", *arguments, "-m"]
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
        browser = subprocess.Popen(
            [*command, "browser"], stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT
        )
        try:
            others = subprocess.run([*command, "not browser"], check=False).returncode
            waited = time.monotonic()
            codes = {others, browser.wait()}
        finally:
            browser.kill()
            browser.wait()
            told.seek(0)
            print("\n======== with a browser ========", told.read(), sep="\n", flush=True)
    print(f"both in {time.monotonic() - begun:.0f} s, of which the browser's alone {time.monotonic() - waited:.0f} s")
    failed = codes - {0} - ({NO_TESTS} if 0 in codes else set())
    return max(failed, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
