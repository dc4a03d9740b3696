"""A 20-step run whose every number is pinned: refactors must not change one.

On one machine two runs are equal to the last bit (tests/test_command_line.py). Here a tolerance
of 1e-5 is left for other processors: the run is in float64, but transformers casts the logits it
samples from to float32. After a deliberate change of the numerics `python -m tests.test_golden`
writes the file anew, and the change goes into CHANGELOG.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from grpo_ablate.analysis.load import read_run
from grpo_ablate.files import write_json
from grpo_ablate.records import Records
from grpo_ablate.train import train
from tests.conftest import SMALL, composed

GOLDEN = Path(__file__).parent / "data/golden.csv"


def norm_in_own_dtype(self: LlamaRMSNorm, x: torch.Tensor) -> torch.Tensor:
    """LlamaRMSNorm without its detour through float32."""
    return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)


def run_golden(folder: Path) -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaRMSNorm, "forward", norm_in_own_dtype)
        return _run_golden(folder)


def _run_golden(folder: Path) -> pd.DataFrame:
    small = [o.replace("=small", "=small_standard") for o in SMALL]
    config = composed("model.dtype=float64", "steps=20", "eval_every=10", "log_every=1", *small)
    write_json(folder / "manifest.json", {"arm": "golden", "seed": 1, "baseline": "golden"})
    train(config, Records(folder, "golden", "source", 20))
    run = read_run(folder)
    return run.metrics.drop(columns=["perf/seconds", "perf/tokens_per_second"]).join(run.evals)


@pytest.mark.slow
def test_golden_run(tmp_path):
    found, wanted = run_golden(tmp_path), pd.read_csv(GOLDEN, index_col="step")
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-5, atol=1e-9, check_dtype=False)


def test_golden_run_is_worth_pinning():
    """It learns: updates are taken, ratios move, rewards vary."""
    wanted = pd.read_csv(GOLDEN, index_col="step")
    assert len(wanted) == 20
    assert wanted["optim/updates"].sum() > 30
    assert wanted["ratio/p99"].max() > 1.001
    assert wanted["reward/mean"].nunique() > 5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        run_golden(Path(name)).to_csv(GOLDEN)
