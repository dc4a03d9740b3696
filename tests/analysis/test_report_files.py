"""A report of a folder in any state: its files, its bytes, its exit code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from grpo_ablate.__main__ import main
from grpo_ablate.analysis import cost, figures, load, publish, report
from grpo_ablate.files import write_json
from tests.analysis.simulate import DESIGN, run, study, write
from tests.conftest import ROOT

FILES = {
    *("verdicts.csv", "scores.csv", "curves.csv", "interactions.csv"),
    *("report.json", "REPORT.md"),
}


@pytest.fixture(autouse=True, scope="module")
def no_figures():
    """Nothing is drawn here: a dozen figures a report take most of a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_run", lambda run: None)
        patch.setattr(figures, "draw_comparison", lambda runs, folder: [])
        yield


def reported(folder):
    return {name: (folder / "report" / name).read_bytes() for name in FILES}


def arms(folder):
    return {a["arm"]: a for a in json.loads((folder / "report/report.json").read_text())["arms"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = study({"a": 0.06, "b": 0.0, "a+b": 0.03}, sigma=0.004)
    return write(runs, tmp_path_factory.mktemp("study") / "out")


def test_the_same_files_give_the_same_bytes_anywhere(folder, tmp_path, monkeypatch):
    assert main(["report", str(folder)]) == 0
    first = reported(folder)
    assert main(["report", str(folder)]) == 0
    assert reported(folder) == first
    shutil.copytree(folder, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "elsewhere"]) == 0
    assert reported(tmp_path / "elsewhere") == first
    assert not any(str(tmp_path).encode() in text for text in first.values())


def test_tables_hold_what_was_judged(folder):
    main(["report", str(folder)])
    verdicts = pd.read_csv(folder / "report/verdicts.csv", index_col="arm")
    assert dict(verdicts["verdict"]) == {
        "a": "helps",
        "a+b": "helps",
        "b": "equivalent within ±δ",
    }
    scores = pd.read_csv(folder / "report/scores.csv")
    deltas = (
        scores.groupby("arm")["score"].mean() - scores.set_index("arm")["score"]["baseline"].mean()
    )
    for arm in verdicts.index:
        assert verdicts["delta"][arm] == pytest.approx(deltas[arm])
    pair = pd.read_csv(folder / "report/interactions.csv")
    assert list(pair["word"]) == ["interference"]
    curves = pd.read_csv(folder / "report/curves.csv")
    assert len(curves) == len(scores) * 21
    assert curves.groupby(["arm", "seed"])["tokens"].last().eq(200_000).all()
    assert verdicts["sentence"]["a"] in (folder / "report/REPORT.md").read_text()


def test_mixed_code_is_refused_with_exit_code_4(tmp_path, capsys):
    runs = [*study({"a": 0.06})[:5], run("a", 3, 0.6, source="t")]
    assert main(["report", str(write(runs, tmp_path / "out"))]) == 4
    assert "a: invalid: source code differs" in capsys.readouterr().out


def test_an_edited_configuration_is_refused(tmp_path):
    out = write(study({"a": 0.06}), tmp_path / "out")
    path = out / "a/seed=2/config.yaml"
    path.write_text(path.read_text().replace("eps_a: 0.28", "eps_a: 0.3"))
    assert main(["report", str(out)]) == 4
    assert "a/seed=2 ran with configuration" in arms(out)["a"]["reason"]


def test_a_broken_sweep_is_reported_with_the_commands_that_mend_it(tmp_path, capsys):
    runs = study({"a": 0.06}, seeds=4)
    out = write([r for r in runs if (r.arm, r.seed) != ("baseline", 4)], tmp_path / "out")
    write_json(out / "a/seed=1/status.json", {"state": "failed", "reason": "MemoryError: x"})
    for name in ("metrics.csv", "eval.csv"):
        (out / f"a/seed=1/{name}").unlink()
    write_json(out / "a/seed=2/status.json", {"state": "running", "host": "elsewhere"})
    path = out / "a/seed=2/eval.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:6]) + "\n150,0.4")
    assert main(["report", str(out)]) == 3
    found = json.loads((out / "report/report.json").read_text())
    (arm,) = found["arms"]
    assert (arm["verdict"], arm["finished"], arm["planned"]) == ("helps", 2, 4)
    assert [row["command"] for row in found["missing"]] == [
        "python -m grpo_ablate resume multirun_outputs/a/seed=1",
        "python -m grpo_ablate -m seed=4",
    ]
    assert "MemoryError: x" in found["missing"][0]["what"]
    capsys.readouterr()


def test_without_study_yaml_the_reader_is_warned(folder):
    runs = load.read_study(folder)
    assert "no study.yaml" in report.build(runs)["warnings"][0]
    assert report.build(runs, DESIGN)["warnings"] == []


def test_a_frozen_design_is_used(folder, tmp_path):
    out = shutil.copytree(folder, tmp_path / "out")
    (out / "study.yaml").write_text("horizon: 500\nwindow: 5\nmargin: 0.1\nalpha: 0.05\n")
    assert main(["report", str(out)]) == 0
    assert arms(out)["b"]["verdict"] == "equivalent within ±δ"
    assert "within ±10 pt" in arms(out)["b"]["sentence"]
    (out / "study.yaml").write_text("horizon: [")
    assert main(["report", str(out)]) == 2


def test_numbers_that_say_nothing_yet_are_in_parentheses(tmp_path):
    out = write(study({"a": 0.06}, steps=200, number=2), tmp_path / "out")
    assert main(["report", str(out)]) == 0
    text = (out / "report/REPORT.md").read_text()
    assert "| a | too early to judge | (+" in text
    assert "In parentheses" in text
    assert "nothing is judged" in text, "the horizon of these runs is 200"


def test_one_run_alone(tmp_path):
    out = write([run("baseline", 1, 0.6)], tmp_path / "out")
    assert main(["report", str(out)]) == 0
    assert "No arm beside the baseline yet" in (out / "report/REPORT.md").read_text()


def test_cost_is_relative_and_counts_dropped_tokens_as_logged():
    runs = [*study({"a": 0.0})[:3], *[run("a", s, 0.6, tokens=12_500.0) for s in (1, 2, 3)]]
    (row,) = report.build(runs, DESIGN)["arms"]
    assert row["cost"] == {"tokens": 1.25, "updates": 1.0, "seconds": 1.0}
    assert "25 % more generated tokens" in row["sentence"]


def test_steps_to_the_baselines_gain_and_censoring():
    """The baseline climbs .3 → .6 by step 300: 90 % of its gain is .57, first held at 275."""
    runs = [run("baseline", s, 0.6) for s in (1, 2)] + [run("a", s, 0.5) for s in (1, 2)]
    rows = {(r["arm"], r["seed"]): r for r in report.build(runs, DESIGN)["runs"]}
    assert rows["baseline", 1]["step_to_goal"] == 275
    assert rows["baseline", 1]["tokens_to_goal"] == 11 * 10_000
    assert rows["a", 1]["step_to_goal"] is None
    flat = [run("baseline", s, 0.3) for s in (1, 2)]
    assert report.build(flat, DESIGN)["runs"][0]["step_to_goal"] is None, "nothing to race to"


def test_difficulty_split_and_checkpoint_selection():
    """Means over the last W = 5 evaluations; the half that chooses flatters itself."""
    runs = study({"a": 0.0}, sigma=0.001)
    for one in runs:
        shift = 0.1 if one.arm == "a" else 0.0
        one.evals["eval/accuracy_2"] = 0.8 - shift
        one.evals["eval/accuracy_4"] = 0.4 + shift
        one.evals["eval/selection_accuracy"] = [0.5] * 10 + [0.7] + [0.5] * 10
        one.evals["eval/test_accuracy"] = [0.5] * 10 + [0.52] + [0.5] * 10
    found = report.build(runs, DESIGN)
    split = found["arms"][0]["difficulty"]
    assert {level: round(row["delta"], 9) for level, row in split.items()} == {"2": -0.1, "4": 0.1}
    selection = found["runs"][0]["selection"]
    assert (selection["step"], selection["test"]) == (250, 0.52)
    assert selection["seeming"] == pytest.approx(0.2)
    assert selection["real"] == pytest.approx(0.02)


def test_smoothness_is_ranked_among_arms_that_are_not_worse():
    rough = [0.3 + 0.3 * min(i / 12, 1) + 0.02 * (-1) ** i for i in range(21)]
    runs = study({"a": 0.0, "c": -0.1}, sigma=0.002, seeds=4)
    runs += [run("b", s, 0.6, curve=rough) for s in (1, 2, 3, 4)]
    found = report.build(runs, DESIGN)
    everyone = [*found["baselines"], *found["arms"]]
    ranks = {row["arm"]: row["smoothness"]["rank"] for row in everyone}
    assert ranks == {"a": 1, "baseline": 2, "b": 3, "c": None}


def test_floor_needs_the_number_of_questions():
    assert cost.floor([run("a", 1, 0.6)], 0.5) == pytest.approx(1.34898 * (0.5 / 250) ** 0.5)
    bare = run("a", 1, 0.6)
    bare.config.pop("evaluation")
    assert cost.floor([bare], 0.5) is None


def test_an_unknown_cell_is_empty_never_zero():
    text = publish.table([{"a": None, "b": {"c": 0.0}}], ["a", "b.c", "b.d"])
    assert text == "a,b.c,b.d\n,0.0,\n"


@pytest.mark.slow
def test_a_laptop_without_torch_and_wandb(folder):
    """Everything under grpo_ablate.analysis imports, and a report is made."""
    code = """
import importlib, pathlib, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "wandb", "transformers", "vllm"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
for path in pathlib.Path("grpo_ablate/analysis").rglob("*.py"):
    parts = path.with_suffix("").parts
    importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
from grpo_ablate import study
from grpo_ablate.analysis import load, publish, report
folder = pathlib.Path(sys.argv[1])
publish.write(report.build(load.read_study(folder), study.read(folder)), folder / "report")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
