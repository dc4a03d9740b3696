"""`python -m grpo_ablate resume RUN [OVERRIDE...]`: go on with a run, perhaps differently."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from grpo_ablate import compose, config, runs
from grpo_ablate.arms import parsed
from grpo_ablate.files import is_locked, read_json, write_json
from grpo_ablate.manifest import changed, deviated, load_config
from grpo_ablate.variants import GROUPS, ConfigError, hint

FIXED = (
    "seed",
    "study",
    "output_dir",
    "arm",
    "model",
    "task",
    "threads",
    "ranks",
    "evaluation",
    "judge",
)
"""What a run is: a resume may not change it."""

_ABSENT = "(absent)"


def main(argv: list[str]) -> int:
    """Resume one run at its newest good checkpoint.

    Overrides are written to manifest.json as a deviation: the run is no clean arm any more.

    Returns:
        0 complete, 2 bad input, 3 otherwise, 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate resume")
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument(
        "overrides", nargs="*", help="such as lr_batch.lr_scale=0.5 or clip=two_sided"
    )
    args = parser.parse_args(argv)
    try:
        _check(args.run)
        if args.overrides:
            _deviate(args.run, args.overrides)
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    try:
        state = runs.start(args.run)
    except KeyboardInterrupt:
        return 130
    print(f"{args.run}: {state} {read_json(args.run / 'status.json').get('reason', '')}".strip())
    return 0 if state == "complete" else 3


def _check(folder: Path) -> None:
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{folder} is no run; name a folder such as ARM/seed=1")
    if is_locked(folder / ".lock"):
        raise ConfigError(f"{folder} is at work already; wait for it, or stop it")
    if read_json(folder / "status.json").get("state") == "complete":
        raise ConfigError(f"{folder} is complete; there is nothing to go on with")


def _deviate(folder: Path, typed: Sequence[str]) -> None:
    """Check the overrides against the run's configuration and note them in its manifest."""
    now = deviated(folder, load_config(folder))
    overrides: dict[str, Any] = {}
    for text in typed:
        key, value = _parsed(text, now)
        now = changed(now, {key: value})
        # as resolved: a `${...}` of an option's file means something only in the whole
        overrides[key] = now.get(key, value)
    config.check(now)
    manifest = read_json(folder / "manifest.json")
    step = read_json(folder / "status.json").get("step", 0)
    before = manifest.get("deviations", [])
    manifest["deviations"] = [*before, {"step": step, "overrides": overrides}]
    write_json(folder / "manifest.json", manifest)


def _parsed(text: str, now: dict[str, Any]) -> tuple[str, Any]:
    """Return key and value; of `group=name` the whole node that the name stands for."""
    override = parsed(text)
    key, value = str(override.key_or_group), override.value()
    if key.split(".")[0] in FIXED:
        raise ConfigError(f"{key} makes the run what it is; start another run instead")
    if key in GROUPS and key in now:
        return key, compose.option(key, str(value))
    there = OmegaConf.select(OmegaConf.create(now), key, default=_ABSENT)
    if there == _ABSENT or isinstance(there, DictConfig):
        raise ConfigError(f"{key} is no key of this run{hint(key.split('.')[0], now)}")
    return key, value
