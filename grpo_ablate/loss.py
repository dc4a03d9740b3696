"""From token ids to log-probabilities, entropy and the loss of one optimizer step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grpo_ablate.logprobs import FULL_ELEMENTS, Head, chunked_stats, plain_head
from grpo_ablate.prefix import Prefix
from grpo_ablate.types import Advantages, Batch, Groups


@dataclass(frozen=True)
class TokenStats:
    """Of each token of a batch, given the ones before it."""

    logprobs_BL: Tensor
    """Natural log; carries the gradient."""
    entropy_BL: Tensor
    """Nats, of the policy at the token's place; carries a gradient only where asked for."""


def token_stats(
    model: PreTrainedModel,
    batch: Batch,
    temperature: float,
    entropy_gradient: bool = False,
    prefix: Prefix | None = None,
) -> TokenStats:
    """Run the model over a batch at the temperature its responses were sampled with.

    Args:
        model: the policy.
        batch: B rows.
        temperature: the sampler's, above 0.
        entropy_gradient: see `from_logits`.
        prefix: what the rows have before them, where that was computed already.

    Returns:
        Both statistics, aligned with batch.ids_BL; 0 at position 0, which nothing predicts, and
        where logits are many at every token that is not trained.
    """
    # without a prefix no mask is needed: padding comes after all that is trained
    before_BL = batch.ids_BL[:, :-1]  # nothing asks what comes after the last column
    inputs: dict[str, object] = {"input_ids": before_BL, "use_cache": False}
    if prefix is not None:
        inputs = prefix.inputs(before_BL, batch.attention_BL[:, :-1])
    head = None
    if batch.ids_BL.numel() * model.config.get_text_config().vocab_size > FULL_ELEMENTS:
        head = plain_head(model)
    if head is not None:
        return _trained_tokens(head, inputs, batch, temperature, entropy_gradient)
    logits = model(**inputs).logits
    stats = from_logits(logits, batch.ids_BL[:, 1:], temperature, entropy_gradient)
    pad = torch.nn.functional.pad
    return TokenStats(pad(stats.logprobs_BL, (1, 0)), pad(stats.entropy_BL, (1, 0)))


def _trained_tokens(
    head: Head,
    inputs: dict[str, object],
    batch: Batch,
    temperature: float,
    entropy_gradient: bool,
) -> TokenStats:
    """Do what `token_stats` does for trained tokens alone, in the memory of one chunk of logits."""
    hidden = head.decoder(**inputs).last_hidden_state
    rows_N, columns_N = batch.response_BL.nonzero(as_tuple=True)
    found = chunked_stats(
        hidden[rows_N, columns_N - 1],
        head.weight_VH,
        batch.ids_BL[rows_N, columns_N],
        temperature,
        entropy_gradient,
    )
    spread = (stat.new_zeros(batch.ids_BL.shape) for stat in found)
    return TokenStats(
        *(
            zeros.index_put((rows_N, columns_N), stat)
            for zeros, stat in zip(spread, found, strict=True)
        )
    )


def from_logits(
    logits_BLV: Tensor, ids_BL: Tensor, temperature: float, entropy_gradient: bool = False
) -> TokenStats:
    """Turn logits into the log-probability of given tokens and the entropy behind them.

    logprob = log softmax(logits / temperature)[token];  entropy = -sum p log p

    Without the division an on-policy ratio would not be 1 unless the temperature is. Computed in
    float32 at least.

    Args:
        logits_BLV: what predicts each token.
        ids_BL: the tokens.
        temperature: above 0.
        entropy_gradient: whether the entropy carries a gradient, as an entropy bonus needs; costs
            another tensor of the logits' size.

    Returns:
        Both statistics [B, L].
    """
    logits_BLV = logits_BLV.to(torch.promote_types(logits_BLV.dtype, torch.float32))
    logprobs_BLV = (logits_BLV / temperature).log_softmax(-1)
    chosen_BL = logprobs_BLV.gather(-1, ids_BL[..., None])[..., 0]
    source_BLV = logprobs_BLV if entropy_gradient else logprobs_BLV.detach()
    return TokenStats(chosen_BL, -(source_BLV.exp() * source_BLV).sum(-1))


def pack(groups: Groups, advantages: Advantages, pad_id: int, device: torch.device) -> Batch:
    """Lay the kept responses out as right-padded rows, prompt first.

    Args:
        groups: a rollout; rows with keep False are left out, rows with train False are there
            without a trained token.
        advantages: one value a response.
        pad_id: fills the padding; attention masks it.
        device: of the result.

    Returns:
        One row for each kept response, in order; B may be 0.
    """
    flat = groups.keep_PG.flatten().nonzero()[:, 0].tolist()
    prompts = [groups.prompt_ids[i // groups.group_size] for i in flat]
    width = max(
        (len(p) + len(groups.completions.ids[i]) for p, i in zip(prompts, flat, strict=True)),
        default=0,
    )
    ids = torch.full((len(flat), width), pad_id)
    attention, response = torch.zeros(ids.shape).bool(), torch.zeros(ids.shape).bool()
    old = torch.zeros(ids.shape, dtype=torch.float64)
    for row, (prompt, i) in enumerate(zip(prompts, flat, strict=True)):
        completion = groups.completions.ids[i]
        start, end = len(prompt), len(prompt) + len(completion)
        ids[row, :end] = torch.tensor([*prompt, *completion])
        attention[row, :end] = True
        response[row, start:end] = True
        old[row, start:end] = torch.tensor(groups.completions.logprobs[i], dtype=torch.float64)
    batch = Batch(
        ids_BL=ids,
        attention_BL=attention,
        response_BL=response & groups.train_PG.flatten()[flat][:, None],
        old_logprobs_BL=old,
        ref_logprobs_BL=torch.zeros_like(old),
        weights_BL=torch.ones_like(old),
        advantages_B=advantages.values_PG.flatten()[flat],
        group_B=torch.tensor([i // groups.group_size for i in flat], dtype=torch.long),
        rewards_B=groups.rewards_PG.flatten()[flat],
    )
    return Batch(**{name: getattr(batch, name).to(device) for name in Batch.__dataclass_fields__})
