"""What tracking costs a run of the embedded default: `python scripts/bench/tracking.py`.

Pairs of runs, one without a tracker and one with `tracker=wandb` online (a loopback server in a
process of its own takes everything), in turns. Printed as JSON:

- seconds a step of each, best of the pairs (others share the machine, and they only add);
- what is done inside the training process, by itself: histograms and their line, each 25 steps;
- processor time of the publisher and of W&B's own process, by itself, for a run of 300 steps:
  with a core to spare it costs training nothing, on a full machine it takes this away at most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER = """
import sys, threading
from tests.fake_wandb import FakeWandb
with FakeWandb() as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--watch", type=float, default=60.0, help="seconds of watching timed")
    args = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout and server.stdin
    environment |= {"WANDB_BASE_URL": server.stdout.readline().strip(), "WANDB_API_KEY": "0" * 40}
    steps: dict[str, list[float]] = {"none": [], "wandb": []}
    with tempfile.TemporaryDirectory() as name:
        for pair in range(args.pairs):
            for tracker in steps:
                folder = Path(name, f"{tracker}{pair}")
                run(folder, tracker, args.steps, environment)
                steps[tracker].append(per_step(next(folder.glob("*/seed=1/metrics.csv"))))
        finished = next(Path(name, "none0").glob("*/seed=1"))
        start = publisher(finished, 0.0, environment)
        watching = (publisher(finished, args.watch, environment) - start) / args.watch
    server.stdin.close()
    server.wait()
    step, inside = min(steps["none"]), inside_training() / 25
    beside = start / 300 + max(watching, 0.0) * step
    result = {
        "seconds a step": steps,
        "best with / best without": min(steps["wandb"]) / step,
        "inside training, share of a step": inside / step,
        "publisher, processor seconds to start and finish": start,
        "publisher, processor seconds a second of watching": watching,
        "publisher, share of a step of a 300-step run": beside / step,
    }
    print(json.dumps(result, indent=2))


def publisher(folder: Path, seconds: float, environment: dict[str, str]) -> float:
    """Return the processor seconds of watching a run for a while, W&B's own process included."""
    os.environ.update(environment)
    from grpo_ablate import track

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with track.wandb(mode="auto", init_timeout=30.0, finish_timeout=60.0)(folder):
        time.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def run(folder: Path, tracker: str, steps: int, environment: dict[str, str]) -> None:
    """Train the neutral baseline on the embedded model."""
    command = [sys.executable, "-m", "grpo_ablate", f"steps={steps}", f"tracker={tracker}"]
    subprocess.run(
        [*command, f"output_dir={folder}"],
        env=environment,
        cwd=folder.parent,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def per_step(path: Path) -> float:
    """Return the seconds of a training step, evaluation left out."""
    import pandas as pd

    rows = pd.read_csv(path, index_col="step")
    return float(rows["perf/seconds"].sum() / rows.index[-1])


def inside_training() -> float:
    """Return the seconds of one call of what training itself does for tracking."""
    import torch

    from grpo_ablate.distributions import _histogram
    from grpo_ablate.files import append_jsonl

    torch.set_num_threads(1)
    tokens, responses = torch.randn(6000).double(), torch.randn(256).double()
    with tempfile.TemporaryDirectory() as name:
        times = []
        for _ in range(50):
            began = time.perf_counter()
            found = [_histogram(x) for x in (tokens, responses, responses, responses)]
            append_jsonl(Path(name, "histograms.jsonl"), [{"step": 1, "found": found}])
            times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
