"""What metrics cost a step: share of a run of the embedded default that is spent on them.

python scripts/bench/bench_metrics.py [--steps 50]

Counted: metrics of a step, histograms, the tables and status files, alarms. Not counted: entropy
and log-probabilities, which the loss needs; evaluation and checkpoints, which have intervals of
their own and are shown beside.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hydra._internal.utils import get_args_parser
from step_work import Clock

from grpo_ablate import compose


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        spent = measured(Path(name), steps)
    total = sum(spent.values())
    for label in ("metrics", "evaluation", "checkpoint"):
        print(f"{label}: {spent[label] / steps * 1000:.2f} ms a step, {spent[label] / total:.2%}")
    print(f"step: {total / steps * 1000:.0f} ms")


def measured(folder: Path, steps: int) -> dict[str, float]:
    """Train and return the seconds under each label; "step" is the rest of the loop."""
    import torch

    from grpo_ablate import train
    from grpo_ablate.evaluation import HeldOut
    from grpo_ablate.keeper import Keeper
    from grpo_ablate.records import Records
    from grpo_ablate.sentry import Sentry

    torch.set_num_threads(1)
    compose.register_resolvers()
    argv = [f"steps={steps}", f"output_dir={folder}"]
    (job,), _ = compose.plan(get_args_parser().parse_intermixed_args(argv))
    clock = Clock()
    for owner, names in (
        (train, ("step_metrics", "distributions", "pool")),
        (Records, ("progress", "metrics", "histograms", "evaluation")),
        (Sentry, ("begin", "after")),
    ):
        for each in names:
            clock.wrap(owner, each, "metrics")
    clock.wrap(HeldOut, "__call__", "evaluation")
    clock.wrap(Keeper, "save", "checkpoint")
    clock.wrap(train, "_step", "step")
    records = Records(folder, "h", "s", steps)
    train.train(job.config, records)
    return clock.spent


if __name__ == "__main__":
    main()
