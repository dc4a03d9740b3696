"""Fingerprints of the files a run reads: a path names a place, not what lies there; torch-free."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_ablate import assets

_BLOCK, _BLOCKS = 1 << 16, 256
_MODEL_FILES = ("*.safetensors", "config.json", "generation_config.json", "tokenizer*.json")


class InputChangedError(RuntimeError):
    """A file that the run began with is another one now."""


def fingerprints(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a hash of the model's files and of the task's file, by configuration key.

    Weights are sampled: the size and 256 blocks evenly spread (all of a file up to 16 MB), so
    that a model of any size takes a moment and training it for one step changes the hash.

    Args:
        config: one that `config.check` passes.
    """
    folder = assets.folder(config["model"]["path"])
    files = sorted(path for pattern in _MODEL_FILES for path in folder.glob(pattern))
    found = {"model.path": _hash(files)}
    if "path" in config["task"]:
        found["task.path"] = _hash([Path(config["task"]["path"]).expanduser()])
    return found


def check_unchanged(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Hold the files against those the run was planned with.

    Raises:
        InputChangedError: one of them differs: the run would go on with other weights or data.
    """
    recorded = manifest.get("inputs", {})
    for key, value in fingerprints(config).items():
        if recorded.get(key, value) != value:
            group, name = key.split(".")
            raise InputChangedError(
                f"{key}={config[group][name]} holds other files than when this run was planned;"
                " put them back, or begin the run anew in another output_dir"
            )


def _hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size};".encode())
        with path.open("rb") as file:
            step = max(_BLOCK, size // _BLOCKS)
            for start in range(0, size, step):
                file.seek(start)
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]
