"""Find a Chromium, or install one: PATH, then apt (as root), then Playwright's own download.

`python tests/support/setup_browser.py` makes sure that there is one and prints where.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str | None:
    """Path of a Chromium: the environment variable CHROMIUM, one on PATH, or the one Playwright downloaded."""
    for name in filter(None, (os.environ.get("CHROMIUM"), *NAMES)):
        if found := shutil.which(name):
            return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def install_chromium() -> None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        steps = (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "chromium"])
        if all(subprocess.run(step, env=env, check=False).returncode == 0 for step in steps):
            return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


def main() -> None:
    if find_chromium() is None:
        install_chromium()
    path = find_chromium()
    if path is None:
        raise SystemExit("No Chromium on PATH, and none could be installed; set CHROMIUM to its path")
    print(f"Chromium: {path}")


if __name__ == "__main__":
    main()
