"""Options that are void or contradictory together, refused or warned of at start; torch-free.

A knob's own range stands beside the knob; here stand the rules that need two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Config = Mapping[str, Any]

_DIVIDES_BY_STD = ("group_std", "ema_std", "smooth")


@dataclass(frozen=True)
class Rule:
    """One combination; `message` is formatted with the configuration's nodes."""

    level: Literal["refuse", "warn"]
    fires: Callable[[Config], bool]
    message: str
    source: str


RULES = (
    Rule(
        "refuse",
        lambda c: c["advantage"]["name"] in _DIVIDES_BY_STD and c["sampling"]["group_size"] == 1,
        "sampling.group_size=1 has no standard deviation for advantage={advantage[name]} to divide"
        " by; raise sampling.group_size to 8",
        "article: G3",
    ),
    Rule(
        "refuse",
        lambda c: (
            c["advantage"]["name"] in ("none", "constant") and c["sampling"]["group_size"] == 1
        ),
        "sampling.group_size=1 makes every advantage 0, since a response is its own baseline;"
        " raise sampling.group_size to 8",
        "article: G3",
    ),
    Rule(
        "refuse",
        lambda c: c["sampling"]["name"] != "standard" and c["sampling"]["group_size"] == 1,
        "sampling.group_size=1 makes every group dead for sampling={sampling[name]}; raise"
        " sampling.group_size to 8",
        "article: S1",
    ),
    Rule(
        "refuse",
        lambda c: (
            c["clip"]["name"] == "asymmetric" and c["clip"]["eps_low"] <= c["clip"]["eps_high"]
        ),
        "clip.eps_low={clip[eps_low]} must exceed clip.eps_high={clip[eps_high]} in"
        " clip=asymmetric; for a wider upper bound use clip=clip_higher",
        "article: C4",
    ),
    Rule(
        "refuse",
        lambda c: (
            c["length_penalty"]["name"] == "target_interval"
            and c["length_penalty"]["low"] > c["length_penalty"]["high"]
        ),
        "length_penalty.low={length_penalty[low]} exceeds length_penalty.high="
        "{length_penalty[high]}, so no length is free; swap them",
        "article: L1",
    ),
    Rule(
        "refuse",
        lambda c: (
            c["length_penalty"]["name"] == "overlong_soft"
            and c["length_penalty"]["margin"] > c["length_penalty"]["max_length"]
        ),
        "length_penalty.margin={length_penalty[margin]} exceeds length_penalty.max_length="
        "{length_penalty[max_length]}; make it smaller",
        "DAPO eq. 13",
    ),
    Rule(
        "refuse",
        lambda c: c["lr_batch"]["minibatches"] > c["lr_batch"]["prompts"],
        "lr_batch.minibatches={lr_batch[minibatches]} exceeds lr_batch.prompts="
        "{lr_batch[prompts]}: a group is never split; lower lr_batch.minibatches",
        "article: B3",
    ),
    Rule(
        "refuse",
        lambda c: c["lr_batch"]["warmup"] >= c["steps"] and c["lr_batch"]["name"] == "linear_decay",
        "lr_batch.warmup={lr_batch[warmup]} leaves no step of steps={steps} to decay over; lower"
        " lr_batch.warmup",
        "article: B1",
    ),
    Rule(
        "warn",
        lambda c: c["lr_batch"]["minibatches"] * c["lr_batch"]["epochs"] == 1,
        "one update a rollout: every importance ratio is 1, so no clip can act; raise"
        " lr_batch.minibatches or lr_batch.epochs",
        "article: C1",
    ),
    Rule(
        "warn",
        lambda c: c["clip"]["name"] == "gspo" and c["clip"]["eps_high"] >= 0.1,
        "clip.eps_high={clip[eps_high]} has the scale of a token's ratio; a sequence's ratio is a"
        " mean and hardly ever leaves it: see ratio/sequence_var in a baseline's metrics.csv",
        "article: C7",
    ),
    Rule(
        "warn",
        lambda c: c["clip"]["name"] == "gspo" and c["reduction"]["name"] != "sequence_mean",
        "clip=gspo with reduction={reduction[name]} is not the paper's loss, which averages over"
        " responses; give the whole study reduction=sequence_mean in a baseline of its own",
        "GSPO eq. 5",
    ),
    Rule(
        "warn",
        lambda c: c["steps"] < 300,
        "steps={steps}: a trick is not to be judged before step 300",
        "article: X4",
    ),
)


def findings(config: Config, level: str) -> list[str]:
    """Return the messages of all rules of one level that a configuration breaks.

    Args:
        config: a configuration whose nodes pass `variants.check`.
        level: "refuse" or "warn".
    """
    return [
        f"{rule.message.format(**config)} ({rule.source})"
        for rule in RULES
        if rule.level == level and rule.fires(config)
    ]
