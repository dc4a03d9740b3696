"""Every arm trains, on the embedded default, for two steps."""

from __future__ import annotations

import math

import pytest

from grpo_ablate.analysis.load import read_run
from grpo_ablate.files import write_json
from grpo_ablate.records import Records
from grpo_ablate.train import train
from tests.conftest import ROOT, SMALL, composed

EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf/experiment").glob("*.yaml"))
ARMS = [f"+experiment={name}" for name in EXPERIMENTS] + [
    "advantage=group_std",
    "lr_batch=linear_decay",
    "reduction=sequence_mean",
    "reduction=constant",
]


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS)
def test_trains_two_steps(arm, tmp_path):
    small = [o.replace("=small", "=small_standard") if "no_std" in arm else o for o in SMALL]
    config = composed(arm, "steps=2", *small)
    write_json(tmp_path / "manifest.json", {"arm": arm, "seed": 1, "baseline": "baseline"})
    train(config, Records(tmp_path, "hash", "source", 2))
    run = read_run(tmp_path)
    assert list(run.metrics.index) == [1, 2]
    assert list(run.evals.index) == [0, 2]
    updates = run.metrics["optim/updates"]
    assert updates.sum() > 0
    assert updates.max() <= config["lr_batch"]["minibatches"]
    assert run.metrics["optim/grad_norm"].map(math.isfinite).all()
    filters = config["sampling"]["name"] != "standard"
    measured = [lever for lever in config["arm"]["moves"] if lever != "sampling" or filters]
    assert run.metrics["technique/activity"].notna().all() == bool(measured)
