"""`python -m grpo_ablate order seed=1,2,3 [CONDITION...]`: the article's staged order, X6."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from grpo_ablate import compose
from grpo_ablate.analysis import ladder, report
from grpo_ablate.analysis.load import read_run
from grpo_ablate.arms import parsed, touches_lever
from grpo_ablate.order import Order, Study, distinct
from grpo_ablate.study import read as design_of
from grpo_ablate.variants import ConfigError, hint

_FIXED = ("baseline", "experiment", "suite")
"""What the plan chooses, not the command line."""


def main(argv: list[str]) -> int:
    """Follow the order, or say what it would do.

    Returns:
        0 it came to its end, 2 bad input, 3 a gate stopped it, 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate order")
    parser.add_argument("overrides", nargs="*", help="seed=1,2,3 and conditions such as steps=500")
    parser.add_argument("--config-dir", type=Path, help="configuration files of your own")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    args = parser.parse_intermixed_args(argv)
    try:
        study = _study(args.overrides, args.config_dir)
        if args.dry_run:
            print(_dry_run(study, args.config_dir))
            return 0
        order = Order(study)
        if args.config_dir:
            shutil.copytree(args.config_dir, study.conf, dirs_exist_ok=True)
        # as Ctrl-C: `_launch` passes it on, and waits until the runs are saved
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        record = order.follow()
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    for path in ladder.write(record, study.folder):
        print(path)
    print(f"{record['state']}: {record['reason']}" if record["reason"] else record["state"])
    return {"complete": 0, "interrupted": 130}.get(record["state"], 3)


def _study(typed: Sequence[str], extra: Path | None) -> Study:
    """Read the command line, and see that a baseline of these conditions composes."""
    overrides = {override.key_or_group: override for override in map(parsed, typed)}
    for key, override in overrides.items():
        if key in _FIXED or touches_lever(str(override.input_line)):
            raise ConfigError(
                f"{override.input_line}: the order chooses levers and baselines; write a starting"
                " point as baseline/NAME.yaml, and name it in an order/NAME.yaml of --config-dir"
            )
        if override.is_sweep_override() and key != "seed":
            raise ConfigError(f"{override.input_line}: an order has one value for each condition")
    own = ("seed", "order", "output_dir")
    chosen = {key: str(overrides[key].value()) for key in own[1:] if key in overrides}
    study = Study(
        plan=_plan(chosen.get("order", "article"), extra),
        seeds=_seeds(overrides.get("seed")),
        conditions=tuple(str(o.input_line) for key, o in overrides.items() if key not in own),
        folder=Path(chosen.get("output_dir", "multirun_outputs/order")),
        compose=_compose,
        launch=_launch,
        judge=_judge,
    )
    flags = ("--config-dir", str(extra)) if extra else ()
    _compose([*flags, f"baseline={study.plan['baseline']}", *study.conditions])
    return study


def _seeds(override: Override | None) -> tuple[int, ...]:
    if override is None:
        return (1, 2, 3)
    sweep = override.is_sweep_override()
    values = [str(v) for v in override.sweep_iterator()] if sweep else [str(override.value())]
    if not all(value.isdigit() for value in values):
        raise ConfigError(f"{override.input_line}: seeds are whole numbers, such as seed=1,2,3")
    return tuple(int(value) for value in values)


def _plan(name: str, extra: Path | None) -> dict[str, Any]:
    """Return order/NAME.yaml, the user's before ours."""
    places = [place / "order" for place in (extra, compose.config_dir()) if place]
    found = [place / f"{name}.yaml" for place in places if (place / f"{name}.yaml").is_file()]
    if not found:
        known = sorted(path.stem for place in places for path in place.glob("*.yaml"))
        raise ConfigError(f"order={name} is unknown{hint(name, known)}")
    plan = OmegaConf.to_container(OmegaConf.load(found[0]))
    wanted = {"baseline", "rate", "stages"}
    if not isinstance(plan, dict) or set(plan) != wanted:
        raise ConfigError(f"{found[0]} must hold {', '.join(sorted(wanted))} and nothing else")
    return {str(key): value for key, value in plan.items()}


def _compose(argv: Sequence[str]) -> list[compose.Job]:
    return compose.plan(get_args_parser().parse_intermixed_args(list(argv)))[0]


def _launch(argv: Sequence[str]) -> int:
    """Train in a process of its own; a signal to us goes to it alone, and once."""
    command = [sys.executable, "-m", "grpo_ablate", *argv]
    with subprocess.Popen(command, start_new_session=True) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            return 130


def _judge(output_dir: Path, folders: Sequence[Path]) -> dict[str, Any]:
    runs = sorted((read_run(folder) for folder in folders), key=lambda run: (run.arm, run.seed))
    return report.build(runs, design_of(output_dir))


def _dry_run(study: Study, extra: Path | None) -> str:
    """Return what the order would run, stage by stage, with what it cannot know yet."""
    flags = ["--config-dir", str(extra)] if extra else []
    base = [*flags, f"baseline={study.plan['baseline']}", *study.conditions]
    n, rounds = len(study.seeds), study.plan["rate"]["rounds"]
    lines = [f"rate: the baseline on {n} seeds, at 1 to {rounds} rates (article: B2)"]
    most = n * rounds
    for stage in study.plan["stages"]:
        kept, skipped = distinct(stage["arms"], lambda a: _compose([*base, f"+experiment={a}"]))
        lines += [f"  left out: {reason}" for reason in skipped.values()]
        most += n * len(kept)
        lines.append(f"{stage['name']}: {', '.join(kept) or 'nothing'}, against the recipe so far")
    levers = len(study.plan["stages"])
    most += n * (levers + 2)
    lines.append("leave one out: each lever carried on is taken out again, on fresh seeds")
    return "\n".join([*lines, f"at most {most} runs; a configuration is never run twice"])
