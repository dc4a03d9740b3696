"""Real runs that are stopped, killed, paused, rolled back and made to fail, and what is left."""

from __future__ import annotations

import json
import math
import os
import shutil

import pytest
import torch

from grpo_ablate import keeper, records
from grpo_ablate.checkpoint import CheckpointError
from grpo_ablate.files import read_json, write_json
from grpo_ablate.learner import Learner
from grpo_ablate.records import Records
from grpo_ablate.scoring import RewardFaultError
from grpo_ablate.sentry import StoppedError
from grpo_ablate.tasks.arithmetic import Arithmetic
from grpo_ablate.train import train
from tests.conftest import SMALL, composed

pytestmark = pytest.mark.slow

SHORT = [
    *SMALL,
    "lr_batch.prompts=4",
    "engine.max_new_tokens=8",
    "steps=6",
    "log_every=4",
    "checkpoint.every=2",
    "advantage=ema_std",
]
FILES = ("metrics.csv", "eval.csv", "samples.jsonl", "histograms.jsonl", "events.jsonl")


def go(folder, *overrides, stop_after=None, hash="h"):
    """Run as the worker does; a stop is asked for after so many steps of this life."""
    folder.mkdir(exist_ok=True)
    asked = [0]

    def interrupted():
        asked[0] += 1
        return asked[0] == stop_after

    config = composed(*SHORT, *overrides)
    return train(config, Records(folder, hash, "source", config["steps"]), interrupted)


def content(folder):
    """All that must not depend on how often a run was stopped: two columns time it."""
    found = {name: (folder / name).read_text() for name in FILES}
    lines = found["metrics.csv"].splitlines()
    assert lines[0].endswith(",perf/tokens_per_second,perf/seconds")
    found["metrics.csv"] = [line.rsplit(",", 2)[0] for line in lines]
    last = max(folder.glob("checkpoints/step=*"), key=lambda path: int(path.name[5:]))
    for part in ("model", "optimizer"):
        found[part] = (last / f"{part}.safetensors").read_bytes()
    return found


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert go(folder) == "complete"
    return folder


@pytest.mark.parametrize("step", [1, 3])
def test_k20_stopped_and_resumed_is_bit_identical(whole, tmp_path, step):
    """K20: weights, AdamW, schedule, EMA of stds, alarms, half-full metric window."""
    folder = tmp_path / "run"
    assert go(folder, stop_after=step) == "interrupted"
    assert read_json(folder / "status.json")["state"] == "interrupted"
    assert go(folder) == "complete"
    assert content(folder) == content(whole)


def test_rows_written_after_the_checkpoint_are_not_doubled(whole, tmp_path, monkeypatch):
    """Death at step 6, after rows of steps 4 and 6: the run goes on at step 4."""
    folder = tmp_path / "run"
    real = Records.evaluation

    def dies(self, step, evaluation):
        real(self, step, evaluation)
        if step == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(records.Records, "evaluation", dies)
        with pytest.raises(KeyboardInterrupt):
            go(folder)
    assert (folder / "eval.csv").read_text() == (whole / "eval.csv").read_text()
    assert go(folder) == "complete"
    assert content(folder) == content(whole)


def test_a_damaged_newest_checkpoint_costs_only_its_steps(whole, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "checkpoints/step=6/model.safetensors").write_bytes(b"x")
    assert go(folder) == "complete"
    assert "step=6 is damaged" in capsys.readouterr().err
    assert content(folder) == content(whole)


def test_another_configuration_is_refused(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with pytest.raises(CheckpointError, match="another configuration"):
        go(folder, hash="other")


def test_a_log_shorter_than_its_checkpoint_is_told_of(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "metrics.csv").write_text("step\n")
    with pytest.raises(OSError, match="shorter than its checkpoint says"):
        go(folder)


def test_the_best_checkpoint_is_named_with_its_test_score(whole):
    """X7, K21: chosen on one half, scored on the other."""
    import pandas as pd

    scores = pd.read_csv(whole / "eval.csv", index_col="step")
    best = read_json(whole / "status.json")["best"]
    assert best["score"] == scores["eval/selection_accuracy"].drop(index=0).max()
    assert best["test"] == scores["eval/test_accuracy"][best["step"]]
    halves = (scores["eval/selection_accuracy"] + scores["eval/test_accuracy"]) / 2
    pd.testing.assert_series_equal(halves, scores["eval/accuracy"], check_names=False)


def rule(signal, kind, threshold, action, **more):
    fields = {"name": "t", "signal": signal, "kind": kind, "threshold": threshold} | more
    fields = {"window": 50, "cooldown": 50, "action": action} | fields
    inner = ",".join(f"{key}:{value}" for key, value in fields.items())
    return ["monitor=off", f"++monitor.rules.T={{{inner}}}"]


def test_pause_takes_back_the_step_and_resume_goes_on(tmp_path):
    """The gradient of step 1 is over the threshold: nothing is applied, all of it is shown."""
    folder, pause = tmp_path / "run", rule("optim/grad_norm", "above", 1e-9, "pause")
    assert go(folder, *pause) == "paused"
    status = read_json(folder / "status.json")
    assert status["state"] == "paused" and status["reason"].startswith("T at step 1")
    assert [e["action"] for e in events(folder)] == ["pause"]
    assert (folder / "metrics.csv").read_text().count("\n") == 1
    fresh = composed(*SHORT)
    from grpo_ablate.stages import assemble

    start = assemble(fresh, Records(tmp_path, "x", "x", 1)).learner.state()
    from safetensors.torch import load_file

    kept = load_file(folder / "checkpoints/step=0/model.safetensors")
    assert all(torch.equal(start[name], tensor) for name, tensor in kept.items())
    text = (folder / "dumps/step=1-T.txt").read_text()
    assert all(word in text for word in ("prompt", "response", "reward", "advantage", "ratios"))
    assert go(folder, *pause) == "complete"
    assert len(events(folder)) == 1, "the batch that was looked at does not pause again"


def test_pause_in_a_later_mini_batch_takes_back_the_earlier_ones(whole, tmp_path):
    """Resumed without a change, the run is the one that was never paused."""
    folder = tmp_path / "run"
    pause = rule("optim/grad_norm", "jump", 0.0, "pause")  # settled after 10 updates: step 6
    assert go(folder, *pause) == "paused"
    assert events(folder)[0]["step"] == 6
    assert go(folder, *pause) == "complete"
    paused, unpaused = content(folder), content(whole)
    assert paused["model"] == unpaused["model"] and paused["optimizer"] == unpaused["optimizer"]
    assert paused["eval.csv"] == unpaused["eval.csv"]


def test_a_pause_right_after_a_resume_keeps_the_checkpoints_score(tmp_path):
    folder = tmp_path / "run"
    assert go(folder, stop_after=4) == "interrupted"
    score = read_json(folder / "checkpoints/step=4/state.json")["score"]
    assert go(folder, *rule("policy/entropy", "above", 0.0, "pause")) == "paused"
    assert read_json(folder / "checkpoints/step=4/state.json")["score"] == score is not None


def test_pause_by_a_signal_known_after_the_step(tmp_path):
    folder = tmp_path / "run"
    assert go(folder, *rule("policy/entropy", "above", 0.0, "pause")) == "paused"
    assert [path.name for path in folder.glob("checkpoints/*")] == ["step=0"]


def test_rollback_goes_to_the_healthy_checkpoint_at_a_lower_rate_then_stops(tmp_path):
    """A real drop of entropy, from a rate that is far too high (article: D2)."""
    folder = tmp_path / "run"
    fall = rule("policy/entropy", "drop", 0.15, "rollback", window=200)
    hot = ["model.base_lr=0.03", "lr_batch.warmup=4", "steps=40", "checkpoint.every=1"]
    with pytest.raises(StoppedError, match=r"max_rollbacks=1 are used up"):
        go(folder, *fall, *hot, "monitor.max_rollbacks=1")
    found = events(folder)
    assert [e["action"] for e in found] == ["rollback", "rollback"]
    newest = max(folder.glob("checkpoints/step=*"), key=lambda path: int(path.name[5:]))
    state = read_json(newest / "state.json")
    assert state["sentry"]["rollbacks"] == 1 and state["sentry"]["lr_factor"] == 0.5
    steps = [int(line.split(",")[0]) for line in (folder / "eval.csv").read_text().split()[1:]]
    assert steps == sorted(set(steps)), "undone rows are gone, redone ones there once"


def test_lr_scale_halves_the_rate_from_the_next_step_on(tmp_path):
    import pandas as pd

    folder = tmp_path / "run"
    scale = rule("reward/mean", "above", -9.0, "lr_scale")
    assert go(folder, *scale, "log_every=1", "lr_batch.warmup=0", "steps=3") == "complete"
    rates = pd.read_csv(folder / "metrics.csv")["optim/lr"].tolist()
    assert rates[1] == rates[2] == rates[0] / 2


def test_stop_ends_the_run_with_its_reason(tmp_path):
    with pytest.raises(StoppedError, match="T at step 1: t: policy/entropy"):
        go(tmp_path / "run", *rule("policy/entropy", "above", 0.0, "stop"))


def test_warnings_are_counted_and_change_nothing(whole, tmp_path):
    import pandas as pd

    folder = tmp_path / "run"
    assert go(folder, *rule("policy/entropy", "above", 0.0, "warn")) == "complete"
    assert pd.read_csv(folder / "metrics.csv")["monitor/alarms"].sum() == 1
    assert content(folder)["model"] == content(whole)["model"]


def test_a_rate_that_explodes_pauses_under_the_articles_alarms(tmp_path):
    """monitor=article; article: M5."""
    folder = tmp_path / "run"
    hot = ["monitor=article", "monitor.rules.M7.threshold=0", "steps=60"]
    hot += ["model.base_lr=0.02", "monitor.rules.M2.action=warn"]
    assert go(folder, *hot) == "paused"
    (spike,) = [e for e in events(folder) if e["action"] == "pause"]
    assert spike["monitor"] == "M5" and spike["value"] > 3
    assert (folder / f"dumps/step={spike['step']}-M5.txt").is_file()


def poisoned(monkeypatch, bad):
    """Make the loss of chosen optimizer steps (counted from 1) no number."""
    real, count = Learner._accumulate, [0]

    def accumulate(self, *args):
        loss, norm, trace = real(self, *args)
        count[0] += 1
        return (math.nan if count[0] in bad else loss), norm, trace

    monkeypatch.setattr(Learner, "_accumulate", accumulate)


def test_a_step_that_is_no_number_is_skipped_counted_and_dumped(tmp_path, monkeypatch):
    import pandas as pd

    folder = tmp_path / "run"
    poisoned(monkeypatch, {3})
    assert go(folder, "log_every=1", "eval_every=6") == "complete"
    rows = pd.read_csv(folder / "metrics.csv", index_col="step")
    assert rows["optim/skipped"].tolist() == [0, 1, 0, 0, 0, 0]
    assert rows["optim/updates"][2] < 2
    assert not rows[["policy/loss", "ratio/p99", "optim/grad_norm"]].isna().any(axis=None)
    assert [(e["action"], e["step"]) for e in events(folder)] == [("skip", 2)]
    assert (folder / "dumps/step=2-finite.txt").is_file()


def test_too_many_in_a_row_stop_the_run(tmp_path, monkeypatch):
    poisoned(monkeypatch, set(range(3, 99)))
    with pytest.raises(FloatingPointError, match=r"5 optimizer steps in a row skipped.*not finite"):
        go(tmp_path / "run")


def test_a_reward_function_that_fails_now_and_then(tmp_path, monkeypatch):
    import pandas as pd

    real, asked = Arithmetic.score, [0]

    def score(self, problem, text):
        asked[0] += 1
        return None if asked[0] % 20 == 0 else real(self, problem, text)

    monkeypatch.setattr(Arithmetic, "score", score)
    folder = tmp_path / "run"
    assert go(folder, "monitor.max_fault_share=0.3") == "complete"
    rows = pd.read_csv(folder / "metrics.csv")
    assert rows["reward/excluded"].sum() > 0 and not rows["reward/mean"].isna().any()


def test_a_reward_function_that_always_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(Arithmetic, "score", lambda *_: {}["gone"])
    with pytest.raises(RewardFaultError, match=r"KeyError: 'gone'"):
        go(tmp_path / "run")


def test_a_full_disk_leaves_the_last_checkpoint(whole, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    real, left = os.fsync, [40]

    def fsync(descriptor):
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="No space left"):
            go(folder)
    assert list(folder.glob("checkpoints/step=*"))
    assert go(folder) == "complete"
    assert content(folder) == content(whole)


def test_a_folder_deleted_under_way_ends_the_run(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    real = keeper.Keeper.save

    def save(self, progress):
        real(self, progress)
        shutil.rmtree(folder)

    monkeypatch.setattr(keeper.Keeper, "save", save)
    with pytest.raises(FileNotFoundError):
        go(folder)


def test_a_clock_set_back_does_not_count(tmp_path, monkeypatch):
    times = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(records.time, "time", lambda: float(next(times)))
    folder = tmp_path / "run"
    assert go(folder) == "complete"
    assert 0 < read_json(folder / "status.json")["seconds"] < 600


def test_overrides_of_a_resume_are_in_force_and_on_record(tmp_path):
    from grpo_ablate.manifest import deviated

    write_json(
        tmp_path / "manifest.json",
        {"deviations": [{"step": 3, "overrides": {"lr_batch.lr_scale": 0.5}}]},
    )
    config = composed(*SHORT)
    assert deviated(tmp_path, config)["lr_batch"]["lr_scale"] == 0.5
    assert config["lr_batch"]["lr_scale"] == 1.0
