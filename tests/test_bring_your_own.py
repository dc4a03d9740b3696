"""docs/bring_your_own.md, followed to the letter in an empty folder, with fewer steps and seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from grpo_ablate.analysis.load import read_run
from tests import markdown
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

TEXT = (ROOT / "docs/bring_your_own.md").read_text(encoding="utf-8")
SHORT = ("steps=2", "log_every=1", "eval_every=1", "preflight=off")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's files, and what its commands made of them."""
    root = tmp_path_factory.mktemp("own")
    for fence in markdown.fences(TEXT):
        if name := fence.marks.get("file"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(fence.text)
    typed = [command.words for command in markdown.commands(TEXT) if command.words[0] == "python"]
    assert len(typed) == 6
    for _, *words in typed:
        short = SHORT if "-m" in words[1:] and "probe" not in words else ()
        done = subprocess.run(
            [sys.executable, *(word.replace("seed=1,2,3", "seed=1") for word in words), *short],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (words, done.stdout + done.stderr)
    return root


@pytest.mark.parametrize(
    ("study", "arm"),
    [
        ("sums", "baseline"),
        ("near", "baseline"),
        ("mine", "baseline"),
        ("wide", "sums"),
        ("wide", "sums+wide"),
    ],
)
def test_each_command_trained(folder, study, arm):
    run = read_run(folder / study / arm / "seed=1")
    assert run.state == "complete"
    assert list(run.metrics.index) == [1, 2]


def test_accuracy_is_split_by_the_column(folder):
    run = read_run(folder / "sums/baseline/seed=1")
    assert {"eval/accuracy_1", "eval/accuracy_2"} <= set(run.evals.columns)


def test_a_neighbour_earns_half(folder):
    """Of the responses to the same questions, rewards in halves can only come from `near`."""
    whole, half = (
        read_run(folder / f"{study}/baseline/seed=1").metrics["reward/raw_mean"][1]
        for study in ("sums", "near")
    )
    assert half > whole


def test_the_probe_says_how_many_are_right(folder):
    found = json.loads((folder / "sums/probe/probe.json").read_text())
    (base,) = found["baselines"]
    assert 0 < sum(base["pass_rates"]) / len(base["pass_rates"]) < 1


def test_the_arm_is_the_file(folder):
    manifest = json.loads((folder / "wide/sums+wide/seed=1/manifest.json").read_text())
    assert manifest["baseline"] == "sums"
    assert manifest["delta"]["clip.eps_high"][1] == 0.4
