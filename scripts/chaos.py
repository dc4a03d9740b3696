"""Kill a run at random points, resume it, and hold its files against an uninterrupted run's.

python scripts/chaos.py [--kills 30] [--seed 0] [--out docs/chaos.csv]

Places: saving (between any two acts of a checkpoint), evaluating, generating, stepping. The
process kills itself with SIGKILL at the n-th call there; five kills in a row make one chain,
which is then run to its end. Prints one line a kill and exits 1 if any byte differs.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import signal
import tempfile
import traceback
from pathlib import Path

import torch
from hydra._internal.utils import get_args_parser
from transformers.utils import logging

from grpo_ablate import checkpoint, compose, evaluation, runs, worker
from grpo_ablate.engines.transformers import Transformers

TINY = [
    "lr_batch.prompts=4", "lr_batch.minibatches=2", "sampling.group_size=4",
    "engine.max_new_tokens=8", "evaluation.problems=8", "steps=16", "log_every=3", "eval_every=4",
    "checkpoint.every=3", "advantage=ema_std", "monitor.rules.M5.threshold=1.3",
]  # fmt: skip
CALLS = {"saving": 40, "evaluating": 3, "generating": 12, "stepping": 12}
"""Place → the latest call at which a kill is drawn."""
CHAIN = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    logging.disable_progress_bar()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        reference = freeze(root / "whole")
        assert live(reference, None, 0) == 0, "the uninterrupted run failed"
        rows = []
        while len(rows) < args.kills:
            rows += chain(root, min(CHAIN, args.kills - len(rows)), len(rows), reference, draw)
    if args.out:
        with args.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    wrong = sum(row["differs"] != "" for row in rows)
    killed = sum(row["killed"] for row in rows)
    print(f"{killed} kills in {len(rows)} lives; {len(rows) - wrong} ended identical, {wrong} not")
    return 1 if wrong else 0


def chain(root: Path, kills: int, first: int, reference: Path, draw: random.Random) -> list[dict]:
    """Kill one run several times, let it finish, and compare."""
    folder = freeze(root / f"chain{first}")
    lives = []
    for number in range(first, first + kills):
        place = draw.choice(list(CALLS))
        call = draw.randint(1, CALLS[place])
        code = live(folder, place, call)
        assert code in (0, -signal.SIGKILL), f"exit {code}\n{log_of(folder)}"
        steps = [path.name for path in folder.glob("checkpoints/step=*")]
        lives.append(
            {"life": number + 1, "place": place, "call": call, "killed": code == -signal.SIGKILL,
             "checkpoints_left": " ".join(sorted(steps))}
        )  # fmt: skip
        print(lives[-1], flush=True)
        if code == 0:
            break
    assert live(folder, None, 0) == 0, log_of(folder)
    different = " ".join(differences(reference, folder))
    shutil.rmtree(folder)
    return [life | {"differs": different} for life in lives]


def freeze(root: Path) -> Path:
    """Lay a run's folder out as the command line would."""
    args = get_args_parser().parse_intermixed_args([*TINY, f"output_dir={root}"])
    (job,), _ = compose.plan(args)
    runs.freeze(job)
    return job.folder


def live(folder: Path, place: str | None, call: int) -> int:
    """Run the worker in a fork until it ends or kills itself; return its code, -9 if killed."""
    child = os.fork()  # torch is loaded once, so that thirty lives take a minute
    if child == 0:
        try:
            log = os.open(folder / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if place:
                arm(place, call)
            os._exit(worker.main(folder))
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # else it would unwind into the parent's code and delete the parent's folder
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log_of(folder: Path) -> str:
    return (folder / "worker.log").read_text(encoding="utf-8")


def arm(place: str, call: int) -> None:
    """Make the call-th use of a place the process's last."""
    left = [call]

    def deadly(function):
        def wrapped(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return wrapped

    if place == "saving":
        for name in ("save_file", "write_json", "to_disk", "_digest"):
            setattr(checkpoint, name, deadly(getattr(checkpoint, name)))
        for name in ("replace", "truncate"):
            setattr(os, name, deadly(getattr(os, name)))
    elif place == "evaluating":
        evaluation.HeldOut._answer = deadly(evaluation.HeldOut._answer)
    elif place == "generating":
        Transformers._generate = deadly(Transformers._generate)
    else:
        torch.optim.AdamW.step = deadly(torch.optim.AdamW.step)


def differences(whole: Path, other: Path) -> list[str]:
    """Name the files whose bytes differ, timing columns aside."""
    names = ["metrics.csv", "eval.csv", "samples.jsonl", "histograms.jsonl", "events.jsonl"]
    last = max(path.name for path in whole.glob("checkpoints/step=*") if path.name.endswith("16"))
    names += [f"checkpoints/{last}/{part}.safetensors" for part in ("model", "optimizer")]
    return [name for name in names if content(whole / name) != content(other / name)]


def content(path: Path) -> bytes | list[str]:
    if path.name != "metrics.csv":
        return path.read_bytes()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].endswith(",perf/tokens_per_second,perf/seconds")
    return [line.rsplit(",", 2)[0] for line in lines]


if __name__ == "__main__":
    raise SystemExit(main())
