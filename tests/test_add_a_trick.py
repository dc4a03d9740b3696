"""docs/add_a_trick.md, followed to the letter in a copy of the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import markdown
from tests.conftest import ROOT

PAGE = ROOT / "docs/add_a_trick.md"
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository with the page's three blocks appended to the files they name."""
    folder = tmp_path_factory.mktemp("trick")
    ignore = shutil.ignore_patterns("__pycache__")
    for part in ("grpo_ablate", "conf", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    for path, text in blocks:
        with (folder / path).open("a", encoding="utf-8") as file:
            file.write(text)
    return folder


def run(copy, *argv):
    return subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_its_own_test_passes(copy):
    done = run(copy, "pytest", "-q", "tests/techniques/test_clip.py", "-k", "eager")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_it_trains_as_an_arm_with_a_name(copy):
    done = run(copy, "grpo_ablate", "clip=eager", "steps=2", "evaluation.problems=8", "log_every=1")
    assert done.returncode == 0, done.stderr
    folder = copy / "multirun_outputs/clip=eager/seed=1"
    assert json.loads((folder / "status.json").read_text())["state"] == "complete"
    assert len((folder / "metrics.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_its_command_is_taken(copy):
    (fence,) = (
        f for f in markdown.fences(PAGE.read_text(encoding="utf-8")) if f.language == "bash"
    )
    assert fence.text.startswith("python -m grpo_ablate ")
    done = run(copy, "grpo_ablate", "plan", *fence.text.split()[3:])
    assert done.returncode == 0, done.stderr
    assert "clip=eager" in done.stdout
    assert "6 runs" in done.stdout


@pytest.mark.slow
def test_its_knobs_are_checked_like_any_other(copy):
    done = run(copy, "grpo_ablate", "clip=eager", "clip.growth=2", "steps=2")
    assert done.returncode == 2
    assert "clip.growth must lie in (0, 1), got 2" in done.stderr
