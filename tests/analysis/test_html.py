"""report.html: what goes into it, and that nothing in it acts. The browser is test_browser.py."""

from __future__ import annotations

import importlib
import json
import re

import pandas as pd
import pytest

from grpo_ablate.analysis import contents, html
from grpo_ablate.metrics import METRICS
from grpo_ablate.text import visible
from tests.made_up import EVIL, report, study


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return study(tmp_path_factory.mktemp("study"), arms=3, seeds=2)


@pytest.fixture(scope="module")
def data(small):
    return contents.gather(small)


def test_what_a_model_writes_never_ends_the_script_it_stands_in(data):
    text = html.page(data)
    assert text.count("</script>") == 2, "the page's own two"
    assert "<img" not in text and "<script>alert" not in text
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    answers = [
        row for run in json.loads(found)["runs"] for s in run["samples"] for row in s["rows"]
    ]
    assert answers[0]["completion"] == visible(EVIL)
    assert max(len(row["completion"]) for row in answers) < 2100


def test_it_needs_no_network(data):
    text = html.page(data)
    assert "connect-src 'none'" in text and "default-src 'none'" in text
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"\bsrc=|<link|@import|url\(", html.page({**data, "runs": [], "missing": []})
    )


def test_the_same_files_give_the_same_bytes(small):
    assert html.page(contents.gather(small)) == html.page(contents.gather(small))


def test_curves_are_the_files_numbers(small, data):
    run = next(run for run in data["runs"] if (run["arm"], run["seed"]) == ("arm_1", 2))
    frame = pd.read_csv(small / "arm_1/seed=2/metrics.csv", index_col="step")
    assert run["metrics"]["step"] == list(frame.index)
    assert run["metrics"]["values"]["ratio/p99"] == pytest.approx(frame["ratio/p99"], rel=1e-4)
    assert [alarm["step"] for alarm in run["alarms"]] == [150]


def test_tokens_used_grow_in_proportion_between_rows(data):
    """Rows at 1, 10, 20, ... of 6000 tokens each: step 25 lies halfway from 18000 to 24000."""
    run = data["runs"][0]
    used = dict(zip(run["evals"]["step"], run["evals"]["tokens"], strict=True))
    assert used[0] == 0
    assert used[25] == 21000
    assert run["metrics"]["tokens"][:3] == [6000, 12000, 18000]


def test_an_arm_is_summed_up(data):
    baseline, arm_1, arm_2 = data["arms"]
    assert (baseline["is_baseline"], arm_1["is_baseline"]) == (True, False)
    assert arm_1["delta"] == [["clip.eps_high", "0.2", "0.21"]]
    assert (arm_1["cells"]["alarms"], arm_2["cells"]["finished"]) == (2, "1/2")
    assert data["missing"] == [f"arm_2, seed 2: failed. ValueError: {visible(EVIL)}"]
    assert data["summary"] == "3 arms × 2 seeds: 5 complete, 1 failed"


def test_a_study_that_has_just_begun_is_a_page_too(tmp_path):
    root = study(tmp_path, arms=1, seeds=1)
    for name in ("metrics.csv", "eval.csv", "samples.jsonl", "events.jsonl"):
        (root / f"baseline/seed=1/{name}").unlink()
    data = contents.gather(root)
    assert data["arms"][0]["cells"]["accuracy"] is None
    assert html.page(data)


# verdicts


def row(data, name):
    return next(arm for arm in data["arms"] if arm["name"] == name)


def test_a_verdict_is_a_row_of_points(small):
    cells = row(contents.gather(small, report()), "arm_1")["cells"]
    assert {k: cells[k] for k in ("verdict", "delta", "interval", "n", "p_holm", "tokens")} == {
        "verdict": "helps",
        "delta": [0.031, "+3.1"],
        "interval": [0.012, "+1.2…+5.0"],
        "n": "3/3",
        "p_holm": [0.004, "0.004"],
        "tokens": [1.04, "×1.04"],
    }


def test_an_arm_without_an_estimate_has_a_word_and_a_reason(small):
    data = contents.gather(small, report())
    arm = row(data, "arm_2")
    assert arm["cells"]["verdict"] == "incomplete" and "delta" not in arm["cells"]
    assert arm["notes"] == [visible(EVIL)]
    assert [r["arm"] for r in data["forest"]["rows"]] == ["arm_1", "arm_3"]
    assert row(data, "baseline")["cells"]["verdict"] == "baseline"


def test_what_unfolds_under_a_verdict(small):
    assert row(contents.gather(small, report()), "arm_1")["notes"] == [
        "arm_1 helps: +3.1 pt",
        "Δ of each seed, points: seed 1 +2.0, seed 2 +5.0",
        "paired: interval +0.1…+6.0, p 0.040",
        "Δ by difficulty, points: 3: -1.0",
    ]


def test_the_rules_steps_are_marked_and_the_captions_say_what_is_shown(small):
    data = contents.gather(small, report())
    assert data["marks"] == [300, 500]
    caption = data["forest"]["caption"]
    assert all(t in caption for t in ("step 500", "95 % interval", "n = 3", "±δ = 2 points"))
    assert [table["title"] for table in data["tables"]] == ["Interactions", "Smoothness"]
    assert data["tables"][0]["rows"][0][3:5] == ["+1.0", "-1.0…+3.0"]
    assert data["missing"] == [f"failed: {visible(EVIL)}"]


def test_panels_show_what_is_logged():
    names = {name for panel in contents.PANELS for name in panel["series"]}
    assert names <= {*METRICS, "eval/accuracy"}


def test_a_large_study_stays_under_ten_megabytes(tmp_path):
    root = study(tmp_path, arms=15, seeds=3, steps=1000)
    assert len(html.page(contents.gather(root)).encode()) < 10e6


@pytest.mark.parametrize("command", ["status", "report"])
def test_nothing_acts_on_a_terminal_either(small, capsys, command):
    """The third arm's failed run has markup, escapes and turning marks in its reason."""
    module = importlib.import_module(f"grpo_ablate.commands.{command}")
    module.main([str(small), "--once"] if command == "status" else [str(small)])
    shown = capsys.readouterr().out
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", shown
    )
    assert "<script>" in shown, "nothing was left out"
