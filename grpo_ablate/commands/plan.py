"""`python -m grpo_ablate plan ...`: what a training command would run, cost and be able to see."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from hydra._internal.utils import get_args_parser
from rich.table import Table

from grpo_ablate import compose, config, costs, devices, liveness, study
from grpo_ablate.analysis import power, report
from grpo_ablate.analysis.design import dead_shares
from grpo_ablate.analysis.load import read_study
from grpo_ablate.analysis.table import plain
from grpo_ablate.files import read_json
from grpo_ablate.manifest import config_hash
from grpo_ablate.runs import is_complete
from grpo_ablate.variants import ConfigError


def main(argv: list[str]) -> int:
    """Print the plan of a training command line; create nothing.

    Returns:
        0, or 2 for bad input.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate plan", add_help=False)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flops", type=float, help="of a GPU at best; an H200 has 9.9e14")
    parser.add_argument("--utilisation", type=float, help="share of it that training reaches")
    own, rest = parser.parse_known_args(argv)
    try:
        args = get_args_parser().parse_intermixed_args(rest)
        jobs, _ = compose.plan(args)
        for job in jobs:
            config.check(job.config)
        machine = _machine(own.flops, own.utilisation)
        found = build(jobs, _parallel(args.overrides), machine)
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=2, ensure_ascii=False) if own.json else render(found))
    return 0


def _machine(flops: float | None, utilisation: float | None) -> costs.Machine:
    """Return what an estimate assumes: this machine's kind of device, or what was typed."""
    for name, value in (("--flops", flops), ("--utilisation", utilisation)):
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"{name} must be above 0, got {value:g}")
    if utilisation is not None and utilisation > 1:
        raise ConfigError(f"--utilisation is a share of the GPU's FLOP/s, got {utilisation:g}")
    known = costs.H200 if flops or devices.visible() else costs.CPU_CORE
    if flops:
        known = replace(known, name=f"a GPU of {flops:.3g} FLOP/s", flops=flops)
    return replace(known, utilisation=utilisation) if utilisation else known


def build(
    jobs: Sequence[compose.Job], parallel: int, machine: costs.Machine = costs.CPU_CORE
) -> dict[str, Any]:
    """Return the plan as plain values.

    Args:
        jobs: of the command line.
        parallel: runs at once.
        machine: a run's device, for arms without an earlier run.
    """
    output_dir = Path(jobs[0].config["output_dir"])
    pace = _pace(output_dir)
    rows = [_arm(arm, jobs, pace, machine) for arm in dict.fromkeys(job.arm for job in jobs)]
    known = [row["hours"] for row in rows]
    total = None if None in known else sum(known) / parallel
    return {
        "arms": rows,
        "runs": len(jobs),
        "parallel": parallel,
        "hours": total,
        "assumes": {"device": machine.name, "flops": machine.flops, "share": machine.utilisation},
        "sees": _sees(jobs, output_dir),
        "dead": _dead(output_dir),
    }


def _parallel(overrides: Sequence[str]) -> int:
    """Return how many runs a launcher starts at once, as far as it says so."""
    typed = [
        text.partition("=")[2] for text in overrides if text.startswith("hydra.launcher.n_jobs=")
    ]
    if not typed and "hydra/launcher=local" in overrides:
        return devices.runs_at_once()
    return int(typed[0]) if typed and typed[0].isdigit() else 1


def _pace(output_dir: Path) -> dict[str, float]:
    """Return seconds a step of earlier runs, by arm: evaluations and checkpoints included."""
    found: dict[str, list[float]] = {}
    for folder in liveness.run_folders(output_dir):
        status = liveness.status(folder)
        if status.get("step", 0) > 0 and status.get("seconds"):
            found.setdefault(folder.parent.name, []).append(status["seconds"] / status["step"])
    return {arm: fmean(values) for arm, values in found.items()}


def _arm(
    arm: str, jobs: Sequence[compose.Job], pace: Mapping[str, float], machine: costs.Machine
) -> dict[str, Any]:
    """Return one arm's runs: what is done, what is to do, and how long that may take."""
    mine = [job for job in jobs if job.arm == arm]
    states = {job.config["seed"]: _state(job) for job in mine}
    todo = {seed: steps for seed, (state, steps) in states.items() if state != "complete"}
    rate = pace.get(arm, pace.get(mine[0].baseline))
    ground = "earlier runs"
    if rate is None:
        rate, ground = _estimate(mine[0].config, machine), "cost model"
    return {
        "arm": arm,
        "baseline": mine[0].baseline,
        "delta": dict(mine[0].delta),
        "seeds": {str(seed): state for seed, (state, _) in states.items()},
        "steps_to_do": sum(todo.values()),
        "seconds_per_step": rate,
        "ground": None if rate is None else ground,
        "hours": None if todo and rate is None else sum(todo.values()) * (rate or 0.0) / 3600,
    }


def _estimate(config: Mapping[str, Any], machine: costs.Machine) -> float | None:
    """Return seconds a step by the cost model; None where the model's shape is not at hand."""
    shape = costs.shape_of(config["model"]["path"])
    return None if shape is None else costs.step_seconds(shape, costs.work_of(config), machine)


def _state(job: compose.Job) -> tuple[str, int]:
    """Return a run's state, and the steps it has left."""
    steps = job.config["steps"]
    if is_complete(job.folder, config_hash(job.config)):
        return "complete", 0
    status = liveness.status(job.folder)
    return status["state"], steps - min(int(status.get("step", 0)), steps)


def _sees(jobs: Sequence[compose.Job], output_dir: Path) -> dict[str, Any] | None:
    """Return what this many seeds would resolve, by the noise of earlier runs; None without any."""
    design, runs = study.read(output_dir), read_study(output_dir)
    rows = report.build(runs, design)["arms"] if runs else []
    sigma = next((row["sigma"] for row in rows if row["sigma"]), None)
    if sigma is None:
        return None
    rule = jobs[0].config["judge"]
    arms = max(2, len({job.arm for job in jobs} | {job.baseline for job in jobs}))
    seeds = len({job.config["seed"] for job in jobs})
    needed = power.seeds_needed(sigma, rule["margin"], arms, rule["alpha"])
    sizes = {
        str(n): power.resolution(sigma, n, (arms - 1) * (n - 1), rule["alpha"])
        for n in sorted({seeds, 5, 10} - {0, 1})
    }
    return {"sigma": sigma, "mde": sizes, "margin": rule["margin"], "seeds_needed": needed}


def _dead(output_dir: Path) -> dict[str, float] | None:
    """Return the expected share of dead groups by group size, from a probe's pass rates (K25)."""
    probed = read_json(output_dir / "probe" / "probe.json").get("baselines", [])
    if not probed:
        return None
    return {str(size): dead for size, dead in dead_shares(probed[0]["pass_rates"]).items()}


def render(found: Mapping[str, Any]) -> str:
    """Return the plan to read."""
    table = Table(box=None, pad_edge=False)
    for name in ("arm", "changes", "seeds: state", "steps left", "s / step", "hours"):
        table.add_column(name)
    for row in found["arms"]:
        delta = ", ".join(_change(key, *row["delta"][key]) for key in _names_first(row["delta"]))
        states = ", ".join(f"{seed}: {state}" for seed, state in row["seeds"].items())
        rate, hours = row["seconds_per_step"], row["hours"]
        table.add_row(
            row["arm"],
            delta or "-",
            states,
            str(row["steps_to_do"]),
            "?" if rate is None else f"{rate:.2f}",
            "?" if hours is None else f"{hours:.2f}",
        )
    return "\n".join([plain(table, 160), *_summary(found)])


def _names_first(delta: Mapping[str, Any]) -> list[str]:
    return sorted(delta, key=lambda key: not key.endswith(".name"))


def _change(key: str, was: Any, now: Any) -> str:
    """Return one change to read; None stands for a key that one side does not have."""
    if was is None:
        return f"{key} {now} (new)"
    return f"{key} {was} (gone)" if now is None else f"{key} {was} → {now}"


def _summary(found: Mapping[str, Any]) -> list[str]:
    lines = [f"{found['runs']} runs, {found['parallel']} at once: "]
    if found["hours"] is None:
        lines[0] += (
            "hours unknown, since no earlier run of these arms or their baseline is here, and no"
            " config.json of the model either"
        )
    elif any(row["ground"] == "cost model" for row in found["arms"]):
        known = found["assumes"]
        lines[0] += (
            f"about {found['hours']:.1f} hours, an estimate: no earlier run is here, so by the cost"
            f" model with full-length answers, on {known['device']} at {known['share']:.0%} of"
            f" {known['flops']:.3g} FLOP/s (--flops, --utilisation)"
        )
    else:
        lines[0] += f"about {found['hours']:.1f} hours, at the pace of earlier runs here"
    if (sees := found["sees"]) is None:
        lines.append("what the study could see is unknown: no two seeds of an arm are finished yet")
    else:
        sizes = ", ".join(f"{n} seeds {100 * size:.1f} pt" for n, size in sees["mde"].items())
        lines.append(
            f"resolves, by the noise of earlier runs (σ {100 * sees['sigma']:.1f} pt): {sizes}"
        )
        needed = sees["seeds_needed"] or "over 1,000"
        lines.append(f"to resolve {100 * sees['margin']:g} pt: {needed} seeds")
    if found["dead"] is None:
        lines.append("dead groups by group size: run `probe` first")
    else:
        shares = ", ".join(f"{size}: {share:.0%}" for size, share in found["dead"].items())
        lines.append(f"expected dead groups by group size (K25): {shares}")
    return lines
