"""Studies whose truth is known: a mean curve, an effect an arm, noise, what seeds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from grpo_ablate.analysis.load import Run
from grpo_ablate.files import write_json
from grpo_ablate.manifest import config_hash
from grpo_ablate.study import Design

DESIGN = Design(horizon=500, window=5, margin=0.02, alpha=0.05)
TOKENS = 10_000.0


def config(arm: str, seed: int, steps: int, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a frozen configuration; an arm other than the baseline moves `clip.eps_<arm>`."""
    lever = {} if arm == "baseline" else {f"eps_{part}": 0.28 for part in arm.split("+")}
    return {
        "seed": seed,
        "steps": steps,
        "study": "simulated",
        "output_dir": "multirun_outputs",
        "clip": {"name": "symmetric", "eps": 0.2, **lever},
        "evaluation": {"name": "held_out", "problems": 250},
        "arm": {"name": arm, "moves": [] if arm == "baseline" else ["clip"]},
        **changed,
    }


def run(
    arm: str,
    seed: int,
    end: float,
    *,
    steps: int = 500,
    upto: int | None = None,
    activity: float = 0.1,
    state: str = "complete",
    reason: str = "",
    curve: Sequence[float] | None = None,
    changed: Mapping[str, Any] | None = None,
    source: str = "s",
    device: str = "cpu",
    tokens: float = TOKENS,
    deviated: bool = False,
) -> Run:
    """Return a run that climbs from .3 to `end` by step 300 and stays there; it got to `upto`."""
    grid = np.arange(0, (steps if upto is None else upto) + 1, 25)
    y = 0.3 + (end - 0.3) * np.minimum(grid / 300, 1) if curve is None else np.asarray(curve)
    rows = len(grid) - 1
    return Run(
        folder=Path("unused"),
        arm=arm,
        seed=seed,
        baseline="baseline",
        conditions=(),
        state=state,
        reason=reason,
        code_changed=False,
        deviated=deviated,
        seconds=1.0,
        metrics=pd.DataFrame(
            {
                "technique/activity": np.full(rows, np.nan if arm == "baseline" else activity),
                "perf/generated_tokens": np.full(rows, tokens),
                "optim/updates": np.full(rows, 100.0),
                "perf/seconds": np.full(rows, 20.0),
            },
            index=pd.Index(grid[1:], name="step"),
        ),
        evals=pd.DataFrame({"eval/accuracy": y}, index=pd.Index(grid, name="step")),
        config=config(arm, seed, steps, changed or {}),
        manifest={"code": {"source": source}},
        status={"source": source, "device": device},
    )


def study(
    effects: Mapping[str, float],
    *,
    sigma: float = 0.01,
    shared: float = 0.02,
    seeds: int = 3,
    number: int = 0,
    level: float = 0.6,
    **more: Any,
) -> list[Run]:
    """Return a baseline and arms with known effects.

    Args:
        effects: arm → true difference from the baseline.
        sigma: noise of one run.
        shared: sd of what all arms of a seed have in common.
        seeds: n.
        number: of the random draw.
        level: the baseline's true score.
        **more: of `run`, for all of them.
    """
    table = scores([0.0, *effects.values()], sigma, shared, seeds, number, level)
    return [
        run(arm, seed + 1, float(table[k, seed]), **more)
        for k, arm in enumerate(["baseline", *effects])
        for seed in range(seeds)
    ]


def scores(
    effects: Sequence[float],
    sigma: float,
    shared: float,
    seeds: int,
    number: int,
    level: float = 0.6,
) -> np.ndarray:
    """Return scores, arms × seeds, for studies too many to be written out as runs."""
    rng = np.random.default_rng(number)
    noise = rng.normal(0, sigma, (len(effects), seeds))
    return level + np.asarray(effects)[:, None] + rng.normal(0, shared, seeds) + noise


def write(runs: Sequence[Run], output_dir: Path) -> Path:
    """Write runs as their folders; return the output folder."""
    for one in runs:
        folder = output_dir / one.name
        folder.mkdir(parents=True)
        frozen = OmegaConf.create(one.config)
        OmegaConf.save(frozen, folder / "config.yaml")
        manifest = {"arm": one.arm, "seed": one.seed, "baseline": one.baseline, **one.manifest}
        manifest |= {"deviations": [{}]} if one.deviated else {}
        write_json(folder / "manifest.json", manifest)
        status = {"state": one.state, "reason": one.reason, "hash": config_hash(one.config)}
        write_json(folder / "status.json", one.status | status)
        one.metrics.to_csv(folder / "metrics.csv")
        one.evals.to_csv(folder / "eval.csv")
    return output_dir
