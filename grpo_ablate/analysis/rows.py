"""From verdicts and runs to the plain rows of a report: JSON values, None where unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from grpo_ablate.analysis import cost, evidence, interference, wording
from grpo_ablate.analysis.load import Run
from grpo_ablate.analysis.stats import Estimate
from grpo_ablate.analysis.verdict import Comparison, Verdict
from grpo_ablate.study import Design

Row = dict[str, Any]

PROVISIONAL = ("invalid", "incomplete", "too early to judge")
"""Verdicts whose numbers are shown grey: they say nothing yet."""

_RANKED = ("inert", "helps", "equivalent within ±δ", "underpowered")
"""Verdicts of arms that are not worse."""


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: no NaN, no infinity, texts for keys."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def run_row(run: Run, design: Design, goal: float | None) -> Row:
    """Return what is known of one run."""
    done = evidence.finished(run, design)
    return {
        "arm": run.arm,
        "baseline": run.baseline,
        "seed": run.seed,
        "state": run.state,
        "reason": run.reason,
        "finished": done,
        "deviated": run.deviated,
        "code_changed": run.code_changed,
        "step": int(run.evals.index[-1]) if len(run.evals) else None,
        "score": evidence.score(run, design) if done else None,
        **cost.shape(run, design, goal),
        **cost.spent(run, design),
        "selection": cost.selection(run, design),
        "alarms": len(run.events),
    }


def baseline_row(
    arm: str, runs: Sequence[Run], scores: Mapping[int, float], unstable: str, design: Design
) -> Row:
    """Return what is known of a baseline."""
    mean = fmean(scores.values()) if scores else None
    return {
        "arm": arm,
        "finished": len(scores),
        "planned": len(runs),
        "mean": mean,
        "scores": scores,
        "unstable": unstable,
        "cost": _mean_cost(runs, design),
        "difficulty": cost.by_difficulty(runs, design),
        "smoothness": smoothness(runs, scores, design),
    }


def arm_row(
    found: Verdict, arm: Sequence[Run], baseline: Sequence[Run], delta: Any, design: Design
) -> Row:
    """Return what is said of an arm, and everything it is said on.

    Args:
        found: the verdict.
        arm: its runs.
        baseline: its baseline's.
        delta: key → [baseline's value, the arm's].
        design: of the study.
    """
    done = [run for run in arm if run.seed in found.scores]
    base = {run.seed: run for run in baseline if evidence.finished(run, design)}
    paid = cost.relative(
        {run.seed: cost.spent(run, design) for run in done},
        {seed: cost.spent(run, design) for seed, run in base.items()},
    )
    return {
        "arm": found.arm,
        "baseline": arm[0].baseline,
        "verdict": found.verdict,
        "provisional": found.verdict in PROVISIONAL,
        "sentence": wording.sentence(found, design, paid),
        "reason": found.reason,
        "repeat": found.repeat,
        **_numbers(found.comparison, design),
        "p_holm": found.p_holm,
        "p_bh": None,
        "equivalence_p": found.equivalence_p,
        "finished": len(found.scores),
        "planned": len(found.seeds),
        "per_seed": [
            {
                "seed": s,
                "score": found.scores[s],
                "baseline": evidence.score(base[s], design),
                "delta": d,
            }
            for s, d in found.per_seed.items()
        ],
        "paired": _interval(found.paired),
        "welch": _interval(found.welch),
        "config_delta": delta,
        "moves": evidence.moves(arm),
        "activity": evidence.activity(arm, design),
        "cost": paid,
        "difficulty": _difficulty(done, base, design),
        "smoothness": smoothness(done, found.scores, design),
    }


def smoothness(runs: Sequence[Run], scores: Mapping[int, float], design: Design) -> Row:
    """Return an arm's smoothness, mean over seeds, beside the sampling floor; not yet ranked."""
    shapes = [cost.shape(run, design, None)["smoothness"] for run in runs if run.seed in scores]
    known = [value for value in shapes if value is not None and math.isfinite(value)]
    floor = cost.floor(runs, fmean(scores.values())) if scores else None
    return {"value": fmean(known) if known else None, "floor": floor, "rank": None}


def rank_smoothness(arms: Sequence[Row], baseline: Row) -> None:
    """Number a stage's arms that are not worse, and the baseline, by smoothness (article: C5)."""
    fit = [row for row in arms if row["verdict"] in _RANKED]
    fit += [] if baseline["unstable"] else [baseline]
    fit = [row for row in fit if row["smoothness"]["value"] is not None]
    fit.sort(key=lambda row: (row["smoothness"]["value"], row["arm"]))
    for place, row in enumerate(fit, start=1):
        row["smoothness"]["rank"] = place


def interaction_row(found: interference.Interaction, baseline: str, design: Design) -> Row:
    """Return what is said of a pair of levers."""
    return {
        "a": found.a,
        "b": found.b,
        "ab": found.ab,
        "baseline": baseline,
        "word": found.word,
        "sentence": interference.sentence(found, design),
        "reason": found.reason,
        "method": found.method,
        "n": len(found.per_seed or {}),
        "per_seed": found.per_seed or {},
        "raw": _interval(found.raw),
        "logit": _interval(found.logit),
        "p_holm": found.p_holm,
    }


def _numbers(comparison: Comparison | None, design: Design) -> Row:
    if comparison is None:
        names = ("method", "delta", "se", "df", "lo", "hi", "p", "n", "sigma", "icc", "mde")
        return dict.fromkeys(names)
    found, n = comparison.estimate, len(comparison.seeds)
    return {
        "method": comparison.method,
        "delta": found.delta,
        "se": found.se,
        "df": found.df,
        "lo": found.lo,
        "hi": found.hi,
        "p": found.p,
        "n": n,
        "sigma": comparison.sigma,
        "icc": comparison.icc,
        "mde": {
            "n": comparison.resolution(n, design.alpha),
            "5": comparison.resolution(5, design.alpha),
            "10": comparison.resolution(10, design.alpha),
        },
    }


def _interval(found: Estimate | None) -> Row | None:
    if found is None:
        return None
    return {"delta": found.delta, "lo": found.lo, "hi": found.hi, "p": found.p, "df": found.df}


def _mean_cost(runs: Sequence[Run], design: Design) -> Row:
    done = [cost.spent(run, design) for run in runs if evidence.finished(run, design)]
    return {
        name: fmean(known) if (known := [c for d in done if (c := d[name]) is not None]) else None
        for name in cost.COLUMNS
    }


def _difficulty(arm: Sequence[Run], baseline: Mapping[int, Run], design: Design) -> Row:
    """Return the difference by difficulty: over shared seeds, or all where none is shared."""
    shared = [run for run in arm if run.seed in baseline]
    bases = [baseline[run.seed] for run in shared] or list(baseline.values())
    ours, theirs = cost.by_difficulty(shared or arm, design), cost.by_difficulty(bases, design)
    return {
        level: {"arm": ours[level], "baseline": theirs[level], "delta": ours[level] - theirs[level]}
        for level in ours
        if level in theirs
    }
