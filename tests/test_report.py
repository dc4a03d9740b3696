"""Tables and figures from folders in any state."""

from __future__ import annotations

import socket

import pytest

from grpo_ablate.__main__ import main
from grpo_ablate.analysis import figures, load, table
from grpo_ablate.files import Table, lock, read_json, write_json
from grpo_ablate.progress import line

METRICS = ["step", "reward/mean", "policy/entropy", "completion/length_mean"]


def make_run(root, arm, seed, *, state="complete", baseline="baseline", rows=3):
    """Write a run folder as a worker would, with accuracy 0.1 * seed + 0.01 * row."""
    folder = root / arm / f"seed={seed}"
    folder.mkdir(parents=True)
    conditions = [] if baseline == "baseline" else [f"baseline={baseline}"]
    manifest = {"arm": arm, "seed": seed, "baseline": baseline, "conditions": conditions}
    write_json(folder / "manifest.json", manifest)
    if state != "waiting":
        status = {
            "state": state,
            "step": rows,
            "steps": 3,
            "seconds": 12.4,
            "latest": {"reward": 0.5},
        }
        status |= {"reason": "MemoryError: too big\nmore"} if state == "failed" else {}
        write_json(folder / "status.json", status)
    if rows:
        metrics = Table(folder / "metrics.csv", METRICS)
        evals = Table(folder / "eval.csv", ["step", "eval/accuracy"])
        for i in range(rows):
            metrics.append(dict(zip(METRICS, (i, 0.5, 1.25, float("nan")), strict=True)))
            evals.append({"step": i, "eval/accuracy": 0.1 * seed + 0.01 * i})
    return folder


def test_table_shows_first_and_last_accuracy(tmp_path):
    folder = make_run(tmp_path, "clip_higher", 1)
    text = table.render([load.read_run(folder)])
    row = " ".join(text.splitlines()[1].split())
    assert row == "clip_higher 1 complete 0.100 → 0.120 0.500 1.250 - 12"


def test_a_row_cut_by_a_crash_is_left_out(tmp_path):
    folder = make_run(tmp_path, "a", 1)
    with (folder / "metrics.csv").open("a") as file:
        file.write("3,0.5")
    assert list(load.read_run(folder).metrics.index) == [0, 1, 2]


@pytest.mark.parametrize("state", ["waiting", "running", "failed"])
def test_any_state_can_be_read(tmp_path, state):
    folder = make_run(tmp_path, "a", 1, state=state, rows=0)
    run = load.read_run(folder)
    assert run.state == state
    assert state in table.render([run])
    assert any(state in text for text in table.advice([run], [run]))
    assert line(folder)


def test_failure_is_told_in_one_line(tmp_path):
    run = load.read_run(make_run(tmp_path, "a", 1, state="failed"))
    (first, *_) = table.advice([run], [run])
    assert "MemoryError: too big" in first
    assert "more" not in first
    assert "MemoryError: too big" in line(run.folder)


def test_missing_baseline_is_named_with_its_command(tmp_path):
    make_run(tmp_path, "clip_higher", 1)
    make_run(tmp_path, "clip_higher", 2)
    make_run(tmp_path, "baseline", 1)
    study = load.read_study(tmp_path)
    text = "\n".join(table.advice(study, study))
    assert "python -m grpo_ablate -m seed=2" in text
    make_run(tmp_path, "baseline", 2)
    study = load.read_study(tmp_path)
    assert table.advice(study, study) == []


def test_missing_standard_baseline(tmp_path):
    make_run(tmp_path, "standard+no_std", 3, baseline="standard")
    study = load.read_study(tmp_path)
    assert "python -m grpo_ablate baseline=standard -m seed=3" in table.advice(study, study)[0]


def test_the_suggested_command_repeats_the_conditions(tmp_path):
    folder = make_run(tmp_path, "gspo", 1)
    manifest = read_json(folder / "manifest.json") | {"conditions": ["steps=9", "study=my study"]}
    write_json(folder / "manifest.json", manifest)
    study = load.read_study(tmp_path)
    assert (
        "python -m grpo_ablate steps=9 'study=my study' -m seed=1" in table.advice(study, study)[0]
    )


def test_code_edited_during_a_sweep_is_told(tmp_path):
    folder = make_run(tmp_path, "a", 1)
    write_json(
        folder / "manifest.json", read_json(folder / "manifest.json") | {"code": {"source": "x"}}
    )
    for source, told in (("x", False), ("y", True)):
        status = read_json(folder / "status.json") | {"source": source}
        write_json(folder / "status.json", status)
        run = load.read_run(folder)
        assert any("code changed" in text for text in table.advice([run], [run])) == told


def test_a_run_killed_with_its_parent_has_failed(tmp_path):
    """status.json says running, but nobody holds the folder's lock."""
    folder = make_run(tmp_path, "a", 1, state="running")
    here = read_json(folder / "status.json") | {"host": socket.gethostname()}
    write_json(folder / "status.json", here)
    assert load.read_run(folder).state == "failed"
    with lock(folder / ".lock"):
        assert load.read_run(folder).state == "running"
    write_json(folder / "status.json", here | {"host": "elsewhere"})
    assert load.read_run(folder).state == "running", "another machine's lock cannot be seen"


def test_figures_are_drawn_per_run_and_per_baseline(tmp_path):
    for arm, base in [("baseline", "baseline"), ("gspo", "baseline"), ("standard", "standard")]:
        for seed in (1, 2):
            make_run(tmp_path, arm, seed, baseline=base)
    study = load.read_study(tmp_path)
    assert [run.arm for run in study][:2] == ["baseline", "baseline"], "baselines lead"
    paths = figures.draw_comparison(study, tmp_path / "report/fig")
    assert [path.name for path in paths] == ["comparison.png", "comparison_standard.png"]
    assert figures.draw_run(study[0]).read_bytes()[:4] == b"\x89PNG"


def test_report_command(tmp_path, capsys):
    make_run(tmp_path, "baseline", 1)
    assert main(["report", str(tmp_path)]) == 0
    make_run(tmp_path, "baseline", 2, state="failed")
    assert main(["report", str(tmp_path)]) == 3
    assert main(["report", str(tmp_path / "empty")]) == 2
    assert "comparison.png" in capsys.readouterr().out
