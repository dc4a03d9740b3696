"""The optimizer steps of one rollout (Hydra group `learner`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grpo_ablate.knobs import Count, Decay, NonNegative, Positive
from grpo_ablate.loss import token_stats
from grpo_ablate.models import Policy
from grpo_ablate.types import Batch, LrBatch, PolicyTerm, Trace, Update


@dataclass(frozen=True)
class Objective:
    """The loss as bound techniques: a token term, its averaging, and the temperature."""

    clip: Callable[[Tensor, Tensor, Tensor, Tensor], PolicyTerm]
    reduction: Callable[[Tensor], Tensor]
    temperature: float


class Learner:
    """AdamW on the policy's weights; the memory of one micro-batch bounds the whole step."""

    def __init__(
        self,
        policy: Policy,
        *,
        micro_tokens: Count,
        beta1: Decay,
        beta2: Decay,
        eps: Positive,
        weight_decay: NonNegative,
    ) -> None:
        """Create the optimizer.

        Args:
            policy: whose weights are trained.
            micro_tokens: padded tokens in one forward pass; changes memory and speed, not the
                gradient.
            beta1: AdamW's decay of the gradient's mean.
            beta2: AdamW's decay of its square.
            eps: AdamW's eps.
            weight_decay: AdamW's decoupled decay.
        """
        self.model = policy.model
        self.micro_tokens = micro_tokens
        self.applied = 0
        """Rollouts that moved the weights: the clock of the learning-rate schedule."""
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), betas=(beta1, beta2), eps=eps, weight_decay=weight_decay
        )

    def update(
        self,
        batch: Batch,
        objective: Objective,
        lr_batch: LrBatch,
        steps: int,
        base_lr: float,
        order: np.random.Generator,
    ) -> Update:
        """Take the configured optimizer steps on one rollout.

        A mini-batch without a gradient takes none; a rollout without any does not advance the
        schedule.

        Args:
            batch: all rows of the rollout.
            objective: what is minimised.
            lr_batch: how many optimizer steps, at which rate.
            steps: of the whole run, for schedules that end.
            base_lr: the model's.
            order: shuffles groups into mini-batches.

        Returns:
            What happened, token by token.

        Raises:
            FloatingPointError: loss or gradient is not a number; the weights are as before.
        """
        lr = lr_batch.lr(self.applied, steps, base_lr)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses, norms, traces = [], [], [_EMPTY]
        for _ in range(lr_batch.epochs):
            for rows in _minibatches(batch, lr_batch.minibatches, order):
                loss, norm, trace = self._step(batch.rows(rows), objective, lr_batch.max_grad_norm)
                losses.append(loss)
                norms.append(norm)
                traces.append(trace)
        planned = lr_batch.epochs * lr_batch.minibatches
        update = Update(losses, norms, _joined(traces), lr, planned)
        self.applied += update.applied > 0
        return update

    def _step(
        self, batch: Batch, objective: Objective, max_grad_norm: float
    ) -> tuple[float, float, Trace]:
        """Accumulate the gradient of one mini-batch over micro-batches, then step once."""
        # one denominator for the whole optimizer step, whatever the micro-batches are
        weights_BT = objective.reduction(batch.response_BL)
        loss, traces = 0.0, []
        for rows in _microbatches(batch, self.micro_tokens):
            part = batch.rows(rows)
            term, trace = self._term(part, objective)
            part_loss = (term.loss_BT * weights_BT[rows, : part.ids_BL.shape[1]]).sum()
            part_loss.backward()  # type: ignore[no-untyped-call]
            loss += part_loss.item()
            traces.append(trace)
        norm = self._apply(loss, max_grad_norm)
        return loss, norm, _joined(traces)

    def _apply(self, loss: float, max_grad_norm: float) -> float:
        """Clip and step; return the norm before clipping.

        A gradient of exactly 0 takes no step: else Adam's momentum would go on moving a policy
        that got no signal.
        """
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm).item()
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.optimizer.zero_grad()
            raise FloatingPointError(
                f"loss {loss}, gradient norm {norm}: not finite; lower lr_batch.lr_scale, or"
                " tighten the clip"
            )
        if norm > 0:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def _term(self, batch: Batch, objective: Objective) -> tuple[PolicyTerm, Trace]:
        """Return the policy term of a micro-batch, and what there is to log of it."""
        stats = token_stats(self.model, batch, objective.temperature)
        mask_BT = batch.response_BL
        old_BT = batch.old_logprobs_BL.to(stats.logprobs_BL.dtype)
        term = objective.clip(stats.logprobs_BL, old_BT, batch.advantages_B, mask_BT)
        log_ratio_BT = (stats.logprobs_BL.detach() - old_BT).masked_fill(~mask_BT, 0.0)
        trace = Trace(
            log_ratio_N=log_ratio_BT[mask_BT],
            sequence_log_ratio_S=log_ratio_BT.sum(1) / mask_BT.sum(1).clamp(min=1),
            entropy_N=stats.entropy_BL[mask_BT],
            clipped_low_N=term.clipped_low_BT[mask_BT],
            clipped_high_N=term.clipped_high_BT[mask_BT],
        )
        return term, trace


def _minibatches(batch: Batch, count: int, order: np.random.Generator) -> Iterator[Tensor]:
    """Yield row numbers of up to `count` parts of near-equal group count; no group is split."""
    groups = order.permutation(torch.unique(batch.group_B).cpu().numpy())
    for part in np.array_split(groups, count):
        if len(part):
            chosen = torch.from_numpy(part).to(batch.group_B.device)
            yield torch.isin(batch.group_B, chosen).nonzero()[:, 0]


def _microbatches(batch: Batch, budget: int) -> Iterator[Tensor]:
    """Yield row numbers, longest rows first, so that rows * longest stays within the budget.

    A row longer than the budget goes alone. Sorting keeps padding small.
    """
    lengths = batch.attention_BL.sum(1)
    order = lengths.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        size = max(1, budget // int(lengths[order[start]]))
        yield order[start : start + size]
        start += size


_NUMBERS, _FLAGS = torch.zeros(0), torch.zeros(0, dtype=torch.bool)
_EMPTY = Trace(_NUMBERS, _NUMBERS, _NUMBERS, _FLAGS, _FLAGS)


def _joined(traces: list[Trace]) -> Trace:
    """Return several traces as one, on the CPU: metrics are computed there."""
    fields = Trace.__dataclass_fields__
    return Trace(**{name: torch.cat([getattr(t, name).cpu() for t in traces]) for name in fields})
