"""Two ranks over gloo on the CPU do what one does."""

from __future__ import annotations

import os
import signal

import numpy as np
import pandas as pd
import pytest

from grpo_ablate.files import read_json
from tests.conftest import SMALL, shell

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


def test_two_ranks_give_the_numbers_of_one(tmp_path):
    one, two = run(tmp_path / "one"), run(tmp_path / "two", "ranks=2")
    assert read_json(two / "status.json")["state"] == "complete"
    assert metrics(one)["optim/grad_norm"].max() > 0
    np.testing.assert_allclose(metrics(two), metrics(one), rtol=1e-6, atol=1e-9)
