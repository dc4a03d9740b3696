"""A made-up study to draw: fifteen arms that climb as the embedded default does, three seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from grpo_ablate.analysis.load import Run

ARMS = {
    "baseline": 0.0,
    "clip_higher": 0.03,
    "dynamic_sampling": 0.02,
    "clip_higher+dynamic_sampling": -0.01,
    "no_std": -0.02,
    "gspo": 0.0,
    "two_sided": -0.04,
    "asymmetric": 0.005,
    "entropy_bonus": 0.012,
    "length_penalty_0.02": 0.001,
    "ema_std": 0.018,
    "format_and_repetition": -0.008,
    "clip.eps_high=0.24": 0.004,
    "lr_double": -0.09,
    "group_size_16": 0.045,
}
"""Name → effect on final accuracy."""


def make(arms: dict[str, float] = ARMS, seeds: int = 3, last: int = 500) -> list[Run]:
    """Return complete runs; one of lr_double failed half-way, one of gspo still runs."""
    runs = []
    for i, (arm, effect) in enumerate(arms.items()):
        for seed in range(1, seeds + 1):
            state, end = "complete", last
            if (arm, seed) == ("lr_double", 2):
                state, end = "failed", last // 2
            if (arm, seed) == ("gspo", 3):
                state, end = "running", last - 130
            runs.append(_run(arm, seed, effect, end, state, np.random.default_rng([i, seed])))
    return runs


def _run(arm: str, seed: int, effect: float, end: int, state: str, rng: np.random.Generator) -> Run:
    metrics = _metrics(arm, end, effect, rng)
    steps = np.arange(0, end + 1, 25)
    climb = 0.42 + (0.25 + effect) * (1 - np.exp(-steps / 180))
    noise = 0.012 * rng.normal(size=len(steps)) + 0.01 * rng.normal()
    spikes = metrics.index[metrics["optim/grad_norm"] > 1.45]
    entropy = metrics["policy/entropy"]
    low = entropy.index[entropy < 0.7 * entropy.iloc[0]][:1]
    events = [{"signal": "optim/grad_norm", "step": int(s), "monitor": "M5"} for s in spikes]
    events += [{"signal": "policy/entropy", "step": int(s), "monitor": "M2"} for s in low]
    return Run(
        folder=Path(f"made_up/{arm}/seed={seed}"),
        arm=arm,
        seed=seed,
        baseline="baseline",
        conditions=(),
        state=state,
        reason="",
        code_changed=False,
        deviated=False,
        seconds=300.0,
        metrics=metrics,
        evals=pd.DataFrame({"eval/accuracy": climb + noise}, index=pd.Index(steps, name="step")),
        events=events,
    )


def _metrics(arm: str, end: int, effect: float, rng: np.random.Generator) -> pd.DataFrame:
    steps = np.array([1, *range(10, end + 1, 10)])
    n = len(steps)
    extra = 1.35 if "dynamic" in arm else 1.0
    length = 8 + 6 * steps / 500
    wide = 0.1 * (1 + steps / 500)
    return pd.DataFrame(
        {
            "reward/mean": 0.3 + (0.3 + effect) * steps / 500 + 0.012 * rng.normal(size=n),
            "policy/entropy": 0.36 * np.exp(-steps / 350) * (1 + 0.02 * rng.normal(size=n)),
            "completion/length_mean": length + 0.3 * rng.normal(size=n),
            "ratio/p01": 1 - wide + 0.01 * rng.normal(size=n),
            "ratio/p99": 1 + wide + 0.01 * rng.normal(size=n),
            "ratio/clip_frac_low": 0.004 + 0.001 * rng.random(size=n),
            "ratio/clip_frac_high": 0.001 + 0.001 * rng.random(size=n),
            "optim/grad_norm": np.exp(0.2 * rng.normal(size=n)),
            "perf/generated_tokens": 256 * length * np.diff(steps, prepend=0) * extra,
            "perf/seconds": 1.1 * np.diff(steps, prepend=0) * extra**0.5,
        },
        index=pd.Index(steps, name="step"),
    )
