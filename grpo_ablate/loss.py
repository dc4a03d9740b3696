"""From token ids to log-probabilities, entropy and the loss of one optimizer step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grpo_ablate.types import Advantages, Batch, Groups


@dataclass(frozen=True)
class TokenStats:
    """Of each token of a batch, given the ones before it."""

    logprobs_BL: Tensor
    """Natural log; carries the gradient."""
    entropy_BL: Tensor
    """Nats, of the policy at the token's place; no gradient."""


def token_stats(model: PreTrainedModel, batch: Batch, temperature: float) -> TokenStats:
    """Run the model over a batch at the temperature its responses were sampled with.

    Args:
        model: the policy.
        batch: B rows.
        temperature: the sampler's, above 0.

    Returns:
        Both statistics, aligned with batch.ids_BL; 0 at position 0, which nothing predicts.
    """
    logits = model(input_ids=batch.ids_BL, attention_mask=batch.attention_BL.long()).logits
    stats = from_logits(logits[:, :-1], batch.ids_BL[:, 1:], temperature)
    pad = torch.nn.functional.pad
    return TokenStats(pad(stats.logprobs_BL, (1, 0)), pad(stats.entropy_BL, (1, 0)))


def from_logits(logits_BLV: Tensor, ids_BL: Tensor, temperature: float) -> TokenStats:
    """Turn logits into the log-probability of given tokens and the entropy behind them.

    logprob = log softmax(logits / temperature)[token];  entropy = -sum p log p

    Without the division an on-policy ratio would not be 1 unless the temperature is. Computed in
    float32 at least.

    Args:
        logits_BLV: what predicts each token.
        ids_BL: the tokens.
        temperature: above 0.

    Returns:
        Both statistics [B, L].
    """
    logits_BLV = logits_BLV.to(torch.promote_types(logits_BLV.dtype, torch.float32))
    logprobs_BLV = (logits_BLV / temperature).log_softmax(-1)
    chosen_BL = logprobs_BLV.gather(-1, ids_BL[..., None])[..., 0]
    detached = logprobs_BLV.detach()
    return TokenStats(chosen_BL, -(detached.exp() * detached).sum(-1))


def pack(groups: Groups, advantages: Advantages, pad_id: int, device: torch.device) -> Batch:
    """Lay the kept responses out as right-padded rows, prompt first.

    Args:
        groups: a rollout; rows with keep False are left out.
        advantages: one value a response.
        pad_id: fills the padding; attention masks it.
        device: of the result.

    Returns:
        One row for each kept response, in order; B may be 0.
    """
    flat = groups.keep_PG.flatten().nonzero()[:, 0].tolist()
    rows = [
        (
            groups.prompt_ids[i // groups.group_size],
            groups.completions.ids[i],
            groups.completions.logprobs[i],
        )
        for i in flat
    ]
    width = max((len(prompt) + len(ids) for prompt, ids, _ in rows), default=0)
    ids = torch.full((len(rows), width), pad_id)
    attention, response = (
        torch.zeros_like(ids, dtype=torch.bool),
        torch.zeros_like(ids, dtype=torch.bool),
    )
    old = torch.zeros(len(rows), width, dtype=torch.float64)
    for row, (prompt, completion, logprobs) in enumerate(rows):
        start, end = len(prompt), len(prompt) + len(completion)
        ids[row, :end] = torch.tensor([*prompt, *completion])
        attention[row, :end] = True
        response[row, start:end] = True
        old[row, start:end] = torch.tensor(logprobs, dtype=torch.float64)
    values = advantages.values_PG.flatten()[flat]
    group = torch.tensor([i // groups.group_size for i in flat], dtype=torch.long)
    rewards = groups.rewards_PG.flatten()[flat]
    return Batch(*(t.to(device) for t in (ids, attention, response, old, values, group, rewards)))
