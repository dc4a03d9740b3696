"""`python -m grpo_ablate probe [+experiment=NAME|all] ...`: does each trick act? In seconds."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from hydra._internal.utils import get_args_parser
from rich.table import Table

from grpo_ablate import arms, compose, config, devices, recipe
from grpo_ablate.analysis.design import dead_shares
from grpo_ablate.analysis.table import plain
from grpo_ablate.files import read_json, write_json
from grpo_ablate.variants import ConfigError

_COLUMNS = ("arm", "verdict", "activity", "Δ loss", "cosine", "norm", "step cosine", "step", "why")


def main(argv: list[str]) -> int:
    """Probe arms and print what they do.

    Returns:
        0, 2 for bad input, 4 with --strict where an arm is inert.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate probe", add_help=False)
    parser.add_argument("--strict", action="store_true", help="exit 4 if an arm is inert")
    parser.add_argument("--fresh", action="store_true", help="sample a new batch")
    own, rest = parser.parse_known_args(argv)
    try:
        jobs = planned(rest)
        folder = Path(jobs[0].config["output_dir"]) / "probe"
        found = measure(jobs, folder, fresh=own.fresh)
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"grpo_ablate: {error}; choose another output_dir", file=sys.stderr)
        return 2
    write_json(folder / "probe.json", found)
    print(render(found))
    print(f"{folder / 'probe.json'}")
    inert = [arm for arm in found["arms"] if arm["verdict"] == "inert"]
    return 4 if own.strict and inert else 0


def planned(argv: Sequence[str]) -> list[compose.Job]:
    """Compose one job an arm, checked; `all` stands for every shipped experiment.

    Levers typed beside an experiment apply to it and to its baseline: `+experiment=clip_higher
    lr_batch.minibatches=1` asks what clip-higher does with one update a rollout.
    """
    shipped = {path.stem for path in (compose.config_dir() / "experiment").glob("*.yaml")}
    every = "+experiment=" + ",".join(sorted(shipped - {"baseline"}))
    words = [every if word in ("all", "+experiment=all") else word for word in argv]
    args = get_args_parser().parse_intermixed_args(words)
    named = any(arms.key_of(text) in ("experiment", "suite") for text in args.overrides)
    typed = [text for text in args.overrides if arms.touches_lever(text)] if named else []
    with tempfile.TemporaryDirectory() as scratch:
        if typed:
            args = _shared(args, typed, Path(scratch))
        args.multirun = True
        jobs, _ = compose.plan(args)
    first = list({job.arm: job for job in reversed(jobs)}.values())[::-1]
    for job in first:
        config.check(job.config)
    return first


def _shared(args: argparse.Namespace, typed: Sequence[str], folder: Path) -> argparse.Namespace:
    """Put levers into a baseline of their own, and return the command line on top of it."""
    rest = [text for text in args.overrides if text not in typed]
    alone = [text for text in rest if arms.key_of(text) not in ("experiment", "suite", "seed")]
    moved = argparse.Namespace(**{**vars(args), "overrides": [*alone, *typed]})
    neutral = argparse.Namespace(**{**vars(args), "overrides": alone})
    (one, *_), _ = compose.plan(moved)
    if args.config_dir:
        shutil.copytree(args.config_dir, folder, dirs_exist_ok=True)
    name = re.sub(r"[^\w.+-]", "-", "+".join([one.baseline, *typed]))
    recipe.write(folder, name, one.config, compose.plan(neutral)[0][0].baseline_config)
    words = [text for text in rest if arms.key_of(text) != "baseline"]
    return argparse.Namespace(
        **{**vars(args), "overrides": [*words, f"baseline={name}"], "config_dir": str(folder)}
    )


def measure(jobs: Sequence[compose.Job], folder: Path, *, fresh: bool = False) -> dict[str, Any]:
    """Probe jobs in a process of their own.

    Args:
        jobs: one an arm; a baseline among them is measured as every baseline is.
        folder: where batches are kept for the next time.
        fresh: whether to sample new ones.

    Raises:
        ConfigError: the process failed; its last words are in the message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"threads": jobs[0].config["threads"], "baselines": _by_baseline(jobs, folder)}
    if fresh:
        for one in spec["baselines"]:
            Path(one["batch"]).unlink(missing_ok=True)
    count = max(devices.wanted(job.config | {"ranks": 1}) for job in jobs)
    with tempfile.TemporaryDirectory() as scratch, devices.claim(count) as claim:
        asked, answer = Path(scratch) / "spec.json", Path(scratch) / "found.json"
        write_json(asked, spec)
        done = subprocess.run(
            [sys.executable, "-m", "grpo_ablate.probe", str(asked), str(answer)],
            env={**os.environ, **claim.environment},
            pass_fds=claim.descriptors,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            last = done.stdout.strip().splitlines()[-1:] or ["no word"]
            raise ConfigError(f"the probe ended with exit code {done.returncode}: {last[0]}")
        return read_json(answer)


def _by_baseline(jobs: Sequence[compose.Job], folder: Path) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for job in jobs:
        key = job.baseline_hash
        one = found.setdefault(
            key,
            {
                "name": job.baseline,
                "config": {**job.baseline_config, "arm": {"moves": []}},
                "batch": str(folder / f"batch-{key}.json"),
                "arms": {},
            },
        )
        if job.delta:  # neither the baseline nor the baseline again (A/A)
            one["arms"][job.arm] = job.config
    return list(found.values())


def render(found: dict[str, Any]) -> str:
    """Return the table of arms, and what the pass rates foretell for other group sizes."""
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("arm", "verdict", "why") else "right")
    for arm in found["arms"]:
        table.add_row(
            arm["arm"],
            arm["verdict"],
            _short(arm["activity"]),
            f"{arm['loss_difference']:+.3g}",
            _short(arm["cosine"], 6),
            _short(arm["relative_norm"]),
            _short(arm["moved_cosine"], 6),
            _short(arm["moved_relative_norm"]),
            arm["why"] + (f" ({arm['rollouts']} rollouts)" if arm["verdict"] == "inert" else ""),
        )
    lines = [plain(table, 160)]
    for base in found["baselines"]:
        rates = base["pass_rates"]
        foretold = ", ".join(f"{size}: {dead:.0%}" for size, dead in dead_shares(rates).items())
        lines.append(
            f"{base['baseline']}: {fmean(rates):.0%} of responses right, {base['dead']:.0%} of the"
            f" groups dead; expected by group size (K25): {foretold}"
        )
    return "\n".join(lines)


def _short(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
