"""The ladder on studies whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from grpo_ablate.analysis import report, verdict, wording
from grpo_ablate.analysis.evidence import Evidence
from tests.analysis.simulate import DESIGN, run, scores, study


def judged(runs, design=DESIGN):
    """Return arm → its row of the report."""
    return {row["arm"]: row for row in report.build(runs, design)["arms"]}


def swap(runs, arm, seed, **fields):
    """Return the runs with one of them made anew."""
    new = [run(arm, seed, fields.pop("end", 0.6), **fields)]
    return [r for r in runs if (r.arm, r.seed) != (arm, seed)] + new


STUDY = study({"a": 0.06, "b": 0.0, "c": -0.06}, sigma=0.003, number=3)
FALLEN = [0.3, 0.4, 0.5, 0.55, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.5, 0.3, *[0.1] * 8]


def test_effects_are_seen():
    found = judged(STUDY)
    assert {arm: row["verdict"] for arm, row in found.items()} == {
        "a": "helps",
        "b": "equivalent within ±δ",
        "c": "hurts",
    }
    assert found["a"]["lo"] < 0.06 < found["a"]["hi"]
    assert found["a"]["method"] == "block"


LADDER = {
    "a hidden second key": (
        swap(STUDY, "a", 2, changed={"learner": {"beta": 0.8}}),
        "invalid",
        "learner.beta, which the arm does not declare",
    ),
    "another value in one seed": (
        swap(STUDY, "a", 2, changed={"clip": {"name": "symmetric", "eps": 0.2, "eps_a": 0.3}}),
        "invalid",
        "other seeds in clip.eps_a",
    ),
    "equal to the baseline": (
        [
            *STUDY[:3],
            *[run("a", s, 0.6, changed={"clip": STUDY[0].config["clip"]}) for s in (1, 2, 3)],
        ],
        "invalid",
        "equals the baseline's",
    ),
    "another evaluation set": (
        swap(STUDY, "a", 2, changed={"evaluation": {"name": "held_out", "problems": 100}}),
        "invalid",
        "evaluated on another set: evaluation.problems",
    ),
    "other code": (swap(STUDY, "a", 2, source="t"), "invalid", "source code differs: s (baseline"),
    "another device": (swap(STUDY, "a", 2, device="H200"), "invalid", "device kind differs"),
    "resumed with overrides": (swap(STUDY, "a", 2, deviated=True), "invalid", "a/seed=2 was resum"),
    "the baseline resumed": (swap(STUDY, "baseline", 2, deviated=True), "invalid", "baseline/seed"),
    "one seed finished": (
        swap(swap(STUDY, "a", 2, state="failed", upto=100), "a", 3, state="running", upto=100),
        "incomplete",
        "1/3 seeds of a finished",
    ),
    "no baseline": (STUDY[3:], "incomplete", "there is no run of baseline"),
    "step 200": (
        study({"a": 0.06}, steps=200),
        "too early to judge",
        "step 200; nothing is judged before step 300",
    ),
    "before the horizon": (study({"a": 0.06}, steps=400), "too early to judge", "400 of the hor"),
    "a collapsed seed": (swap(STUDY, "a", 2, curve=FALLEN), "unstable", "seed 2 collapsed at step"),
    "a diverged seed": (
        swap(STUDY, "a", 2, state="failed", upto=100, reason="FloatingPointError: 5 skipped"),
        "unstable",
        "seed 2 diverged",
    ),
    "an unstable baseline": (
        swap(STUDY, "baseline", 2, curve=FALLEN),
        "unstable",
        "the baseline is unstable: seed 2 collapsed",
    ),
    "never acted": (study({"a": 0.06}, activity=0.0), "inert", "clip never had anything to act on"),
    "noise": (
        study({"a": 0.0, "b": 0.0}, sigma=0.03, number=5),
        "underpowered",
        "cannot see effects below",
    ),
}


@pytest.mark.parametrize("name", LADDER)
def test_ladder(name):
    runs, word, reason = LADDER[name]
    found = judged(runs)["a"]
    assert found["verdict"] == word
    assert reason in found["reason"]
    assert word.split(" within")[0] in found["sentence"]


def test_an_unstable_baseline_stops_all_verdicts():
    found = report.build(swap(STUDY, "baseline", 2, curve=FALLEN), DESIGN)
    assert {row["verdict"] for row in found["arms"]} == {"unstable"}
    assert "collapsed" in found["baselines"][0]["unstable"]


def test_one_invalid_arm_leaves_the_others_alone():
    found = judged(LADDER["other code"][0])
    assert (found["b"]["verdict"], found["c"]["verdict"]) == ("equivalent within ±δ", "hurts")
    assert found["a"]["provisional"]


def test_an_unstable_arm_is_kept_out_of_sigma():
    """With it, the block's σ would be .12 and nothing could help or hurt."""
    wild = swap(STUDY, "b", 2, end=0.9)
    found = judged(wild)
    assert found["b"]["verdict"] == "unstable"
    assert found["a"]["verdict"] == "helps"
    assert found["a"]["sigma"] < 0.02


def test_material_disagreement():
    """Two arms of six seeds each; the first scatters by ±.05 where the noise is .005."""
    table = scores([0, 0, 0, 0, 0], 0.005, 0.02, 6, number=1)
    table[1] += [0.05, -0.05, 0.05, -0.05, 0.05, -0.05]
    arms = [
        Evidence(f"arm{k}", tuple(range(6)), dict(enumerate(map(float, row))), reached=500)
        for k, row in enumerate(table)
    ]
    found = verdict.judge(arms[0], arms[1:], DESIGN)
    assert found[0].verdict == "unstable"
    assert "scatter" in found[0].reason or "disagree" in found[0].reason
    assert {v.verdict for v in found[1:]} == {"equivalent within ±δ"}


@pytest.mark.parametrize(
    ("base", "arm", "word"),
    [
        # the tutorial's: F test p .0099, because the arm's two lie .0008 apart
        ((0.5746, 0.6254), (0.5770, 0.5762), "underpowered"),
        ((0.54, 0.66, 0.42), (0.601, 0.6005, 0.6), "unstable"),
    ],
)
def test_two_seeds_cannot_tell_scatter_from_a_quiet_rest(base, arm, word):
    one, other = (
        Evidence(name, tuple(range(len(row))), dict(enumerate(row)), reached=500)
        for name, row in (("baseline", base), ("arm", arm))
    )
    assert verdict.judge(one, [other], DESIGN)[0].verdict == word


def test_a_failed_seed_stays_in_the_denominator():
    found = judged(swap(STUDY, "a", 2, state="failed", upto=100, reason="MemoryError"))["a"]
    assert (found["finished"], found["planned"]) == (2, 3)
    assert "2/3 seeds" in found["sentence"]
    assert found["method"] == "paired", "its seeds are not the block's"


def test_a_lost_folder_stays_in_the_denominator():
    design = replace(DESIGN, arms={"a": {"baseline": "baseline", "seeds": [1, 2, 3, 4]}})
    assert judged(STUDY, design)["a"]["planned"] == 4


def test_unshared_seeds_are_compared_by_welch():
    base = [run("baseline", s, 0.5 + 0.001 * s) for s in (1, 2, 3)]
    arm = [run("a", s, 0.6 + 0.001 * s) for s in (4, 5, 6)]
    found = judged([*base, *arm])["a"]
    assert (found["method"], found["verdict"]) == ("welch", "helps")
    assert "none shared" in found["sentence"]
    assert found["per_seed"] == []


def test_one_arm_is_the_paired_test():
    found = judged(study({"a": 0.06}, sigma=0.005, number=1))["a"]
    assert found["method"] == "paired"
    assert found["p"] == pytest.approx(found["paired"]["p"])


def test_an_exact_repetition_is_the_noise_floor_and_no_hypothesis():
    again = {"arm": {"name": "aa", "moves": [], "repeat": "same_seed"}}
    clip = {"clip": STUDY[0].config["clip"]}
    ends = [r.evals["eval/accuracy"].iloc[-1] for r in STUDY[:3]]
    runs = [run("aa", s, e, changed=again | clip) for s, e in zip((1, 2, 3), ends, strict=True)]
    alone, beside = judged(STUDY), judged([*STUDY, *runs])
    assert beside["aa"]["verdict"] == "equivalent within ±δ"
    assert "no detectable effect, the noise floor" in beside["aa"]["sentence"]
    assert beside["a"]["p_holm"] == alone["a"]["p_holm"], "it must not make the noise look small"


def test_sentence():
    arm, base = [0.63, 0.65, 0.64], [0.6, 0.61, 0.615]
    rows = [(arm, "clip_higher"), ([0.6, 0.615, 0.61], "b")]
    everyone = [
        Evidence(name, (1, 2, 3), dict(zip((1, 2, 3), values, strict=True)), reached=500)
        for values, name in [(base, "baseline"), *rows]
    ]
    found, _ = verdict.judge(everyone[0], everyone[1:], DESIGN)
    assert wording.sentence(found, DESIGN, {"tokens": 1.04}) == (
        "clip_higher helps: +3.2 pt held-out accuracy at step 500 (95 % interval +2.3…+4.1;"
        " 3 seeds, all up; Holm p .001; this study resolves 1.2 pt; 4 % more generated tokens)."
    )


FORBIDDEN = ("significant", "proves", "best")


def test_product_texts_claim_nothing_beyond_the_interval():
    from tests.conftest import ROOT

    for path in (ROOT / "grpo_ablate/analysis").glob("*.py"):
        quoted = path.read_text().split('"""')[0::2]
        assert not [word for word in FORBIDDEN if any(word in text for text in quoted)], path


def many(effect: float, sigma: float, seeds: int, studies: int) -> list[list[str]]:
    from scripts.operating_table import simulate

    return simulate(effect, sigma, seeds, studies, number=2)


@pytest.mark.parametrize("seeds", [3, 5])
def test_null_studies_raise_no_more_than_their_share_of_alarms(seeds):
    """1,000 studies of a baseline and three null arms: at most 5 % + 2 SE have any alarm."""
    found = many(0.0, 0.02, seeds, 1000)
    alarms = np.mean([any(v in ("helps", "hurts") for v in verdicts) for verdicts in found])
    assert alarms <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)
    assert {v for verdicts in found for v in verdicts} <= {*verdict.LADDER[3:]}


def test_six_points_are_found():
    """Noise .01, three seeds: σ√(2/3) = .008, so 6 pt are seven standard errors."""
    found = [verdicts[0] for verdicts in many(0.06, 0.01, 3, 200)]
    assert found.count("helps") / 200 > 0.95
    assert "hurts" not in found


@pytest.mark.slow
def test_operating_table_is_what_the_script_writes():
    """One line of docs/judging.md, made again."""
    from scripts.operating_table import PAGE, row

    assert f"| {' | '.join(row(0.02, 3, 0.06))} |" in PAGE.read_text(encoding="utf-8")


def test_arms_can_be_judged_against_one_that_was_carried_forward():
    runs = study({"a": 0.05, "a+b": 0.08, "b": 0.0}, sigma=0.003, number=6)
    found = report.build(runs, DESIGN, against="a")
    rows = {row["arm"]: row for row in found["arms"]}
    assert rows.keys() == {"a+b", "b", "baseline"}
    assert rows["a+b"]["delta"] == pytest.approx(0.03, abs=0.01)
    assert list(rows["a+b"]["config_delta"]) == ["clip.eps_b"]
    assert (rows["a+b"]["verdict"], rows["baseline"]["verdict"]) == ("helps", "hurts")
