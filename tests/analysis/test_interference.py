"""Pairs of levers: found by their deltas, judged on two scales."""

from __future__ import annotations

import numpy as np
import pytest
from omegaconf import OmegaConf

from grpo_ablate.analysis import interference, report
from grpo_ablate.analysis.stats import logit
from tests.analysis.simulate import DESIGN, run, study
from tests.conftest import ROOT, plan


def only(runs):
    (row,) = report.build(runs, DESIGN)["interactions"]
    return row


@pytest.mark.parametrize(
    ("effects", "word"),
    [
        ({"a": 0.05, "b": 0.05, "a+b": 0.02}, "interference"),
        ({"a": 0.02, "b": 0.02, "a+b": 0.12}, "synergy"),
        ({"a": 0.02, "b": 0.03, "a+b": 0.05}, "additive within ±δ"),
    ],
    ids=["interference", "synergy", "additive"],
)
def test_words(effects, word):
    row = only(study(effects, sigma=0.003, number=4))
    assert (row["a"], row["b"], row["ab"]) == ("a", "b", "a+b")
    assert row["word"] == word
    assert row["method"] == "block"
    assert word.split(" within")[0] in row["sentence"]


def test_undetermined_when_noisy():
    row = only(study({"a": 0.02, "b": 0.03, "a+b": 0.05}, sigma=0.04, number=4))
    assert row["word"] == "undetermined"


def test_scale_dependent_near_the_ceiling():
    """.80, .92, .92, .97 adds up in log odds (1.39 + 1.06 + 1.06 = 3.5) and not in points."""
    levels = {"baseline": 0.80, "a": 0.92, "b": 0.92}
    odds = logit([0.92])[0] * 2 - logit([0.80])[0]
    levels["a+b"] = float(1 / (1 + np.exp(-odds)))
    rng = np.random.default_rng(8)
    runs = [
        run(arm, seed, level + rng.normal(0, 0.003))
        for arm, level in levels.items()
        for seed in (1, 2, 3, 4, 5)
    ]
    row = only(runs)
    assert row["word"] == "scale-dependent"
    assert row["reason"] == "the interval excludes 0 in points alone"


def test_an_unfit_arm_leaves_the_pair_undetermined():
    runs = study({"a": 0.02, "b": 0.03, "a+b": 0.05})
    runs = [r for r in runs if (r.arm, r.seed) not in (("b", 1), ("b", 2))]
    row = only(runs)
    assert (row["word"], row["reason"]) == ("undetermined", "b: incomplete")
    assert row["raw"] is None


def test_no_pair_without_its_parts():
    assert report.build(study({"a": 0.0, "a+b": 0.0}), DESIGN)["interactions"] == []
    assert interference.pairs({"a": {"x": [0, 1]}, "b": {"x": [0, 2]}, "c": {"x": [0, 2]}}) == []


def test_the_shipped_suite_has_all_of_each_pair():
    node = OmegaConf.load(ROOT / "conf/suite/interactions.yaml").hydra.sweeper.params
    assert node.seed == "1,2,3"
    jobs = plan("baseline=standard", f"+experiment={node['+experiment']}", "-m")
    deltas = {job.arm: job.delta for job in jobs}
    assert deltas.pop("standard") == {}
    assert interference.pairs(deltas) == [
        (
            "standard+clip_higher",
            "standard+dynamic_sampling",
            "standard+clip_higher+dynamic_sampling",
        ),
        (
            "standard+dynamic_sampling",
            "standard+length_penalty_0.02",
            "standard+length_penalty+dynamic_sampling",
        ),
        ("standard+lr_double", "standard+no_std", "standard+no_std+lr_double"),
    ]
