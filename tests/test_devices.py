"""GPU claims, on made-up devices: the lock is what matters, not the card."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from grpo_ablate import config, devices
from grpo_ablate.files import is_locked
from grpo_ablate.variants import ConfigError
from tests.conftest import composed


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))


def test_cpu_machine_needs_no_claim(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with devices.claim() as claim:
        assert claim.environment == {}


def test_each_holder_gets_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,GPU-abc")
    with devices.claim() as first, devices.claim() as second:
        assert first.environment == {"CUDA_VISIBLE_DEVICES": "0"}
        assert second.environment == {"CUDA_VISIBLE_DEVICES": "GPU-abc"}


def test_waits_until_one_is_free(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    got = []

    def wait():
        with devices.claim(poll=0.01) as claim:
            got.append(claim.environment)

    with devices.claim():
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.1)
        assert not got
    waiter.join()
    assert got == [{"CUDA_VISIBLE_DEVICES": "3"}]


def test_a_killed_holder_frees_its_device(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    script = (
        "import tempfile; tempfile.gettempdir = lambda: " + repr(str(tmp_path)) + "\n"
        "from grpo_ablate import devices\n"
        "with devices.claim():\n    print('held', flush=True)\n    input()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with child:
        assert child.stdout.readline() == b"held\n"
        child.kill()
        child.wait()
    with devices.claim() as claim:
        assert claim.environment == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_claim_lives_as_long_as_the_process_that_uses_it(monkeypatch, tmp_path):
    """The sweep's own process may die first: its worker still has the GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with devices.claim() as claim:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            pass_fds=claim.descriptors,
        )
    lock_file = next(tmp_path.glob("*.lock"))
    try:
        assert is_locked(lock_file), "released here, held there"
    finally:
        child.communicate(b"\n")
    assert not is_locked(lock_file)


ENGINE = {"tensor_parallel_size": 4, "devices": None}


@pytest.mark.parametrize(
    ("node", "count"),
    [
        ({"engine": {}}, 1),
        ({"engine": {}, "ranks": 2}, 2),
        ({"engine": ENGINE, "ranks": 1}, 4),
        ({"engine": ENGINE | {"devices": "4,5,6,7"}}, 1),
    ],
)
def test_a_run_claims_what_its_ranks_and_its_engine_need(node, count, monkeypatch):
    """With one claimed, an engine spread over four would see one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert devices.wanted(node) == count
    with devices.claim(devices.wanted(node)) as claim:
        assert claim.environment == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"[: 2 * count - 1]}


@pytest.mark.parametrize(
    ("visible", "listed", "refused"),
    [
        ("0,1", None, "exceeds the 2 GPUs visible here"),
        ("", None, "exceeds the 0 GPUs visible here"),
        ("0", "1,2,3", "exceeds the 3 GPUs that engine.devices lists"),
        ("0,1,2,3", None, None),
        ("0", "1,2,3,4", None),
    ],
)
def test_an_engine_spread_over_too_few_gpus(visible, listed, refused, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(config, "check_installed", lambda config: None)
    node = composed("engine=vllm", "engine.tensor_parallel_size=4", "engine.mode=server")
    node["engine"]["devices"] = listed
    if not refused:
        config.check(node)
        return
    with pytest.raises(ConfigError, match=refused):
        config.check(node)
