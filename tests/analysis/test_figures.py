"""Figures: the same bytes twice, at any size of study, with captions; what is drawn is data."""

from __future__ import annotations

import re
from dataclasses import replace

import matplotlib
import pandas as pd
import pytest

from grpo_ablate.analysis import figures
from grpo_ablate.analysis.figures import curves, study, style
from tests.analysis.pictured import ARMS, make

FEW = {name: ARMS[name] for name in ("baseline", "gspo")}


def report(runs):
    """What `report.build` says, as far as figures read it."""
    score = {(r.arm, r.seed): float(r.evals["eval/accuracy"].tail(5).mean()) for r in runs}
    arms = [arm for arm in dict.fromkeys(run.arm for run in runs) if arm != "baseline"]
    rows = []
    for arm in arms:
        seeds = [seed for name, seed in score if name == arm]
        per_seed = [{"seed": s, "delta": score[arm, s] - score["baseline", s]} for s in seeds]
        delta = sum(one["delta"] for one in per_seed) / len(per_seed)
        numbers = {"delta": delta, "lo": delta - 0.02, "hi": delta + 0.02, "mde": {"n": 0.03}}
        rows.append({"arm": arm, "baseline": "baseline", "verdict": "helps", **numbers,
                     "per_seed": per_seed, "smoothness": {"rank": 1}})  # fmt: skip
    pair = {"baseline": "baseline", "a": "x", "b": "y", "word": "synergy", "n": 3}
    return {
        "study": {"horizon": 500, "alpha": 0.05, "margin": 0.02},
        "baselines": [{"arm": "baseline", "smoothness": {"rank": 2}}],
        "arms": rows,
        "interactions": [pair | {"raw": {"delta": 0.03, "lo": 0.01, "hi": 0.05}}],
        "runs": [
            {"arm": r.arm, "seed": r.seed, "baseline": "baseline", "score": score[r.arm, r.seed],
             "smoothness": 0.02} for r in runs
        ],
    }  # fmt: skip


def words(path):
    """All text of an SVG."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"), re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", "", text).strip() for text in found)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    runs, folder = make(FEW), tmp_path_factory.mktemp("fig")
    return figures.draw(report(runs), runs, folder)


def test_a_study_has_all_its_figures(drawn):
    assert [path.name for path in drawn] == [
        *("forest.png", "accuracy_steps.png", "accuracy_tokens.png", "accuracy_seconds.png"),
        *("signals_baseline.png", "signals_gspo.png", "interactions.png", "smoothness.png"),
    ]
    names = {path.name for path in drawn[0].parent.iterdir()}
    assert names == {f"{path.stem}.{kind}" for path in drawn for kind in ("png", "svg")}


def test_every_caption_tells_seeds_horizon_and_what_bars_mean(drawn):
    for path in drawn:
        text = words(path.with_suffix(".svg"))
        for wanted in (r"\bstep 500\b", r"\b\d seeds?\b|shared seeds", r"\bbars?\b|interval"):
            assert re.search(wanted, text), (path.name, wanted)


def test_the_same_data_give_the_same_bytes(drawn, tmp_path):
    runs = make(FEW)
    with matplotlib.rc_context({"font.size": 20}):  # a reader's own settings change nothing
        again = figures.draw(report(runs), runs, tmp_path)
    for path in (*drawn, *(p.with_suffix(".svg") for p in drawn)):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name
    assert len(again) == len(drawn)
    svg = drawn[0].with_suffix(".svg").read_text(encoding="utf-8")
    assert "Matplotlib v" not in svg
    assert "dc:date" not in svg


def test_forest_tells_verdict_numbers_seeds_and_limits(tmp_path):
    rows = [
        figures.Difference("a", "helps", 0.031, 0.012, 0.05, {1: 0.03, 2: 0.02, 3: 0.043}, 0.024),
        figures.Difference("b", "incomplete"),
    ]
    _, svg = figures.forest(rows, tmp_path / "f", baseline="base", horizon=500, margin=0.02)
    text = words(svg)
    for wanted in ("helps  +3.1  [+1.2, +5.0]", "incomplete", "Against base", "±2 points"):
        assert wanted in text
    assert "3 shared seeds" in text


def test_the_ranking_of_smoothness_leaves_out_what_cannot_be_judged():
    """The baseline is ranked too; a run without a score or a roughness is not there."""
    runs = [
        {"baseline": "base", "arm": arm, "seed": seed, "score": score, "smoothness": rough}
        for arm, seed, score, rough in [
            *(("base", 1, 0.5, 0.02), ("a", 1, 0.6, 0.01), ("a", 2, 0.8, 0.03)),
            *(("b", 1, 0.4, 0.0), ("c", 1, None, 0.1), ("d", 1, 0.1, None)),
        ]
    ]
    found = {arm.arm: arm for arm in study._smoothness(runs, {"base", "a"}, "base")}
    assert {name: arm.ranked for name, arm in found.items()} == {
        "base": True,
        "a": True,
        "b": False,
    }
    assert (found["a"].accuracy, found["a"].roughness) == pytest.approx((0.7, 0.02))


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_that_has_just_begun(tmp_path, rows):
    """No row, no evaluation yet; or one of each."""
    (run,) = make({"baseline": 0.0}, seeds=1)
    run = replace(run, metrics=run.metrics.iloc[:rows], evals=run.evals.iloc[:rows])
    arms = {"baseline": [replace(run, state="running")]}
    drawn = [
        *figures.accuracy(arms, "baseline", tmp_path / "t", horizon=500, against="tokens"),
        *figures.signals(arms["baseline"], [], tmp_path, horizon=500),
    ]
    assert len(drawn) == 4 * rows


def test_nothing_to_draw_writes_nothing(tmp_path):
    assert figures.interactions([], tmp_path / "i", n=3, horizon=500) == []
    assert figures.smoothness([], tmp_path / "s", baseline="b", horizon=500) == []
    assert figures.accuracy({"a": []}, "a", tmp_path / "a", horizon=500) == []
    assert list(tmp_path.iterdir()) == []


def test_accuracy_by_tokens_counts_what_was_spent_by_then():
    """Rows at 1 and 10 hold 100 and 900 tokens: at step 0 nothing, at 10 a thousand in all."""
    run = replace(
        make({"a": 0.0}, seeds=1)[0],
        metrics=pd.DataFrame({"perf/generated_tokens": [100.0, 900.0]}, index=[1, 10]),
        evals=pd.DataFrame({"eval/accuracy": [0.25, 0.5, 0.75]}, index=[0, 10, 20]),
    )
    curve = curves.along(run, "tokens")
    assert curve.to_dict() == {0.0: 0.25, 1.0: 0.5}, "in thousands; step 20 is not paid for yet"
    assert curves.along(run, "steps").index.tolist() == [0, 10, 20]


def test_arms_with_odd_names_get_files_of_their_own():
    assert style.file_name("clip.eps_high=0.24") == "clip.eps_high=0.24"
    assert style.file_name("a/b c") == "a_b_c"
    assert style.counts([3, 2, 3]) == "2–3"
    assert style.counts([3, 3]) == "3"
    assert style.counts([]) == "no"
    assert style.points(-0.0314) == "−3.1"


@pytest.mark.slow
def test_fifteen_arms_fit(tmp_path):
    """No label leaves the picture: the forest plot keeps its width, and names all arms."""
    runs = make()
    found = report(runs)
    rows = [study._difference(row) for row in found["arms"]]
    _, svg = figures.forest(rows, tmp_path / "f", baseline="baseline", horizon=500, margin=0.02)
    assert re.search(r'viewBox="0 0 648 ', svg.read_text()), "nine inches"
    assert all(arm in words(svg) for arm in ARMS)
    arms = {arm: [run for run in runs if run.arm == arm] for arm in ARMS}
    _, svg = figures.accuracy(arms, "baseline", tmp_path / "a", horizon=500)
    assert "lr_double (3 seeds, 1 failed)" in words(svg)
