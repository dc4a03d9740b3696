"""All figures of a study, from the report's plain value and the runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpo_ablate.analysis.figures.curves import AXES, accuracy
from grpo_ablate.analysis.figures.forest import Difference, forest
from grpo_ablate.analysis.figures.matrix import Interaction, interactions
from grpo_ablate.analysis.figures.signals import signals
from grpo_ablate.analysis.figures.smoothness import Smoothness, smoothness
from grpo_ablate.analysis.figures.style import file_name
from grpo_ablate.analysis.load import Run


def draw(found: Mapping[str, Any], runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw every figure of a study, each baseline's its own.

    Args:
        found: of `report.build`: study, arms, interactions and runs are read.
        runs: that it was built from.
        folder: where `forest.png`, `accuracy_steps.png`, ... and their SVGs go.

    Returns:
        The PNG files written.
    """
    written: list[Path] = []
    for baseline in sorted({run.baseline for run in runs}):
        members = [run for run in runs if run.baseline == baseline]
        suffix = "" if baseline == "baseline" else f"_{file_name(baseline)}"
        written += _baseline(found, members, baseline, folder, suffix)
    return [path for path in written if path.suffix == ".png"]


def _baseline(
    found: Mapping[str, Any], runs: Sequence[Run], baseline: str, folder: Path, suffix: str
) -> list[Path]:
    study = found["study"]
    horizon, level = int(study["horizon"]), 1 - float(study["alpha"])
    rows = [row for row in found["arms"] if row["baseline"] == baseline]
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    written = []
    if rows:
        differences = [_difference(row) for row in rows]
        written += forest(
            differences,
            folder / f"forest{suffix}",
            baseline=baseline,
            horizon=horizon,
            margin=float(study["margin"]),
            level=level,
        )
    for against in AXES:
        stem = folder / f"accuracy_{against}{suffix}"
        written += accuracy(arms, baseline, stem, horizon=horizon, against=against)
    for arm, members in arms.items():
        behind = arms.get(baseline, []) if arm != baseline else []
        written += signals(members, behind, folder, horizon=horizon)
    pairs = [one for one in found["interactions"] if one["baseline"] == baseline and one["raw"]]
    n = max((one["n"] for one in pairs), default=0)
    stem = folder / f"interactions{suffix}"
    known = [_interaction(one) for one in pairs]
    written += interactions(known, stem, n=n, horizon=horizon, level=level)
    stem = folder / f"smoothness{suffix}"
    ranked = [one for one in (*rows, *found["baselines"]) if one["smoothness"]["rank"]]
    smooth = _smoothness(found["runs"], {one["arm"] for one in ranked}, baseline)
    return written + smoothness(smooth, stem, baseline=baseline, horizon=horizon)


def _difference(row: Mapping[str, Any]) -> Difference:
    seeds = {int(one["seed"]): float(one["delta"]) for one in row["per_seed"]}
    if row["delta"] is None:
        return Difference(row["arm"], row["verdict"], per_seed=seeds)
    return Difference(
        arm=row["arm"],
        word=row["verdict"],
        delta=row["delta"],
        low=row["lo"],
        high=row["hi"],
        per_seed=seeds,
        resolves=row["mde"]["n"],
    )


def _interaction(row: Mapping[str, Any]) -> Interaction:
    raw = row["raw"]
    return Interaction(row["a"], row["b"], raw["delta"], raw["lo"], raw["hi"], row["word"])


def _smoothness(
    runs: Sequence[Mapping[str, Any]], ranked: Collection[str], baseline: str
) -> list[Smoothness]:
    """Return the arms whose runs have a score and a roughness, the baseline among them."""
    per_arm: dict[str, dict[int, tuple[float, float]]] = {}
    for run in runs:
        score, rough = run["score"], run["smoothness"]
        if run["baseline"] == baseline and score is not None and rough is not None:
            per_arm.setdefault(run["arm"], {})[run["seed"]] = (score, rough)
    found = []
    for arm, points in per_arm.items():
        height, roughness = (float(v) for v in np.mean([*points.values()], axis=0))
        found.append(Smoothness(arm, height, roughness, arm in ranked, points))
    return found
