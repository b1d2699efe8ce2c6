from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import running, wait_until_answering

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[1]
QUICKSTART = "notebooks/01-quickstart.ipynb"


def test_binder_starts_on_the_quickstart(tmp_path: Path) -> None:
    """The steps that Binder runs (requirements.txt, then postBuild), in a fresh environment and a copy of the files."""
    repo, env = tmp_path / "repo", environment(tmp_path / "venv", tmp_path / "home")
    for name in ("nbmastra", "notebooks", "binder", "pyproject.toml", "README.md", "LICENSE"):
        (shutil.copytree if (ROOT / name).is_dir() else copy_file)(ROOT / name, repo / name)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run(["pip", "install", "--quiet", "-r", "binder/requirements.txt"], cwd=repo, env=env, check=True)
    subprocess.run(["./binder/postBuild"], cwd=repo, env=env, check=True)

    options = ["--no-browser", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token=", "--allow-root"]
    command = [tmp_path / "venv/bin/jupyter", "lab", *options]
    with running(command, r"(http://127\.0\.0\.1:\d+)/", tmp_path / "log", cwd=repo, env=env) as (_, found):
        assert str(wait_until_answering(found[1]).url) == f"{found[1]}/lab/tree/{QUICKSTART}"
        assert wait_until_answering(f"{found[1]}/api/contents/{QUICKSTART}?content=0").status_code == 200


def copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.copy(source, target)


def environment(venv: Path, home: Path) -> dict[str, str]:
    """The variables of an activated environment, without this user's Jupyter settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_", "VIRTUAL_"))}
    return kept | {"PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
