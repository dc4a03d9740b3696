"""What a command would run, how long it would take, and what it could see."""

from __future__ import annotations

import json

import pytest

from grpo_ablate import costs
from grpo_ablate.__main__ import main
from grpo_ablate.analysis.design import dead_share
from grpo_ablate.analysis.power import resolution
from grpo_ablate.commands import plan as command
from grpo_ablate.files import write_json
from grpo_ablate.manifest import config_hash
from grpo_ablate.runs import freeze
from tests.conftest import SMALL, plan


@pytest.fixture
def swept(tmp_path, monkeypatch):
    """Three arms over three seeds, of which the baseline is done and one run is half-way."""
    monkeypatch.chdir(tmp_path)
    typed = ("steps=300", "+experiment=baseline,clip_higher,lr_double", "-m", "seed=1,2,3")
    jobs = plan(*SMALL, *typed)
    for job in jobs:
        if job.arm == "small":
            ended(job, 300, "complete", 0.5)
        elif job.arm == "small+clip_higher" and job.config["seed"] == 1:
            ended(job, 120, "interrupted", 0.25)
    return jobs


def ended(job, step, state, pace):
    freeze(job)
    status = {"state": state, "hash": config_hash(job.config), "step": step, "seconds": step * pace}
    write_json(job.folder / "status.json", status)


def test_hours_follow_from_steps_left_and_the_pace_of_earlier_runs(swept):
    found = command.build(swept, parallel=2)
    rows = {row["arm"]: row for row in found["arms"]}
    assert rows["small"]["steps_to_do"] == 0
    assert rows["small+clip_higher"]["seeds"] == {
        "1": "interrupted",
        "2": "waiting",
        "3": "waiting",
    }
    assert rows["small+clip_higher"]["steps_to_do"] == 180 + 300 + 300
    own, borrowed = rows["small+clip_higher"], rows["small+lr_double"]
    assert own["seconds_per_step"] == 0.25 and borrowed["seconds_per_step"] == 0.5
    assert own["hours"] == pytest.approx(780 * 0.25 / 3600)
    assert found["hours"] == pytest.approx((780 * 0.25 + 900 * 0.5) / 3600 / 2)


def test_what_nothing_is_known_of_is_said_to_be_unknown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command.build(plan(*SMALL, "clip=clip_higher", "-m", "seed=1,2"), parallel=1)
    assert found["sees"] is None and found["dead"] is None
    text = command.render(found)
    assert (
        "clip.name symmetric → clip_higher, clip.eps 0.2 (gone), clip.eps_high 0.28 (new)"
        in " ".join(text.replace("1: waiting, 2: waiting", "").split())
    )
    assert "an estimate: no earlier run is here" in text and "run `probe` first" in text
    assert list(tmp_path.iterdir()) == []


def test_resolution_is_that_of_the_noise_of_earlier_runs(swept, tmp_path, monkeypatch):
    monkeypatch.setattr(command.report, "build", lambda *_: {"arms": [{"sigma": 0.01}]})
    found = command.build(swept, parallel=1)["sees"]
    assert found["mde"]["3"] == pytest.approx(resolution(0.01, 3, 2 * 2))
    assert found["mde"]["10"] == pytest.approx(resolution(0.01, 10, 2 * 9))
    n = found["seeds_needed"]
    assert resolution(0.01, n, 2 * (n - 1)) <= 0.02 < resolution(0.01, n - 1, 2 * (n - 2))


def test_dead_groups_by_size_from_each_prompts_own_pass_rate(swept, tmp_path):
    """Two prompts at 0 and 1 are dead at any size; their mean of one half would hide it (K25)."""
    target = tmp_path / "multirun_outputs/probe"
    target.mkdir()
    write_json(target / "probe.json", {"baselines": [{"pass_rates": [0.0, 1.0]}]})
    found = command.build(swept, parallel=1)["dead"]
    assert found["8"] == 1.0 > dead_share(0.5, 8)


@pytest.mark.parametrize(("overrides", "n"), [(["hydra.launcher.n_jobs=4"], 4), (["steps=3"], 1)])
def test_runs_at_once(overrides, n):
    assert command._parallel(overrides) == n


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *SMALL, "+experiment=clip_higher", "-m", "seed=1,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 2
    assert main(["plan", *SMALL, "+experiment=nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_an_earlier_run_hours_follow_from_the_cost_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = plan(*SMALL, "clip=clip_higher", "-m", "seed=1,2")
    found = command.build(jobs, 1, command._machine(None, None))
    shape, work = costs.shape_of("embedded:tiny"), costs.work_of(jobs[0].config)
    seconds = costs.step_seconds(shape, work, costs.CPU_CORE)
    assert found["arms"][0]["ground"] == "cost model"
    assert found["hours"] == pytest.approx(2 * 300 * seconds / 3600)
    slower = command.build(jobs, 1, command._machine(1e9, 0.5))
    assert slower["assumes"]["share"] == 0.5 and slower["hours"] != found["hours"]
    for job in jobs:
        job.config["model"]["path"] = "somebody/unheard-of"
    unknown = command.build(jobs, 1)
    assert unknown["hours"] is None and "no config.json of the model" in command.render(unknown)


@pytest.mark.parametrize("flag", ["--flops=-1", "--utilisation=2", "--flops=nan"])
def test_an_impossible_device_is_refused(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", flag, *SMALL]) == 2
    assert flag.partition("=")[0] in capsys.readouterr().err
