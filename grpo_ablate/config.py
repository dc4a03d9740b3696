"""Is a composed configuration fit to run? Checked before anything is created; torch-free."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from grpo_ablate import assets, devices, knobs, monitor, study, variants
from grpo_ablate.extras import check_installed
from grpo_ablate.knobs import Count, Range
from grpo_ablate.prompts import encode
from grpo_ablate.rules import findings
from grpo_ablate.streams import Stream, rng
from grpo_ablate.types import Task
from grpo_ablate.variants import ConfigError

TOP_LEVEL: dict[str, Any] = {
    "study": str,
    # numpy's seed sequence takes any natural number; W&B and CSV want it to be a plain one
    "seed": Annotated[int, Range(0, 2**53)],
    "steps": Count,
    "log_every": Count,
    "eval_every": Count,
    "threads": Annotated[int, Range(1, 1024)],
    "ranks": Annotated[int, Range(1, 64)],
    "output_dir": str,
    "preflight": Literal["warn", "refuse", "off"],
}


def check(config: Mapping[str, Any]) -> list[str]:
    """Hold a whole configuration against everything that is known before a run.

    Args:
        config: resolved, plain values, without Hydra's own node.

    Returns:
        Warnings, which a run may go on with.

    Raises:
        ConfigError: with what, where and the remedy.
    """
    known = {*TOP_LEVEL, *variants.GROUPS, "arm", "judge"}
    for key in config:
        if key not in known:
            raise ConfigError(f"{key} is no configuration key{variants.hint(key, known)}")
    for key, annotation in TOP_LEVEL.items():
        wrong = knobs.problem_with(config.get(key), annotation)
        if wrong:
            raise ConfigError(f"{key} {wrong}")
    for group in variants.GROUPS:
        node = config.get(group)
        if not isinstance(node, Mapping):
            raise ConfigError(f"{group} must be a group such as {group}=NAME, got {node!r}")
        variants.check(group, node)
    study.check(config.get("judge"))
    monitor.check_rules(config["monitor"]["rules"])
    check_installed(config)
    refused = findings(config, "refuse")
    if refused:
        raise ConfigError(refused[0])
    _check_ranks(config)
    _check_tensor_parallel(config)
    _check_model(config)
    return findings(config, "warn")


def _check_ranks(config: Mapping[str, Any]) -> None:
    """Refuse ranks that would have nothing to do, or no GPU, or an engine that fills its own."""
    count, prompts = config["ranks"], config["lr_batch"]["prompts"]
    if count == 1:
        return
    if count > prompts:
        raise ConfigError(f"ranks={count} exceeds lr_batch.prompts={prompts}; lower ranks")
    if config["engine"]["name"] != "transformers":
        raise ConfigError(
            f"ranks={count} needs engine=transformers, not engine={config['engine']['name']};"
            " set ranks=1"
        )
    gpus = devices.visible()
    if gpus and count > len(gpus):
        raise ConfigError(f"ranks={count} exceeds the {len(gpus)} visible GPUs; lower ranks")


def _check_tensor_parallel(config: Mapping[str, Any]) -> None:
    """Refuse an engine spread over more GPUs than it may use."""
    engine = config["engine"]
    count, listed = engine.get("tensor_parallel_size", 1), engine.get("devices")
    gpus = listed.split(",") if listed else devices.visible()
    if count > max(1, len(gpus)):
        whose = "that engine.devices lists" if listed else "visible here"
        raise ConfigError(
            f"engine.tensor_parallel_size={count} exceeds the {len(gpus)} GPUs {whose}; lower it"
        )


def _check_model(config: Mapping[str, Any]) -> None:
    """Look at the model's files: present, readable, long enough, and able to hold a question."""
    try:
        folder = assets.folder(config["model"]["path"])
    except assets.ModelMissingError as error:
        raise ConfigError(str(error)) from error
    needed = ("config.json", "tokenizer.json", "*.safetensors")
    missing = [pattern for pattern in needed if not any(folder.glob(pattern))]
    if missing:
        raise ConfigError(
            f"model.path={config['model']['path']} has no {missing[0]} ({folder.resolve()});"
            " name a folder with a model in Hugging Face format"
        )
    engine = config["engine"]
    wanted = engine["max_prompt_tokens"] + engine["max_new_tokens"]
    longest = _max_positions(folder)
    if wanted > longest:
        raise ConfigError(
            f"engine.max_prompt_tokens + engine.max_new_tokens = {wanted} exceeds the"
            f" {longest} positions of {config['model']['path']}; lower them"
        )
    _check_questions_fit(config, folder)


def _max_positions(folder: Path) -> int:
    path = folder / "config.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["max_position_embeddings"])
    except KeyError:
        return 2**31  # a model without a limit
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _check_questions_fit(config: Mapping[str, Any], folder: Path) -> None:
    """Draw questions as the run will and see that one of them is short enough."""
    try:
        task: Task = variants.bind("task", config["task"])()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    available = len(task.held_out())
    if config["evaluation"]["problems"] > available:
        raise ConfigError(
            f"evaluation.problems={config['evaluation']['problems']} exceeds the {available}"
            " questions that the task holds out; lower it or raise task.held_out"
        )
    tokens = _counter(config["model"], folder)
    limit = config["engine"]["max_prompt_tokens"]
    stream = rng(config["seed"], Stream.PROMPT, 0, 0)
    shortest = min(tokens(task.sample(stream).prompt) for _ in range(200))
    if shortest > limit:
        raise ConfigError(
            f"no question of task={config['task']['name']} fits engine.max_prompt_tokens={limit}:"
            f" the shortest of 200 has {shortest} tokens; raise it to {shortest} or more"
        )
    asked = task.held_out()[: config["evaluation"]["problems"]]
    longest = max(tokens(problem.prompt) for problem in asked)
    if longest > limit:
        raise ConfigError(
            f"held-out questions of task={config['task']['name']} have up to {longest} tokens,"
            f" engine.max_prompt_tokens={limit}: training would never see what is evaluated;"
            f" raise it to {longest} or more"
        )


def _counter(model: Mapping[str, Any], folder: Path) -> Callable[[str], int]:
    """Return what counts a prompt's tokens, its beginning and its chat template included."""
    if model.get("template") == "chat":
        from transformers import AutoTokenizer  # seconds to import: only where a template needs it

        full = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=model["trust_remote_code"]
        )
        if not full.chat_template:
            raise ConfigError(
                f"model.path={model['path']} has no chat template; set model.template=raw"
            )
        return lambda prompt: len(encode(full, prompt, "chat", model["system"]))
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"{folder / 'tokenizer.json'} cannot be read: {error}") from error
    return lambda prompt: len(tokenizer.encode(prompt, add_special_tokens=False)) + 1
