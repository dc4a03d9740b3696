"""The optimizer steps of one rollout (Hydra group `learner`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from grpo_ablate import ranks
from grpo_ablate.knobs import Count, Decay, NonNegative, Positive
from grpo_ablate.loss import token_stats
from grpo_ablate.models import Policy
from grpo_ablate.plans import Correction, LrBatch, Regularizer
from grpo_ablate.prefix import Prefix, views
from grpo_ablate.ratios import log_ratio
from grpo_ablate.recompute import recomputed
from grpo_ablate.rows import minibatches, own_rows
from grpo_ablate.techniques import regularizer
from grpo_ablate.types import Batch, PolicyTerm, Trace, Update

_KL = regularizer.kl(estimator="k3", coefficient=1.0).loss
"""How the distance to the reference is logged, whatever the arm's own estimator."""

Guard = Callable[[float, float, Batch], Literal["apply", "skip", "halt"]]
"""Asked (gradient norm, loss, mini-batch) before each optimizer step: take it, leave it out, or
stop the whole update. After a halt the caller puts the weights of the step's start back."""


@dataclass(frozen=True)
class Objective:
    """The loss as bound techniques: a token term, what is added to it, and their averaging.

    loss = sum of reduction weights * (tis weights * clip term + regularizer term)
    """

    clip: Callable[[Tensor, Tensor, Tensor, Tensor], PolicyTerm]
    reduction: Callable[[Tensor, Tensor], Tensor]
    regularizer: Regularizer
    correction: Correction
    temperature: float
    reference: PreTrainedModel | None
    """The model before the first update; None where the regularizer needs none."""
    trust_sampler: bool = True
    """Take the sampler's log-probabilities for the learner's own, as they are where the engine
    samples from the learner's model. Else another forward pass computes them (K18)."""


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
        gradient_checkpointing: bool = False,
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
            gradient_checkpointing: keep the input of each layer alone and compute the rest again in
                the backward pass: less memory, more time, the same gradient.
        """
        self.model = policy.model
        self.micro_tokens = micro_tokens
        self.recompute = gradient_checkpointing
        self.applied = 0
        """Rollouts that moved the weights: the clock of the learning-rate schedule."""
        self.optimizer = torch.optim.AdamW(
            self._trained().values(),
            betas=(beta1, beta2),
            eps=eps,
            weight_decay=weight_decay,
            fused=True,
        )

    def update(
        self,
        batch: Batch,
        objective: Objective,
        lr_batch: LrBatch,
        steps: int,
        base_lr: float,
        order: np.random.Generator,
        guard: Guard | None = None,
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
            guard: may leave a step out; None: a loss or gradient that is no number is an error.

        Returns:
            What happened, token by token.

        Raises:
            FloatingPointError: no guard, and loss or gradient is not a number; the weights are as
                before.
        """
        lr = lr_batch.lr(self.applied, steps, base_lr)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        batch, mismatch_N = self._prepared(batch, objective)
        losses, norms, traces, skipped = [], [], [], 0
        planned = lr_batch.epochs * lr_batch.minibatches
        for _ in range(lr_batch.epochs):
            for rows in minibatches(batch, lr_batch.minibatches, order):
                part = batch.rows(rows)
                loss, norm, trace = self._accumulate(part, objective, lr_batch.max_grad_norm)
                verdict = (guard or _finite)(norm, loss, part)
                if verdict == "apply":
                    self._apply(norm)
                    losses.append(loss)
                    norms.append(norm)
                    traces.append(trace)
                self.optimizer.zero_grad()
                skipped += verdict == "skip"
                if verdict == "halt":
                    trace = _joined(traces)
                    return Update(losses, norms, trace, lr, planned, skipped, True, mismatch_N)
        trace = _joined(traces)
        update = Update(losses, norms, trace, lr, planned, skipped, mismatch_N=mismatch_N)
        self.applied += update.applied > 0
        return update

    def state(self) -> dict[str, Tensor]:
        """Return a copy of all that `load_state` needs: trained weights, AdamW's memory, clock."""
        named = self._trained()
        copies = {f"model.{name}": p.detach().cpu().clone() for name, p in named.items()}
        for name, parameter in named.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                copies[f"optimizer.{key}.{name}"] = value.detach().cpu().clone()
        return copies | {"optimizer.applied": torch.tensor(self.applied)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Become the learner that `state` was taken from."""
        self.applied = int(state["optimizer.applied"])
        self.optimizer.state.clear()
        for name, parameter in self._trained().items():
            parameter.data.copy_(state[f"model.{name}"])
            for key in ("step", "exp_avg", "exp_avg_sq"):
                value = state.get(f"optimizer.{key}.{name}")
                if value is not None:
                    # a fused step counts on the device itself
                    self.optimizer.state[parameter][key] = value.to(parameter.device).clone()

    def _trained(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights that learn by name: all of them, or an adapter's."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def _accumulate(
        self, batch: Batch, objective: Objective, max_grad_norm: float
    ) -> tuple[float, float, Trace]:
        """Accumulate the gradient of one mini-batch over micro-batches and clip it.

        Returns:
            Loss, gradient norm before clipping, trace.
        """
        # one denominator for the whole optimizer step, whatever the micro-batches are
        weights_BL = objective.reduction(batch.response_BL, batch.group_B)
        loss, traces = 0.0, []
        # a shared prompt's keys and values would be added again by the second forward pass
        parts = views(
            self.model, batch, own_rows(batch), self.micro_tokens, share=not self.recompute
        )
        with recomputed(self.model, self.recompute):
            for view in parts:
                loss_BL, trace = self._term(view.of(batch), objective, view.prefix)
                part_loss = (loss_BL * view.cut(weights_BL)).sum()
                part_loss.backward()  # type: ignore[no-untyped-call]
                loss += part_loss.item()
                traces.append(trace)
        ranks.sum_gradients(self._trained().values())
        norm = torch.nn.utils.clip_grad_norm_(self._trained().values(), max_grad_norm).item()
        return sum(ranks.gather(loss)), norm, _joined(ranks.gather(_joined(traces)))

    def _apply(self, norm: float) -> None:
        """Step, unless the gradient is exactly 0.

        Else Adam's momentum would go on moving a policy that got no signal.
        """
        if norm > 0:
            self.optimizer.step()

    def _term(
        self, batch: Batch, objective: Objective, prefix: Prefix | None
    ) -> tuple[Tensor, Trace]:
        """Return the token losses of a micro-batch, and what there is to log of it."""
        entropy_gradient = objective.regularizer.entropy
        stats = token_stats(self.model, batch, objective.temperature, entropy_gradient, prefix)
        mask_BL, dtype = batch.response_BL, stats.logprobs_BL.dtype
        old_BL, ref_BL = batch.old_logprobs_BL.to(dtype), batch.ref_logprobs_BL.to(dtype)
        term = objective.clip(stats.logprobs_BL, old_BL, batch.advantages_B, mask_BL)
        extra_BL = objective.regularizer.loss(stats.logprobs_BL, ref_BL, stats.entropy_BL, mask_BL)
        new_BL, entropy_BL = stats.logprobs_BL.detach(), stats.entropy_BL.detach()
        log_ratio_BL = log_ratio(new_BL, old_BL, mask_BL)
        kl_N = new_BL.new_zeros(0)
        if objective.reference:
            kl_N = _KL(new_BL, ref_BL, entropy_BL, mask_BL)[mask_BL]
        trace = Trace(
            log_ratio_N=log_ratio_BL[mask_BL],
            sequence_log_ratio_S=log_ratio_BL.sum(1) / mask_BL.sum(1),
            entropy_N=entropy_BL[mask_BL],
            clipped_low_N=term.clipped_low_BT[mask_BL],
            clipped_high_N=term.clipped_high_BT[mask_BL],
            capped_N=term.capped_BT[mask_BL],
            unbounded_N=term.unbounded_BT[mask_BL],
            kl_N=kl_N,
            regularizer_N=extra_BL.detach()[mask_BL],
            weight_N=batch.weights_BL[mask_BL],
        )
        return batch.weights_BL.to(dtype) * term.loss_BT + extra_BL, trace

    def _prepared(self, batch: Batch, objective: Objective) -> tuple[Batch, Tensor | None]:
        """Add what only another forward pass over the whole rollout can tell.

        Returns:
            The batch, and how far the sampler was from the learner where that was measured.
        """
        mismatch_N = None
        if objective.correction.weights or not objective.trust_sampler:
            sampler_BL, mask_BL = batch.old_logprobs_BL, batch.response_BL
            own_BL = self._logprobs(self.model, batch, objective.temperature)
            mismatch_N = (own_BL - sampler_BL)[mask_BL].abs().cpu()
            batch = replace(batch, old_logprobs_BL=own_BL)
            if objective.correction.weights:
                weights_BL = objective.correction.weights(own_BL, sampler_BL, mask_BL)
                batch = replace(batch, weights_BL=weights_BL)
        if objective.reference:
            ref_BL = self._logprobs(objective.reference, batch, objective.temperature)
            batch = replace(batch, ref_logprobs_BL=ref_BL)
        return batch, mismatch_N

    @torch.no_grad()
    def _logprobs(self, model: PreTrainedModel, batch: Batch, temperature: float) -> Tensor:
        """Return the log-probabilities of a whole rollout under a model, float64 [B, L]."""
        found_BL = torch.zeros_like(batch.old_logprobs_BL)
        for view in views(model, batch, own_rows(batch), self.micro_tokens):
            stats = token_stats(model, view.of(batch), temperature, prefix=view.prefix)
            view.put(stats.logprobs_BL, found_BL)
        ranks.sum_(found_BL)
        return found_BL.masked_fill(~batch.response_BL, 0.0)


def _finite(norm: float, loss: float, batch: Batch) -> Literal["apply"]:
    """Guard a learner that stands alone."""
    if not (math.isfinite(norm) and math.isfinite(loss)):
        raise FloatingPointError(not_finite(loss, norm))
    return "apply"


def not_finite(loss: float, norm: float) -> str:
    """Say what is not a number, and the remedy."""
    return (
        f"loss {loss}, gradient norm {norm}: not finite; lower lr_batch.lr_scale, or tighten the"
        " clip"
    )


def _joined(traces: list[Trace]) -> Trace:
    """Return several traces as one, on the CPU: metrics are computed there."""
    nothing = torch.zeros(0, dtype=torch.bool)
    parts = {
        name: [getattr(trace, name).cpu() for trace in traces] or [nothing]
        for name in Trace.__dataclass_fields__
    }
    return Trace(**{name: torch.cat(tensors) for name, tensors in parts.items()})
