"""The staged order on scripted results: what is carried on, which gates close, what stops leave."""

from __future__ import annotations

import dataclasses
import time
from functools import cache

import pandas as pd
import pytest

from grpo_ablate.analysis.load import read_run
from grpo_ablate.commands import order as command
from grpo_ablate.files import read_json, write_json
from grpo_ablate.manifest import config_hash, load_config
from grpo_ablate.order import Order, Study, choose, settle
from grpo_ablate.runs import freeze, is_complete
from tests.conftest import SMALL, composed, shell, start

PLAN = {
    "baseline": "standard",
    "rate": {
        "steps": 200,
        "flat": 0.01,
        "wild": 0.1,
        "ratio_low": 0.5,
        "ratio_high": 2.0,
        "rounds": 4,
    },
    "stages": [
        {"name": "length", "arms": ["length_penalty_0.02"]},
        {"name": "clip", "arms": ["clip_higher", "two_sided"]},
        {"name": "filter", "arms": ["dynamic_sampling"], "max_filter_ratio": 0.5},
        {"name": "last", "arms": ["no_std", "gspo"]},
    ],
}


class Lab:
    """Stands in for training: a run's numbers follow from its configuration by a rule."""

    def __init__(
        self, folder, *, helps=(), filtered=0.3, unstable=(), stop_at=None, stages=PLAN["stages"]
    ):
        self.helps, self.filtered, self.stop_at = helps, filtered, stop_at
        self.unstable = unstable
        self.launches, self.ran = 0, []
        # an argv names its folder, and what a folder holds under a name is written once
        self.compose = cache(lambda *argv: command._compose(argv))
        self.study = Study(
            plan=PLAN | {"stages": stages},
            seeds=(1, 2),
            conditions=("steps=300",),
            folder=folder,
            compose=lambda argv: self.compose(*argv),
            launch=self.launch,
            judge=self.judge,
        )

    def launch(self, argv):
        self.launches += 1
        if self.launches == self.stop_at:
            return 130
        for job in self.compose(*argv):
            if not is_complete(job.folder, config_hash(job.config)):
                freeze(job)
                self.train(job)
                self.ran.append(f"{job.arm}/seed={job.config['seed']}")
        return 0

    def train(self, job):
        scale = job.config["lr_batch"]["lr_scale"]
        rows = range(10, 310, 10)
        # flat below x1, falling above x2
        slope = {True: 0.0, False: 0.001}[scale < 1] if scale <= 2 else -0.001
        frame = pd.DataFrame(
            {
                "step": rows,
                "reward/mean": [0.3 + slope * step for step in rows],
                "ratio/p01": 0.9,
                "ratio/p99": 1.1,
                "sampling/filter_ratio": self.filtered,
            }
        )
        frame.to_csv(job.folder / "metrics.csv", index=False)
        status = {"state": "complete", "hash": config_hash(job.config), "seconds": 1.0}
        write_json(job.folder / "status.json", status)

    def judge(self, output_dir, folders):
        arms, bases = [], []
        for arm in dict.fromkeys(read_run(folder).arm for folder in folders):
            runs = [read_run(f) for f in folders if read_run(f).arm == arm]
            if arm == runs[0].baseline:
                told = "seed 1 collapsed" if arm in self.unstable else ""
                bases.append({"arm": arm, "unstable": told, "finished": 2, "planned": 2})
                continue
            good = any(arm.endswith(name) for name in self.helps)
            arms.append(
                {
                    "arm": arm,
                    "verdict": "helps" if good else "underpowered",
                    "sentence": f"{arm} says so.",
                    "delta": 0.03 + 0.01 * self.helps.index(arm.split("+")[-1]) if good else 0.0,
                    "lo": 0.0,
                    "hi": 0.0,
                    "p_holm": 0.01,
                    "finished": len(runs),
                }
            )
        return {"arms": arms, "baselines": bases}


def stage(record, name):
    return next(done for done in record["stages"] if done["stage"] == name)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("order"), helps=("two_sided", "clip_higher", "no_std"))


@pytest.fixture(scope="module")
def followed(lab):
    return lab.study.folder / "runs", Order(lab.study).follow()


def test_what_helps_becomes_the_next_stages_baseline(followed):
    runs, record = followed
    assert record["state"] == "complete", record["reason"]
    carried = {done["stage"]: done.get("carried") for done in record["stages"][1:-1]}
    assert carried == {"stage1": None, "stage2": "clip_higher", "stage3": None, "stage4": "no_std"}
    assert "Also helping, not stacked: stage2+two_sided" in stage(record, "stage2")["why"]
    later = load_config(runs / "stage3+dynamic_sampling/seed=1")
    assert later["clip"] == composed("clip=clip_higher")["clip"]
    assert later["advantage"]["name"] == "group_std"  # X2: the order starts from standard GRPO
    assert set(record["recipe"]) == {"clip", "advantage"}
    assert record["recipe"]["advantage"]["name"] == "none"


def test_an_arm_moves_one_lever_against_the_recipe_so_far(followed):
    runs, _ = followed
    gspo = load_config(runs / "stage4+gspo/seed=1")
    assert read_run(runs / "stage4+gspo/seed=1").baseline == "stage4"
    assert gspo["arm"]["moves"] == ["clip"]
    # an option of the recipe is replaced whole: no knob of clip_higher is left in gspo
    assert gspo["clip"] == composed("clip=gspo")["clip"]


def test_no_configuration_is_run_twice(lab, followed):
    runs, _ = followed
    hashes = [read_json(runs / name / "status.json")["hash"] for name in lab.ran]
    assert len(hashes) == len(set(hashes))
    adopted = read_json(runs / "stage3/seed=2/manifest.json")
    assert adopted["adopted"] == "stage2+clip_higher/seed=2"
    assert adopted["arm"] == adopted["baseline"] == "stage3" and adopted["delta"] == {}


def test_each_carried_lever_is_taken_out_again_on_fresh_seeds(followed):
    runs, record = followed
    last = record["stages"][-1]
    assert last["stage"] == "leave_one_out" and last["seeds"] == [3, 4]
    names = {arm["arm"] for arm in last["arms"]}
    assert names == {"recipe+without_clip", "recipe+without_advantage", "recipe+without_all"}
    without = load_config(runs / "recipe+without_clip/seed=3")
    assert without["clip"]["name"] == "symmetric" and without["advantage"]["name"] == "none"


def test_another_question_in_the_same_folder_is_refused(lab, followed):
    other = dataclasses.replace(lab.study, seeds=(1, 2, 3))
    with pytest.raises(command.ConfigError, match="is of an order with other seeds"):
        Order(other)


@pytest.mark.slow
def test_stopped_and_resumed_at_every_launch(tmp_path):
    def short(name, stop_at=None):
        return Lab(
            tmp_path / name, helps=("clip_higher",), stages=PLAN["stages"][1:3], stop_at=stop_at
        )

    whole = short("whole")
    expected = Order(whole.study).follow()
    assert expected["state"] == "complete"
    for number in range(1, whole.launches + 1):
        lab = short(str(number), number)
        assert Order(lab.study).follow()["state"] == "interrupted"
        assert Order(lab.study).follow() == expected
        assert read_json(tmp_path / str(number) / "order.json") == expected


def test_above_half_filtered_it_stops_and_says_why(tmp_path):
    record = Order(Lab(tmp_path, filtered=0.6, stages=PLAN["stages"][2:]).study).follow()
    assert record["state"] == "stopped"
    assert "filtered 60% of its groups, above 50%: go back to the reward" in record["reason"]
    assert not (tmp_path / "runs/stage2").exists()


def test_no_stage_starts_on_an_unstable_baseline(tmp_path):
    lab = Lab(tmp_path, unstable=("stage2",), stages=PLAN["stages"][:3])
    record = Order(lab.study).follow()
    assert record["state"] == "stopped"
    assert "stage2 is unstable: seed 1 collapsed; no stage starts on such" in record["reason"]
    assert not (tmp_path / "runs/stage3").exists()


@pytest.mark.parametrize(
    ("tried", "scale"),
    [
        ({1.0: "keep"}, 1.0),
        ({1.0: "double", 2.0: "keep"}, 2.0),
        ({1.0: "double", 2.0: "halve"}, 1.0),
        ({1.0: "halve", 0.5: "double"}, 0.5),
        ({1.0: "halve", 0.5: "halve", 0.25: "halve"}, None),
    ],
    ids=["steady", "was flat", "between", "between, from above", "never steady"],
)
def test_the_rate_settled_on(tried, scale):
    assert settle(tried)["lr_scale"] == scale


def test_nothing_that_only_seems_to_help_is_carried():
    arms = [
        {"arm": "b+x", "verdict": "underpowered", "sentence": "", "delta": 0.2}
        | {"lo": 0, "hi": 0, "p_holm": 1, "finished": 3}
    ]
    base = {"arm": "b", "unstable": "", "finished": 3, "planned": 3}
    chosen = choose({"arms": arms, "baselines": [base]}, "b")
    assert chosen["carried"] is None and "no arm of the stage helps" in chosen["why"]


@pytest.mark.slow
def test_a_real_order_killed_in_stage_three_and_taken_up_again(tmp_path):
    """Trains for real, briefly; α is so large that noise alone carries something on."""
    here = [option for option in SMALL if "baseline" not in option]
    rule = ["judge.earliest=2", "judge.alpha=0.45", "judge.margin=0.001"]
    typed = ["order", "seed=1,2", *here, "order=short", "steps=4", *rule]
    folder = tmp_path / "multirun_outputs/order"
    with start(tmp_path, *typed) as first:
        deadline = time.monotonic() + 240
        while not (folder / "runs/stage3+dynamic_sampling/seed=1/metrics.csv").is_file():
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        first.terminate()
        output = first.communicate(timeout=60)[0]
    assert first.returncode == 130, output
    assert read_json(folder / "order.json")["state"] == "interrupted"
    done = shell(*typed, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_json(folder / "order.json")
    names = [stage["stage"] for stage in record["stages"]]
    assert names[:4] == ["rate", "stage1", "stage2", "stage3"] and record["state"] == "complete"
    assert all(stage["arms"] for stage in record["stages"][1:])
    page = (folder / "ORDER.md").read_text()
    assert "State: **complete**" in page and (folder / "ladder.svg").is_file()
    before = (folder / "order.json").read_bytes()
    assert shell(*typed, cwd=tmp_path).returncode == 0
    assert (folder / "order.json").read_bytes() == before
