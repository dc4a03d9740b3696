"""W&B as a sink: the real SDK against a loopback server, with everything that can go wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from grpo_ablate import publish, runs, track
from grpo_ablate.distributions import BINS, HISTOGRAMS
from grpo_ablate.files import read_json, write_json
from grpo_ablate.manifest import config_hash
from grpo_ablate.metrics import METRICS
from tests.conftest import ROOT, SMALL, composed, plan, shell
from tests.fake_wandb import KEY, FakeWandb

OWN = ("metrics.csv", "eval.csv", "samples.jsonl", "histograms.jsonl", "events.jsonl")
slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def away_from_home(tmp_path, monkeypatch):
    """Neither a key of this machine's user nor their cache."""
    for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR", "ARTIFACT_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


@pytest.fixture
def server(monkeypatch):
    with FakeWandb() as fake:
        for name, value in fake.env.items():
            monkeypatch.setenv(name, value)
        yield fake


def trained(root: Path, *overrides: str) -> Path:
    """Run an arm of a few steps in its worker; an alarm goes off at each."""
    rule = "{name: a, kind: above, signal: reward/mean, window: 1, threshold: -9, cooldown: 3"
    alarm = f"++monitor.rules.MINE={rule}, action: warn}}"
    (job,) = plan(
        "+experiment=clip_higher", *SMALL, "steps=5", alarm, f"output_dir={root}", *overrides
    )
    runs.freeze(job)
    assert runs.start(job.folder) == "complete", (job.folder / "worker.log").read_text()
    return job.folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run that nobody tracked."""
    return trained(tmp_path_factory.mktemp("plain"))


def copied(finished: Path, root: Path) -> Path:
    folder = root / "out" / finished.parent.name / finished.name
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("checkpoints"))
    return folder


def without_timing(text: str) -> list[str]:
    return [line.rsplit(",", 2)[0] for line in text.splitlines()]


def same_files(one: Path, other: Path) -> bool:
    texts = [{name: (folder / name).read_text() for name in OWN} for folder in (one, other)]
    for found in texts:
        found["metrics.csv"] = without_timing(found["metrics.csv"])
    return texts[0] == texts[1]


def replayed(source: Path, folder: Path, tracker: track.Tracker) -> None:
    """Write a finished run's files anew, under the eyes of a tracker: training without torch."""
    status = read_json(source / "status.json")
    folder.mkdir(parents=True)
    for name in ("config.yaml", "manifest.json"):
        shutil.copy(source / name, folder)
    write_json(folder / "status.json", status | {"state": "running"})
    with tracker(folder):
        for name in OWN:
            shutil.copy(source / name, folder)
        write_json(folder / "status.json", status)


def logged(folder: Path) -> pd.DataFrame:
    """metrics.csv and eval.csv as one table by step."""
    frames = [pd.read_csv(folder / f"{name}.csv", index_col="step") for name in ("metrics", "eval")]
    return frames[0].join(frames[1], how="outer")


def check_history(history: list[dict], folder: Path) -> None:
    """Assert that the server has the files' rows: each once, in order, each number."""
    wanted = logged(folder)
    assert [row[publish.STEP] for row in history] == list(wanted.index)
    for row in history:
        numbers = wanted.loc[row[publish.STEP]].dropna().to_dict()
        assert {k: row[k] for k in numbers} == pytest.approx(numbers)


# identity


def test_an_arm_is_named_by_its_study_arm_and_seed(tmp_path):
    (job,) = plan("+experiment=clip_higher", "seed=3", "study=a/b", f"output_dir={tmp_path}")
    runs.freeze(job)
    who = publish.identity(job.folder)
    assert {k: who[k] for k in ("project", "group", "job_type", "name")} == {
        "project": "a-b",
        "group": "clip_higher",
        "job_type": "train",
        "name": "clip_higher/s3",
    }
    assert who["config"]["ablation"] == {
        "arm": "clip_higher",
        "axis": "clip",
        "value": "clip_higher",
        "is_baseline": False,
    }
    assert who["config"]["clip"]["eps_high"] == 0.28
    assert {"clip", "clip_higher", "clip.eps_high=0.28"} <= set(who["tags"])


def test_the_id_depends_on_study_arm_seed_and_hash_alone():
    one = publish.run_id("study", "arm", 1, "hash")
    assert one == publish.run_id("study", "arm", 1, "hash")
    others = [("s", "arm", 1, "hash"), ("study", "a", 1, "hash"), ("study", "arm", 2, "hash")]
    assert (
        len({one, publish.run_id("study", "arm", 1, "h"), *(publish.run_id(*o) for o in others)})
        == 5
    )


def test_where_a_run_is_shown_is_no_part_of_what_it_is():
    assert config_hash(composed("tracker=wandb")) == config_hash(composed())


def test_keys_are_plain_enough_for_every_reader():
    """W&B flattens nested keys with dots, and its expressions take no other signs."""
    assert all(re.fullmatch(r"[a-z0-9_]+/[a-z0-9_]+", key) for key in (*METRICS, *HISTOGRAMS))


# rows


def run_folder(root: Path, state: str, metrics: str, evals: str) -> Path:
    (root / "metrics.csv").write_text(metrics)
    (root / "eval.csv").write_text(evals)
    write_json(root / "status.json", {"state": state})
    return root


@pytest.mark.parametrize(
    ("state", "steps"),
    [("complete", [0, 1, 2]), ("running", [0, 1]), ("failed", [0, 1])],
)
def test_the_last_step_waits_until_nothing_can_be_added(tmp_path, state, steps):
    folder = run_folder(tmp_path, state, "step,a/b\n1,0.5\n2,\n2", "step,c/d\n0,1.0\n2,3.0\n")
    rows = publish.settled(folder)
    assert [row.step for row in rows] == steps
    assert rows[0].scalars == {"c/d": 1.0}
    if state == "complete":
        assert rows[2].scalars == {"c/d": 3.0}, "an empty cell is no number, a torn line no row"


def test_no_row_before_the_first_and_no_file_is_no_row(tmp_path):
    assert publish.settled(tmp_path) == []


# without the SDK


def test_a_missing_package_costs_one_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(track, "find_spec", lambda name: None)
    folder = tmp_path / "out/arm/seed=1"
    folder.mkdir(parents=True)
    with track.wandb(mode="auto", init_timeout=1.0, finish_timeout=1.0)(folder):
        pass
    (warning,) = capsys.readouterr().out.splitlines()
    assert "wandb is not installed" in warning
    assert f"push {tmp_path / 'out'}" in warning
    assert track.lines([folder, tmp_path]) == [
        f"1 run not on W&B: wandb is not installed (pip install 'grpo-ablate[wandb]');"
        f" later: python -m grpo_ablate push {tmp_path / 'out'}"
    ]


def test_a_publisher_that_cannot_start_costs_one_warning(tmp_path, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise OSError("no more processes")

    monkeypatch.setattr(track, "find_spec", lambda name: True)
    monkeypatch.setattr(track.subprocess, "Popen", refuse)
    trained = []
    with track.wandb(mode="auto", init_timeout=1.0, finish_timeout=1.0)(tmp_path / "gone/x/y"):
        trained.append(1)
    assert trained, "nor does a folder that is not there stop it"
    (warning,) = capsys.readouterr().out.splitlines()
    assert "no more processes" in warning


# with it

QUICK = track.wandb(mode="auto", init_timeout=2.0, finish_timeout=8.0)


@slow
def test_a_tracked_run_is_the_untracked_one_and_the_server_has_all_of_it(
    finished, tmp_path, server
):
    folder = trained(tmp_path / "out", "tracker=wandb")
    assert same_files(finished, folder)
    check_history(server.history("small+clip_higher/s1"), folder)
    (run,) = server.runs.values()
    assert (run["state"], run["vars"]["groupName"]) == ("finished", "small+clip_higher")
    last = run["history"][-1]
    for name in HISTOGRAMS:
        assert len(last[name]["values"]) == BINS
        assert len(last[name]["bins"]) == BINS + 1
    assert last["eval/samples"]["_type"] == "table-file"
    config = json.loads(run["vars"]["config"])
    axes = [m for m in config["_wandb"]["value"]["m"] if m.get("2") == "*" or m.get("1")]
    assert len(axes) == 2, "everything is drawn over train/step"
    assert [a["title"] for a in server.alerts] == ["MINE (warn), step 1", "MINE (warn), step 4"]
    uploaded = {path.split("/", 5)[5] for path in server.files if "seed=1/" in path}
    assert {f"seed=1/{name}" for name in (*OWN, "config.yaml", "manifest.json")} <= uploaded
    assert track.lines([folder]) == [f"1 run on W&B: {server.url}/me/grpo_ablate"]
    told = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in text for text in (*told, *server.bodies)), "a secret is told"


@slow
def test_a_resumed_run_goes_on_where_the_server_is(finished, tmp_path, server):
    for cut in (3, None):
        folder = copied(finished, tmp_path)
        if cut:
            lines = (folder / "metrics.csv").read_text().splitlines(keepends=True)
            (folder / "metrics.csv").write_text("".join(lines[: cut + 1]))
            (folder / "eval.csv").write_text("step,eval/accuracy\n0,0.5\n2,0.5\n")
            for name in ("samples.jsonl", "histograms.jsonl"):
                (folder / name).write_text("")
            write_json(folder / "status.json", {"state": "failed"})
        with QUICK(folder):
            pass
        shutil.copytree(folder, tmp_path / f"seen{cut}")
        shutil.rmtree(folder.parent)
    history = server.history("small+clip_higher/s1")
    assert [row[publish.STEP] for row in history] == [0, 1, 2, 3, 4, 5]
    assert history[-1]["eval/accuracy"] == logged(finished)["eval/accuracy"].iloc[-1]


@slow
@pytest.mark.parametrize("fault", ["refused", "500", "dies", "broken"])
def test_whatever_befalls_wandb_the_run_is_whole_and_can_be_pushed(
    fault, finished, tmp_path, server, monkeypatch, capfd
):
    folder = tmp_path / "out/small+clip_higher/seed=1"
    with pytest.MonkeyPatch.context() as patch:
        if fault == "refused":
            patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
        elif fault == "dies":
            server.fail_after = 0
        elif fault == "broken":
            (tmp_path / "half/wandb").mkdir(parents=True)
            (tmp_path / "half/wandb/__init__.py").write_text("raise RuntimeError('half installed')")
            patch.setenv("PYTHONPATH", str(tmp_path / "half"), prepend=os.pathsep)
        else:
            server.fault = fault
        replayed(finished, folder, track.wandb(mode="auto", init_timeout=1.0, finish_timeout=1.5))
    assert same_files(finished, folder)
    warnings = [text for text in capfd.readouterr().out.splitlines() if text[:8] == "warning:"]
    assert len(warnings) == 1, warnings
    assert f"python -m grpo_ablate push {tmp_path / 'out'}" in warnings[0]
    assert ("half installed" in warnings[0]) == (fault == "broken")
    if fault != "dies":
        return
    server.fault, server.fail_after = "", None  # the server is back, and has a part of the run
    done = shell("push", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    check_history(server.history("small+clip_higher/s1"), folder)


@slow
def test_a_long_run_goes_on_offline_when_nobody_answers(finished, tmp_path, server):
    """Long: it lasts until the SDK has given up, which takes it about ten seconds."""
    folder, server.fault = copied(finished, tmp_path), "silent"
    with track.wandb(mode="auto", init_timeout=2.0, finish_timeout=60.0)(folder):
        pass
    (line,) = track.lines([folder])
    assert "Failed to authenticate" in line and "grpo_ablate push" in line
    assert read_json(folder / track.NOTE)["sent"] == 5
    assert len(list(folder.rglob("offline-run-*/run-*.wandb"))) == 1


@slow
def test_a_killed_run_leaves_no_publisher_behind(finished, tmp_path, server):
    folder = copied(finished, tmp_path)
    write_json(folder / "status.json", {"state": "running"})
    code = (
        "import os, pathlib, sys, time\n"
        "from grpo_ablate import track\n"
        "tracker = track.wandb(mode='auto', init_timeout=9.0, finish_timeout=9.0)\n"
        "with tracker(pathlib.Path(sys.argv[1])):\n"
        "    time.sleep(0.5)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT)
    assert done.returncode == -9
    end = time.monotonic() + 30
    while "sent" not in read_json(folder / track.NOTE) and time.monotonic() < end:
        time.sleep(0.05)
    assert read_json(folder / track.NOTE)["sent"] == 4, "the last step might lack a row"
    assert [run["state"] for run in server.runs.values()] == ["failed"]


@slow
def test_pushed_twice_changes_nothing_and_reads_back(finished, tmp_path, server):
    folder = copied(finished, tmp_path)
    (tmp_path / "out/report").mkdir()
    (tmp_path / "out/report/report.html").write_text("<!doctype html>")
    first = shell("push", "out", cwd=tmp_path)
    assert (first.returncode, "6 rows" in first.stdout) == (0, True), first.stdout + first.stderr
    before = server.writes()
    again = shell("push", "out", cwd=tmp_path)
    assert again.stdout.splitlines() == [
        "small+clip_higher/seed=1: up to date",
        "report: up to date",
    ]
    assert server.writes() == before
    assert any(path.endswith("/report/report.html") for path in server.files)
    name = publish.identity(folder)["id"]
    code = (
        "import json, sys, wandb; run = wandb.Api().run(sys.argv[1]);"
        "print(json.dumps([run.state, run.group, run.config['ablation']['axis'],"
        " [row['train/step'] for row in run.scan_history()]]))"
    )
    read = subprocess.run(
        [sys.executable, "-c", code, f"grpo_ablate/{name}"], capture_output=True, text=True
    )
    assert json.loads(read.stdout.splitlines()[-1]) == [
        "finished",
        "small+clip_higher",
        "clip",
        [0, 1, 2, 3, 4, 5],
    ], read.stderr


@slow
def test_without_a_key_it_is_kept_offline_and_can_be_read(finished, tmp_path):
    folder = copied(finished, tmp_path)
    with QUICK(folder):
        pass
    (line,) = track.lines([folder])
    assert line.startswith(
        "1 run not on W&B: no W&B API key; set WANDB_API_KEY; later: python -m grpo_ablate push"
    )
    (path,) = folder.rglob("run-*.wandb")
    done = subprocess.run(
        [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)],
        capture_output=True,
        text=True,
    )
    records = [json.loads(text) for text in done.stdout.splitlines() if text.strip()]
    history = [r["history"]["item"] for r in records if r["type"] == "history"]
    check_history(history, folder)
    assert shell("push", "out", cwd=tmp_path).returncode == 2, "a push without a key"


@slow
def test_the_dashboard_is_saved_online_and_written_offline(finished, tmp_path, server, monkeypatch):
    copied(finished, tmp_path)
    done = shell("dashboard", "out", cwd=tmp_path)
    assert done.stdout.startswith(f"{server.url}/me/grpo_ablate?nw="), done.stderr
    monkeypatch.delenv("WANDB_API_KEY")
    assert shell("dashboard", "out", cwd=tmp_path).returncode == 0
    written = json.loads((tmp_path / "out/report/workspace.json").read_text())
    (view,) = server.views.values()
    for spec in (view["spec"], written["spec"]):
        sections = spec["section"]["panelBankConfig"]["sections"]
        assert [section["name"] for section in sections][:3] == [
            "held-out accuracy",
            "reward",
            "entropy",
        ]
        plot = sections[0]["panels"][0]["config"]
        assert plot["metrics"] == ["eval/accuracy"]
        assert plot["xAxis"] == "train/step"
        assert (plot["groupAgg"], plot["groupArea"]) == ("mean", "minmax")
        assert "ablation" in json.dumps(plot["groupBy"])
