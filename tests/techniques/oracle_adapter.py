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
from grpo_ablate.techniques import advantage, clip, length_penalty, reduction

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
    clip_node, scale = canonical.get("clip") or {}, canonical.get("adv") or canonical
    reasons = {
        "regularizers (KL, entropy bonus) are not in the package": case["kind"] in ("kl", "entropy")
        or canonical.get("kl")
        or canonical.get("entropy"),
        "truncated importance sampling is not in the package": canonical.get("tis"),
        "dual clip and delta cap are not in the package": clip_node.get("dual_c")
        or clip_node.get("delta"),
        "CISPO and the hard clip are not in the package": clip_node.get("kind")
        in ("cispo", "hard"),
        "no reduction averages per group or without dividing by a horizon": canonical.get("agg")
        in ("group-token-mean", "seq-mean-token-sum"),
        "RLOO and batch std are not in the package": scale.get("scale") == "batch_std"
        or scale.get("center") == "leave_one_out",
        "verl's overlong penalty goes on below -1; we follow DAPO's eq. 13": canonical.get(
            "unsaturated"
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _batch(case: dict[str, Any]) -> dict[str, torch.Tensor]:
    batch = load()["batches"][case["inputs"]["batch"]]
    tensors = {k: torch.tensor(batch[k], dtype=torch.float64) for k in ("new", "old")}
    return {**tensors, "mask": torch.tensor(batch["mask"]).bool()}


def _loss(case: dict[str, Any]) -> dict[str, Any]:
    """Loss and its gradient with respect to the new log-probabilities."""
    batch, canonical = _batch(case), case["canonical"]
    values = _advantage(case)["output"] if canonical.get("adv") else case["inputs"]["advantages"]
    advantages = torch.tensor(values, dtype=torch.float64)
    new = batch["new"].requires_grad_()
    term = _clip(canonical)(new, batch["old"], advantages, batch["mask"])
    loss = (term.loss_BT * _reduction(canonical)(batch["mask"])).sum()
    (grad,) = torch.autograd.grad(loss, new)
    return {"loss": loss.item(), "grad": grad.tolist()}


def _accumulation(case: dict[str, Any]) -> dict[str, Any]:
    """The same, one micro-batch at a time under weights computed for the whole step."""
    batch, canonical = _batch(case), case["canonical"]
    advantages = torch.tensor(case["inputs"]["advantages"], dtype=torch.float64)
    new = batch["new"].requires_grad_()
    weights = _reduction(canonical)(batch["mask"])
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
    low, high = canonical["clip"]["low"], canonical["clip"]["high"]
    if canonical["ratio"] == "sequence":
        return partial(clip.gspo, eps_low=low, eps_high=high)
    if low == high:
        return partial(clip.symmetric, eps=low)
    return partial(clip.clip_higher, eps_low=low, eps_high=high)


def _reduction(canonical: dict[str, Any]) -> Any:
    rows = "skip" if canonical.get("empty_rows") == "skip" else "count"
    return {
        "token-mean": reduction.token_mean,
        "seq-mean-token-mean": partial(reduction.sequence_mean, empty_rows=rows),
        "seq-mean-token-sum-norm": partial(
            reduction.constant, horizon=canonical.get("horizon"), empty_rows=rows
        ),
    }[canonical["agg"]]


def _advantage(case: dict[str, Any]) -> dict[str, Any]:
    knobs = case["canonical"].get("adv") or case["canonical"]
    groups = sorted(set(case["inputs"]["group"]))
    rewards = torch.tensor(case["inputs"]["rewards"], dtype=torch.float64).view(len(groups), -1)
    function = {
        "none": advantage.none,
        "group_std": partial(advantage.group_std, ddof=knobs.get("ddof"), eps=knobs.get("eps")),
    }[knobs["scale"]]
    keep, lengths = torch.ones_like(rewards).bool(), torch.ones(len(groups))
    return {"output": function(rewards, keep, lengths, {}).values_PG.flatten().tolist()}


def _logprob_entropy(case: dict[str, Any]) -> dict[str, Any]:
    logits = torch.tensor(case["inputs"]["logits"], dtype=torch.float64)
    labels = torch.tensor(case["inputs"]["labels"])
    stats = from_logits(logits, labels, case["canonical"]["temperature"])
    return {"logprobs": stats.logprobs_BL.tolist(), "entropy": stats.entropy_BL.tolist()}


def _length_penalty(case: dict[str, Any]) -> dict[str, Any]:
    lengths = torch.tensor([case["inputs"]["lengths"]], dtype=torch.float64)
    knobs = {"max_length": case["canonical"]["max_len"], "margin": case["canonical"]["cache"]}
    return {"output": length_penalty.overlong_soft(lengths, **knobs)[0].tolist()}


_BY_KIND = {
    "loss": _loss,
    "e2e": _loss,
    "accumulation": _accumulation,
    "advantage": _advantage,
    "logprob_entropy": _logprob_entropy,
    "length_penalty": _length_penalty,
}
