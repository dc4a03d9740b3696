"""Two jobs at once against one after another: a sweep of four runs, wall time of each way.

python scripts/bench/parallel.py [--steps 40]

One torch thread a run. Each way starts from an empty folder; figures go to docs/LOG.md by hand.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
TWO = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    serial, parallel = seconds(steps, []), seconds(steps, TWO)
    print(f"serial {serial:.1f} s, two at once {parallel:.1f} s: {parallel / serial:.2f}")


def seconds(steps: int, launcher: list[str]) -> float:
    """Time a sweep of four seeds in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpo_ablate",
                "-m",
                "seed=1,2,3,4",
                f"steps={steps}",
                *launcher,
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
