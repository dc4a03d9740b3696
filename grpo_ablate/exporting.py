"""A run's model as others load it: a Hugging Face folder, or a peft adapter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grpo_ablate import assets
from grpo_ablate.checkpoint import CheckpointError, Checkpoints
from grpo_ablate.files import to_disk, write_json
from grpo_ablate.models import Policy
from grpo_ablate.variants import bind

ABOUT = "grpo_ablate.json"
"""File that says where the model comes from."""

_COPIED = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "chat_template*",
    "generation_config.json",
)
"""Files of the model that the run began with; training changes none of them."""


def chosen(checkpoints: Checkpoints, wanted: str) -> int:
    """Return the step of the checkpoint that is asked for.

    Args:
        checkpoints: of the run.
        wanted: a number, `last` or `best`.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    there = checkpoints.steps()
    if wanted == "best":
        best = checkpoints.best()
        step = best["step"] if best else None
    elif wanted == "last":
        step = checkpoints.newest()
    else:
        step = checkpoints.newest(lambda state: str(state["step"]) == wanted)
    if step is None:
        found = f"there is {', '.join(map(str, there))}" if there else "none was written yet"
        raise CheckpointError(
            f"{checkpoints.folder} has no good checkpoint for --step {wanted} ({found}); a run"
            " writes one every checkpoint.every steps and at its end"
        )
    return int(step)


def restored(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Policy:
    """Return the policy of a checkpoint.

    Args:
        config: of the run.
        tensors: of the checkpoint; `model.*` are the weights that were trained.
    """
    node = dict(config["model"])
    if "attention" in node:
        node["attention"] = "sdpa"  # it computes nothing here, and another may need a GPU
    policy: Policy = bind("model", node)()
    for name, weight in policy.model.named_parameters():
        if weight.requires_grad:
            weight.data.copy_(tensors[f"model.{name}"])
    return policy


def write(
    policy: Policy, out: Path, about: Mapping[str, Any], *, adapter: bool, dtype: str | None
) -> None:
    """Write a policy: whole, or not at all.

    Merged: W = W_base + lora_alpha / lora_rank * B A.

    Args:
        policy: as restored; its adapter is merged into it, unless it is written alone.
        out: the folder to make.
        about: goes into grpo_ablate.json.
        adapter: write the LoRA adapter alone.
        dtype: of the weights written; None leaves them as they are.

    Raises:
        OSError: of writing; nothing is left then.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.parent / f".{out.name}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        model: Any = policy.model if adapter else _merged(policy.model)
        if dtype:
            model = model.to(getattr(torch, dtype))  # after merging, which would round twice
        if adapter:
            _write_adapter(model, temporary, _base(policy, about["model"]))
        else:
            _write_model(model, temporary)
            _copy(policy, temporary)
        write_json(temporary / ABOUT, about)
        for path in (*temporary.iterdir(), temporary):
            to_disk(path)
        os.replace(temporary, out)
        to_disk(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _merged(model: Any) -> Any:
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def _write_model(model: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    # ours is empty, and a model that ships none takes its end tokens from its configuration
    (folder / "generation_config.json").unlink(missing_ok=True)


def _copy(policy: Policy, folder: Path) -> None:
    """Copy tokenizer and generation defaults, letter for letter."""
    code = ("*.py",) if policy.trust_remote_code else ()
    for pattern in (*_COPIED, *code):
        for path in policy.folder.glob(pattern):
            shutil.copyfile(path, folder / path.name)


def _write_adapter(model: Any, folder: Path, base: str) -> None:
    for config in model.peft_config.values():
        config.base_model_name_or_path = base
    # its embeddings are the base model's: without this peft asks the hub whether they are
    model.save_pretrained(folder, save_embedding_layers=False)


def _base(policy: Policy, path: str) -> str:
    """Return what an adapter's loader finds its base model by: a folder, or the hub's name."""
    local = path.startswith(assets.PREFIX) or Path(path).expanduser().exists()
    return str(policy.folder.resolve()) if local else path
