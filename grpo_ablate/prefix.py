"""The prompt computed once a group, forward and backward, instead of once a response.

The responses of a group continue one prompt. Its keys and values are computed once; each response
reads them; what the responses' backward passes leave on them goes through the prompt in one more.
Loss and gradient are those of whole rows, sums taken in another order.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from grpo_ablate.types import Batch

WORTH = 0.1
"""Least share of a mini-batch's tokens that sharing must save: it costs a pass of its own."""

_able: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
"""Whether each model asked so far goes on from keys and values as from the tokens themselves."""


@dataclass(frozen=True)
class View:
    """Some rows of a batch as one forward pass takes them, without what they share with others."""

    rows: Tensor
    start_R: Tensor
    """Columns of each row that are left out; 0 where nothing is shared."""
    width: int
    prefix: Prefix | None

    def of(self, batch: Batch) -> Batch:
        """Return these rows as a batch of their own."""
        fields = {name: getattr(batch, name) for name in Batch.__dataclass_fields__}
        return Batch(
            **{n: self.cut(t) if n.endswith("_BL") else t[self.rows] for n, t in fields.items()}
        )

    def cut(self, whole_BL: Tensor) -> Tensor:
        """Return these rows' columns of anything with a value a token, 0 past the last column."""
        columns_RL = self._columns()
        inside_RL = columns_RL < whole_BL.shape[1]
        part_RL = whole_BL[self.rows].gather(1, columns_RL.where(inside_RL, 0))
        return part_RL.masked_fill(~inside_RL, 0)

    def put(self, part_RL: Tensor, whole_BL: Tensor) -> None:
        """Write into `whole_BL` what `cut` would return of it."""
        columns_RL = self._columns()
        inside_RL = columns_RL < whole_BL.shape[1]
        rows_RL = self.rows[:, None].expand_as(columns_RL)
        whole_BL[rows_RL[inside_RL], columns_RL[inside_RL]] = part_RL[inside_RL].to(whole_BL.dtype)

    def _columns(self) -> Tensor:
        return self.start_R[:, None] + torch.arange(self.width, device=self.start_R.device)


@dataclass(frozen=True)
class Prefix:
    """What R rows have before them: keys and values of their prompts, padded on the right."""

    layers: list[tuple[Tensor, Tensor]]
    """[R, heads, width, head size] each."""
    mask_RL: Tensor
    argument: str
    """What this version of transformers calls a cache."""

    def inputs(self, ids_RL: Tensor, attention_RL: Tensor) -> dict[str, object]:
        """Return what a model is called with to go on after the prompts.

        Args:
            ids_RL: tokens after the prompts, padded on the right.
            attention_RL: bool; False on padding.
        """
        columns_L = torch.arange(ids_RL.shape[1], device=ids_RL.device)
        return {
            "input_ids": ids_RL,
            "attention_mask": torch.cat([self.mask_RL, attention_RL], 1).long(),
            "position_ids": self.mask_RL.sum(1, keepdim=True) + columns_L,
            "use_cache": True,
            self.argument: DynamicCache(self.layers),
        }


def views(
    model: PreTrainedModel, batch: Batch, rows_R: Tensor, micro_tokens: int, share: bool = True
) -> Iterator[View]:
    """Yield rows of a batch in micro-batches, longest first; prompts are shared where that pays.

    The gradient is whole once the iterator has ended: take them all, backward on each.

    Args:
        model: that will be run on them.
        batch: B rows.
        rows_R: which of them; each has a trained token.
        micro_tokens: padded tokens in one forward pass; a longer row goes alone.
        share: False for whole rows, whatever they share.
    """
    start_R, lead_R = _shared(batch, rows_R)
    if share and _pays(batch, rows_R, start_R, lead_R) and continues(model):
        yield from _shared_views(model, batch, rows_R, start_R, lead_R, micro_tokens)
        return
    lengths_R = batch.attention_BL[rows_R].sum(1)
    for part in microbatches(lengths_R, micro_tokens):
        yield View(rows_R[part], start_R[part] * 0, int(lengths_R[part].max()), None)


def _shared_views(
    model: PreTrainedModel,
    batch: Batch,
    rows_R: Tensor,
    start_R: Tensor,
    lead_R: Tensor,
    micro_tokens: int,
) -> Iterator[View]:
    rest_R = batch.attention_BL[rows_R].sum(1) - start_R
    leads = torch.unique(lead_R)
    # prompts stay in memory while their responses are computed: give them a small part of it
    for chunk in microbatches(start_R[leads], micro_tokens // 4):
        chosen = leads[chunk]
        prompts = Prompts(model, batch.ids_BL[rows_R[chosen]], start_R[chosen])
        members = torch.isin(lead_R, chosen).nonzero()[:, 0]
        for part in microbatches(rest_R[members], micro_tokens):
            row = members[part]
            which = (lead_R[row][:, None] == chosen).int().argmax(1)
            yield View(rows_R[row], start_R[row], int(rest_R[row].max()), prompts.prefix(which))
        prompts.backward()


def _pays(batch: Batch, rows_R: Tensor, start_R: Tensor, lead_R: Tensor) -> bool:
    """Tell whether every row shares something, and enough of it."""
    if not len(rows_R) or start_R.min() < 1:
        return False
    saved = start_R.sum() - start_R[torch.unique(lead_R)].sum()
    return bool(saved >= WORTH * batch.attention_BL[rows_R].sum())


def microbatches(lengths_B: Tensor, budget: int) -> Iterator[Tensor]:
    """Yield row numbers, longest rows first, so that rows * longest stays within the budget.

    A row longer than the budget goes alone. Sorting keeps padding small.
    """
    order = lengths_B.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        size = max(1, budget // int(lengths_B[order[start]]))
        yield order[start : start + size]
        start += size


@torch.no_grad()
def continues(model: PreTrainedModel) -> bool:
    """Tell whether a model may be given keys and values for the tokens before.

    Asked of the model itself: four tokens at once against two and two. Sliding windows, states
    that are not keys and values, and models that answer otherwise are left to whole rows.
    """
    if model not in _able:
        layers = DynamicCache(config=model.config).layers
        plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        _able[model] = plain and _argument(model) is not None and _goes_on(model)
    return _able[model]


def _goes_on(model: PreTrainedModel) -> bool:
    ids = torch.arange(4, device=model.device)[None] % model.config.get_text_config().vocab_size
    whole = model(input_ids=ids).logits[:, 2:].float()
    prefix = Prompts(model, ids, torch.tensor([2], device=ids.device)).prefix(ids[0, :1] * 0)
    parts = model(**prefix.inputs(ids[:, 2:], torch.ones_like(ids[:, 2:]).bool())).logits.float()
    tolerance = 100 * torch.finfo(model.dtype).eps * float(whole.abs().max())
    return torch.allclose(parts, whole, rtol=0, atol=tolerance)


def _argument(model: PreTrainedModel) -> str | None:
    """Return the name of the decoder's argument for a cache; None where it takes none."""
    taken = inspect.signature(model.get_decoder().forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in taken), None)


class Prompts:
    """P prompts, computed once. What reads them reads copies, which collect the gradient."""

    def __init__(self, model: PreTrainedModel, ids_PL: Tensor, lengths_P: Tensor) -> None:
        """Run the model over them; only where `continues` says that others may go on from there.

        Args:
            model: whose keys and values.
            ids_PL: prompts, padded on the right.
            lengths_P: tokens of each that are computed; at least 1.
        """
        width = int(lengths_P.max())
        self.argument = _argument(model) or ""
        self.mask_PL = torch.arange(width, device=ids_PL.device) < lengths_P[:, None]
        cache = DynamicCache()
        # no mask: padding comes after all that is read
        model.get_decoder()(input_ids=ids_PL[:, :width], use_cache=True, **{self.argument: cache})
        self.computed = [t for layer in cache.layers for t in (layer.keys, layer.values)]
        self.copies = [t.detach().requires_grad_(t.requires_grad) for t in self.computed]

    def prefix(self, which_R: Tensor) -> Prefix:
        """Return the prompts of R rows, each named by its number."""
        tensors = [copy.index_select(0, which_R) for copy in self.copies]
        layers = list(zip(tensors[::2], tensors[1::2], strict=True))
        return Prefix(layers, self.mask_PL[which_R], self.argument)

    def backward(self) -> None:
        """Take the collected gradient through the prompts."""
        pairs = [(t, c.grad) for t, c in zip(self.computed, self.copies, strict=True)]
        reached = [(t, grad) for t, grad in pairs if grad is not None]
        if reached:
            torch.autograd.backward([t for t, _ in reached], [grad for _, grad in reached])


def _shared(batch: Batch, rows_R: Tensor) -> tuple[Tensor, Tensor]:
    """Find what the rows of a group have in common before their first trained token.

    The last common token is not counted: it predicts the first trained one.

    Returns:
        Tokens in common [R], and the number of the group's first row [R].
    """
    ids_RL, group_R = batch.ids_BL[rows_R], batch.group_B[rows_R]
    _, group_R = torch.unique(group_R, return_inverse=True)
    numbers_R = torch.arange(len(rows_R), device=rows_R.device)
    lead_R = _least(numbers_R, group_R)[group_R]
    same_R = (ids_RL == ids_RL[lead_R]).long().cumprod(1).sum(1)
    before_R = batch.response_BL[rows_R].int().argmax(1) - 1
    return _least(torch.minimum(same_R, before_R), group_R)[group_R], lead_R


def _least(values_R: Tensor, group_R: Tensor) -> Tensor:
    """Return the least value of each group."""
    groups = int(group_R.max()) + 1 if len(group_R) else 0
    return values_R.new_zeros(groups).scatter_reduce(
        0, group_R, values_R, "amin", include_self=False
    )
