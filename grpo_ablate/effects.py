"""What an arm did to an update, against its baseline; and where it did nothing, why, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from grpo_ablate.groups import varies
from grpo_ablate.rollout import Rollout
from grpo_ablate.types import Groups, Update

_SAME = 1e-6
"""1 - cosine of two float32 gradients that differ by rounding alone stays below this."""


def compare(
    arm: Mapping[str, Any], base: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Hold an arm's update against the baseline's.

    Returns:
        verdict (active, inert or scale only), why, and the numbers: loss difference, cosine and
        relative norm of gradient and weight change, activity.
    """
    cosine, norm = _direction(arm["gradient"], base["gradient"])
    moved_cosine, moved_norm = _direction(arm["moved"], base["moved"])
    verdict, why = _verdict(arm, base, config, cosine, norm)
    return {
        "verdict": verdict,
        "why": why,
        "activity": arm["activity"],
        "loss_difference": arm["loss"] - base["loss"],
        "cosine": cosine,
        "relative_norm": norm,
        "moved_cosine": moved_cosine,
        "moved_relative_norm": moved_norm,
        "own_responses": arm["own_responses"],
    }


def _verdict(
    arm: Mapping[str, Any],
    base: Mapping[str, Any],
    config: Mapping[str, Any],
    cosine: float | None,
    norm: float | None,
) -> tuple[str, str]:
    if all(torch.equal(arm[key], base[key]) for key in ("gradient", "moved")):
        return "inert", reason(config, arm)
    along = cosine is not None and 1 - cosine < _SAME and not arm["own_responses"]
    if along and config["arm"]["moves"] == ["advantage"] and abs((norm or 0.0) - 1) > 1e-5:
        return "scale only", (
            f"a pure change of the gradient's scale, ×{norm:.4g}: {_one_factor(arm)}; AdamW divides"
            " a constant scale out, only gradient clipping sees it"
        )
    if arm["activity"] == 0.0:
        return "inert", reason(config, arm)
    step = arm["lr"] / base["lr"]
    if along and config["arm"]["moves"] == ["lr_batch"] and step != 1:
        return "active", f"a pure change of step size, ×{step:g}"
    return "active", _note(arm)


def _note(arm: Mapping[str, Any]) -> str:
    if arm["own_responses"]:
        return "samples responses of its own: no cosine between equal batches"
    rollout: Rollout = arm["rollout"]
    if rollout.tally.dropped:
        return f"drops {rollout.tally.dropped} of {rollout.tally.sampled} groups of this batch"
    return ""


def _one_factor(arm: Mapping[str, Any]) -> str:
    groups: Groups = arm["rollout"].groups
    stds_P = groups.rewards_PG.std(1)
    live_P = stds_P[varies(groups.rewards_PG, groups.vote_PG)]
    equal = bool((live_P.max() - live_P.min() <= 1e-9 * live_P.max()).item())
    return "all groups that vary have the same std" if equal else "one factor for the whole batch"


def _direction(one: Tensor, other: Tensor) -> tuple[float | None, float | None]:
    """Return cosine and ratio of norms; None where one of them is 0."""
    a, b = one.norm(), other.norm()
    if a == 0 or b == 0:
        return None, None
    return float(one @ other / (a * b)), float(a / b)


def reason(config: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """Explain an inert arm.

    Args:
        config: the arm's.
        arm: as `probe.Bench.measure` returns it.
    """
    levers = config["arm"]["moves"]
    told = [_REASONS[lever](config[lever], arm) for lever in levers if lever in _REASONS]
    return "; ".join(told) or "the update is the baseline's to the last bit"


def _clip(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    if arm["planned"] == 1:
        return (
            "one update a rollout: every ratio is 1, so no bound can act; raise"
            " lr_batch.minibatches or lr_batch.epochs"
        )
    update: Update = arm["update"]
    name = "the sequence ratio" if node["name"] == "gspo" else "a token's ratio"
    logs = update.trace.log_ratio_N
    if node["name"] == "gspo":
        logs = update.trace.sequence_log_ratio_S
    away = float((logs.exp() - 1).abs().max()) if len(logs) else 0.0
    bounds = ", ".join(f"{k} {v:g}" for k, v in node.items() if isinstance(v, float))
    return f"{name} was never further than {away:.3g} from 1: no bound acts ({bounds})"


def _sampling(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    rollout: Rollout = arm["rollout"]
    return f"none of {rollout.tally.sampled} groups had equal rewards: there is nothing to drop"


def _length_penalty(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    lengths = arm["rollout"].groups.lengths_PG
    span = f"{int(lengths.min())} to {int(lengths.max())} tokens"
    if "low" in node:
        return f"all lengths, {span}, lie inside the interval {node['low']} to {node['high']}"
    return f"no length of {span} is penalised"


def _shaping(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    return "within each group all responses get the same: it cancels in the advantage"


def _masking(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    n = len(arm["rollout"].groups.texts)
    return f"none of {n} responses was truncated: there is nothing to mask"


def _regularizer(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    return "its term is 0 for every token: policy and reference are one model so far"


def _reduction(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    lengths = torch.unique(arm["rollout"].groups.lengths_PG)
    one = f"all responses have {int(lengths[0])} tokens" if len(lengths) == 1 else "equal weights"
    return f"{one}: every reduction is the same average up to a factor"


def _tis(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    return "sampler and learner agree: every weight is 1 to .001"


def _advantage(node: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    return "every group with a gradient has the same std, or none has one"


_REASONS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "clip": _clip,
    "sampling": _sampling,
    "length_penalty": _length_penalty,
    "shaping": _shaping,
    "masking": _masking,
    "regularizer": _regularizer,
    "reduction": _reduction,
    "tis": _tis,
    "advantage": _advantage,
}
