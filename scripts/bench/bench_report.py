"""What a report of a large study costs: 15 arms × 3 seeds × 1,000 steps, time and peak memory.

python scripts/bench/bench_report.py [--arms 15] [--seeds 3] [--steps 1000] [--rounds 2]

The folder is frozen as a sweep freezes it; its curves are those of a recorded run
(docs/results/recorded), stretched, with noise. `--log-every 1` writes a row of metrics each step.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hydra._internal.utils import get_args_parser

from grpo_ablate import compose, runs, study
from grpo_ablate.files import write_json
from grpo_ablate.manifest import config_hash, source_hash

ROOT = Path(__file__).parents[2]
TEMPLATE = next((ROOT / "docs/results/recorded").glob("standard/seed=1"))
NOISY = ("reward/mean", "eval/accuracy", "eval/selection_accuracy", "eval/test_accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, args)
        found = [report(folder) for _ in range(args.rounds)]
    size = f"{args.arms} arms × {args.seeds} seeds × {args.steps} steps"
    print(f"{size}, a row each {args.log_every}")
    for key in found[0]:
        print(f"{key}: {min(each[key] for each in found):.1f}")


def write(folder: Path, args: argparse.Namespace) -> None:
    """Write a finished study."""
    compose.register_resolvers()
    names = [path.stem for path in sorted((ROOT / "conf/experiment").glob("*.yaml"))]
    plain = [name for name in names if "+" not in name and not name.startswith("a_a")]
    experiments = ["baseline", *[name for name in plain if name != "baseline"][: args.arms - 1]]
    overrides = [
        f"+experiment={','.join(experiments)}",
        f"seed={','.join(map(str, range(1, args.seeds + 1)))}",
        f"steps={args.steps}",
        f"output_dir={folder}",
    ]
    typed = get_args_parser().parse_intermixed_args(["-m", *overrides])
    jobs, _ = compose.plan(typed)
    study.freeze(folder, [(job.arm, job.baseline, job.config) for job in jobs])
    for number, job in enumerate(jobs):
        runs.freeze(job)
        rng = random.Random(number)
        for name, every in (("metrics.csv", args.log_every), ("eval.csv", 25)):
            table(job.folder / name, range(0, args.steps + 1, every), args.steps, rng)
        for name in ("samples.jsonl", "histograms.jsonl", "events.jsonl"):
            (job.folder / name).write_text("")
        state = {"state": "complete", "step": args.steps, "steps": args.steps, "seconds": 900.0}
        identity = {"hash": config_hash(job.config), "source": source_hash(), "device": "made up"}
        write_json(job.folder / "status.json", state | identity)


def table(path: Path, steps: range, last: int, rng: random.Random) -> None:
    """Write the recorded run's table of that name, stretched to other steps."""
    with (TEMPLATE / path.name).open(newline="", encoding="utf-8") as file:
        recorded = list(csv.DictReader(file))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(recorded[0]), lineterminator="\n")
        writer.writeheader()
        for step in steps:
            row = dict(recorded[round(step / last * (len(recorded) - 1))])
            for name in NOISY:
                if row.get(name):
                    row[name] = str(float(row[name]) + rng.gauss(0, 0.01))
            writer.writerow(row | {"step": str(step)})


def report(folder: Path) -> dict[str, float]:
    """Run the command once; seconds and MiB."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo_ablate", "report", str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    verdicts = json.loads((folder / "report/report.json").read_text())["arms"]
    if process.returncode or any(row["lo"] is None for row in verdicts):
        raise SystemExit(f"the report failed (exit code {process.returncode}): {verdicts}")
    return {"seconds": time.perf_counter() - started, "peak MiB": used.ru_maxrss / 1024}


if __name__ == "__main__":
    main()
