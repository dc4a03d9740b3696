"""A whole run at a vocabulary of 152,000 on the CPU, in memory that its logits would not fit in."""

from __future__ import annotations

import os
import subprocess
import sys

import pandas as pd
import pytest
from transformers import LlamaConfig

from tests.conftest import PLAIN, ROOT, SMALL
from tests.test_models import save

VOCABULARY = 152_000
ROWS, LENGTH = 48, 32
BOUND = 2**30
"""Bytes of resident memory; docs/benchmarks.md has what was measured."""

COPIES = 3
"""Tensors of the logits' size that the plain way holds at once in the backward pass: the logits'
softmax, its exponential, the gradient."""


@pytest.mark.slow
def test_two_steps_at_152_000_words_stay_under_a_bound(tmp_path):
    assert COPIES * ROWS * LENGTH * VOCABULARY * 4 > 2.5 * BOUND, "the bound says nothing"
    save(tmp_path / "model", LlamaConfig, vocab_size=VOCABULARY, tie_word_embeddings=True)
    argv = [
        *SMALL,
        "model=hf",
        f"model.path={tmp_path}/model",
        "model.base_lr=1e-3",
        "lr_batch.prompts=6",
        "lr_batch.minibatches=1",
        "lr_batch.warmup=0",
        "sampling.group_size=8",
        "learner.micro_tokens=4096",  # all rows at once
        "regularizer=entropy_bonus",  # random words are never right: something to learn from
        f"engine.max_new_tokens={LENGTH}",
        "engine.max_rows=16",
        "evaluation.problems=2",
        "steps=2",
        f"output_dir={tmp_path}/out",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", PLAIN, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    _, status, used = os.wait4(process.pid, 0)  # the peak of it or of the worker it waited for
    process.returncode = os.waitstatus_to_exitcode(status)
    folder = next((tmp_path / "out").glob("*/seed=1"))
    assert process.returncode == 0, (folder / "worker.log").read_text()
    rows = pd.read_csv(folder / "metrics.csv")
    assert rows["completion/length_mean"].min() > LENGTH - 1
    assert rows["optim/grad_norm"].max() > 0
    assert rows["policy/entropy"].min() > 0.9 * 11.93, "ln 152,000 = 11.93: the whole vocabulary"
    peak = used.ru_maxrss * 1024
    assert peak < BOUND, f"{peak / 2**20:.0f} MiB"
