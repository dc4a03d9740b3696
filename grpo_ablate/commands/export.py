"""`python -m grpo_ablate export RUN OUT`: a run's model as a plain Hugging Face folder."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from grpo_ablate import assets, inputs
from grpo_ablate.files import read_json
from grpo_ablate.manifest import config_hash, deviated, load_config
from grpo_ablate.variants import ConfigError, bind

DTYPES = ("float32", "bfloat16", "float16")


def main(argv: list[str]) -> int:
    """Write the model of a run's checkpoint; everything is checked before a model is loaded.

    Returns:
        0, or 2 for bad input.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate export")
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--step", default="last", help="of the checkpoint: a number, last or best")
    parser.add_argument("--adapter", action="store_true", help="the LoRA adapter alone, unmerged")
    parser.add_argument("--dtype", choices=DTYPES, help="of the weights; as trained by default")
    args = parser.parse_args(argv)
    try:
        step = export(args.run, args.out, args.step, adapter=args.adapter, dtype=args.dtype)
    except (ConfigError, OSError) as error:  # a full disk, a folder that may not be written
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: step {step} of {args.run}")
    return 0


def export(run: Path, out: Path, wanted: str, *, adapter: bool, dtype: str | None) -> int:
    """Write one checkpoint's model.

    Args:
        run: a run's folder.
        out: made whole, or not at all; may exist where it is empty.
        wanted: a step's number, `last`, or `best` by held-out accuracy on the selection half.
        adapter: write the LoRA adapter alone instead of merging it.
        dtype: of the weights written; None leaves them as trained.

    Returns:
        The checkpoint's step.

    Raises:
        ConfigError: no such run or checkpoint, no adapter, or `out` is taken.
        OSError: of reading or writing.
    """
    if not (run / "config.yaml").is_file():
        raise ConfigError(f"{run} is no run; name a folder such as ARM/seed=1")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder; name another one")
    frozen = load_config(run)
    config = deviated(run, frozen)
    _check_model(run, config, adapter)
    # torch takes seconds to import: only for what can be done
    from transformers.utils import logging

    from grpo_ablate import exporting
    from grpo_ablate.checkpoint import CheckpointError, Checkpoints

    checkpoints: Checkpoints = bind("checkpoint", config["checkpoint"], run, config_hash(frozen))()
    logging.disable_progress_bar()
    try:
        step = exporting.chosen(checkpoints, wanted)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    policy = exporting.restored(config, checkpoints.tensors(step))
    about = _about(run, config, checkpoints.state(step))
    exporting.write(policy, out, about, adapter=adapter, dtype=dtype)
    return step


def _check_model(run: Path, config: dict[str, Any], adapter: bool) -> None:
    """See that the model the run began with is here, with what an adapter needs."""
    lora = bool(config["model"].get("lora_rank"))
    if adapter and not lora:
        raise ConfigError(f"{run} trained all weights, it has no adapter; leave --adapter out")
    if lora and importlib.util.find_spec("peft") is None:
        raise ConfigError("model.lora_rank needs peft: pip install 'grpo-ablate[lora]'")
    model_alone = {"model": config["model"], "task": {}}
    try:
        inputs.check_unchanged(model_alone, read_json(run / "manifest.json"))
    except (assets.ModelMissingError, inputs.InputChangedError) as error:
        raise ConfigError(str(error)) from error


def _about(run: Path, config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return where the model comes from."""
    manifest = read_json(run / "manifest.json")
    return {
        **{key: manifest.get(key) for key in ("study", "arm", "seed", "hash", "deviations")},
        "step": state["step"],
        "model": config["model"]["path"],
        "selection_accuracy": state["score"],
        "test_accuracy": state["test"],
    }
