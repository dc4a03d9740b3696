"""docs/tutorial.md shows what its runs say: they are judged again, and their tables read."""

from __future__ import annotations

import shutil

import pytest

from grpo_ablate import study
from grpo_ablate.analysis import report
from grpo_ablate.analysis.load import read_study
from grpo_ablate.commands import plan as planning
from grpo_ablate.variants import LEVERS
from tests.conftest import ROOT, plan

KEPT = ROOT / "docs/tutorial"
TEXT = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
ARMS = ("+experiment=baseline,clip_higher", "-m")


@pytest.fixture
def folder(tmp_path, request):
    """The kept runs of the first seeds, as they lay in multirun_outputs then."""
    root = tmp_path / "multirun_outputs"
    later = [f"seed={seed}" for seed in range(request.param + 1, 9)]
    shutil.copytree(KEPT, root, ignore=shutil.ignore_patterns(*later))
    frozen = root / "study.yaml"
    for seed in later:
        frozen.write_text(frozen.read_text().replace(f"    - {seed.removeprefix('seed=')}\n", ""))
    return root


@pytest.mark.parametrize("folder", [2, 3], indirect=True)
def test_the_verdict_is_the_one_shown(folder):
    found = report.build(read_study(folder), study.read(folder))
    assert f"\n{found['arms'][0]['sentence']}\n" in TEXT


@pytest.mark.parametrize("folder", [2], indirect=True)
def test_the_price_of_more_seeds_is_the_one_shown(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    lines = planning.render(planning.build(plan(*ARMS, "seed=1,2,3,4,5"), parallel=2)).splitlines()
    shown = [line for line in lines if line.startswith(("10 runs", "resolves", "to resolve"))]
    assert len(shown) == 3
    assert "\n".join(["```", *shown, "```"]) in TEXT


def test_the_first_plan_is_the_one_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = planning.build(plan(*ARMS, "seed=1,2"), parallel=2)
    for line in planning.render(found).splitlines()[:4]:
        assert line in TEXT


def test_the_upper_bound_holds_back_one_token_in_a_thousand():
    runs = [run for run in read_study(KEPT) if run.arm == "baseline"]
    shares = [run.metrics["ratio/clip_frac_high"].mean() for run in runs]
    assert len(shares) == 3
    assert all(round(share, 3) == 0.001 for share in shares)


def test_the_runs_are_of_the_arms_that_the_command_has():
    """A changed default would need another run, and the page another text."""
    kept = {(run.arm, run.seed): run for run in read_study(KEPT)}
    jobs = {(job.arm, job.config["seed"]): job for job in plan(*ARMS, "seed=1,2,3")}
    assert kept.keys() == jobs.keys()
    for name, job in jobs.items():
        for group in ("steps", "task", "model", *LEVERS):
            assert kept[name].config[group] == job.config[group]
