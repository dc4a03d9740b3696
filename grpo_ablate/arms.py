"""What an arm is called, what it changes, and whether that is what it says it changes; torch-free.

An arm is a configuration's difference from its baseline. Its name becomes its folder, so it is
derived from the *choices* a user typed (`clip_higher`, `clip.eps_high=0.24`); its delta is
derived from the composed values, so that nothing can hide in a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from grpo_ablate.variants import LEVERS, ConfigError

BASELINE = "baseline"
_DEFAULTS = {"baseline": "neutral", "preset": "none"}
"""Groups of starting points, and the choice of each that names nothing."""

REPEATS = ("same_seed", "other_seed")
"""How an A/A arm runs its baseline again: to the same random numbers, or to others."""

Delta = dict[str, list[Any]]
"""Flat key → [value in the baseline, value in the arm]; None where a key is absent."""


def arm_name(choices: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """Return the arm's name, which is also its folder.

    Examples: `baseline`, `clip_higher`, `clip.eps_high=0.24`; under `baseline=standard` these
    are `standard`, `standard+clip_higher`, `standard+clip.eps_high=0.24`. A preset is such a
    starting point too: `recommended`, `recommended+clip_higher`.

    Args:
        choices: Hydra's choice of each group.
        overrides: what the user typed for this job.
    """
    chosen = {group: choices.get(group) or plain for group, plain in _DEFAULTS.items()}
    parts = [str(chosen[group]) for group, plain in _DEFAULTS.items() if chosen[group] != plain]
    experiment = choices.get("experiment")
    if experiment not in (None, BASELINE):
        parts.append(str(experiment))
    parts += sorted(text.lstrip("+") for text in overrides if touches_lever(text))
    name = re.sub(r"[^\w.=,+-]", "_", "+".join(parts)) or BASELINE
    if len(name.encode()) > 200:
        raise ConfigError(
            f"the arm's name would have {len(name)} characters ({name[:40]}...), too long for a"
            " folder; write it as an experiment file"
        )
    return name


def touches_lever(override: str) -> bool:
    """Tell whether an override moves one of the levers an arm may move."""
    return key_of(override).split(".")[0] in LEVERS


def key_of(override: str) -> str:
    """Return what an override sets: `+clip.eps=0.3` → `clip.eps`."""
    return str(OverridesParser.create().parse_overrides([override])[0].key_or_group)


def parsed(override: str) -> Override:
    """Return an override in parts.

    Raises:
        ConfigError: it is none.
    """
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException as error:
        raise ConfigError(f"{override}: {' '.join(str(error).split())}") from error


def baseline_overrides(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return a job's overrides without its arm: what its baseline is composed from."""
    return tuple(o for o in overrides if key_of(o) != "experiment" and not touches_lever(o))


def delta(baseline: Mapping[str, Any], config: Mapping[str, Any]) -> Delta:
    """Return every key in which an arm differs from its baseline, the arm's own name aside."""
    before, after = _flat(baseline), _flat(config)
    keys = [key for key in {**before, **after} if key.split(".")[0] != "arm"]
    return {
        key: [before.get(key), after.get(key)]
        for key in sorted(keys)
        if before.get(key) != after.get(key)
    }


def check_moves(arm: str, node: Any, moved: Delta) -> list[str]:
    """Hold what an arm moves against what it says it moves.

    Args:
        arm: its name, for the message.
        node: the configuration's `arm`; its `moves` is the experiment file's declaration, None
            for an arm typed on the command line, which declares whatever it moves.
        moved: its delta.

    Returns:
        The levers that moved.

    Raises:
        ConfigError: it moves more or fewer levers than declared, or a fixed condition.
    """
    declared = _declared(node)
    groups = sorted({key.split(".")[0] for key in moved})
    conditions = [key for key in moved if key.split(".")[0] not in LEVERS]
    if conditions:
        raise ConfigError(
            f"arm {arm} changes {conditions[0]}, a fixed condition of the study; an experiment may"
            f" move {', '.join(LEVERS)} and nothing else"
        )
    if declared is not None and sorted(declared) != groups:
        raise ConfigError(
            f"arm {arm} says it moves {_words(declared)} but moves {_words(groups)};"
            " remove the override that undoes or adds a lever, or correct arm.moves"
        )
    return groups


def repeat(node: Any) -> dict[str, str]:
    """Return an A/A arm's `repeat`, to be kept in its configuration; {} for any other arm.

    Raises:
        ConfigError: neither same_seed nor other_seed, or beside a lever that moves.
    """
    if not isinstance(node, Mapping) or "repeat" not in node:
        return {}
    if node["repeat"] not in REPEATS or node.get("moves") != []:
        raise ConfigError(
            f"arm.repeat must be one of {', '.join(REPEATS)} and stand beside moves: [], since an"
            f" A/A arm is its baseline run again; got {dict(node)!r}"
        )
    return {"repeat": str(node["repeat"])}


def _declared(node: Any) -> list[str] | None:
    known = isinstance(node, Mapping) and set(node) <= {"moves", "repeat"}
    moves = node.get("moves", "") if known else ""
    if moves is None or (isinstance(moves, list) and all(isinstance(m, str) for m in moves)):
        return moves
    raise ConfigError(f"arm must be {{moves: [LEVER, ...]}} or {{moves: null}}, got {node!r}")


def _words(groups: Sequence[str]) -> str:
    return "[" + ", ".join(sorted(groups)) + "]"


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
