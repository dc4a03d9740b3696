"""Two ranks over gloo on the CPU do what one does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from grpo_ablate.files import read_json
from tests.conftest import SMALL, shell, start

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
    done = shell(*RUN, *overrides, f"output_dir={folder}", cwd=folder.parent)
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


def test_a_dead_rank_ends_the_run_which_one_rank_resumes(one, tmp_path):
    folder = tmp_path / "study"
    process = start(tmp_path, *RUN, "ranks=2", f"output_dir={folder}")
    while not list(folder.glob("*/seed=1/checkpoints/step=1")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    found = next(folder.glob("*/seed=1"))
    pid = read_json(found / "status.json")["pid"]
    os.kill(int(children(pid)), signal.SIGKILL)
    process.communicate(timeout=60)
    assert read_json(found / "status.json")["state"] == "failed"
    same(run(folder), one)


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_more_ranks_than_prompts_are_refused(tmp_path):
    done = shell(*RUN, "ranks=5", f"output_dir={tmp_path}", cwd=tmp_path)
    assert done.returncode == 2
    assert "ranks=5 exceeds lr_batch.prompts=4" in done.stderr
