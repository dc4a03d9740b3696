"""What ran: frozen configuration, hash, delta, and the state of the code; torch-free."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from grpo_ablate.files import read_json
from grpo_ablate.inputs import fingerprints
from grpo_ablate.monitor import acting

NOT_HASHED = ("arm", "output_dir", "study", "checkpoint", "judge", "preflight", "ranks", "tracker")
"""Keys that say where a run lies, how it is called, saved, judged and shown, not what it does."""

_PACKAGE = Path(__file__).parent
_VERSIONED = ("torch", "transformers", "hydra-core", "omegaconf", "numpy")


def config_hash(config: Mapping[str, Any]) -> str:
    """Return a short hash of all that determines a run's numbers, its seed included.

    Of the alarms only those count that may act: one that warns changes nothing.
    """
    relevant = {key: value for key, value in config.items() if key not in NOT_HASHED}
    if "monitor" in relevant:
        relevant["monitor"] = acting(relevant["monitor"])
    if (config.get("arm") or {}).get("repeat") == "other_seed":
        relevant["repeat"] = "other_seed"
    text = json.dumps(_canonical(relevant), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """Write every number as a float: `temperature: 1` and `1.0` are one configuration."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return float(value) if type(value) is int else value


def load_config(folder: Path) -> dict[str, Any]:
    """Return a run's frozen configuration as plain values.

    OmegaConf reads it, not PyYAML, to which 1e-6 would be a text.
    """
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def changed(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with some of its values, or whole nodes, exchanged and resolved."""
    node = OmegaConf.create(dict(config))
    for key, value in overrides.items():
        OmegaConf.update(node, key, value, merge=False)
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def deviated(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's configuration with what `resume RUN OVERRIDE...` has changed since."""
    for deviation in read_json(folder / "manifest.json").get("deviations", []):
        config = changed(config, deviation["overrides"])
    return dict(config)


def describe(config: Mapping[str, Any], arm: str, delta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of one run: what it is and with which code it starts."""
    return {
        "arm": arm,
        "seed": config["seed"],
        "study": config["study"],
        "hash": config_hash(config),
        "delta": dict(delta),
        "inputs": fingerprints(config),
        "code": dict(_code_state()),
        "versions": {name: metadata.version(name) for name in _VERSIONED},
        "python": platform.python_version(),
        "machine": {"processor": platform.machine(), "system": platform.system()},
    }


@cache
def _code_state() -> dict[str, Any]:
    """Return git commit, whether the tree is dirty, and a hash of the package's source text."""
    tracked = _git("ls-files", "--error-unmatch", __file__)  # not so for an installed package
    commit = _git("rev-parse", "HEAD") if tracked else None
    dirty = bool(_git("status", "--porcelain", "--", str(_PACKAGE))) if commit else None
    return {"commit": commit, "dirty": dirty, "source": source_hash()}


def source_hash() -> str:
    """Return a hash of the package's source text as it lies on disk now.

    `analysis/` is left out: it reads runs and makes none, so a better report spoils no comparison.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE).as_posix()
        if not name.startswith("analysis/"):
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _git(*args: str) -> str | None:
    """Return git's answer about the package's folder; None where it has none."""
    try:
        done = subprocess.run(
            ["git", *args], cwd=_PACKAGE, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
