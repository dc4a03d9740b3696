"""A recipe as a baseline: its configuration files, and runs of it that exist already; torch-free.

The staged order carries an arm on by making it the baseline of what follows. Such a baseline is
what a user would write: `baseline/NAME.yaml`, which chooses an option NAME of each lever. Full
options, not values laid over others: an arm that chooses another option replaces all of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from grpo_ablate import arms, liveness
from grpo_ablate.compose import Job
from grpo_ablate.files import read_json, write_atomic, write_json
from grpo_ablate.manifest import config_hash
from grpo_ablate.runs import standing, write_configs
from grpo_ablate.variants import LEVERS

_HEAD = "# @package _global_\n"


def write(folder: Path, name: str, config: Mapping[str, Any], neutral: Mapping[str, Any]) -> None:
    """Write a configuration as the baseline NAME into a folder for `--config-dir`.

    Args:
        folder: of configuration files.
        name: of the baseline.
        config: composed; its levers become options, its other values stay conditions.
        neutral: the neutral baseline under the same conditions.
    """
    for lever in LEVERS:
        _write(folder / lever / f"{name}.yaml", config[lever])
    body = OmegaConf.create()
    for key, (_, value) in arms.delta(neutral, config).items():
        if key.split(".")[0] not in LEVERS:
            OmegaConf.update(body, key, value)
    defaults = {"defaults": [{f"override /{lever}": name} for lever in LEVERS]}
    _write(folder / "baseline" / f"{name}.yaml", {**defaults, **body}, _HEAD)


def write_arm(folder: Path, name: str, options: Mapping[str, str]) -> None:
    """Write an experiment that chooses these options of these levers."""
    defaults = [{f"override /{lever}": option} for lever, option in options.items()]
    node = {"defaults": defaults, "arm": {"moves": sorted(options)}}
    _write(folder / "experiment" / f"{name}.yaml", node, _HEAD)


def adopt(jobs: Sequence[Job], output_dir: Path) -> None:
    """Copy finished runs of the same configuration, hash for hash: they are not run twice.

    A baseline that was an arm of the stage before has been run already, under another name. The
    manifest of a copy says where it comes from; checkpoints are not copied.
    """
    done = {
        status["hash"]: folder
        for folder in liveness.run_folders(output_dir)
        if (status := read_json(folder / "status.json")).get("state") == "complete"
        and not read_json(folder / "manifest.json").get("deviations")
    }
    for job in jobs:
        source = done.get(config_hash(job.config))
        if source and not job.folder.exists():
            _copy(source, job)


def _copy(source: Path, job: Job) -> None:
    """Copy a run under a job's name; the last act names the folder, so a copy is whole."""
    target = job.folder.with_name(f".{job.folder.name}.tmp")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("checkpoints", ".lock"))
    own = {"arm": job.arm, "delta": dict(job.delta), **standing(job)}
    adopted = {"adopted": f"{source.parent.name}/{source.name}"}
    write_json(target / "manifest.json", read_json(source / "manifest.json") | own | adopted)
    write_configs(target, job)
    target.rename(job.folder)


def _write(path: Path, node: Any, head: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, head + OmegaConf.to_yaml(OmegaConf.create(node)))
