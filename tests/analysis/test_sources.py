"""Our folders, TRL's own log, verl's names, W&B's exports: read, asked, and told; and bad files."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from grpo_ablate.__main__ import main
from grpo_ablate.analysis import diagnose, load
from grpo_ablate.analysis.diagnosis.aliases import find
from grpo_ablate.analysis.diagnosis.log import Log
from grpo_ablate.analysis.diagnosis.sources import read
from tests.conftest import ROOT, composed
from tests.test_report import make_run

TRL = ROOT / "tests/data/trl/trainer_state.json"
VERL = ROOT / "tests/data/verl/history.csv"


def only(*paths: Path) -> Log:
    runs, (log,) = read(list(paths))
    assert not runs
    return log


def test_trls_own_log():
    """30 optimizer steps of TRL 1.16 (scripts/make_trl_log.py); a rollout has four of them."""
    log = only(TRL)
    assert log.trainer == "trl"
    assert (log.first, log.last) == (1, 30)
    history = json.loads(TRL.read_text())["log_history"]
    rewards = {row["step"]: row["reward"] for row in history if "reward" in row}
    assert log.signals["reward/mean"].to_dict() == rewards
    assert list(rewards) == [1, 5, 9, 13, 17, 21, 25, 29]
    held_out = {row["step"]: row["eval_reward"] for row in history if "eval_reward" in row}
    assert log.signals["eval/accuracy"].to_dict() == held_out
    assert len(log.signals["policy/loss"]) == 30
    assert log.unknown == ()


def test_trls_own_log_is_asked_and_answered_in_its_words():
    answer = diagnose.examine(only(TRL))
    found = {item.rule.id: item for item in answer.findings}
    assert "M7" in found, "the embedded model's entropy lies below a language model's 0.5"
    assert "M5" in answer.quiet
    assert dict(answer.unasked)["M4"] == "no ratio/p99 in this log"
    text = diagnose.text(answer)
    assert "lr_batch" not in text
    assert "D5, steps 1-29" in text


def test_a_verl_history_end_to_end(capsys):
    """A made-up run under verl's names: entropy falls from step 120 on, the reward stalls."""
    log = only(VERL)
    assert log.trainer == "verl"
    assert log.unknown == ("my/own_column",)
    assert main(["diagnose", str(VERL)]) == 0
    text = capsys.readouterr().out
    assert "actor_rollout_ref.actor.clip_ratio_high=0.28" in text
    assert "data.max_response_length=<twice the present>" in text
    assert "columns not known here: my/own_column" in text
    found = {item.rule.id: item for item in diagnose.examine(log).findings}
    assert {"D1_entropy", "D2", "truncation"} <= set(found)
    entropy, evidence = log.signals["policy/entropy"], found["D2"].evidence
    assert 120 < evidence.first < evidence.last == 400
    assert (entropy[entropy.index >= evidence.first] < 0.7 * entropy.max()).all()
    assert ("halve the learning rate", "actor_rollout_ref.actor.optim.lr=5e-07") in found[
        "D2"
    ].tries


VERL_LINES = '{"step": 1, "data": {"critic/rewards/mean": 0.5}}\n{"step": 2, "data": {}}\n'
RECORDS = '[{"_step": 4, "train/global_step": 1, "train/reward": 0.5, "_runtime": 3},'
RECORDS += '{"_step": 9, "train/global_step": 2, "train/reward": "NaN", "eval/reward": 0.25}]'
CELLS = '{"_step": {"0": 1, "1": 2}, "reward/mean": {"0": 0.5, "1": 0.75}}'


@pytest.mark.parametrize(
    "name,text,trainer,signal,values",
    [
        ("a.jsonl", VERL_LINES, "verl", "reward/mean", {1: 0.5}),
        ("a.json", RECORDS, "trl", "reward/mean", {1: 0.5}),
        ("a.json", RECORDS, "trl", "eval/accuracy", {2: 0.25}),
        ("a.json", CELLS, "grpo_ablate", "reward/mean", {1: 0.5, 2: 0.75}),
        ("a.csv", "Step,grad_norm\n1,2.0\n1,\n2,inf\n", "trl", "optim/grad_norm", {1: 2.0}),
        ("a.csv", "step,reward/mean\n1,0.5\n2,0.", "grpo_ablate", "reward/mean", {1: 0.5, 2: 0.0}),
        (
            "a.csv",
            "step,val-core/a/acc/mean@8,val-core/b/acc/mean@8,actor/lr\n5,0.5,0.25,1e-6\n",
            "verl",
            "eval/accuracy",
            {5: 0.375},
        ),
        (
            "a.csv",
            "step,actor/entropy_loss,actor/entropy\n1,9.0,0.5\n",
            "verl",
            "policy/entropy",
            {1: 0.5},
        ),
    ],
    ids=[
        "verl-lines",
        "wandb",
        "wandb-eval",
        "cells",
        "same-step",
        "cut-short",
        "data-sets",
        "older",
    ],
)
def test_forms(tmp_path, name, text, trainer, signal, values):
    (tmp_path / name).write_text(text)
    log = only(tmp_path / name)
    assert log.trainer == trainer
    assert log.signals[signal].to_dict() == values


def test_wandb_charts_are_put_together_by_run(tmp_path):
    header = '"Step","{0} - {1}","{0} - {1}__MIN","{0} - {1}__MAX","b - c - {1}"\n'
    reward, entropy = tmp_path / "1.csv", tmp_path / "2.csv"
    reward.write_text(header.format("a", "train/reward") + "1,0.5,0.1,0.9,0.25\n2,0.6,0.1,0.9,\n")
    entropy.write_text(header.format("a", "train/entropy") + "1,1.5,1,2,1.25\n")
    runs, logs = read([reward, entropy])
    assert not runs
    by_name = {log.name: log for log in logs}
    assert by_name.keys() == {"a", "b - c"}
    assert by_name["a"].signals["reward/mean"].to_dict() == {1: 0.5, 2: 0.6}
    assert by_name["b - c"].signals["policy/entropy"].to_dict() == {1: 1.25}
    assert by_name["a"].unknown == ()


@pytest.mark.parametrize(
    "name,content,says",
    [
        ("a.csv", None, "does not exist"),
        ("a.csv", b"", "is no history"),
        ("a.csv", b"step,reward\n", "no row with a step"),
        ("a.csv", b"x,y\n1,2\n", "no column of steps"),
        ("a.csv", b"step,height\n1,2\n", "no column that is known"),
        ("a.json", b"{broken", "is no history"),
        ("a.json", b"[1, 2]", "neither a list of rows"),
        ("a.json", b"3", "neither a list of rows"),
        ("a.csv", bytes(range(128, 256)), "is no history"),
        ("a.csv", b'step,reward\n1,"2\n3', "is no history"),
        ("folder", None, "holds no runs"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path, capsys, name, content, says):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert main(["diagnose", str(path)]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert str(path) in printed.err
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


def ours(root, arm, seed, *, accuracy, entropy=0.3, **kwargs):
    """Write a run of 400 steps, its reward flat."""
    folder = make_run(root, arm, seed, rows=0, **kwargs)
    steps = range(10, 401, 10)
    columns = {
        "step": steps,
        "reward/mean": 0.5,
        "reward/std": 0.5,
        "reward/frac_zero_std": 0.1,
        "policy/entropy": entropy,
    }
    pd.DataFrame(columns).to_csv(folder / "metrics.csv", index=False)
    scores = pd.DataFrame({"step": range(25, 401, 25), "eval/accuracy": accuracy})
    scores.to_csv(folder / "eval.csv", index=False)
    return folder


def test_a_study_compares_arms_with_their_baseline(tmp_path):
    """Article D6: the mean over shared seeds, and both parts of the stack by name."""
    stack = "clip_higher+dynamic_sampling"
    for seed, noise in ((1, 0.02), (2, -0.02)):
        ours(tmp_path, "baseline", seed, accuracy=0.5 + noise)
        ours(tmp_path, stack, seed, accuracy=0.45 + noise)
        ours(tmp_path, "gspo", seed, accuracy=0.49 - noise)
    rows = diagnose.study(load.read_study(tmp_path))
    (worse,) = (row for row in rows if row["rule"] == "D6")
    assert (worse["arm"], worse["seed"], worse["level"]) == (stack, None, "fault")
    assert "0.450, 0.050 below the baseline's 0.500" in worse["says"]
    assert worse["tries"][0].endswith("+experiment=clip_higher,dynamic_sampling -m seed=1,2")
    assert {row["seed"] for row in rows if row["rule"] == "D1_lr"} == {1, 2}
    assert json.loads(json.dumps(rows)) == rows, "plain values"
    levels = [row["level"] for row in rows]
    assert levels == sorted(levels, key=["fault", "caution", "note"].index)


def test_a_single_trick_and_another_baseline_in_d6(tmp_path):
    """standard+gspo is one trick on the baseline `standard`, a stack has two."""
    ours(tmp_path, "standard", 3, accuracy=0.5, baseline="standard")
    ours(tmp_path, "standard+gspo", 3, accuracy=0.4, baseline="standard")
    ours(tmp_path, "standard+gspo+no_std", 3, accuracy=0.4, baseline="standard")
    rows = diagnose.study(load.read_study(tmp_path))
    tries = {row["arm"]: row["tries"][0] for row in rows if row["rule"] == "D6"}
    assert "+experiment" not in tries["standard+gspo"]
    wanted = "+experiment=gspo,no_std -m baseline=standard seed=3"
    assert tries["standard+gspo+no_std"].endswith(wanted)


def test_section_has_a_line_for_an_arm_and_rule(tmp_path):
    for seed in (1, 2):
        ours(tmp_path, "baseline", seed, accuracy=0.5)
    text = diagnose.section(diagnose.study(load.read_study(tmp_path)))
    (line,) = (line for line in text.splitlines() if "D1_lr" in line)
    assert line.startswith("| fault | baseline | 1, 2 | 10–400 | D1_lr: reward flat")
    assert {line.count("|") for line in text.splitlines()} == {7}
    assert diagnose.section([]) == "Nothing to report.\n"


def test_an_arm_without_its_baseline_says_so(tmp_path, capsys):
    ours(tmp_path, "gspo", 1, accuracy=0.4)
    assert main(["diagnose", str(tmp_path)]) == 0
    assert (
        "gspo: D6 not checked: no run of its baseline on the same seeds" in capsys.readouterr().out
    )


def test_one_run_and_its_csv_give_the_same(tmp_path, capsys):
    folder = ours(tmp_path, "baseline", 1, accuracy=0.5, entropy=0.01)
    config = composed("monitor.rules.M7.threshold=0.005")
    (folder / "config.yaml").write_text(json.dumps(config))
    for path in (folder, folder / "metrics.csv", tmp_path / "baseline", tmp_path):
        assert main(["diagnose", str(path)]) == 0
        text = capsys.readouterr().out
        assert "D1_lr" in text, "entropy is healthy by the run's own threshold"
        assert "baseline seed=1 (grpo_ablate, complete, steps 10-400)" in text


def test_live_and_broken_runs(tmp_path, capsys):
    folder = ours(tmp_path, "baseline", 1, accuracy=0.5, state="failed")
    with (folder / "metrics.csv").open("a") as file:
        file.write("410,0.9,0")
    ours(tmp_path, "baseline", 2, accuracy=0.5, state="waiting")
    for name in ("metrics.csv", "eval.csv"):
        (tmp_path / "baseline/seed=2" / name).unlink()
    assert main(["diagnose", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "failed, steps 10-400" in text
    assert "waiting, no row yet" in text


def test_strict_fails_at_a_fault_alone(tmp_path, capsys):
    assert main(["diagnose", "--strict", str(VERL)]) == 6
    assert main(["diagnose", "--strict", str(TRL)]) == 0, "notes only"
    capsys.readouterr()


def test_json_is_whole(capsys):
    assert main(["diagnose", "--json", str(TRL), str(VERL)]) == 0
    trl, verl = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (trl["trainer"], verl["trainer"]) == ("trl", "verl")
    asked = {row["rule"] for row in verl["findings"]} | {*verl["quiet"]} | verl["unasked"].keys()
    assert asked == {rule.id for rule in diagnose.RULES}
    assert verl["unknown_columns"] == ["my/own_column"]
    assert verl["steps"] == [5, 400]


def test_our_own_names_are_ours():
    """Each documented metric, so that a W&B export of a run of ours needs no table."""
    text = (ROOT / "docs/metrics.md").read_text()
    names = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    names = [name for name in names if name != "eval/samples"]  # texts, on W&B alone
    assert len(names) > 50
    for name in names:
        alias = find(name.replace("_N", "_3"))
        assert alias is not None and alias.trainer == "grpo_ablate", name


def test_embedded_default_is_healthy():
    """The three committed runs: reward rises throughout, so the fall of entropy is a note."""
    runs, _ = read([ROOT / "docs/embedded_default"])
    rows = diagnose.study(runs)
    assert {row["level"] for row in rows} == {"caution", "note"}
    assert {"M2", "D5"} <= {row["rule"] for row in rows}
