"""The promised command, in a process of its own, on the embedded default with few steps."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from grpo_ablate.analysis.load import read_run
from tests.conftest import shell, start

pytestmark = pytest.mark.slow

PROMISED = ["+experiment=clip_higher", "-m", "seed=1,2,3"]
SHORT = ["steps=2", "evaluation.problems=8", "log_every=1", "eval_every=1", "threads=1"]


def folder(root, seed, arm="clip_higher"):
    return root / "multirun_outputs" / arm / f"seed={seed}"


def status(root, seed, arm="clip_higher"):
    return json.loads((folder(root, seed, arm) / "status.json").read_text())


def without_timing(path):
    """metrics.csv less its last two columns, which time the run."""
    lines = path.read_text().splitlines()
    assert lines[0].endswith(",perf/tokens_per_second,perf/seconds")
    return [line.rsplit(",", 2)[0] for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The promised command, run to its end."""
    root = tmp_path_factory.mktemp("promised")
    return root, shell(*PROMISED, *SHORT, cwd=root)


def test_it_runs_as_promised(finished):
    root, done = finished
    assert done.returncode == 0, done.stdout + done.stderr
    for seed in (1, 2, 3):
        assert status(root, seed)["state"] == "complete"
        assert status(root, seed)["device"], "runs on two kinds of device are not compared"
        for name in ("config.yaml", "delta.yaml", "manifest.json", "samples.jsonl", "curves.png"):
            assert (folder(root, seed) / name).stat().st_size > 0
        run = read_run(folder(root, seed))
        assert list(run.metrics.index) == [1, 2]
        assert list(run.evals.index) == [0, 1, 2]
    assert (root / "multirun_outputs/report/fig/comparison.png").is_file()
    assert "clip_higher: incomplete: there is no run of baseline" in done.stdout
    assert (root / "multirun_outputs/report/verdicts.csv").is_file()
    frozen = (root / "multirun_outputs/study.yaml").read_text()
    assert "horizon: 2\n" in frozen


def test_it_says_where_each_run_stands_and_what_is_missing(finished):
    _, done = finished
    assert "clip_higher/seed=2" in done.stdout
    assert done.stdout.count("complete") >= 6, "a progress line and a table row for each run"
    command = " ".join(["python -m grpo_ablate", *SHORT, "-m seed=1,2,3"])
    assert command in done.stdout, "the baseline to compare with, under the same conditions"


def test_seeds_differ(finished):
    root, _ = finished
    tables = {tuple(without_timing(folder(root, seed) / "metrics.csv")) for seed in (1, 2, 3)}
    assert len(tables) == 3


def test_the_same_command_again_runs_nothing(finished):
    root, _ = finished
    before = [status(root, seed) for seed in (1, 2, 3)]
    again = shell(*PROMISED, *SHORT, cwd=root)
    assert again.returncode == 0
    assert before == [status(root, seed) for seed in (1, 2, 3)], "their clocks stand still"


def test_same_seed_same_bytes_in_another_process_after_other_jobs(finished, tmp_path):
    """Seed 3 alone, as a plain run, equals seed 3 as the third job of a sweep."""
    root, _ = finished
    done = shell("+experiment=clip_higher", "seed=3", *SHORT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, other = folder(root, 3), folder(tmp_path, 3)
    assert without_timing(one / "metrics.csv") == without_timing(other / "metrics.csv")
    assert (one / "eval.csv").read_bytes() == (other / "eval.csv").read_bytes()
    assert (one / "samples.jsonl").read_bytes() == (other / "samples.jsonl").read_bytes()


def wait_for(root, seed, arm="clip_higher"):
    """Wait until the run's worker is at work; return its status."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            found = status(root, seed, arm)
        except FileNotFoundError:
            found = {}
        if found.get("state") == "running":
            return found
        time.sleep(0.05)
    raise TimeoutError(f"seed {seed} did not start")


def test_a_killed_worker_stops_no_other_and_only_it_is_run_again(tmp_path):
    """SIGKILL one of three: the others complete, exit 3; the same command runs the one, exit 0."""
    with start(tmp_path, *PROMISED, *SHORT) as sweep:
        os.kill(wait_for(tmp_path, 2)["pid"], signal.SIGKILL)
        output = sweep.communicate()[0]
    assert sweep.returncode == 3, output
    assert [status(tmp_path, seed)["state"] for seed in (1, 2, 3)] == [
        "complete",
        "failed",
        "complete",
    ]
    assert "worker killed by SIGKILL" in output
    before = [status(tmp_path, seed) for seed in (1, 3)]
    again = shell(*PROMISED, *SHORT, cwd=tmp_path)
    assert again.returncode == 0, again.stdout
    assert status(tmp_path, 2)["state"] == "complete"
    assert before == [status(tmp_path, seed) for seed in (1, 3)], "their clocks stand still"


def test_sigterm_ends_the_sweep_and_its_worker(tmp_path):
    with start(tmp_path, *PROMISED, "steps=1000", "evaluation.problems=8") as sweep:
        pid = wait_for(tmp_path, 1)["pid"]
        sweep.terminate()
        output = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 130, output
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert status(tmp_path, 1)["state"] != "running"
    assert not (folder(tmp_path, 2) / "status.json").exists()


def test_a_run_that_fails_says_why(tmp_path):
    """A learning rate that explodes ends in one line, with the worker's traceback on file."""
    done = shell("model.base_lr=1e9", *SHORT, cwd=tmp_path)
    assert done.returncode == 3
    assert "not finite; lower lr_batch.lr_scale" in done.stdout
    assert "FloatingPointError" in status(tmp_path, 1, "baseline")["traceback"]


def test_a_config_edited_during_a_sweep_does_not_reach_its_later_runs(tmp_path):
    """Seed 2 must run what was frozen at the start, not what the file says by then."""
    mine = tmp_path / "mine"
    (mine / "baseline").mkdir(parents=True)
    text = "# @package _global_\nlr_batch: {prompts: 8, warmup: WARMUP}\n"
    (mine / "baseline/mine.yaml").write_text(text.replace("WARMUP", "10"))
    argv = ["--config-dir", str(mine), "baseline=mine", "-m", "seed=1,2", *SHORT]
    with start(tmp_path, *argv) as sweep:
        wait_for(tmp_path, 1, "mine")
        (mine / "baseline/mine.yaml").write_text(text.replace("WARMUP", "1"))
        output = sweep.communicate()[0]
    assert sweep.returncode == 0, output
    rates = [read_run(folder(tmp_path, s, "mine")).metrics["optim/lr"].tolist() for s in (1, 2)]
    assert rates[0] == rates[1]


def test_two_at_once_give_the_same_numbers(finished, tmp_path):
    """Hydra's joblib launcher: its processes know the arm's name, and nothing leaks."""
    root, _ = finished
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = shell(*PROMISED, *SHORT, *launcher, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for seed in (1, 2, 3):
        one, other = folder(root, seed), folder(tmp_path, seed)
        assert without_timing(one / "metrics.csv") == without_timing(other / "metrics.csv")


def test_hydra_flags_still_work(tmp_path):
    done = shell("+experiment=clip_higher", "--cfg", "job", cwd=tmp_path)
    assert done.returncode == 0
    assert "eps_high: 0.28" in done.stdout
    assert list(tmp_path.iterdir()) == []
