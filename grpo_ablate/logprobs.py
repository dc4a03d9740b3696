"""Log-probability and entropy of given tokens without ever holding all their logits."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

TILE_ELEMENTS = {"cpu": 2**20, "cuda": 2**26}
"""Logits held at once: what a core's cache holds, and what keeps a GPU busy (256 MiB)."""

FULL_ELEMENTS = 2**27
"""Logits of a forward pass up to here are taken in full, for a peak of about 2 GiB in float32."""


_heads: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
"""Whether each model asked so far has a plain head."""


@dataclass(frozen=True)
class Head:
    """A model in two parts: logits = projection(decoder(ids))."""

    decoder: nn.Module
    weight_VH: Tensor


def plain_head(model: PreTrainedModel) -> Head | None:
    """Take a model apart where its logits are nothing but a linear map of its hidden states.

    Asked of the model itself, by one forward pass over two tokens: a bias, a soft cap or a scale
    of the logits gives other numbers than the projection alone, whatever its option is called.

    Args:
        model: any causal language model.

    Returns:
        Its parts; None where only its own forward knows the logits.
    """
    projection = model.get_output_embeddings()
    decoder = model.get_decoder()
    names = [name for name, _ in projection.named_parameters()]
    if type(projection) is not nn.Linear or names != ["weight"] or decoder is model:
        return None
    if model not in _heads:
        ids = torch.arange(2, device=model.device)[None]
        with torch.no_grad():
            logits = model(input_ids=ids).logits
            hidden = decoder(input_ids=ids).last_hidden_state
            _heads[model] = torch.equal(logits, projection(hidden))
    return Head(decoder, projection.weight) if _heads[model] else None


def chunked_stats(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    ids_N: Tensor,
    temperature: float,
    entropy_gradient: bool = False,
    elements: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute what `loss.from_logits` does, a tile of tokens × vocabulary at a time.

    logprob = (z - logsumexp z)[token];  entropy = -sum p log p;  z = hidden W' / T

    The logits are computed again in the backward pass, so that memory beyond inputs and gradients
    is that of one tile.

    Args:
        hidden_NH: what predicts each token.
        weight_VH: the projection's weight.
        ids_N: the tokens.
        temperature: above 0.
        entropy_gradient: whether the entropy carries a gradient.
        elements: logits in one tile; None for what suits the device.

    Returns:
        Log-probability and entropy [N], float32 at least.
    """
    elements = elements or TILE_ELEMENTS.get(hidden_NH.device.type, TILE_ELEMENTS["cuda"])
    # four times wider than high: measured best, and it does not matter much
    rows = max(1, math.isqrt(elements // 4))
    tile = (rows, max(1, elements // rows))
    chosen_N, entropy_N = _Chunked.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, ids_N, temperature, tile
    )
    return chosen_N, entropy_N if entropy_gradient else entropy_N.detach()


class _Chunked(torch.autograd.Function):
    """With p = softmax z and H the entropy: d logprob/dz = onehot - p; dH/dz = -p (log p + H)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        ids_N: Tensor,
        temperature: float,
        tile: tuple[int, int],
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        parts = [
            _Running.over(hidden_CH, weight_VH, ids_C, temperature, tile[1])
            for hidden_CH, ids_C in zip(
                torch.split(hidden_NH, tile[0]), torch.split(ids_N, tile[0]), strict=True
            )
        ]
        lse_N = torch.cat([part.logsumexp() for part in parts])
        entropy_N = torch.cat([part.entropy() for part in parts])
        chosen_N = torch.cat([part.chosen_C for part in parts]) - lse_N
        ctx.save_for_backward(hidden_NH, weight_VH, ids_N, entropy_N, lse_N)
        ctx.temperature, ctx.tile = temperature, tile
        return chosen_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, ids_N, entropy_N, lse_N = ctx.saved_tensors
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        # sums over tiles in float32 at least, whatever the weights are
        wide = lse_N.dtype
        hidden_grad_NH = torch.zeros_like(hidden_NH, dtype=wide) if need_hidden else None
        weight_grad_VH = torch.zeros_like(weight_VH) if need_weight else None
        for columns in _slices(len(weight_VH), ctx.tile[1]):
            weight_UH = weight_VH[columns]
            sum_UH = torch.zeros_like(weight_UH, dtype=wide)
            for rows in _slices(len(hidden_NH), ctx.tile[0]):
                z_CU = _logits(hidden_NH[rows], weight_UH, ctx.temperature)
                pull = [None if grad is None else grad[rows, None] for grad in grads]
                grad_CU = _pulled(z_CU.sub_(lse_N[rows, None]), entropy_N[rows, None], *pull)
                if pull[0] is not None:
                    at_C1, inside_C1 = _within(ids_N[rows], columns)
                    grad_CU.scatter_add_(1, at_C1, pull[0] * inside_C1)
                grad_CU = grad_CU.div_(ctx.temperature).to(weight_VH.dtype)
                if hidden_grad_NH is not None:
                    _add_product(hidden_grad_NH[rows], grad_CU, weight_UH)
                if need_weight:
                    _add_product(sum_UH, grad_CU.T, hidden_NH[rows])
            if weight_grad_VH is not None:
                weight_grad_VH[columns] = sum_UH
        if hidden_grad_NH is not None:
            hidden_grad_NH = hidden_grad_NH.to(hidden_NH.dtype)
        return hidden_grad_NH, weight_grad_VH, None, None, None


@dataclass
class _Running:
    """What a softmax over the vocabulary leaves, gathered from one slice of it after another.

    With m the largest logit so far, s = sum exp(z - m) and t = sum exp(z - m) (z - m):
    logsumexp = m + log s;  entropy = log s - t / s, two terms that are never negative, so that no
    digits cancel.
    """

    largest_C: Tensor
    sum_C: Tensor
    moment_C: Tensor
    chosen_C: Tensor

    @classmethod
    def over(
        cls, hidden_CH: Tensor, weight_VH: Tensor, ids_C: Tensor, temperature: float, width: int
    ) -> _Running:
        """Go through the vocabulary, `width` tokens at a time."""
        first_CU = _logits(hidden_CH, weight_VH[:1], temperature)
        zero_C = torch.zeros_like(first_CU[:, 0])
        running = cls(first_CU[:, 0], zero_C, zero_C.clone(), zero_C.clone())
        for columns in _slices(len(weight_VH), width):
            z_CU = _logits(hidden_CH, weight_VH[columns], temperature)
            at_C1, inside_C1 = _within(ids_C, columns)
            running.chosen_C += (z_CU.gather(1, at_C1) * inside_C1)[:, 0]
            running._add(z_CU)
        return running

    def _add(self, z_CU: Tensor) -> None:
        largest_C = torch.maximum(self.largest_C, z_CU.amax(1))
        down_C = self.largest_C - largest_C
        factor_C = down_C.exp()
        z_CU.sub_(largest_C[:, None])
        p_CU = z_CU.exp()
        self.moment_C = factor_C * (self.moment_C + down_C * self.sum_C)
        self.moment_C += torch.linalg.vecdot(p_CU, z_CU)
        self.sum_C = factor_C * self.sum_C + p_CU.sum(1)
        self.largest_C = largest_C

    def logsumexp(self) -> Tensor:
        return self.largest_C + self.sum_C.log()

    def entropy(self) -> Tensor:
        return self.sum_C.log() - self.moment_C / self.sum_C


def _pulled(
    logp_CU: Tensor, entropy_C1: Tensor, chosen_C1: Tensor | None, pull_C1: Tensor | None
) -> Tensor:
    """Return the gradient of a tile's logits but for the chosen tokens' own; spends `logp_CU`."""
    if pull_C1 is None:
        return logp_CU.exp_().mul_(0.0 if chosen_C1 is None else -chosen_C1)
    p_CU = logp_CU.exp()
    factor_CU = logp_CU.add_(entropy_C1).mul_(-pull_C1)
    return p_CU.mul_(factor_CU if chosen_C1 is None else factor_CU.sub_(chosen_C1))


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right in the precision of the total."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)


def _within(ids_C: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Return each token's place in a slice of the vocabulary, and whether it is there at all."""
    place_C1 = ids_C[:, None] - columns.start
    size = columns.stop - columns.start
    inside_C1 = (place_C1 >= 0) & (place_C1 < size)
    return place_C1.where(inside_C1, 0), inside_C1


def _slices(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _logits(hidden_CH: Tensor, weight_UH: Tensor, temperature: float) -> Tensor:
    """Return a tile's logits over the temperature, float32 at least."""
    logits_CU = hidden_CH @ weight_UH.T
    return logits_CU.to(torch.promote_types(logits_CU.dtype, torch.float32)).div_(temperature)
