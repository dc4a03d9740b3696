"""Sampling where a model's keys and values may be handled: what is shared or over is not computed.

A group's prompt is computed once. Responses that have ended leave the batch. New keys and values
are written beside the old ones, which are not copied. Where a model does not allow this,
transformers' own `generate` does the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from grpo_ablate.prefix import Prompts, continues

KEPT = 0.75
"""Share of rows still going below which the ended ones are taken out: that copies the others."""

Draw = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(logits [R, V], row numbers [R], position) → tokens and their log-probabilities, [R] each."""


def able(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> bool:
    """Tell whether `sample` can do it; the last token of a prompt is not part of what is shared."""
    return min(map(len, rows)) > 1 and continues(model)


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    rows: Sequence[Sequence[int]],
    tokens: int,
    eos_ids: Sequence[int],
    draw: Draw,
) -> tuple[Tensor, Tensor]:
    """Continue each row until it ends.

    Args:
        model: causal language model.
        rows: [B] token ids; equal ones are computed once. At least two tokens each.
        tokens: most new tokens a row.
        eos_ids: tokens that end a row.
        draw: chooses the next tokens.

    Returns:
        Token ids and log-probabilities [B, T], on the CPU; what follows a row's first
        end-of-sequence token means nothing.
    """
    device = model.device
    ids_BT = torch.zeros(len(rows), tokens, dtype=torch.long, device=device)
    logprobs_BT = torch.zeros(len(rows), tokens, device=device, dtype=torch.float64)
    eos = torch.tensor(list(eos_ids), device=device)
    row_R = torch.arange(len(rows), device=device)
    going_R = torch.ones_like(row_R).bool()
    last_R = torch.tensor([row[-1] for row in rows], device=device)
    state = _prefilled(model, rows, tokens)
    for position in range(tokens):
        last_R, found_R = draw(state.logits(last_R), row_R, position)
        ids_BT[row_R, position] = last_R
        logprobs_BT[row_R, position] = found_R.to(logprobs_BT.dtype)
        going_R = going_R & ~torch.isin(last_R, eos)
        left = int(going_R.sum())
        if not left:
            break
        if left <= KEPT * len(going_R):
            chosen = going_R.nonzero()[:, 0]
            state.keep(chosen)
            row_R, last_R, going_R = row_R[chosen], last_R[chosen], going_R[chosen]
    return ids_BT.cpu(), logprobs_BT.cpu()


def _prefilled(model: PreTrainedModel, rows: Sequence[Sequence[int]], tokens: int) -> _State:
    """Compute each different prompt once, its last token aside."""
    numbers = {prompt: i for i, prompt in enumerate(dict.fromkeys(map(tuple, rows)))}
    lengths_P = torch.tensor([len(prompt) - 1 for prompt in numbers], device=model.device)
    width = int(lengths_P.max())
    padded = [(*prompt[:-1], *[prompt[0]] * (width + 1 - len(prompt))) for prompt in numbers]
    prompts = Prompts(model, torch.tensor(padded, device=model.device), lengths_P)
    which_R = torch.tensor([numbers[tuple(row)] for row in rows], device=model.device)
    prefix = prompts.prefix(which_R)
    cache = Cache(layers=[_Room(keys, values, tokens) for keys, values in prefix.layers])
    return _State(model, cache, prompts.argument, prefix.mask_RL, lengths_P[which_R])


class _State:
    """What R rows have behind them."""

    def __init__(
        self,
        model: PreTrainedModel,
        cache: Cache,
        argument: str,
        mask_RL: Tensor,
        position_R: Tensor,
    ) -> None:
        self.model, self.cache, self.argument = model, cache, argument
        self.mask_RL, self.position_R = mask_RL, position_R
        self.padded = not bool(mask_RL.all())

    def logits(self, last_R: Tensor) -> Tensor:
        """Add one token a row; return the logits [R, V] of the next."""
        self.mask_RL = torch.nn.functional.pad(self.mask_RL, (0, 1), value=True)
        inputs: dict[str, Any] = {self.argument: self.cache}
        if self.padded:
            inputs["attention_mask"] = self.mask_RL.long()
        out = self.model(
            input_ids=last_R[:, None],
            position_ids=self.position_R[:, None],
            use_cache=True,
            **inputs,
        )
        self.position_R = self.position_R + 1
        logits: Tensor = out.logits[:, -1]
        return logits

    def keep(self, chosen_R: Tensor) -> None:
        """Go on with some of the rows."""
        self.cache.batch_select_indices(chosen_R)
        self.mask_RL, self.position_R = self.mask_RL[chosen_R], self.position_R[chosen_R]


class _Room(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer with room for those to come."""

    def __init__(self, keys: Tensor, values: Tensor, more: int) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self._room = [torch.nn.functional.pad(t, (0, 0, 0, more)) for t in (keys, values)]
        self._show(keys.shape[-2])

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values behind the others; return all."""
        start = self.get_seq_length()
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : start + new.shape[-2]] = new
        self._show(start + key_states.shape[-2])
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        self._room = [room[indices] for room in self._room]
        self._show(self.keys.shape[-2])

    def _show(self, length: int) -> None:
        self.keys, self.values = (room[:, :, :length] for room in self._room)
