"""What a study promised before its first run: `study.yaml` in its output folder.

Horizon, window, margin and alpha are frozen, so that nobody can choose them by their result. A
later sweep into the same folder adds arms and seeds and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from grpo_ablate import knobs
from grpo_ablate.files import LockHeldError, lock, write_atomic
from grpo_ablate.knobs import Count, Range
from grpo_ablate.variants import ConfigError, hint

METRIC = "eval/accuracy"
"""Held-out accuracy without shaping; never the training reward, never a checkpoint chosen by it."""

EARLIEST = 300
"""No trick is judged before this step (article: X4)."""

FILE = "study.yaml"

_Small = Annotated[float, Range(0.0001, 0.5)]

_KNOBS: dict[str, Any] = {
    "horizon": Count,
    "earliest": Count,
    "window": Count,
    "margin": _Small,
    "alpha": _Small,
}


@dataclass(frozen=True)
class Design:
    """How a study is judged. Example: horizon 500, window 5, margin .02, alpha .05."""

    horizon: int = 500
    """H: the step at which arms are compared."""
    earliest: int = EARLIEST
    """The step before which nothing is judged."""
    window: int = 5
    """W: evaluations up to H whose mean is a run's score."""
    margin: float = 0.02
    """δ: a difference within ±δ does not matter."""
    alpha: float = 0.05
    metric: str = METRIC
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Arm → its baseline and the seeds it was to run over."""


def check(node: Any) -> None:
    """Hold the configuration's `judge` against its knobs.

    Raises:
        ConfigError: unknown, missing or out of range.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"judge must hold {', '.join(_KNOBS)}, got {node!r}")
    for key in node:
        if key not in _KNOBS:
            raise ConfigError(f"judge.{key} is no knob of the judgement{hint(str(key), _KNOBS)}")
    for key, annotation in _KNOBS.items():
        wrong = knobs.problem_with(node.get(key), annotation)
        if wrong:
            raise ConfigError(f"judge.{key} {wrong}")


def of_config(config: Mapping[str, Any]) -> Design:
    """Return the design a configuration asks for; a short run is judged at its own end."""
    node = config["judge"]
    return Design(
        horizon=min(node["horizon"], config["steps"]),
        earliest=node["earliest"],
        window=node["window"],
        margin=float(node["margin"]),
        alpha=float(node["alpha"]),
    )


def read(output_dir: Path) -> Design | None:
    """Return a folder's frozen design; None where it has none."""
    path = output_dir / FILE
    if not path.is_file():
        return None
    try:
        found: Any = OmegaConf.to_container(OmegaConf.load(path))
        return Design(**found)
    except (TypeError, ValueError, OmegaConfBaseException, YAMLError) as error:
        shown = " ".join(str(error).split())
        raise ConfigError(f"{path} is no study ({shown}); restore it, or remove it") from error


def check_jobs(output_dir: Path, jobs: Sequence[tuple[str, str, Mapping[str, Any]]]) -> Design:
    """Return the folder's design with these jobs in it; nothing is written.

    Args:
        output_dir: of the study.
        jobs: arm, baseline and configuration of each run to come.

    Raises:
        ConfigError: a job asks for another rule than is frozen.
    """
    design = read(output_dir) or of_config(jobs[0][2])
    arms = {name: dict(entry) for name, entry in design.arms.items()}
    for arm, baseline, config in jobs:
        _refuse_change(output_dir, design, of_config(config))
        entry = arms.setdefault(arm, {"baseline": baseline, "seeds": []})
        entry["seeds"] = sorted({*entry["seeds"], config["seed"]})
    return Design(**(asdict(design) | {"arms": arms}))


def freeze(output_dir: Path, jobs: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
    """Write study.yaml, or add to it, before the first of these jobs starts."""
    output_dir.mkdir(parents=True, exist_ok=True)
    try:
        with lock(output_dir / ".study.lock", patience=10.0):
            design = asdict(check_jobs(output_dir, jobs))
            write_atomic(output_dir / FILE, OmegaConf.to_yaml(OmegaConf.create(design)))
    except LockHeldError:
        raise ConfigError(
            f"{output_dir / FILE} is being written by another command; try again"
        ) from None


def _refuse_change(output_dir: Path, frozen: Design, wanted: Design) -> None:
    for key in _KNOBS:
        was, now = getattr(frozen, key), getattr(wanted, key)
        if was != now:
            raise ConfigError(
                f"{output_dir / FILE} froze {key} {was} before its first run, and now it would be"
                f" {now}: a study is not re-planned after its results; choose another output_dir,"
                f" or ask for the same (judge.{key}={was}, and as many steps)"
            )
