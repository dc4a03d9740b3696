"""Which runs are at work, and the commands that show and resume them."""

from __future__ import annotations

import socket
import time

import pytest

from grpo_ablate import liveness
from grpo_ablate.commands import resume, status
from grpo_ablate.files import lock, read_json, write_atomic, write_json
from tests.conftest import SMALL, composed


def run_folder(root, arm="baseline", **found):
    folder = root / arm / "seed=1"
    folder.mkdir(parents=True)
    write_json(folder / "manifest.json", {"arm": arm, "seed": 1, "baseline": "baseline"})
    if found:
        write_json(folder / "status.json", found)
    return folder


HERE = socket.gethostname()


def test_dead_pid(tmp_path):
    folder = run_folder(tmp_path, state="running", host=HERE, pid=1, heartbeat=time.time())
    assert liveness.status(folder)["state"] == "failed"
    with lock(folder / ".lock"):
        assert liveness.status(folder)["state"] == "running"


def test_old_heartbeat_elsewhere_is_stale(tmp_path):
    old = time.time() - liveness.STALE_AFTER - 60
    folder = run_folder(tmp_path, state="running", host="elsewhere", heartbeat=old)
    found = liveness.status(folder)
    assert found["state"] == "stale" and "no sign of life from elsewhere" in found["reason"]
    assert not liveness.elsewhere(folder)


@pytest.mark.parametrize("ahead", [0.0, 1e6], ids=["now", "clock set back"])
def test_at_work_elsewhere(tmp_path, ahead):
    beat = time.time() + ahead
    folder = run_folder(tmp_path, state="running", host="elsewhere", heartbeat=beat)
    assert liveness.status(folder)["state"] == "running" and liveness.elsewhere(folder)


def test_states_that_need_no_second_look(tmp_path):
    for state in ("complete", "paused", "interrupted", "failed"):
        assert liveness.status(run_folder(tmp_path, state, state=state))["state"] == state
    assert liveness.status(run_folder(tmp_path, "new"))["state"] == "waiting"


def test_status_shows_each_run_once(tmp_path, capsys):
    run_folder(tmp_path, "a", state="complete", step=9, steps=9, latest={"accuracy": 0.5})
    run_folder(tmp_path, "b", state="paused", step=3, steps=9, reason="M5 at step 4: spike")
    run_folder(tmp_path, "c")
    assert status.main([str(tmp_path), "--once"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:3]] == [
        ["a", "1", "complete", "9/9"],
        ["b", "1", "paused", "3/9"],
    ]
    assert "M5 at step 4: spike" in lines[2] and "waiting" in lines[3]
    assert status.main([str(tmp_path / "none")]) == 2


def frozen(root, state="paused"):
    from omegaconf import OmegaConf

    folder = run_folder(root, state=state, step=3)
    write_atomic(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(composed(*SMALL))))
    return folder


@pytest.mark.parametrize(
    "override,message",
    [
        ("seed=2", "seed makes the run what it is"),
        ("clip.epz=0.3", "clip.epz is no key of this run"),
        ("clip.eps=3", "clip.eps must lie in"),
        ("clip.eps==", "clip.eps"),
    ],
)
def test_resume_refuses_bad_overrides(tmp_path, capsys, override, message):
    folder = frozen(tmp_path)
    before = read_json(folder / "manifest.json")
    assert resume.main([str(folder), override]) == 2
    assert message in capsys.readouterr().err
    assert read_json(folder / "manifest.json") == before


def test_resume_refuses_what_cannot_go_on(tmp_path, capsys):
    assert resume.main([str(tmp_path)]) == 2
    folder = frozen(tmp_path, "complete")
    assert resume.main([str(folder)]) == 2
    write_json(folder / "status.json", {"state": "paused"})
    with lock(folder / ".lock"):
        assert resume.main([str(folder)]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("is no run", "is complete", "is at work already"))
