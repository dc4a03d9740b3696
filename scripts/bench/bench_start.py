"""What stands before any work: seconds of `--help`, which imports no torch, and memory of imports.

python scripts/bench/bench_start.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTS = {
    "torch": "import torch",
    "torch and transformers": "import torch; from transformers import AutoModelForCausalLM",
    "a worker's imports": "import grpo_ablate.train",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    took = [run("-m", "grpo_ablate", "--help")[0] for _ in range(rounds)]
    print("| | s | peak MiB |\n|---|---|---|")
    print(f"| `--help`, median of {rounds} | {statistics.median(took):.2f} | |")
    for name, code in IMPORTS.items():
        seconds, peak = run("-c", code)
        print(f"| {name} | {seconds:.1f} | {peak:.0f} |")


def run(*argv: str) -> tuple[float, float]:
    """Return seconds and peak MiB of a Python process."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} failed")
    return time.perf_counter() - started, used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
