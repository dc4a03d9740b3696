"""Checkpoints on disk: whole or not there, checked, and few."""

from __future__ import annotations

import os

import pytest
import torch

from grpo_ablate import checkpoint
from grpo_ablate.checkpoint import CheckpointError, Checkpoints
from tests.conftest import ROOT

TENSORS = {"model.w": torch.arange(3.0), "optimizer.exp_avg.w": torch.ones(3).double()}


def store(folder, hash="h", every=2, keep_last=2, keep_best=1):
    return Checkpoints(folder, hash, every=every, keep_last=keep_last, keep_best=keep_best)


def save(kept, *steps, score=None, healthy=False):
    for step in steps:
        kept.save(step, TENSORS, {"score": score, "test": score, "healthy": healthy})


def test_round_trip_is_exact(tmp_path):
    kept = store(tmp_path)
    kept.save(4, TENSORS, {"score": 0.1 + 0.2, "test": None, "healthy": True, "window": [1e-17]})
    assert kept.newest() == 4
    assert kept.state(4)["window"] == [1e-17] and kept.state(4)["score"] == 0.1 + 0.2
    torch.testing.assert_close(kept.tensors(4), TENSORS, rtol=0, atol=0)
    assert kept.tensors(4)["optimizer.exp_avg.w"].dtype == torch.float64


@pytest.mark.parametrize("part", ["model.safetensors", "state.json", "checksums.json"])
def test_a_damaged_newest_one_is_passed_over_with_a_warning(tmp_path, capsys, part):
    kept = store(tmp_path)
    save(kept, 2, 4)
    path = tmp_path / "checkpoints/step=4" / part
    path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
    assert kept.newest() == 2
    assert "step=4 is damaged" in capsys.readouterr().err


def test_a_missing_part_is_damage_and_none_left_means_none(tmp_path):
    kept = store(tmp_path)
    save(kept, 2)
    (tmp_path / "checkpoints/step=2/optimizer.safetensors").unlink()
    assert kept.newest() is None


def test_another_configurations_checkpoint_is_refused(tmp_path):
    save(store(tmp_path, "theirs"), 2)
    with pytest.raises(CheckpointError, match="another configuration"):
        store(tmp_path, "ours").newest()


def test_keeps_the_last_the_best_and_one_to_roll_back_to(tmp_path):
    """K21: ties go to the earlier; X7: best is by the selection half."""
    kept = store(tmp_path, keep_last=1)
    save(kept, 1, score=0.2, healthy=True)
    for step, score in ((2, 0.5), (3, 0.5), (4, 0.1), (5, None)):
        save(kept, step, score=score)
    assert kept.steps() == [1, 2, 5]
    assert kept.best() == {"step": 2, "score": 0.5, "test": 0.5}


@pytest.mark.parametrize("death", range(1, 9))
def test_a_death_while_saving_leaves_the_one_before(tmp_path, monkeypatch, death):
    """Whatever act of saving is the last one, what has a name is whole."""
    kept, acts = store(tmp_path), [0]
    save(kept, 2)

    def deadly(function):
        def wrapped(*args, **kwargs):
            acts[0] += 1
            if acts[0] == death:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("save_file", "write_json", "to_disk"):
            patch.setattr(checkpoint, name, deadly(getattr(checkpoint, name)))
        patch.setattr(os, "replace", deadly(os.replace))
        with pytest.raises(KeyboardInterrupt):
            save(kept, 4)
    assert store(tmp_path).newest() == 2
    save(kept, 4)
    assert kept.newest() == 4 and not list(kept.folder.glob(".*"))


def test_saving_again_replaces(tmp_path):
    kept = store(tmp_path)
    save(kept, 2, score=0.1)
    save(kept, 2, score=0.9)
    assert kept.state(2)["score"] == 0.9 and kept.steps() == [2]


def test_nothing_is_unpickled():
    """No pickle and no torch.load: a checkpoint or model from a stranger runs no code."""
    text = "".join(path.read_text() for path in (ROOT / "grpo_ablate").rglob("*.py"))
    assert "pickle" not in text and "torch.load" not in text
    assert "trust_remote_code=True" not in text and "use_safetensors=True" in text
