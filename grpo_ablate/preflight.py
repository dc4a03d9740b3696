"""Before a sweep: which of its arms will not act? Asked of the probe, once an arm; torch-free."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from grpo_ablate.commands import probe
from grpo_ablate.compose import Job
from grpo_ablate.variants import ConfigError


def warnings(jobs: Sequence[Job]) -> Iterable[str]:
    """Return a line for each arm that would be inert, as `preflight` asks.

    Nothing is written: the probe's rollouts are thrown away. Baselines and arms with nothing left
    to run are not asked about.

    Raises:
        ConfigError: preflight=refuse, and an arm is inert.
    """
    mode = jobs[0].config["preflight"]
    asked: dict[str, Job] = {}
    for job in jobs if mode != "off" else ():
        if job.delta and not any(job.folder.glob("*.csv")):  # an arm, and not begun
            asked.setdefault(job.arm, job)
    if not asked:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        found = probe.measure(list(asked.values()), Path(scratch))
    inert = [arm for arm in found["arms"] if arm["verdict"] == "inert"]
    lines = [f"{arm['arm']} does nothing at the start: {arm['why']}" for arm in inert]
    if inert and mode == "refuse":
        raise ConfigError(
            f"{lines[0]}; change the arm, leave it out, or run it all the same with preflight=warn"
        )
    return lines
