"""A run's folder before and around its process: freeze, start, watch for its death; torch-free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from grpo_ablate import arms, devices, liveness, worker
from grpo_ablate.compose import Job
from grpo_ablate.files import (
    LockHeldError,
    is_locked,
    lock,
    read_json,
    write_atomic,
    write_json,
)
from grpo_ablate.interrupt import stopping, warned_first
from grpo_ablate.manifest import config_hash, describe, load_config
from grpo_ablate.variants import ConfigError


def check_folder(job: Job) -> None:
    """See that a job's folder is free, or already its own, among runs under the same conditions.

    Raises:
        ConfigError: not writable, taken by another configuration or by somebody else's files, or
            a process is at work there; or the folder's other runs cannot be compared with it.
    """
    ancestor = next(path for path in (job.folder, *job.folder.parents) if path.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK):
        raise ConfigError(
            f"{job.folder} cannot be made: {ancestor} is no folder one can write to; choose"
            " another output_dir"
        )
    found = {path.name for path in job.folder.glob("*")}
    if "config.yaml" not in found:
        if found - {"manifest.json", "delta.yaml", ".lock"} - _leftovers(found):
            raise ConfigError(
                f"{job.folder} holds files that are no run; move them, or choose another output_dir"
            )
        _check_conditions(job)
        return
    _check_same(job, load_config(job.folder))
    _check_conditions(job)
    if is_locked(job.folder / ".lock") or liveness.elsewhere(job.folder):
        raise _being_run(job.folder)


def _leftovers(names: set[str]) -> set[str]:
    """Return temporary files of a writer that was killed."""
    return {name for name in names if name.startswith(".") and name.endswith(".tmp")}


def _being_run(folder: Path) -> ConfigError:
    pid = read_json(folder / "status.json").get("pid")
    return ConfigError(
        f"{folder} is being run by another process (pid {pid}); wait for it, or stop it"
    )


def _check_conditions(job: Job) -> None:
    """Refuse a run whose baseline is not the baseline of the runs beside it."""
    for path in job.folder.parent.parent.glob(f"*/{job.folder.name}/manifest.json"):
        other = read_json(path)
        theirs, ours = other.get("baseline_hash"), job.baseline_hash
        if other.get("baseline") == job.baseline and theirs != ours:
            typed = " ".join(other.get("conditions", [])) or "none"
            raise ConfigError(
                f"{path.parent} was run under other conditions (typed then: {typed}; now:"
                f" {' '.join(job.conditions) or 'none'}), so {job.arm} could not be compared with"
                " it; choose another output_dir"
            )


def _check_same(job: Job, found: dict[str, Any]) -> None:
    if config_hash(found) == config_hash(job.config):
        return
    changed = list(arms.delta(found, job.config).items())
    shown = "; ".join(f"{key}: {was!r} there, {now!r} here" for key, (was, now) in changed[:3])
    raise ConfigError(
        f"{job.folder} holds a run with another configuration ({shown}); choose another"
        " output_dir, or remove that folder"
    )


def freeze(job: Job) -> None:
    """Write what the run is into its folder, before the first run of the sweep starts.

    A complete or paused run is left as it is. One that will be resumed keeps its manifest, which
    names the code it began with. `config.yaml` comes last: a folder that has one is whole.
    """
    if is_complete(job.folder, config_hash(job.config)) or is_paused(job.folder):
        return
    job.folder.mkdir(parents=True, exist_ok=True)
    manifest = describe(job.config, job.arm, job.delta) | standing(job)
    try:
        with lock(job.folder / ".lock"):
            if not any(job.folder.glob("checkpoints/step=*")):
                write_json(job.folder / "manifest.json", manifest)
            write_configs(job.folder, job)
            (job.folder / "status.json").unlink(missing_ok=True)
    except LockHeldError:
        raise _being_run(job.folder) from None


def standing(job: Job) -> dict[str, Any]:
    """Return what a manifest says of a run's place in its study."""
    return {
        "baseline": job.baseline,
        "baseline_hash": job.baseline_hash,
        "conditions": list(job.conditions),
    }


def write_configs(folder: Path, job: Job) -> None:
    """Write a job's delta, and last its configuration."""
    for name, value in (("delta.yaml", job.delta), ("config.yaml", job.config)):
        write_atomic(folder / name, OmegaConf.to_yaml(OmegaConf.create(value)))


def is_complete(folder: Path, wanted_hash: str) -> bool:
    """Tell whether a folder holds the finished run of exactly this configuration."""
    status = read_json(folder / "status.json")
    return status.get("state") == "complete" and status.get("hash") == wanted_hash


def is_paused(folder: Path) -> bool:
    """Tell whether an alarm paused the run: only `resume RUN` goes on with it."""
    return read_json(folder / "status.json").get("state") == "paused"


def run(folder: Path) -> str:
    """Run or resume a frozen folder in a process of its own, unless it is complete or paused.

    Args:
        folder: as `freeze` left it.

    Returns:
        The state its status.json ends in.
    """
    if is_complete(folder, config_hash(load_config(folder))):
        return "complete"
    if is_paused(folder):
        return "paused"
    if stopping(folder.parents[1]):  # a launcher hands out the next job while we wait for this one
        return "interrupted"
    return start(folder)


def start(folder: Path) -> str:
    """Run or resume a folder; return the state its status.json ends in."""
    command = [sys.executable, "-m", "grpo_ablate.worker", str(folder)]
    with (
        devices.claim(devices.wanted(load_config(folder))) as claim,
        (folder / "worker.log").open("a") as log,
    ):
        child = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **claim.environment},
            pass_fds=claim.descriptors,
            # a terminal's Ctrl-C goes to the whole group: the worker is to hear it once, from us
            start_new_session=True,
        )
        try:
            with warned_first(child.pid):
                code = child.wait()
        except BaseException:
            _end(child)
            _bury(folder, -signal.SIGTERM, child.pid)
            raise
    _bury(folder, code, child.pid)
    return str(read_json(folder / "status.json").get("state"))


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask a worker to finish its step and save; a second Ctrl-C or SIGTERM ends it at once."""
    child.terminate()
    try:
        child.wait()
    except KeyboardInterrupt:
        child.kill()
        child.wait()


def _bury(folder: Path, code: int, pid: int) -> None:
    """Write down the end of a worker that could not do so itself."""
    status = read_json(folder / "status.json")
    if not folder.is_dir():
        return  # removed under way: there is no place to write to
    if code in (0, worker.BUSY) or (status.get("state") != "running" and status):
        return
    if status.get("pid", pid) != pid:
        return  # the folder belongs to another process, which writes its own status
    reason = f"worker ended with exit code {code}; see worker.log"
    if code < 0:
        guess = " (out of memory?)" if code == -signal.SIGKILL else ""
        reason = f"worker killed by {signal.Signals(-code).name}{guess}"
    write_json(folder / "status.json", status | {"state": "failed", "reason": reason})
