"""Other weights or other data under the same path are another run."""

from __future__ import annotations

import shutil

import pytest

from grpo_ablate import assets
from grpo_ablate.inputs import InputChangedError, check_unchanged, fingerprints
from tests.conftest import composed


@pytest.fixture
def config(tmp_path):
    shutil.copytree(assets.folder("embedded:tiny"), tmp_path / "model")
    (tmp_path / "q.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    node = composed("model=hf", f"model.path={tmp_path / 'model'}")
    return node | {"task": {"name": "jsonl", "path": str(tmp_path / "q.jsonl")}}


@pytest.mark.parametrize(
    ("name", "key"), [("model/model.safetensors", "model.path"), ("q.jsonl", "task.path")]
)
def test_a_changed_byte_is_noticed(config, tmp_path, name, key):
    manifest = {"inputs": fingerprints(config)}
    check_unchanged(config, manifest)
    path = tmp_path / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputChangedError, match=f"{key}=.* holds other files"):
        check_unchanged(config, manifest)


def test_time_and_place_do_not_count(config, tmp_path):
    before = fingerprints(config)
    shutil.copytree(tmp_path / "model", tmp_path / "moved", copy_function=shutil.copyfile)
    config["model"]["path"] = str(tmp_path / "moved")
    assert fingerprints(config) == before


def test_runs_from_before_fingerprints_go_on(config):
    check_unchanged(config, {})
