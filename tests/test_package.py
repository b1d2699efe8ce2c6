"""The package as one imports it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nbmastra

HEAVY = "httpx2 pandas ipywidgets anywidget IPython rich markdown_it nh3 pygments tqdm jsonschema zstandard".split()


def modules_after(code: str) -> set[str]:
    code = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    return set(json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout))


def test_importing_it_loads_the_chunks_and_nothing_heavy() -> None:
    loaded = modules_after("import nbmastra")
    assert "nbmastra.chunks" in loaded
    assert loaded.isdisjoint([*HEAVY, "asyncio", "anyio"])
    unused = {
        "nbmastra.output",
        "nbmastra.client",
        "nbmastra.recording",
        "nbmastra.widgets",
        "nbmastra.frames",
        "nbmastra.magics",
    }
    assert loaded.isdisjoint(unused)


def test_a_client_is_loaded_without_widgets_and_tables() -> None:
    loaded = modules_after("from nbmastra import MastraClient, load_recording")
    assert "httpx2" in loaded
    assert loaded.isdisjoint({"pandas", "ipywidgets", "anywidget", "IPython"})


def test_every_public_name_is_there_and_is_found_by_completion() -> None:
    for name in nbmastra.__all__:
        assert getattr(nbmastra, name) is not None
    assert set(nbmastra.__all__) <= set(dir(nbmastra))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = nbmastra.no_such_name


def test_the_wheel_brings_the_demo_and_the_widgets_files(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert {"nbmastra/demo/trip.jsonl", "nbmastra/py.typed", "nbmastra/widgets/static/live.js"} <= names
    assert not [name for name in names if name.startswith(("tests", "notebooks"))]
    assert nbmastra.__version__ in wheel.name
