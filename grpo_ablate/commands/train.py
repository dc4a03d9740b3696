"""`python -m grpo_ablate [train] OVERRIDES...`: plan, freeze, run through Hydra, show."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from grpo_ablate import compose, config, interrupt, preflight, runs, study, track
from grpo_ablate.progress import Display
from grpo_ablate.variants import ConfigError

# at import, because a launcher's own processes compose too, and this module is what they load
compose.register_resolvers()


def main(argv: list[str]) -> int:
    """Run everything a command line asks for that is not complete yet.

    Returns:
        0 all complete, 2 usage or configuration, 3 some runs failed, 4 an arm cannot be compared,
        130 interrupted.
    """
    # Hydra 1.3 refuses overrides on both sides of -m; intermixed parsing takes them anywhere
    args = get_args_parser().parse_intermixed_args(argv)
    if args.cfg or args.info or args.hydra_help or args.shell_completion or args.help:
        flags = list(argv)
        for override in args.overrides:
            flags.remove(override)
        _hand_over([*flags, *args.overrides], args, compose.config_dir(), None)
        return 0
    try:
        jobs, many = _prepare(args)
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    return _run(args, jobs, many)


def job(cfg: DictConfig) -> str:
    """Run one arm × seed: Hydra's task function, in whatever process the launcher chose."""
    try:
        return runs.run(Path(HydraConfig.get().runtime.output_dir))
    except OSError as error:  # a full disk, a vanished folder: this run's end, not the sweep's
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return "failed"


def _prepare(args: Namespace) -> tuple[list[compose.Job], bool]:
    """Check everything before anything is created, then freeze all of it."""
    ignored = [f for f in ("config_path", "experimental_rerun", "resolve") if getattr(args, f)]
    if ignored:
        raise ConfigError(
            f"--{ignored[0].replace('_', '-')} has no place here; name configs of your own with"
            " --config-dir"
        )
    jobs, many = compose.plan(args)
    if not many:
        compose.refuse_idle_launcher(args.overrides)
    warnings = {warning for job in jobs for warning in config.check(job.config)}
    for planned in jobs:
        runs.check_folder(planned)
    entries = [(planned.arm, planned.baseline, planned.config) for planned in jobs]
    output_dir = Path(jobs[0].config["output_dir"])
    study.check_jobs(output_dir, entries)
    if many:
        warnings |= set(preflight.warnings(jobs))
    for warning in sorted(warnings):
        print(f"grpo_ablate: warning: {warning}", file=sys.stderr)
    try:
        study.freeze(output_dir, entries)
        for planned in jobs:
            runs.freeze(planned)
    except OSError as error:
        raise ConfigError(f"{error}; choose another output_dir, or make room") from error
    return jobs, many


def _run(args: Namespace, jobs: list[compose.Job], many: bool) -> int:
    from grpo_ablate.commands import report

    folders = [planned.folder for planned in jobs]
    output_dir = Path(jobs[0].config["output_dir"])
    frozen = compose.snapshot(output_dir, args.config_dir)
    mode = ["--multirun"] if many else []
    _hear(output_dir, folders)
    try:
        with Display(folders):
            _hand_over([*mode, *compose.seed_first(args.overrides)], args, frozen, None)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with what is missing", file=sys.stderr)
        return 130
    for line in track.lines(folders):
        print(line)
    return report.show(output_dir, folders)


def _hear(output_dir: Path, folders: Sequence[Path]) -> None:
    """Let Ctrl-C and a scheduler's SIGTERM reach the workers first; the next one ends all."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.default_int_handler)
        interrupt.stop_workers(output_dir, folders)
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)


def _hand_over(argv: list[str], args: Namespace, configs: Path, extra: str | None) -> None:
    """Give the command line to Hydra, on the configuration files of `configs`."""
    flags = ["--config-dir", extra] if extra else []
    sys.argv = ["grpo_ablate", *flags, *argv]
    name = args.config_name or compose.CONFIG_NAME
    hydra.main(version_base="1.3", config_path=str(configs.absolute()), config_name=name)(job)()
