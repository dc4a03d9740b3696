"""The tables of docs/scaling.md: predicted against measured, and models × GPUs.

python scripts/bench/scaling_table.py
python scripts/bench/scaling_table.py --table models [--flops 9.9e14] [--bandwidth 4.8e12] ...
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench_scale import Case, predicted

from grpo_ablate import costs

MEASURED = Path(__file__).parents[2] / "docs/bench/scale.csv"
STEP = costs.Work(rows=256, group=8, prompt=200, response=600)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=("measured", "models"), default="measured")
    parser.add_argument("--flops", type=float, default=costs.H200.flops)
    parser.add_argument("--bandwidth", type=float, default=costs.H200.bandwidth)
    parser.add_argument("--utilisation", type=float, default=costs.H200.utilisation)
    args = parser.parse_args()
    given = {key: value for key, value in vars(args).items() if key != "table"}
    machine = replace(costs.H200, **given)
    print(against_measured() if args.table == "measured" else models(machine))


def against_measured() -> str:
    """Return the table of measured cases, one process each."""
    lines = [
        "| part | rows | length | vocabulary | measured s | predicted s | error | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    errors = []
    with MEASURED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sizes = {k: int(row[k]) for k in ("rows", "length", "vocabulary", "processes")}
            case = Case(row["sweep"], row["part"], **sizes)
            if case.processes > 1 or case.sweep == "processes":
                continue
            took, by_model = float(row["seconds"]), predicted(case)
            errors.append(by_model / took - 1)
            lines.append(
                f"| {case.part} | {case.rows} | {case.length} | {case.vocabulary:,} | {took:.2f}"
                f" | {by_model:.2f} | {errors[-1]:+.0%} | {float(row['load']):.1f} |"
            )
    middle, worst = median(map(abs, errors)), max(errors, key=abs)
    return "\n".join([*lines, "", f"Error: median {middle:.0%}, worst {worst:+.0%}."])


def models(machine: costs.Machine) -> str:
    """Return the table of model sizes and GPUs."""
    lines = [
        "| model | GPUs | PFLOP, learner | generate s | learn s | step s | GiB a GPU | push GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size, shape in costs.QWEN.items():
        for devices in (1, 8, 64):
            sampling = costs.generate_seconds(shape, STEP, machine, devices)
            learning = costs.learn_seconds(shape, STEP, machine, devices)
            lines.append(
                f"| {size} | {devices} | {costs.learn_flops(shape, STEP) / 1e15:.2f}"
                f" | {sampling:.1f} | {learning:.1f} | {sampling + learning:.1f}"
                f" | {costs.device_bytes(shape, STEP, devices) / 2**30:.0f}"
                f" | {costs.push_bytes(shape) / 2**30:.1f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
