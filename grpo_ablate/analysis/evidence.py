"""What one arm's runs show, as far as the ladder looks: scores, and what speaks against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from grpo_ablate.analysis import curve
from grpo_ablate.analysis.load import Run
from grpo_ablate.study import Design


@dataclass(frozen=True)
class Evidence:
    """One arm as the ladder sees it. Each text is a reason, empty where there is none."""

    arm: str
    seeds: tuple[int, ...]
    """Those planned: a failed one stays in the denominator."""
    scores: dict[int, float] = field(default_factory=dict)
    """Seed → score, of finished runs."""
    reached: int = 0
    """The step that all finished runs have been evaluated at."""
    invalid: str = ""
    unstable: str = ""
    """A seed diverged or collapsed."""
    inert: str = ""
    repeat: str = ""
    """"other_seed" or "same_seed" for the baseline run again (A/A), else empty."""


def gather(arm: str, runs: Sequence[Run], design: Design, invalid: str = "") -> Evidence:
    """Collect an arm's evidence.

    Args:
        arm: its name.
        runs: all its runs, in any state.
        design: of the study.
        invalid: why it cannot be compared, as `validity` found.
    """
    done = [run for run in runs if finished(run, design)]
    planned = {run.seed for run in runs} | set(design.arms.get(arm, {}).get("seeds", ()))
    return Evidence(
        arm=arm,
        seeds=tuple(sorted(planned)),
        scores={run.seed: score(run, design) for run in done},
        reached=min((int(run.evals.index[-1]) for run in done), default=0),
        invalid=invalid,
        unstable="; ".join(filter(None, (_broke(run, design) for run in runs))),
        inert=_inert(runs, design),
        repeat=repeat_of(runs),
    )


def finished(run: Run, design: Design) -> bool:
    """Tell whether a run has its score: complete, or evaluated at the horizon or beyond."""
    if window(run, design).isna().any() or window(run, design).empty:
        return False
    return run.state == "complete" or run.evals.index[-1] >= design.horizon


def score(run: Run, design: Design) -> float:
    """Return the mean of the last W evaluations up to the horizon, the untrained model's aside."""
    return float(window(run, design).mean())


def up_to_horizon(run: Run, design: Design) -> pd.Series[float]:
    """Return the run's curve of the primary metric, by step."""
    if design.metric not in run.evals:
        return pd.Series(dtype=float)
    curve_E = run.evals[design.metric]
    return curve_E[curve_E.index <= design.horizon]


def repeat_of(runs: Sequence[Run]) -> str:
    """Return how an A/A arm repeats its baseline; empty for any other arm."""
    return next((str(r.config["arm"]["repeat"]) for r in runs if _has_repeat(r)), "")


def moves(runs: Sequence[Run]) -> list[str]:
    """Return the levers an arm declares to move."""
    return next((list(r.config["arm"].get("moves") or []) for r in runs if r.config.get("arm")), [])


def activity(runs: Sequence[Run], design: Design) -> float | None:
    """Return how much the trick acted: mean over logged rows and seeds; None where unmeasured."""
    rows = [
        run.metrics.loc[run.metrics.index <= design.horizon, "technique/activity"].dropna()
        for run in runs
        if "technique/activity" in run.metrics
    ]
    seen = pd.concat(rows) if rows else pd.Series(dtype=float)
    return float(seen.mean()) if len(seen) else None


def _has_repeat(run: Run) -> bool:
    return "repeat" in (run.config.get("arm") or {})


def window(run: Run, design: Design) -> pd.Series[float]:
    """Return the evaluations a score is the mean of: the last W up to the horizon."""
    curve_E = up_to_horizon(run, design)
    return curve_E[curve_E.index > 0].tail(design.window)


def _broke(run: Run, design: Design) -> str:
    """Return how a run diverged or collapsed; empty for one that did neither."""
    if run.state == "failed" and "FloatingPointError" in run.reason:
        return f"seed {run.seed} diverged: {run.reason}"
    curve_E = up_to_horizon(run, design).dropna()
    fall = curve.collapse(list(curve_E.index), list(curve_E), design.margin)
    if fall is None:
        return ""
    return (
        f"seed {run.seed} collapsed at step {fall.step:.0f}: from {fall.peak:.3f} to"
        f" {fall.end:.3f}, unrecovered"
    )


def _inert(runs: Sequence[Run], design: Design) -> str:
    """Return why the trick never acted; `activity` is a mean of shares, 0 only where all are."""
    if not moves(runs) or activity(runs, design) != 0:
        return ""
    return (
        f"technique/activity is 0 in every row of every seed: {', '.join(moves(runs))} never had"
        " anything to act on"
    )
