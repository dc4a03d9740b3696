"""The probe: what acts on one rollout, what does not, and why."""

from __future__ import annotations

import pytest
import torch

from grpo_ablate import preflight
from grpo_ablate.commands import probe as command
from grpo_ablate.effects import compare
from grpo_ablate.files import read_json
from grpo_ablate.probe import Bench, run
from grpo_ablate.variants import ConfigError
from tests.conftest import SMALL, plan, shell

HERE = [*SMALL, "output_dir=out"]


def measured(tmp_path, *argv):
    """Probe arms in this process."""
    jobs = command.planned([*HERE, *argv])
    found = run({"baselines": command._by_baseline(jobs, tmp_path)})
    return {arm["arm"].rsplit("+", 1)[-1]: arm for arm in found["arms"]}


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    names = "clip_higher,lr_double,dynamic_sampling,batch_std,temperature_0.8"
    return measured(tmp_path_factory.mktemp("probe"), f"+experiment={names}")


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Arms on a baseline of one update a rollout."""
    names = "+experiment=clip_higher,gspo,hard_clip"
    return measured(tmp_path_factory.mktemp("once"), names, "lr_batch.minibatches=1")


@pytest.mark.parametrize("name", ["clip_higher", "gspo", "hard_clip"])
def test_no_clip_acts_with_one_update_a_rollout(once, name):
    assert once[name]["verdict"] == "inert"
    assert "one update a rollout: every ratio is 1" in once[name]["why"]


def test_gspo_at_a_token_levels_width_never_clips(tmp_path):
    (arm,) = measured(tmp_path, "clip=gspo", "clip.eps_low=0.2", "clip.eps_high=0.2").values()
    assert arm["verdict"] == "inert" and arm["activity"] == 0.0
    assert "the sequence ratio was never further than" in arm["why"]
    assert arm["rollouts"] == 6  # all of them were looked at before saying so


def test_a_double_rate_is_the_same_gradient_and_twice_the_step(arms):
    found = arms["lr_double"]
    assert found["verdict"] == "active" and "step size, ×2" in found["why"]
    assert found["cosine"] == pytest.approx(1.0, abs=1e-12)
    assert found["relative_norm"] == pytest.approx(1.0, abs=1e-12)
    assert 1.5 < found["moved_relative_norm"] < 2.5


def test_a_filter_says_what_it_drops(arms):
    found = arms["dynamic_sampling"]
    assert found["verdict"] == "active" and "groups of this batch" in found["why"]
    # a dead group has no gradient: without it only the average's denominator differs
    assert found["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert found["relative_norm"] > 1.0


def test_one_factor_for_the_batch_is_a_change_of_scale(arms):
    assert arms["batch_std"]["verdict"] == "scale only"
    assert "one factor for the whole batch" in arms["batch_std"]["why"]


def test_another_temperature_samples_its_own(arms):
    assert arms["temperature_0.8"]["own_responses"] and not arms["lr_double"]["own_responses"]


def test_std_against_none_is_scale_where_all_groups_have_one_std(tmp_path):
    """Every group half right: the std is one number, and dividing by it turns nothing."""
    (job,) = command.planned([*HERE, "advantage=group_std"])
    (spec,) = command._by_baseline([job], tmp_path)
    bench = Bench(spec["config"], tmp_path / "batch.json")
    for groups in bench.rollouts:
        half = torch.tensor([1.0, 0.0] * (groups.group_size // 2), dtype=torch.float64)
        groups.raw_rewards_PG[:] = half
    found = compare(bench.measure(job.config, 0), bench.base(0), job.config)
    assert found["verdict"] == "scale only"
    assert "all groups that vary have the same std" in found["why"]
    assert found["cosine"] == pytest.approx(1.0, abs=1e-6)
    std = half.std().item()
    assert found["relative_norm"] == pytest.approx(1 / std, rel=1e-3)  # up to its eps


def test_nothing_of_a_measurement_stays(tmp_path):
    (job,) = command.planned([*HERE, "lr_batch.lr_scale=3.0"])
    (spec,) = command._by_baseline([job], tmp_path)
    bench = Bench(spec["config"], tmp_path / "batch.json")
    before = bench.learner.state()
    first = bench.measure(job.config, 0)
    after = bench.learner.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    again = bench.measure(job.config, 0)
    assert torch.equal(first["moved"], again["moved"])


def test_saved_rollouts_are_used_again_and_exactly(tmp_path):
    (job,) = command.planned([*HERE, "clip=clip_higher"])
    (spec,) = command._by_baseline([job], tmp_path)
    first = Bench(spec["config"], tmp_path / "batch.json")
    second = Bench(spec["config"], tmp_path / "batch.json")
    one, other = first.measure(job.config, 0), second.measure(job.config, 0)
    assert torch.equal(one["gradient"], other["gradient"])
    assert one["loss"] == other["loss"]


@pytest.mark.slow
def test_the_command(tmp_path):
    typed = [*SMALL, "+experiment=clip_higher,lr_double", "--strict"]
    done = shell("probe", *typed, cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr  # something is inert, and --strict
    assert "expected by group size (K25)" in done.stdout
    found = read_json(tmp_path / "multirun_outputs/probe/probe.json")
    assert {arm["arm"] for arm in found["arms"]} == {"small+clip_higher", "small+lr_double"}
    bad = shell("probe", *SMALL, "+experiment=clip_hihger", cwd=tmp_path)
    assert bad.returncode == 2 and "clip_higher" in bad.stderr


@pytest.mark.slow
def test_every_shipped_experiment_acts_on_the_embedded_default(tmp_path):
    done = shell("probe", "all", "--strict", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_json(tmp_path / "multirun_outputs/probe/probe.json")["arms"]
    assert len(found) > 35
    assert {arm["verdict"] for arm in found} == {"active", "scale only"}
    scaled = {arm["arm"] for arm in found if arm["verdict"] == "scale only"}
    assert scaled == {"batch_std", "constant_std", "ema_std", "rloo"}  # one factor for the batch


@pytest.fixture
def idle(tmp_path, monkeypatch):
    """A sweep of which one arm does nothing, composed."""
    monkeypatch.chdir(tmp_path)
    sweep = ("clip=gspo", "clip.eps_low=0.2", "clip.eps_high=0.2", "-m")
    return lambda mode: plan(
        *[o for o in SMALL if "preflight" not in o], f"preflight={mode}", *sweep
    )


def test_preflight_warns_of_the_arm_that_does_nothing(idle, tmp_path):
    (line,) = preflight.warnings(idle("warn"))
    assert "clip=gspo does nothing at the start: the sequence ratio was never" in line
    assert list(tmp_path.iterdir()) == []


def test_preflight_refuses_before_anything_is_made(idle, tmp_path):
    with pytest.raises(ConfigError, match="clip=gspo does nothing at the start"):
        preflight.warnings(idle("refuse"))
    assert list(tmp_path.iterdir()) == []


def test_preflight_can_be_left_out_and_asks_nothing_of_runs_that_have_begun(idle, monkeypatch):
    monkeypatch.setattr(preflight.probe, "measure", lambda *a, **k: pytest.fail("asked"))
    assert preflight.warnings(idle("off")) == []
    jobs = idle("refuse")
    for job in jobs:
        job.folder.mkdir(parents=True)
        (job.folder / "metrics.csv").touch()
    assert preflight.warnings(jobs) == []
