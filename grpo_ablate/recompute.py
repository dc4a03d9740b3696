"""Gradient checkpointing: a layer's inside is computed again in the backward pass, not kept.

transformers has it too, but only for a model in training mode, and ours stays in evaluation mode:
with dropout the ratio of an unchanged policy would not be 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel


@contextmanager
def recomputed(model: PreTrainedModel, on: bool = True) -> Iterator[None]:
    """Within the block, keep of each decoder layer only what goes in.

    Exact: the second pass does the sums of the first. Inputs must not change in between, so no
    layer may be given a cache to write to.

    Args:
        model: causal language model.
        on: False does nothing.

    Raises:
        ValueError: the decoder has no list of layers.
    """
    layers = _layers(model) if on else []
    before = [layer.forward for layer in layers]
    try:
        for layer in layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        yield
    finally:
        for layer, forward in zip(layers, before, strict=True):
            layer.forward = forward


def _layers(model: PreTrainedModel) -> list[Any]:
    """Return the longest list of modules that the decoder itself holds: its layers."""
    lists = [part for part in model.get_decoder().children() if isinstance(part, nn.ModuleList)]
    if not lists:
        raise ValueError(
            f"{type(model).__name__} has no list of decoder layers to compute again; set"
            " learner.gradient_checkpointing=false"
        )
    return list(max(lists, key=lambda each: len(list(each))))
