"""A study's report as plain values: what is said of each arm, and on what.

`build` is pure; `grpo_ablate.analysis.files` writes it. The same runs give the same bytes: no
time of day and no path of this machine gets in.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from grpo_ablate.analysis import (
    cost,
    diagnose,
    evidence,
    interference,
    rows,
    stats,
    validity,
    verdict,
)
from grpo_ablate.analysis.load import Run
from grpo_ablate.analysis.rows import Row
from grpo_ablate.study import EARLIEST, Design

UNFINISHED = ("failed", "interrupted", "paused", "waiting", "stale")


def build(
    runs: Sequence[Run], design: Design | None = None, against: str | None = None
) -> dict[str, Any]:
    """Judge every arm of a folder and collect all that a reader needs.

    Args:
        runs: of the folder, in any state.
        design: as frozen in study.yaml; without it, the defaults and a warning.
        against: judge all arms against this one instead of each against its own baseline, as the
            staged order does with what it has carried forward.

    Returns:
        JSON values: `study`, `baselines`, `arms`, `runs`, `interactions`, `curves`, `missing`,
        `warnings`, `invalid`, `diagnosis`.
    """
    missing = _missing(runs, design or _default(runs))
    frozen = design is not None
    design = design or _default(runs)
    if against is not None:
        runs = [replace(run, baseline=against) for run in runs]
    runs = sorted(runs, key=lambda run: (run.arm != run.baseline, run.baseline, run.arm, run.seed))
    stages = [_stage(name, runs, design) for name in sorted({run.baseline for run in runs})]
    arms = [row for stage in stages for row in stage["arms"]]
    _adjust_across(arms)
    report = {
        "study": _study(runs, design),
        "baselines": [stage["baseline"] for stage in stages],
        "arms": arms,
        "runs": [row for stage in stages for row in stage["runs"]],
        "interactions": [row for stage in stages for row in stage["interactions"]],
        "curves": [point for run in runs for point in _points(run, design)],
        "diagnosis": diagnose.study(runs),
        "missing": missing,
        "warnings": _warnings(runs, design, arms, frozen),
        "invalid": any(row["verdict"] == "invalid" for row in arms),
    }
    found = rows.plain(report)
    assert isinstance(found, dict)
    return found


def _stage(name: str, runs: Sequence[Run], design: Design) -> dict[str, Any]:
    """Judge one baseline's arms."""
    by_arm: dict[str, list[Run]] = {}
    for run in runs:
        if name in (run.baseline, run.arm):
            by_arm.setdefault(run.arm, []).append(run)
    base = by_arm.pop(name, [])
    deltas = {arm: _delta(base, members) for arm, members in by_arm.items()}
    repeats = {arm for arm, members in by_arm.items() if evidence.repeat_of(members)}
    equal = validity.twins({a: None if a in repeats else d for a, d in deltas.items()})
    baseline = evidence.gather(name, base, design, validity.problems([], base))
    gathered = [
        evidence.gather(
            arm, members, design, validity.problems(base, members) or equal.get(arm, "")
        )
        for arm, members in by_arm.items()
    ]
    found = verdict.judge(baseline, gathered, design)
    goal = cost.threshold(base, baseline.scores, design)
    arms = [rows.arm_row(v, by_arm[v.arm], base, deltas[v.arm] or {}, design) for v in found]
    shaky = verdict.instability(baseline, gathered, design)
    row = rows.baseline_row(name, base, baseline.scores, shaky, design)
    rows.rank_smoothness(arms, row)
    pairs = interference.pairs({a: d for a, d in deltas.items() if a not in repeats})
    judged = interference.judge(baseline.scores, {v.arm: v for v in found}, pairs, design)
    return {
        "baseline": row,
        "arms": arms,
        "runs": [rows.run_row(r, design, goal) for each in (base, *by_arm.values()) for r in each],
        "interactions": [rows.interaction_row(i, name, design) for i in judged],
    }


def _delta(base: Sequence[Run], members: Sequence[Run]) -> dict[str, Any] | None:
    """Return what an arm changes: from its configurations, else as its manifest has it."""
    for run in members:
        found = validity.delta(base, run)
        if found is not None:
            return found
    return members[0].manifest.get("delta")


def _default(runs: Sequence[Run]) -> Design:
    steps = [int(run.config["steps"]) for run in runs if "steps" in run.config]
    return Design(horizon=min([Design.horizon, *steps]))


def _study(runs: Sequence[Run], design: Design) -> Row:
    return {
        "name": next((str(run.config["study"]) for run in runs if "study" in run.config), ""),
        "metric": design.metric,
        "horizon": design.horizon,
        "earliest": design.earliest,
        "window": design.window,
        "margin": design.margin,
        "alpha": design.alpha,
        "baselines": sorted({run.baseline for run in runs}),
        "arms": sorted({run.arm for run in runs}),
        "seeds": sorted({run.seed for run in runs}),
    }


def _adjust_across(arms: list[Row]) -> None:
    """Adjust over all stages (Benjamini–Hochberg): for exploring, not for the headline."""
    known = [row for row in arms if row["p_holm"] is not None and not row["repeat"]]
    raised = stats.benjamini_hochberg([row["p"] for row in known])
    for row, p in zip(known, raised, strict=True):
        row["p_bh"] = float(p)


def _points(run: Run, design: Design) -> list[Row]:
    line = cost.timeline(run, design)
    whole = [{"arm": run.arm, "seed": run.seed} | point for point in line.to_dict("records")]
    return [{str(key): value for key, value in point.items()} for point in whole]


def _missing(runs: Sequence[Run], design: Design) -> list[Row]:
    """Return what the comparison lacks, each with the command that fills it."""
    found = [
        {
            "what": f"{run.name}: {run.state}" + (f" ({run.reason})" if run.reason else ""),
            "command": _resume(run),
        }
        for run in runs
        if run.state in UNFINISHED
    ]
    there = {(run.arm, run.seed) for run in runs}
    for conditions in sorted({run.conditions for run in runs}):
        alike = [run for run in runs if run.conditions == conditions]
        seeds = sorted({r.seed for r in alike if (r.baseline, r.seed) not in there})
        if seeds:
            typed = "".join(f" {shlex.quote(text)}" for text in conditions)
            listed = ",".join(map(str, seeds))
            found.append(
                {
                    "what": f"{alike[0].baseline}: no run for seed {listed} to compare with",
                    "command": f"python -m grpo_ablate{typed} -m seed={listed}",
                }
            )
    for arm, entry in sorted(design.arms.items()):
        gone = [seed for seed in entry["seeds"] if (arm, seed) not in there]
        if gone and arm not in {run.baseline for run in runs}:
            listed = ",".join(map(str, gone))
            found.append({"what": f"{arm}: the run folder of seed {listed} is gone", "command": ""})
    return found


def _resume(run: Run) -> str:
    """Return the command that goes on with a run; none where only its first command can."""
    if not run.config:
        return ""
    folder = PurePath(run.config.get("output_dir", "multirun_outputs"), run.name)
    return f"python -m grpo_ablate resume {shlex.quote(str(folder))}"


def _warnings(runs: Sequence[Run], design: Design, arms: Sequence[Row], frozen: bool) -> list[str]:
    """Return what a sceptical reader should know before the table."""
    found = []
    if not frozen:
        found.append(
            f"no study.yaml: horizon {design.horizon}, window {design.window}, margin"
            f" {design.margin:g} and alpha {design.alpha:g} are defaults, not promises"
        )
    if design.earliest < EARLIEST:
        found.append(
            f"judge.earliest={design.earliest}: the article judges nothing before step {EARLIEST}"
            " (X4); such verdicts are for trying things out"
        )
    if design.horizon < design.earliest:
        found.append(
            f"the horizon {design.horizon} lies before step {design.earliest}: nothing is judged"
        )
    done = [run for run in runs if evidence.finished(run, design)]
    thin = [run for run in done if evidence.window(run, design).index[0] < design.horizon / 2]
    if thin:
        found.append(
            f"the last {design.window} evaluations reach back before step"
            f" {design.horizon // 2} ({thin[0].name}): a smaller eval_every narrows the window"
        )
    changed = [run.name for run in runs if run.code_changed]
    if changed:
        found.append(f"code changed between freeze and start of {', '.join(changed)}")
    found += [
        f"{row['arm']}: {row['verdict']}, which an A/A arm is to be in 1 study of 20"
        for row in arms
        if row["repeat"] and row["verdict"] in ("helps", "hurts")
    ]
    versions = {str(sorted(v.items())) for run in runs if (v := run.manifest.get("versions"))}
    if len(versions) > 1:
        found.append("library versions differ between runs; see their manifest.json")
    return found
