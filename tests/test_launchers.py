"""Twelve runs through each launcher: one worker dies, eleven complete, the command again runs one.

Needs the launchers: `pip install '.[parallel,slurm,ray]'`. With GRPO_ABLATE_REQUIRE_LAUNCHERS=1 a
missing one is a failure. The devices are made up: a worker on a CPU ignores the number it is given.
"""

from __future__ import annotations

import csv
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from grpo_ablate import compose, extras
from grpo_ablate.commands import order, train
from grpo_ablate.files import is_locked, read_json
from grpo_ablate.variants import ConfigError
from tests.conftest import PLAIN, ROOT, SMALL, plan, shell

EXTRA = {
    "local": "parallel",
    "slurm": "slurm",
    "slurm_local": "slurm",
    "ray_cluster": "ray",
    "ray_local": "ray",
}
PRESETS = sorted(path.stem for path in (ROOT / "conf/hydra/launcher").glob("*.yaml"))
ARMS = "baseline,clip_higher,group_std,lr_double,sequence_mean,rloo"
SWEEP = [*SMALL, "steps=2", f"+experiment={ARMS}", "-m", "seed=1,2"]
GPUS = {"7", "8"}

LAUNCHERS = {
    "joblib": ["hydra/launcher=local", "hydra.launcher.n_jobs=2"],
    # its jobs all start at once and wait for one of these GPUs; submitit counts them from 0
    "submitit": ["hydra/launcher=slurm_local", "hydra.launcher.gpus_per_node=2"],
    "ray": [
        "hydra/launcher=ray_local",
        "hydra.launcher.ray.init.num_cpus=2",
        "hydra.launcher.ray.init.num_gpus=2",
        "hydra.launcher.ray.remote.num_gpus=1",
    ],
}


def plugin(name):
    """Skip without a launcher's packages, or fail where they are promised."""
    module = f"hydra_plugins.hydra_{name}_launcher"
    if os.environ.get("GRPO_ABLATE_REQUIRE_LAUNCHERS") == "1":
        importlib.import_module(module)
    else:
        pytest.importorskip(module)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_composes_without_its_plugin_and_names_the_extra(preset, monkeypatch):
    monkeypatch.setattr(extras, "_installed", lambda package: True)
    typed = [f"hydra/launcher={preset}", "-m", "seed=1,2"]
    assert len(plan(*SMALL, *typed)) == 2
    monkeypatch.setattr(extras, "_installed", lambda package: False)
    with pytest.raises(ConfigError, match=rf"pip install 'grpo-ablate\[{EXTRA[preset]}\]'"):
        compose.plan(get_args_parser().parse_intermixed_args([*SMALL, *typed]))


def test_a_launcher_without_a_sweep_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train.main([*SMALL, "hydra/launcher=slurm"]) == 2
    assert "hydra/launcher=slurm starts the runs of a sweep: add -m" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_order_hands_a_launcher_on_to_its_sweeps(capsys):
    assert order.main(["seed=1,2", "steps=300", "hydra/launcher=joblib", "--dry-run"]) == 0
    assert "runs" in capsys.readouterr().out


WARNED = """
import signal, subprocess, sys
from grpo_ablate.interrupt import warned_first

def requeue(number, frame):
    print("requeued when the child had", child.poll(), flush=True)
    raise SystemExit(9)

signal.signal(signal.SIGUSR2, requeue)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
try:
    with warned_first(child.pid):
        child.wait()
except SystemExit:
    print("child ended with", child.wait(), flush=True)
"""

WORKER = """
import os, signal, time
from grpo_ablate.interrupt import Interrupt
asked = Interrupt()
os.kill(os.getppid(), signal.SIGUSR2)  # as the scheduler would, to each process of the job
os.kill(os.getpid(), signal.SIGUSR2)
while not asked():
    time.sleep(0.01)
time.sleep(0.5)  # the rest of a step; the parent's echo comes in here
os.kill(os.getpid(), signal.SIGUSR2)
print("saved", flush=True)
raise SystemExit(130)
"""


def test_a_schedulers_warning_is_acted_on_only_after_the_worker_has_saved():
    done = subprocess.run(
        [sys.executable, "-c", WARNED, WORKER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "saved", done.stdout + done.stderr
    assert lines[1].startswith("requeued") and lines[2] == "child ended with 130"


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_one_of_twelve_dies_and_the_same_command_runs_that_one(name, tmp_path, monkeypatch):
    plugin(name)
    gpus = {"0", "1"} if name == "submitit" else GPUS
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(sorted(gpus)))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the GPUs' locks
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # a socket's path has at most 107 characters
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    command = [*LAUNCHERS[name], *SWEEP]
    folders = [job.folder for job in plan(*SWEEP, f"output_dir={tmp_path}/multirun_outputs")]
    assert len(folders) == 12
    victim = folders[4]
    with subprocess.Popen(
        [sys.executable, "-c", PLAIN, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as sweep:
        seen = watch(folders, victim, sweep)
        output = sweep.communicate(timeout=300)[0]
    assert sweep.returncode == 3, output
    assert {gpu for gpu, _ in seen} <= gpus and len({folder for _, folder in seen}) >= 2
    status = read_json(victim / "status.json")
    assert status["state"] == "failed" and "SIGKILL" in status["reason"]
    others = [folder for folder in folders if folder != victim]
    for folder in others:
        assert read_json(folder / "status.json")["state"] == "complete", (folder, output)
        assert steps(folder) == [1, 2]
    shown = shell("status", "--once", cwd=tmp_path)
    assert shown.returncode == 3 and shown.stdout.count("SIGKILL") == 1
    before = {path: stamp(path) for folder in others for path in folder.rglob("*")}

    again = subprocess.run(
        [sys.executable, "-c", PLAIN, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert read_json(victim / "status.json")["state"] == "complete" and steps(victim) == [1, 2]
    assert {path: stamp(path) for folder in others for path in folder.rglob("*")} == before
    assert shell("status", "--once", cwd=tmp_path).returncode == 0


def watch(folders, victim, sweep):
    """Kill the victim's worker as soon as it works; return (GPU, folder) of each worker seen.

    Two workers at once never hold the same GPU.
    """
    seen, killed = set(), False
    end = time.monotonic() + 240
    while sweep.poll() is None and time.monotonic() < end:
        here = {}
        for folder in folders:
            status = read_json(folder / "status.json")
            if status.get("state") != "running" or not is_locked(folder / ".lock"):
                continue
            assert status["host"] == socket.gethostname()
            if folder == victim and not killed:
                os.kill(status["pid"], signal.SIGKILL)
                killed = True
            elif (gpu := gpu_of(status["pid"])) and is_locked(folder / ".lock"):
                here[folder] = gpu
        held = [gpu for folder, gpu in here.items() if is_locked(folder / ".lock")]
        assert len(set(held)) == len(held), here
        seen |= {(gpu, folder) for folder, gpu in here.items()}
        time.sleep(0.02)
    assert killed, "the victim was never seen at work"
    return seen


def gpu_of(pid):
    """Return the GPU a process was started with; None if it has ended."""
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(e.decode().split("=", 1) for e in entries if e).get("CUDA_VISIBLE_DEVICES")
    return None


def steps(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def stamp(path):
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
