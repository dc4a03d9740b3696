"""Names, folders and deltas of arms."""

from __future__ import annotations

import pytest

from grpo_ablate import arms
from grpo_ablate.variants import ConfigError
from tests.conftest import ROOT, plan

EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf/experiment").glob("*.yaml"))


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ([], ["baseline"]),
        (["baseline=standard"], ["standard"]),
        (["+experiment=baseline"], ["baseline"]),
        (["+experiment=clip_higher"], ["clip_higher"]),
        (["+experiment=clip_higher", "baseline=standard"], ["standard+clip_higher"]),
        (["+experiment=no_std"], ["standard+no_std"]),
        (["clip.eps=0.3", "steps=7"], ["clip.eps=0.3"]),
        (["clip=gspo", "advantage=smooth"], ["advantage=smooth+clip=gspo"]),
        (["-m", "clip.eps=0.1,0.3"], ["clip.eps=0.1", "clip.eps=0.3"]),
        (["-m", "+experiment=baseline,gspo"], ["baseline", "gspo"]),
    ],
)
def test_names(argv, names):
    jobs = plan(*argv)
    assert [job.arm for job in jobs] == names
    assert [job.folder.parent.name for job in jobs] == names, "the folder is the arm's name"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_moves_exactly_the_levers_it_declares(name):
    (job,) = plan(f"+experiment={name}")
    moved = {key.split(".")[0] for key in job.delta}
    assert moved == set(job.config["arm"]["moves"])
    assert moved or name == "baseline" or "repeat" in job.config["arm"]


@pytest.mark.parametrize("base", ["neutral", "standard"])
@pytest.mark.parametrize("name", ["clip_higher", "dynamic_sampling", "length_penalty_0.02"])
def test_an_arm_has_the_same_delta_on_either_baseline(name, base):
    (job,) = plan(f"+experiment={name}", f"baseline={base}")
    assert job.delta == plan(f"+experiment={name}")[0].delta


def test_delta_is_value_by_value():
    (job,) = plan("+experiment=clip_higher", "steps=9")
    assert job.delta == {
        "clip.name": ["symmetric", "clip_higher"],
        "clip.eps": [0.2, None],
        "clip.eps_low": [None, 0.2],
        "clip.eps_high": [None, 0.28],
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["+experiment=clip_higher", "clip=symmetric"], r"says it moves \[clip\] but moves \[\]"),
        (["+experiment=clip_higher", "advantage=smooth"], r"but moves \[advantage, clip\]"),
        (["+experiment=group_std", "baseline=standard"], r"but moves \[\]"),
    ],
)
def test_an_arm_that_does_not_do_what_it_says_is_refused(argv, message):
    with pytest.raises(ConfigError, match=message):
        plan(*argv)


def test_an_experiment_may_not_move_a_condition(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nsteps: 5\nclip: {eps: 0.3}\narm: {moves: [clip]}\n"
    (tmp_path / "experiment/mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match="changes steps, a fixed condition"):
        plan("+experiment=mine", "--config-dir", str(tmp_path))


def test_recorded_suite_is_the_articles_five_arms():
    """Article E and X2: five arms over three seeds, on standard GRPO, seed-major."""
    jobs = plan("+suite=recorded", "-m")
    arms_in_order = [
        "standard",
        "standard+clip_higher",
        "standard+dynamic_sampling",
        "standard+no_std",
        "standard+clip_higher+dynamic_sampling",
    ]
    assert [(job.arm, job.config["seed"]) for job in jobs] == [
        (arm, seed) for seed in (1, 2, 3) for arm in arms_in_order
    ]
    assert {job.baseline for job in jobs} == {"standard"}


def test_seeds_of_a_suite_can_be_overridden():
    assert {job.config["seed"] for job in plan("+suite=recorded", "-m", "seed=7,8")} == {7, 8}


def test_key_of():
    assert arms.key_of("+clip.eps=0.3") == "clip.eps"
    assert arms.key_of("++experiment=x") == "experiment"
