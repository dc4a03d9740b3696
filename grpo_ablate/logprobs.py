"""Log-probability and entropy of given tokens without ever holding all their logits."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

CHUNK_ELEMENTS = 2**25
"""Logits held at once, 128 MiB in float32."""

FULL_ELEMENTS = 2**27
"""Logits of a forward pass up to here are taken in full: quicker by the backward pass's second
projection (`scripts/bench/bench_logprob.py`: 1.3 times), for a peak of about 2 GiB in float32."""


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
    elements: int = CHUNK_ELEMENTS,
) -> tuple[Tensor, Tensor]:
    """Compute what `loss.from_logits` does, a chunk of tokens at a time.

    logprob = (z - logsumexp z)[token];  entropy = -sum p log p;  z = hidden W' / T

    The logits are computed again in the backward pass, so that memory beyond inputs and gradients
    is that of one chunk.

    Args:
        hidden_NH: what predicts each token.
        weight_VH: the projection's weight.
        ids_N: the tokens.
        temperature: above 0.
        entropy_gradient: whether the entropy carries a gradient.
        elements: logits in one chunk, at least one token's.

    Returns:
        Log-probability and entropy [N], float32 at least.
    """
    rows = max(1, elements // weight_VH.shape[0])
    chosen_N, entropy_N = _Chunked.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, ids_N, temperature, rows
    )
    return chosen_N, entropy_N if entropy_gradient else entropy_N.detach()


class _Chunked(torch.autograd.Function):
    """With p = softmax z and H the entropy: d logprob/dz = onehot - p; dH/dz = -p (log p + H)."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, ids_N: Tensor, temperature: float, rows: int
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        chosen, entropy, normaliser = [], [], []
        for hidden_CH, ids_C in zip(
            torch.split(hidden_NH, rows), torch.split(ids_N, rows), strict=True
        ):
            z_CV = _logits(hidden_CH, weight_VH, temperature)
            lse_C = z_CV.logsumexp(-1)
            logp_CV = z_CV.sub_(lse_C[:, None])
            chosen.append(logp_CV.gather(-1, ids_C[:, None])[:, 0])
            # not lse - sum p z: the difference of two large numbers loses digits
            entropy.append(-torch.linalg.vecdot(logp_CV.exp(), logp_CV))
            normaliser.append(lse_C)
        entropy_N, lse_N = torch.cat(entropy), torch.cat(normaliser)
        ctx.save_for_backward(hidden_NH, weight_VH, ids_N, entropy_N, lse_N)
        ctx.temperature, ctx.rows = temperature, rows
        return torch.cat(chosen), entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, ids_N, entropy_N, lse_N = ctx.saved_tensors
        chosen_grad_N, entropy_grad_N = grads
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        hidden_grad_NH = torch.empty_like(hidden_NH) if need_hidden else None
        weight_grad_VH = torch.zeros_like(weight_VH) if need_weight else None
        for start in range(0, len(hidden_NH), ctx.rows):
            part = slice(start, start + ctx.rows)
            hidden_CH = hidden_NH[part]
            logp_CV = _logits(hidden_CH, weight_VH, ctx.temperature).sub_(lse_N[part, None])
            p_CV = logp_CV.exp()
            if entropy_grad_N is None:
                grad_CV = p_CV.mul_(0.0 if chosen_grad_N is None else -chosen_grad_N[part, None])
            else:
                factor_CV = logp_CV.add_(entropy_N[part, None]).mul_(-entropy_grad_N[part, None])
                if chosen_grad_N is not None:
                    factor_CV.sub_(chosen_grad_N[part, None])
                grad_CV = p_CV.mul_(factor_CV)
            if chosen_grad_N is not None:
                grad_CV.scatter_add_(1, ids_N[part, None], chosen_grad_N[part, None])
            grad_CV = grad_CV.div_(ctx.temperature).to(weight_VH.dtype)
            if hidden_grad_NH is not None:
                hidden_grad_NH[part] = grad_CV @ weight_VH
            if weight_grad_VH is not None:
                weight_grad_VH.addmm_(grad_CV.T, hidden_CH)
        return hidden_grad_NH, weight_grad_VH, None, None, None


def _logits(hidden_CH: Tensor, weight_VH: Tensor, temperature: float) -> Tensor:
    """Return one chunk's logits over the temperature, float32 at least."""
    logits_CV = hidden_CH @ weight_VH.T
    return logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32)).div_(temperature)
