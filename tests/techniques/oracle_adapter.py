"""Maps a case of tests/data/oracles.json to the package's public functions; no numerics here.

The cases were computed by TRL 1.16 and verl 0.10 in float64. `evaluate` returns what a case
expects, or None where the package has no such variant; `out_of_scope` says why.
"""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from grpo_ablate.loss import from_logits
from grpo_ablate.plans import Correction, Regularizer
from grpo_ablate.techniques import (
    advantage,
    clip,
    length_penalty,
    reduction,
    regularizer,
    tis,
)

DATA = Path(__file__).parent.parent / "data" / "oracles.json"


@cache
def load() -> dict[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))


def evaluate(case: dict[str, Any]) -> dict[str, Any] | None:
    """Return the package's values for one case: `loss` and `grad`, `output`, `logprobs`..."""
    if out_of_scope(case):
        return None
    return _BY_KIND[case["kind"]](case)


def out_of_scope(case: dict[str, Any]) -> str | None:
    """Return why a case has no counterpart here; None where it has one."""
    canonical = case["canonical"]
    reasons = {
        "verl's overlong penalty goes on below -1; we follow DAPO's eq. 13": canonical.get(
            "unsaturated"
        ),
        "TRL's optional ratio factor on the KL term is its own invention": (
            canonical.get("kl") or {}
        ).get("bias_correction"),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _batch(case: dict[str, Any]) -> dict[str, torch.Tensor]:
    batch = load()["batches"][case["inputs"]["batch"]]
    tensors = {name: _tensor(batch[name]) for name in ("new", "old", "ref", "roll")}
    return {
        **tensors,
        "mask": torch.tensor(batch["mask"]).bool(),
        "group": torch.tensor(batch["group"]),
    }


def _loss(case: dict[str, Any]) -> dict[str, Any]:
    """Loss of clip, sampler correction and KL together, and its gradient."""
    batch, canonical = _batch(case), case["canonical"]
    new = batch["new"].requires_grad_()
    found: dict[str, Any] = {}
    losses = torch.zeros_like(new)
    if canonical["clip"]:
        values = (
            _advantage(case)["output"] if canonical.get("adv") else case["inputs"]["advantages"]
        )
        term = _clip(canonical)(new, batch["old"], _tensor(values), batch["mask"])
        correction = _tis(canonical["tis"])
        weights = torch.ones_like(new)
        if correction.weights:
            weights = correction.weights(batch["old"], batch["roll"], batch["mask"])
            # where no token is, ours are 0 and each peer has a filler of its own
            filler = _tensor(case.get("is_weights", weights.tolist()))
            found["is_weights"] = weights.where(batch["mask"], filler).tolist()
        losses = losses + weights * term.loss_BT
    extra = _kl(canonical["kl"]).loss(new, batch["ref"], torch.zeros_like(new), batch["mask"])
    if case["kind"] == "kl":
        found["per_token"] = extra.tolist()
    weights = _reduction(canonical)(batch["mask"], batch["group"])
    loss = ((losses + extra) * weights).sum()
    (grad,) = torch.autograd.grad(loss, new)
    return found | {"loss": loss.item(), "grad": grad.tolist()}


def _accumulation(case: dict[str, Any]) -> dict[str, Any]:
    """The same, one micro-batch at a time under weights computed for the whole step."""
    batch, canonical = _batch(case), case["canonical"]
    advantages = _tensor(case["inputs"]["advantages"])
    new = batch["new"].requires_grad_()
    weights = _reduction(canonical)(batch["mask"], batch["group"])
    rows = torch.arange(len(new)).split(case["params"]["splits"])
    total = 0.0
    for part in rows:
        arrays = (new[part], batch["old"][part], advantages[part], batch["mask"][part])
        loss = (_clip(canonical)(*arrays).loss_BT * weights[part]).sum()
        loss.backward()
        total += loss.item()
    assert new.grad is not None
    return {"loss": total, "grad": new.grad.tolist()}


def _clip(canonical: dict[str, Any]) -> Any:
    node = canonical["clip"]
    if node["kind"] == "cispo":
        return partial(clip.cispo, weight_min=node["min"], weight_max=node["max"])
    bounds = {"eps_low": node["low"], "eps_high": node["high"]}
    if node["kind"] == "hard":
        return partial(clip.hard, **bounds)
    cap = node["dual_c"] or node["delta"]  # TRL's delta is dual clip by another name
    if canonical["ratio"] == "sequence":
        return partial(clip.gspo, **bounds, length_normalised=True, dual_clip=cap)
    if node["low"] == node["high"]:
        return partial(clip.symmetric, eps=node["low"], dual_clip=cap)
    return partial(clip.clip_higher, **bounds, dual_clip=cap)


def _tis(node: dict[str, Any] | None) -> Correction:
    if not node:
        return tis.none()
    level = {"token": tis.token, "sequence": tis.sequence}[node["level"]]
    return level(
        mode=node["mode"],
        minimum=node["min"],
        maximum=node["max"],
        normalise=bool(node.get("batch_normalize")),
    )


def _kl(node: dict[str, Any] | None) -> Regularizer:
    if not node:
        return regularizer.none()
    return regularizer.kl(estimator=node["type"], coefficient=node["coef"])


def _reduction(canonical: dict[str, Any]) -> Any:
    rows = "skip" if canonical.get("empty_rows") == "skip" else "count"
    return {
        "token-mean": reduction.token_mean,
        "group-token-mean": reduction.group_token_mean,
        "seq-mean-token-mean": partial(reduction.sequence_mean, empty_rows=rows),
        "seq-mean-token-sum": partial(reduction.constant, horizon=1, empty_rows=rows),
        "seq-mean-token-sum-norm": partial(
            reduction.constant, horizon=canonical.get("horizon"), empty_rows=rows
        ),
    }[canonical["agg"]]


def _advantage(case: dict[str, Any]) -> dict[str, Any]:
    knobs = case["canonical"].get("adv") or case["canonical"]
    groups = sorted(set(case["inputs"]["group"]))
    rewards = _tensor(case["inputs"]["rewards"]).view(len(groups), -1)
    scale = {"ddof": knobs.get("ddof"), "eps": knobs.get("eps")}
    function = {
        ("group_mean", "none"): advantage.none,
        ("group_mean", "group_std"): partial(advantage.group_std, **scale),
        ("group_mean", "batch_std"): partial(advantage.batch_std, **scale),
        ("leave_one_out", "none"): advantage.rloo,
    }[knobs.get("center", "group_mean"), knobs["scale"]]
    vote, lengths = torch.ones_like(rewards).bool(), torch.ones(len(groups))
    return {"output": function(rewards, vote, lengths, {}).values_PG.flatten().tolist()}


def _logprob_entropy(case: dict[str, Any]) -> dict[str, Any]:
    """Both statistics, and the gradient of the case's own probe of them."""
    logits = _tensor(case["inputs"]["logits"]).requires_grad_()
    labels = torch.tensor(case["inputs"]["labels"])
    stats = from_logits(logits, labels, case["canonical"]["temperature"], entropy_gradient=True)
    count = labels.numel()
    probe = (
        (stats.logprobs_BL.flatten() * torch.linspace(-1, 1, count).double()).sum()
        + (stats.entropy_BL.flatten() * torch.linspace(0.5, -0.25, count).double()).sum()
    )  # fmt: skip
    (grad,) = torch.autograd.grad(probe, logits)
    return {
        "logprobs": stats.logprobs_BL.tolist(),
        "entropy": stats.entropy_BL.tolist(),
        "loss": probe.item(),
        "grad": grad.tolist(),
    }


def _entropy(case: dict[str, Any]) -> dict[str, Any]:
    """Averaged entropy and its gradient with respect to the logits."""
    batch = _batch(case)
    logits = _tensor(case["inputs"]["logits"]).requires_grad_()
    labels = torch.tensor(case["inputs"]["labels"])
    stats = from_logits(logits, labels, 1.0, entropy_gradient=True)
    weights = _reduction(case["canonical"])(batch["mask"], batch["group"])
    loss = (stats.entropy_BL * weights).sum()
    (grad,) = torch.autograd.grad(loss, logits)
    return {
        "per_token": stats.entropy_BL.tolist(),
        "loss": loss.item(),
        "grad": grad.tolist(),
    }


def _length_penalty(case: dict[str, Any]) -> dict[str, Any]:
    knobs = {"max_length": case["canonical"]["max_len"], "margin": case["canonical"]["cache"]}
    lengths = _tensor([case["inputs"]["lengths"]])
    return {"output": length_penalty.overlong_soft(lengths, **knobs)[0].tolist()}


_BY_KIND = {
    "loss": _loss,
    "e2e": _loss,
    "kl": _loss,
    "accumulation": _accumulation,
    "advantage": _advantage,
    "logprob_entropy": _logprob_entropy,
    "entropy": _entropy,
    "length_penalty": _length_penalty,
}
