"""A batch as a person can read it: what was asked, answered, rewarded, and how far it had moved."""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_ablate.loss import token_stats
from grpo_ablate.models import Policy
from grpo_ablate.monitor import Event
from grpo_ablate.ratios import log_ratio
from grpo_ablate.types import Batch

_ROWS_AT_ONCE, _WORST = 32, 3


def describe(policy: Policy, batch: Batch, temperature: float, event: Event) -> str:
    """Return the batch as text, the row with the most extreme ratio first.

    Args:
        policy: its weights at the time of the alarm are what the ratios are of.
        batch: the mini-batch, or the rollout, that raised it.
        temperature: the sampler's.
        event: heads the text.
    """
    blocks: list[tuple[float, str]] = []
    for start in range(0, len(batch), _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, len(batch))
        part = batch.rows(torch.arange(start, end, device=batch.ids_BL.device))
        with torch.no_grad():
            logprobs_BL = token_stats(policy.model, part, temperature).logprobs_BL
        log_ratio_BL = log_ratio(logprobs_BL, part.old_logprobs_BL, part.response_BL)
        blocks += [_row(policy, part, log_ratio_BL, row) for row in range(len(part))]
    blocks.sort(key=lambda block: -block[0])
    head = f"{event.monitor} {event.name}, step {event.step}: {event.message}\n{len(batch)} rows\n"
    return head + "".join(text for _, text in blocks)


def _row(policy: Policy, batch: Batch, log_ratio_BL: Tensor, row: int) -> tuple[float, str]:
    """Return how extreme one row is (not a number: most), and its lines."""
    mask_L = batch.response_BL[row]
    ids = batch.ids_BL[row][mask_L].tolist()
    prompt = batch.ids_BL[row][batch.attention_BL[row] & ~mask_L].tolist()
    log_ratios = log_ratio_BL[row][mask_L].tolist()
    size = [abs(x) if x == x else torch.inf for x in log_ratios]
    worst = sorted(range(len(ids)), key=lambda i: -size[i])[:_WORST]
    ratios = ", ".join(
        f"{policy.decode([ids[i]])!r} at {i}: {_ratio(log_ratios[i])}" for i in worst
    )
    lines = (
        f"\ngroup {batch.group_B[row].item()}  reward {batch.rewards_B[row].item():.4g}"
        f"  advantage {batch.advantages_B[row].item():.4g}\n"
        f"prompt    {policy.decode(prompt)!r}\nresponse  {policy.decode(ids)!r}\n"
        f"ratios    {ratios}\n"
    )
    return max(size, default=0.0), lines


def _ratio(log_ratio: float) -> str:
    return f"{torch.tensor(log_ratio, dtype=torch.float64).exp().item():.4g}"
