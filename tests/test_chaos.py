"""Processes that really die: the short form of scripts/chaos.py, signals, and `resume` as typed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from grpo_ablate.files import read_json
from tests.conftest import ROOT, SMALL, shell, start

pytestmark = pytest.mark.slow

LONG = [*SMALL, "steps=1000", "checkpoint.every=3"]


def test_killed_at_random_points_and_resumed():
    """SIGKILL while saving, evaluating, generating, stepping; the committed long form has 30."""
    done = subprocess.run(
        [sys.executable, "scripts/chaos.py", "--kills", "4", "--seed", "7"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 ended identical, 0 not" in done.stdout


def test_the_committed_figures_are_of_thirty_identical_kills():
    import pandas as pd

    rows = pd.read_csv(ROOT / "docs/chaos.csv")
    assert len(rows) >= 30 and rows["killed"].all() and rows["differs"].isna().all()
    assert set(rows["place"]) == {"saving", "evaluating", "generating", "stepping"}


def run_folder(root):
    return root / "multirun_outputs/small/seed=1"


def at_step(root, step, folder=None):
    """Wait until the run has passed a step; return its status."""
    folder = folder or run_folder(root)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = read_json(folder / "status.json")
        if found.get("step", 0) >= step:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"step {step} was not reached")


def test_a_signal_finishes_the_step_saves_and_goes(tmp_path):
    with start(tmp_path, *LONG) as sweep:
        at_step(tmp_path, 2)
        asked = time.monotonic()
        sweep.terminate()
        output = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 130, output
    assert time.monotonic() - asked < 30
    status = read_json(run_folder(tmp_path) / "status.json")
    assert status["state"] == "interrupted"
    assert (run_folder(tmp_path) / f"checkpoints/step={status['step']}").is_dir()
    shown = shell("status", "--once", cwd=tmp_path)
    assert shown.returncode == 3 and "interrupted" in shown.stdout
    again = start(tmp_path, *LONG)
    with again:
        assert at_step(tmp_path, status["step"] + 1)["step"] > status["step"]
        again.terminate()
        again.communicate(timeout=60)
    assert again.returncode == 130


def test_a_signal_reaches_the_workers_of_a_launcher_before_it_kills_them(tmp_path):
    """Joblib kills its processes and all they started; it must not do so in mid-step."""
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    with start(tmp_path, *LONG, *launcher, "-m", "seed=1,2,3") as sweep:
        second = run_folder(tmp_path).with_name("seed=2")
        at_step(tmp_path, 2)
        at_step(tmp_path, 2, second)
        sweep.terminate()
        output = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 130, output
    for folder in (run_folder(tmp_path), second):
        status = read_json(folder / "status.json")
        assert status["state"] == "interrupted"
        assert (folder / f"checkpoints/step={status['step']}").is_dir()
    assert not (run_folder(tmp_path).with_name("seed=3") / "status.json").exists()


def test_a_second_signal_ends_at_once(tmp_path, monkeypatch):
    """The worker hangs in its step: a first signal waits for it, a second does not."""
    script = (
        "import os, signal, time\n"
        "from grpo_ablate.interrupt import Interrupt\n"
        "ask = Interrupt()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "assert ask()\n"
        "os.kill(os.getpid(), signal.SIGINT)  # the terminal's echo of the same request\n"
        "time.sleep(0.5)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=30)
    assert done.returncode == 128 + signal.SIGTERM


def test_a_paused_run_waits_for_resume_and_its_overrides_are_on_record(tmp_path):
    rule = "{name:t,kind:above,signal:optim/grad_norm,window:1,threshold:1e-9,cooldown:99,"
    rule += "action:pause}"
    typed = [*SMALL, "steps=3", "monitor=off", f"++monitor.rules.T={rule}"]
    for _ in range(2):  # the second time it is left alone
        done = shell(*typed, cwd=tmp_path)
        assert done.returncode == 3 and "paused" in done.stdout, done.stdout + done.stderr
    folder = run_folder(tmp_path)
    assert len((folder / "events.jsonl").read_text().splitlines()) == 1
    went_on = shell("resume", str(folder), "lr_batch.lr_scale=0.5", cwd=tmp_path)
    assert went_on.returncode == 0, went_on.stdout + went_on.stderr
    manifest = read_json(folder / "manifest.json")
    assert manifest["deviations"] == [{"step": 0, "overrides": {"lr_batch.lr_scale": 0.5}}]
    again = shell(*typed, cwd=tmp_path)
    assert again.returncode == 0 and "no clean arm" in again.stdout


def test_a_folder_deleted_under_way_stops_no_other_run(tmp_path):
    typed = [*SMALL, "steps=30", "-m", "seed=1,2"]
    with start(tmp_path, *typed) as sweep:
        at_step(tmp_path, 1)
        shutil.rmtree(run_folder(tmp_path), ignore_errors=True)
        output = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 3, output
    second = run_folder(tmp_path).with_name("seed=2")
    assert json.loads((second / "status.json").read_text())["state"] == "complete"


def test_two_sweeps_on_one_folder(tmp_path):
    """K22: the second refuses and touches nothing; Ctrl-C then ends the first as SIGTERM does."""
    with start(tmp_path, *LONG) as first:
        at_step(tmp_path, 1)
        second = shell(*LONG, cwd=tmp_path)
        assert second.returncode == 2 and "is being run by another process" in second.stderr
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    assert read_json(run_folder(tmp_path) / "status.json")["state"] == "interrupted"
