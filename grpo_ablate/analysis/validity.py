"""May two arms be compared at all? From frozen configurations, code and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_ablate import arms
from grpo_ablate.analysis.load import Run
from grpo_ablate.manifest import NOT_HASHED, config_hash
from grpo_ablate.monitor import acting

_ASKED = ("evaluation", "task")
"""Groups that make up the evaluation set."""


def problems(baseline: Sequence[Run], arm: Sequence[Run]) -> str:
    """Return why an arm cannot be compared with its baseline; empty where it can.

    Args:
        baseline: its runs; may be empty.
        arm: the arm's runs; the baseline's own, to see whether it agrees with itself.

    Returns:
        The first reason, with the remedy.
    """
    both = [*baseline, *arm]
    return (
        next(filter(None, map(_own_problem, both)), "")
        or _mixed(both, "source code", _source, "run the older ones again")
        or _mixed(both, "device kind", _device, "run both on one kind of device")
        or _undeclared(baseline, arm)
    )


def twins(deltas: Mapping[str, Mapping[str, Any] | None]) -> dict[str, str]:
    """Return arms that are one configuration under two names, each with its reason.

    Args:
        deltas: arm → difference from the baseline; None where it is unknown or a declared
            repetition.
    """
    found: dict[str, str] = {}
    for arm, delta in deltas.items():
        if delta is None:
            continue
        if not delta:
            found[arm] = "its configuration equals the baseline's; an A/A arm is +experiment=a_a"
        others = [name for name, other in deltas.items() if name != arm and other == delta]
        if others:
            found[arm] = f"its configuration equals that of {others[0]}; drop one of them"
    return found


def delta(baseline: Sequence[Run], run: Run) -> arms.Delta | None:
    """Return what a run changes against its baseline, seed aside; None where a config is lost."""
    reference = next((other.config for other in baseline if other.config), None)
    if reference is None or not run.config:
        return None
    return arms.delta(_comparable(reference), _comparable(run.config))


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what determines a run's numbers, its seed aside."""
    kept = {k: v for k, v in config.items() if k not in (*NOT_HASHED, "seed")}
    return kept | ({"monitor": acting(kept["monitor"])} if "monitor" in kept else {})


def _own_problem(run: Run) -> str:
    if run.deviated:
        return f"{run.name} was resumed with other settings; remove its folder and run it again"
    ran, frozen = run.status.get("hash"), run.config and config_hash(run.config)
    if ran and frozen and ran != frozen:
        return f"{run.name} ran with configuration {ran}, its config.yaml now is {frozen}"
    return ""


def _source(run: Run) -> str | None:
    code = run.manifest.get("code") or {}
    return run.status.get("source") or code.get("source") or code.get("commit")


def _device(run: Run) -> str | None:
    return run.status.get("device") or (run.manifest.get("machine") or {}).get("processor")


def _mixed(runs: Sequence[Run], what: str, of: Any, remedy: str) -> str:
    seen: dict[str, str] = {}
    for run in runs:
        if of(run):
            seen.setdefault(of(run), run.name)
    if len(seen) < 2:
        return ""
    listed = ", ".join(f"{value} ({name})" for value, name in list(seen.items())[:2])
    return f"{what} differs: {listed}; {remedy}"


def _undeclared(baseline: Sequence[Run], arm: Sequence[Run]) -> str:
    """Return the first key in which runs differ without the arm's saying so."""
    first: arms.Delta | None = None
    # a baseline may be an arm itself, where a staged order carries one forward
    base_moves = {lever for other in baseline for lever in _declared(other)}
    base_keys = {key for other in baseline for key in other.manifest.get("delta", ())}
    for run in arm:
        moved = delta(baseline or arm, run)
        if moved is None:
            continue
        declared = _declared(run) | base_moves
        stated = {*run.manifest.get("delta", moved), *base_keys}
        for key in moved:
            group = key.split(".")[0]
            if group in _ASKED:
                return f"{run.name} was evaluated on another set: {key} differs from the baseline's"
            if group not in declared or key not in stated:
                return (
                    f"{run.name} differs from the baseline in {key}, which the arm does not declare"
                )
        first = moved if first is None else first
        if moved != first:
            key = next(k for k in {**first, **moved} if first.get(k) != moved.get(k))
            return f"{run.name} differs from the arm's other seeds in {key}"
    return ""


def _declared(run: Run) -> set[str]:
    """Return the levers that a run's arm says it moves."""
    return set((run.config.get("arm") or {}).get("moves") or [])
