"""From a command line to its jobs, all composed before the first starts; torch-free.

Hydra alone composes each job when its turn comes, so that a config edited during a sweep would
reach the later arms. Here every job is composed first, and Hydra is then run on a snapshot of the
config files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from grpo_ablate import arms, devices, extras
from grpo_ablate.files import write_atomic
from grpo_ablate.manifest import config_hash
from grpo_ablate.variants import ConfigError, hint

CONFIG_NAME = "config"


@dataclass(frozen=True)
class Job:
    """One arm × seed, composed: everything that is known about it before it runs."""

    arm: str
    baseline: str
    """Name of the arm it is to be compared with; its own where it is a baseline."""
    baseline_config: dict[str, Any]
    """That arm's configuration with this seed and under the same conditions."""
    baseline_hash: str
    """Of baseline_config."""
    conditions: tuple[str, ...]
    """What the user typed that is neither arm nor seed: repeats the study's conditions."""
    folder: Path
    config: dict[str, Any]
    delta: arms.Delta


def config_dir() -> Path:
    """Return the folder of configuration files: the checkout's `conf`, or the installed copy."""
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


def register_resolvers() -> None:
    """Teach OmegaConf the arm's name, by the job's own overrides, and what this machine holds."""

    def name(*, _root_: DictConfig) -> str:
        hydra = _root_.hydra
        return arms.arm_name(hydra.runtime.choices, [str(o) for o in hydra.overrides.task])

    OmegaConf.register_new_resolver("arm_name", name, replace=True)
    OmegaConf.register_new_resolver("runs_at_once", devices.runs_at_once, replace=True)


def plan(args: argparse.Namespace) -> tuple[list[Job], bool]:
    """Compose every job that a command line asks for.

    Args:
        args: as parsed by Hydra's own parser.

    Returns:
        The jobs in the order they will start, and whether this is a multirun.

    Raises:
        ConfigError: one of them cannot be composed, or two would share a folder or a
            configuration.
    """
    with _loader(args.config_dir) as hydra, _plain_errors():
        name = args.config_name or CONFIG_NAME
        mode = RunMode.MULTIRUN if args.multirun else hydra.get_mode(name, args.overrides)
        many = mode == RunMode.MULTIRUN
        typed = seed_first(args.overrides)
        lists = _sweep(hydra, name, typed) if many else [typed]
        flags = ("--config-dir", args.config_dir) if args.config_dir else ()
        composer = _Composer(hydra, name, many, flags)
        jobs = [composer.job(overrides) for overrides in lists]
    _refuse_twins(jobs)
    return jobs, many


def option(group: str, name: str) -> dict[str, Any]:
    """Return the node that `group=name` puts into a configuration, its interpolations unresolved.

    Raises:
        ConfigError: the group has no such option.
    """
    with _loader(None) as hydra, _plain_errors():
        if name not in _options(group):
            raise ConfigError(f"{group}={name} is unknown{hint(name, _options(group))}")
        composed = hydra.compose_config(f"{group}/{name}", [], run_mode=RunMode.RUN)
        node = OmegaConf.to_container(composed[group])
        assert isinstance(node, dict)
        return {str(key): value for key, value in node.items()}


def seed_first(overrides: Sequence[str]) -> list[str]:
    """Put `seed=` first, so that each prefix of the sweep is a balanced block of arms."""
    return sorted(overrides, key=lambda text: not re.match(r"\+*seed=", text))


def refuse_idle_launcher(overrides: Sequence[str]) -> None:
    """Refuse a launcher for a single run: Hydra would ignore it and train right here."""
    for text in overrides:
        if arms.key_of(text) == "hydra/launcher" and not text.endswith("=basic"):
            raise ConfigError(f"{text} starts the runs of a sweep: add -m (with seed=1, say)")


def snapshot(output_dir: Path, extra: str | None) -> Path:
    """Copy the configuration files under the output folder, named by their content.

    Args:
        output_dir: of the sweep.
        extra: the user's `--config-dir`, laid over ours.

    Returns:
        The copy's folder.
    """
    files = {
        path.relative_to(source): path
        for source in [config_dir(), *([Path(extra)] if extra else [])]
        for path in sorted(source.rglob("*.yaml"))
        if not path.resolve().is_relative_to(output_dir.resolve())
    }
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(name.as_posix().encode() + path.read_bytes())
    target = output_dir / ".conf" / digest.hexdigest()[:12]
    for name, path in files.items():  # again where it exists: an earlier copy may have been cut
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target / name, path.read_text(encoding="utf-8"))
    return target


class _Composer:
    """Composes jobs, and each baseline once."""

    def __init__(self, hydra: Hydra, name: str, many: bool, flags: tuple[str, ...]) -> None:
        self._hydra, self._name, self._many, self._flags = hydra, name, many, flags
        self._baseline = cache(self._compose)

    def job(self, overrides: Sequence[str]) -> Job:
        config, name, folder, choices = self._compose(tuple(overrides))
        alone = arms.baseline_overrides(overrides)
        if not any(arms.key_of(text) == "baseline" for text in alone):
            alone += (f"baseline={choices['baseline']}",)  # an experiment may choose its own
        baseline, baseline_name, _, _ = self._baseline(alone)
        delta = arms.delta(baseline, config)
        node = config.get("arm")
        moves = arms.check_moves(name, node, delta)
        config["arm"] = {"name": name, "moves": moves, **arms.repeat(node)}
        conditions = tuple(o for o in alone if arms.key_of(o) not in ("seed", "baseline"))
        if choices["baseline"] != "neutral":
            conditions = (f"baseline={choices['baseline']}", *conditions)
        return Job(
            arm=name,
            baseline=baseline_name,
            baseline_config=baseline,
            baseline_hash=config_hash(baseline),
            conditions=(*self._flags, *conditions),
            folder=folder,
            config=config,
            delta=delta,
        )

    def _compose(
        self, overrides: tuple[str, ...]
    ) -> tuple[dict[str, Any], str, Path, Mapping[str, Any]]:
        mode = RunMode.MULTIRUN if self._many else RunMode.RUN
        full = self._hydra.compose_config(self._name, list(overrides), run_mode=mode)
        node = full.hydra
        folder = Path(node.sweep.dir, node.sweep.subdir) if self._many else Path(node.run.dir)
        choices = {str(k): v for k, v in node.runtime.choices.items()}
        OmegaConf.set_struct(full, False)
        OmegaConf.set_readonly(full, False)
        full.pop("hydra")
        plain = OmegaConf.to_container(full, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        config = {str(key): value for key, value in plain.items()}
        return config, arms.arm_name(choices, overrides), Path(os.path.abspath(folder)), choices


@contextmanager
def _loader(extra: str | None) -> Iterator[Hydra]:
    """Yield Hydra's configuration loader on our files, the user's `--config-dir` before them."""
    register_resolvers()
    path = create_config_search_path(str(config_dir()))
    if extra is not None:
        if not os.path.isdir(extra):
            raise ConfigError(f"--config-dir {extra} is no folder; name one with your configs")
        path.prepend(provider="command-line", path=f"file://{os.path.abspath(extra)}")
    GlobalHydra.instance().clear()
    try:
        yield Hydra.create_main_hydra2("grpo_ablate", path)
    finally:
        GlobalHydra.instance().clear()


def _sweep(hydra: Hydra, name: str, overrides: Sequence[str]) -> list[list[str]]:
    """Expand a multirun exactly as Hydra's basic sweeper will."""
    parser = OverridesParser.create(config_loader=hydra.config_loader)
    typed = parser.parse_overrides(list(overrides))
    fixed = [str(o.input_line) for o in typed if not o.is_sweep_override()]
    composed = hydra.compose_config(name, fixed, run_mode=RunMode.MULTIRUN).hydra
    extras.check_launcher(str(composed.launcher._target_))
    node = composed.sweeper
    if not str(node._target_).endswith("BasicSweeper"):
        raise ConfigError(
            f"hydra/sweeper {node._target_} chooses jobs as it goes; arms × seeds are planned"
            " before the first starts: leave hydra/sweeper at basic"
        )
    params = [f"{key}={value}" for key, value in (node.params or {}).items()]
    hydras = [o for o in overrides if arms.key_of(o).startswith(("hydra.", "hydra/"))]
    parsed = parser.parse_overrides(params + [o for o in overrides if o not in hydras])
    return [[*hydras, *job] for job in BasicSweeper.split_arguments(parsed, None)[0]]


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn Hydra's and OmegaConf's exceptions into one line with a remedy."""
    try:
        yield
    except ConfigError:
        raise
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} must be given: add {error.full_key}=VALUE") from error
    except (HydraException, OmegaConfBaseException, LookupError, TypeError, ValueError) as error:
        raise ConfigError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    text = str(error)
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown and unknown[1] in ("experiment", "suite"):
        return f"write +{unknown[1]}=NAME: an arm is added to the baseline, not exchanged in it"
    if unknown:
        group, _, key = unknown[1].rpartition(".")
        return f"{unknown[1]} is no configuration key" + (
            f"; see conf/{group}/ for the keys of {group}" if group else hint(key, _top_level())
        )
    option = re.search(r"Could not find '([^']+)/([^'/]+)'", text)
    if option:
        group, name = option.groups()
        return f"{group}={name} is unknown{hint(name, _options(group))}"
    typed = getattr(error, "override", None)  # what Hydra's parser could not read
    return " ".join(f"{typed}: {text}".split() if typed else text.split())


def _top_level() -> list[str]:
    keys = OmegaConf.load(config_dir() / f"{CONFIG_NAME}.yaml")
    return [str(key) for key in keys if key not in ("defaults", "hydra")]


def _options(group: str) -> list[str]:
    return [path.stem for path in (config_dir() / group).glob("*.yaml")]


def _refuse_twins(jobs: Sequence[Job]) -> None:
    """Refuse two jobs in one folder, and two arms with one configuration."""
    by_folder: dict[Path, Job] = {}
    by_config: dict[str, Job] = {}
    for job in jobs:
        other = by_folder.setdefault(job.folder, job)
        if other is not job and other.config == job.config:
            raise ConfigError(f"{job.folder} is asked for twice; name each arm and seed once")
        if other is not job:
            key = next(iter(arms.delta(other.config, job.config)))
            raise ConfigError(
                f"two jobs would share {job.folder}: they differ in {key}, which is no lever;"
                " sweep levers and seeds, and give each condition an output_dir of its own"
            )
        again = job.config["arm"].get("repeat")
        # against another baseline the same configuration is another question
        key = repr({**job.config, "arm": (job.baseline, again)})
        alike = by_config.setdefault(key, job)
        if alike is not job:
            raise ConfigError(
                f"arms {alike.arm} and {job.arm} are the same configuration; drop one of them"
            )
