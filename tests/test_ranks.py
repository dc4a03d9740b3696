"""Two ranks over gloo on the CPU do what one does."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from grpo_ablate.files import read_json
from tests.conftest import SMALL, plain, shell, start

pytestmark = pytest.mark.slow

RUN = [
    *SMALL,
    "model.dtype=float64",
    "steps=3",
    "lr_batch.prompts=4",
    "engine.max_new_tokens=8",
    "checkpoint.every=1",
]


def run(folder, *overrides):
    done = plain(*RUN, *overrides, f"output_dir={folder}", cwd=folder.parent)
    found = next(folder.glob("*/seed=1"))
    assert done.returncode == 0, done.stderr + (found / "worker.log").read_text()
    return found


def metrics(folder):
    table = pd.read_csv(folder / "metrics.csv", index_col="step")
    return table.drop(columns=[c for c in table if c.startswith("perf/")])


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return run(tmp_path_factory.mktemp("one") / "study")


def same(found, wanted):
    assert metrics(wanted)["optim/grad_norm"].max() > 0
    np.testing.assert_allclose(metrics(found), metrics(wanted), rtol=1e-6, atol=1e-9)
    memory, whole = (
        load_file(f / "checkpoints/step=3/optimizer.safetensors") for f in (found, wanted)
    )
    assert memory.keys() == whole.keys()
    for name, mean in whole.items():  # AdamW's mean is a sum of gradients
        if ".exp_avg." in name:
            assert (memory[name] - mean).norm() <= 1e-6 * mean.norm(), name


def test_two_ranks_give_the_numbers_of_one(one, tmp_path):
    """Gradient norms, ratios and rewards over three updates."""
    same(run(tmp_path / "two", "ranks=2"), one)


def test_the_distance_to_the_reference_and_tis_weights_are_those_of_one(tmp_path):
    """Both take a pass of their own over the rollout: a rank knows its own rows' alone."""
    arm = ["regularizer=kl", "regularizer.coefficient=1.0", "tis=sequence"]
    one = run(tmp_path / "one", *arm)
    assert metrics(one)["policy/kl_ref"].max() > 1e-6, "the policy moved away"
    same(run(tmp_path / "two", "ranks=2", *arm), one)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_rank_ends_the_run_which_two_resume(one, tmp_path, victim):
    """SIGKILL of one: the others are gone, and the end is that of a run left alone."""
    folder = tmp_path / "study"
    process, found, pids = two_at_work(tmp_path, folder)
    os.kill(pids[victim], signal.SIGKILL)
    process.communicate(timeout=60)
    assert read_json(found / "status.json")["state"] == "failed"
    assert not (found / "checkpoints/step=3").exists(), "killed too late to show anything"
    assert gone(pids)
    same(run(folder, "ranks=2"), one)


def test_a_request_to_stop_saves_on_two_ranks_and_one_resumes(one, tmp_path):
    """Only rank 0 hears it; all leave after the same step."""
    folder = tmp_path / "study"
    process, found, pids = two_at_work(tmp_path, folder)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    status = read_json(found / "status.json")
    assert status["state"] == "interrupted", output
    assert (found / f"checkpoints/step={status['step']}").is_dir() and status["step"] < 3
    assert gone(pids)
    same(run(folder), one)


def two_at_work(tmp_path, folder):
    """Start two ranks; return the command, the run's folder and the ranks' pids after step 1."""
    process = start(tmp_path, *RUN, "ranks=2", f"output_dir={folder}")
    while not list(folder.glob("*/seed=1/checkpoints/step=1")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    found = next(folder.glob("*/seed=1"))
    pid = read_json(found / "status.json")["pid"]
    return process, found, [pid, *map(int, children(pid).split())]


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def gone(pids):
    """Tell whether all have ended within five seconds; one that nobody has asked after has."""

    def ended(pid):
        with suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    end = time.monotonic() + 5
    while not all(map(ended, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return all(map(ended, pids))


def test_more_ranks_than_prompts_are_refused(tmp_path):
    done = shell(*RUN, "ranks=5", f"output_dir={tmp_path}", cwd=tmp_path)
    assert done.returncode == 2
    assert "ranks=5 exceeds lr_batch.prompts=4" in done.stderr
