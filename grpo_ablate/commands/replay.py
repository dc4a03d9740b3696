"""`python -m grpo_ablate replay RUN|CSV [monitor=NAME]`: the alarms, offline."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from hydra._internal.utils import get_args_parser

from grpo_ablate import compose
from grpo_ablate.monitor import Alarms, Event
from grpo_ablate.variants import ConfigError, bind


def main(argv: list[str]) -> int:
    """Print the alarms that a finished log would have raised.

    A row pools several steps, so M5 compares mean gradient norms here and every optimizer step's
    in a run: it sees less.

    Returns:
        0, or 2 for bad input.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate replay")
    parser.add_argument("path", type=Path, help="a run's folder or a metrics.csv")
    parser.add_argument("monitor", nargs="?", default="monitor=default", help="monitor=NAME")
    args = parser.parse_args(argv)
    try:
        events = list(replay(args.path, named(args.monitor.removeprefix("monitor="))))
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    for event in events:
        print(f"step {event.step:>5}  {event.monitor:<8} {event.action:<8} {event.message}")
    print(f"{len(events)} alarms")
    return 0


def named(name: str) -> Alarms:
    """Return the alarms of monitor=NAME, composed as a run's are."""
    (job,), _ = compose.plan(get_args_parser().parse_args([f"monitor={name}"]))
    alarms: Alarms = bind("monitor", job.config["monitor"])()
    return alarms


def replay(path: Path, alarms: Alarms) -> Iterator[Event]:
    """Yield the alarms of a metrics.csv, row by row.

    Args:
        path: the file, or a run's folder.
        alarms: fresh rules.

    Raises:
        ConfigError: no such file, or no column `step`.
    """
    path = path / "metrics.csv" if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"{path} is no file; name a run's folder or a metrics.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if "step" not in (rows.fieldnames or ()):
            raise ConfigError(f"{path} has no column step; name a metrics.csv")
        for row in rows:
            values = {k: float(v) if v else math.nan for k, v in row.items() if k != "step"}
            yield from alarms.observe(int(row["step"]), values)
