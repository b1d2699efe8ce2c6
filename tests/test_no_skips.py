from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FILES = {
    "test_call.py": "import pytest\ndef test_it(): pytest.skip('why not')\n",
    "test_mark.py": "import pytest\n@pytest.mark.skip(reason='why not')\ndef test_it(): ...\n",
    "test_module.py": "import pytest\npytest.skip('why not', allow_module_level=True)\n",
    "test_xfail.py": "import pytest\n@pytest.mark.xfail(reason='why not')\ndef test_it(): assert 0\n",
    "test_other.py": "def test_other(): pass\n",
}


@pytest.mark.parametrize("ci", [True, False])
def test_a_skipped_test_fails_the_run_on_ci_only(ci: bool, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"PYTHONPATH": str(ROOT)} | ({"CI": "true"} if ci else {})
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.no_skips", "--continue-on-collection-errors"]
    run = subprocess.run([*command, tmp_path], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    summary = run.stdout.splitlines()[-1]
    if ci:
        assert run.returncode == 1
        assert "2 failed, 1 passed, 2 errors" in summary
        assert run.stdout.count("why not") >= 4
    else:
        assert run.returncode == 0
        assert "1 passed, 3 skipped, 1 xfailed" in summary
