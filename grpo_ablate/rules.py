"""Options that are void or contradictory together, refused or warned of at start; torch-free.

A knob's own range stands beside the knob; here stand the rules that need two of them. The same
table is docs/techniques.md's section on compatibility, which a test holds against this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """One combination; `message` is formatted with the configuration's nodes."""

    level: Literal["refuse", "warn"]
    options: str
    """What meets, in a few words, as the documentation has it."""
    fires: Callable[[Config], bool]
    message: str
    source: str


def _upper(c: Config) -> float:
    """Return the clip's upper width; infinite for a variant that has none."""
    return float(c["clip"].get("eps_high", c["clip"].get("eps", math.inf)))


def _weights(c: Config) -> float:
    weights = (c["shaping"].get(f"{part}_weight", 0) for part in ("format", "repetition"))
    return float(sum(weights))


def _shaped(c: Config) -> bool:
    return {c["length_penalty"]["name"], c["shaping"]["name"]} != {"none"}


_GROUP_OF_ONE = (
    Rule(
        "refuse",
        "a std or a group mean × `group_size=1`",
        lambda c: c["advantage"]["name"] != "length_buckets" and c["sampling"]["group_size"] == 1,
        "sampling.group_size=1 makes every advantage={advantage[name]} 0 or undefined, since a"
        " response is its own baseline; raise sampling.group_size to 8",
        "article: G3; K7",
    ),
    Rule(
        "refuse",
        "a filter × `group_size=1`",
        lambda c: c["sampling"]["name"] != "standard" and c["sampling"]["group_size"] == 1,
        "sampling.group_size=1 makes every group dead for sampling={sampling[name]}; raise"
        " sampling.group_size to 8",
        "article: S1",
    ),
)

_CLIP = (
    Rule(
        "refuse",
        "`clip=asymmetric` × a lower bound that is not the looser one",
        lambda c: (
            c["clip"]["name"] == "asymmetric" and c["clip"]["eps_low"] <= c["clip"]["eps_high"]
        ),
        "clip.eps_low={clip[eps_low]} must exceed clip.eps_high={clip[eps_high]} in"
        " clip=asymmetric; for a wider upper bound use clip=clip_higher",
        "article: C4",
    ),
    Rule(
        "refuse",
        "`dual_clip` × a bound inside the trusted interval",
        lambda c: c["clip"].get("dual_clip") is not None and c["clip"]["dual_clip"] < 1 + _upper(c),
        "clip.dual_clip={clip[dual_clip]} lies inside the clip's own interval; it must be at least"
        " 1 + the upper width (3 is usual)",
        "Ye et al. 2020",
    ),
    Rule(
        "refuse",
        "`clip=cispo` × weights that exclude 1",
        lambda c: (
            c["clip"]["name"] == "cispo"
            and not (c["clip"]["weight_min"] or 0) <= 1 <= c["clip"]["weight_max"]
        ),
        "clip.weight_min={clip[weight_min]} and clip.weight_max={clip[weight_max]} must enclose 1,"
        " the weight of an on-policy token",
        "MiniMax-M1 eq. 4",
    ),
    Rule(
        "warn",
        "one update a rollout × any `clip`",
        lambda c: c["lr_batch"]["minibatches"] * c["lr_batch"]["epochs"] == 1,
        "one update a rollout: every importance ratio is 1, so no clip can act; raise"
        " lr_batch.minibatches or lr_batch.epochs",
        "article: C1; K15",
    ),
    Rule(
        "warn",
        "sequence ratio (`gspo`) × a token-scale width",
        lambda c: (
            c["clip"]["name"] == "gspo"
            and c["clip"]["length_normalised"]
            and c["clip"]["eps_high"] >= 0.1
        ),
        "clip.eps_high={clip[eps_high]} has the scale of a token's ratio; a sequence's ratio is a"
        " mean and hardly ever leaves it: see ratio/sequence_var in a baseline's metrics.csv",
        "article: C7; K14",
    ),
    Rule(
        "warn",
        "token ratio, or an unnormalised sequence ratio × a sequence-scale width",
        lambda c: _upper(c) < 0.01 and not c["clip"].get("length_normalised", False),
        "clip={clip[name]} with a width below 0.01 silences nearly every token that moved at all:"
        " such widths belong to GSPO's length-normalised ratio; 0.2 is usual",
        "K14",
    ),
    Rule(
        "warn",
        "`clip=gspo` × a reduction that is not `sequence_mean`",
        lambda c: c["clip"]["name"] == "gspo" and c["reduction"]["name"] != "sequence_mean",
        "clip=gspo with reduction={reduction[name]} is not the paper's loss, which averages over"
        " responses; give the whole study reduction=sequence_mean in a baseline of its own",
        "GSPO eq. 5",
    ),
)

_REWARD = (
    Rule(
        "refuse",
        "`length_penalty=target_interval` × an empty interval",
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
        "`length_penalty=overlong_soft` × a margin beyond its limit",
        lambda c: (
            c["length_penalty"]["name"] == "overlong_soft"
            and c["length_penalty"]["margin"] > c["length_penalty"]["max_length"]
        ),
        "length_penalty.margin={length_penalty[margin]} exceeds length_penalty.max_length="
        "{length_penalty[max_length]}; make it smaller",
        "DAPO eq. 13",
    ),
    Rule(
        "warn",
        "`length_penalty=overlong_soft` × an engine that stops before it begins",
        lambda c: (
            c["length_penalty"]["name"] == "overlong_soft"
            and c["length_penalty"]["max_length"] - c["length_penalty"]["margin"]
            >= c["engine"]["max_new_tokens"]
        ),
        "length_penalty.max_length={length_penalty[max_length]} minus margin leaves no length up to"
        " engine.max_new_tokens={engine[max_new_tokens]} with a penalty: it cannot act",
        "DAPO eq. 13",
    ),
    Rule(
        "refuse",
        "shaping weights × a tenth of the main reward",
        lambda c: _weights(c) > 0.1 + 1e-12,
        "the weights of shaping={shaping[name]} sum to more than 0.1 of the main reward, where a"
        " model learns the form instead of the answer; lower them",
        "article: L4",
    ),
    Rule(
        "refuse",
        "`sampling.filter_on=shaped` × nothing that shapes",
        lambda c: c["sampling"].get("filter_on") == "shaped" and not _shaped(c),
        "sampling.filter_on=shaped is the same as raw while length_penalty=none and shaping=none;"
        " leave it at raw",
        "K8, K23",
    ),
    Rule(
        "warn",
        "`sampling.filter_on=shaped` × a length penalty or shaping",
        lambda c: c["sampling"].get("filter_on") == "shaped" and _shaped(c),
        "sampling.filter_on=shaped keeps groups that are all wrong and differ in length or form"
        " alone: they teach that, and nothing else; sampling.filter_on=raw drops them",
        "article: S1; K8",
    ),
    Rule(
        "warn",
        "a filter on dead groups × `advantage=length_buckets`",
        lambda c: (
            c["advantage"]["name"] == "length_buckets" and c["sampling"]["name"] != "standard"
        ),
        "sampling={sampling[name]} drops groups whose responses agree, which are the very ones"
        " that advantage=length_buckets gives a gradient by comparing them with their neighbours",
        "article: A8, S1",
    ),
    Rule(
        "warn",
        "`masking=overlong` × `length_penalty=overlong_soft`",
        lambda c: (
            c["masking"]["name"] == "overlong" and c["length_penalty"]["name"] == "overlong_soft"
        ),
        "masking=overlong takes the responses out of the loss that length_penalty=overlong_soft"
        " charges most; DAPO has them as alternatives: choose one",
        "DAPO section 3.4",
    ),
)

_LOSS = (
    Rule(
        "refuse",
        "`reduction.empty_rows=skip` × no masking",
        lambda c: c["reduction"].get("empty_rows") == "skip" and c["masking"]["name"] == "none",
        "reduction.empty_rows=skip changes nothing while masking=none, since no row is empty; leave"
        " it at count",
        "K23",
    ),
    Rule(
        "refuse",
        "`tis` × bounds that exclude 1",
        lambda c: (
            c["tis"]["name"] != "none"
            and not (c["tis"]["minimum"] or 0) <= 1 <= c["tis"]["maximum"]
        ),
        "tis.minimum={tis[minimum]} and tis.maximum={tis[maximum]} must enclose 1, the weight where"
        " sampler and learner agree",
        "Yao et al. 2025",
    ),
    Rule(
        "warn",
        "`tis` × `engine=transformers`",
        lambda c: c["tis"]["name"] != "none" and c["engine"]["name"] == "transformers",
        "tis={tis[name]} with engine=transformers: sampler and learner are one model, so every"
        " weight is 1 up to rounding; it is meant for engine=vllm",
        "Yao et al. 2025",
    ),
)

_SCHEDULE = (
    Rule(
        "refuse",
        "more `lr_batch.minibatches` × fewer `lr_batch.prompts`",
        lambda c: c["lr_batch"]["minibatches"] > c["lr_batch"]["prompts"],
        "lr_batch.minibatches={lr_batch[minibatches]} exceeds lr_batch.prompts="
        "{lr_batch[prompts]}: a group is never split; lower lr_batch.minibatches",
        "article: B3",
    ),
    Rule(
        "refuse",
        "`lr_batch=linear_decay` × a warm-up as long as the run",
        lambda c: c["lr_batch"]["warmup"] >= c["steps"] and c["lr_batch"]["name"] == "linear_decay",
        "lr_batch.warmup={lr_batch[warmup]} leaves no step of steps={steps} to decay over; lower"
        " lr_batch.warmup",
        "article: B1",
    ),
    Rule(
        "warn",
        "fewer than 300 `steps` × any verdict",
        lambda c: c["steps"] < 300,
        "steps={steps}: a trick is not to be judged before step 300",
        "article: X4",
    ),
)

_STACK = (
    Rule(
        "warn",
        "more than three levers × one arm",
        lambda c: len(c.get("arm", {}).get("moves") or ()) > 3,
        "arm {arm[name]} moves {arm[moves]}: never add more than three tricks at once; run each"
        " alone first, then +suite=interactions",
        "article: G10",
    ),
)

RULES = _GROUP_OF_ONE + _CLIP + _REWARD + _LOSS + _SCHEDULE + _STACK


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
