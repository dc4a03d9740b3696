"""Small extra rewards for form (Hydra group `shaping`; article: L4, L5).

Every variant takes, for P prompts and G responses each,

    formatted_PG  bool; does the response have the form the task asks for (`Task.formatted`)?
    ids           [B] token ids of each response, prompt-major

and returns what is *added* to the reward, float64 [P, G]. The weights together stay within 10 %
of the main reward, which is 1 for a right answer: above that the model games the form (L4).
Shaping changes the reward's distribution, so learning rate and clip may want a new sweep (L5).
What all responses of a group get alike cancels in its baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_ablate.knobs import Count, SmallShare


def none(formatted_PG: Tensor, ids: Sequence[Sequence[int]]) -> Tensor:
    """Add nothing.

    shaping = 0

    Source: article: X1.

    Returns:
        Zeros.
    """
    return torch.zeros(formatted_PG.shape, dtype=torch.float64)


def format_bonus(
    formatted_PG: Tensor, ids: Sequence[Sequence[int]], *, format_weight: SmallShare
) -> Tensor:
    """Reward the right form, right answer or not.

    shaping = format_weight * [formatted]

    Source: article: L4; DeepSeek-AI 2025 (DeepSeek-R1), section 2.2.2, format rewards.

    Knobs:
        format_weight: share of the main reward.

    Returns:
        0 or format_weight.
    """
    return format_weight * formatted_PG.double()


def repetition_penalty(
    formatted_PG: Tensor,
    ids: Sequence[Sequence[int]],
    *,
    repetition_weight: SmallShare,
    ngram: Count,
) -> Tensor:
    """Charge for n-grams of tokens that were there before.

    shaping = -repetition_weight * (1 - distinct n-grams / n-grams)

    Source: article: L4; Yeo et al. 2025 (Demystifying Long CoT), appendix, n-gram penalty.

    Knobs:
        repetition_weight: share of the main reward lost when nothing but one n-gram is said.
        ngram: tokens in an n-gram; a response shorter than that repeats nothing.

    Returns:
        In (-repetition_weight, 0].
    """
    shares = [_repeated(row, ngram) for row in ids]
    repeated_PG = torch.tensor(shares, dtype=torch.float64).view(formatted_PG.shape)
    return -repetition_weight * repeated_PG


def format_and_repetition(
    formatted_PG: Tensor,
    ids: Sequence[Sequence[int]],
    *,
    format_weight: SmallShare,
    repetition_weight: SmallShare,
    ngram: Count,
) -> Tensor:
    """Both at once, as the article has it.

    shaping = format_weight * [formatted] - repetition_weight * (1 - distinct / all n-grams)

    Source: article: L4.

    Knobs:
        format_weight: see `format_bonus`.
        repetition_weight: see `repetition_penalty`; the two weights sum to at most 0.1
            (`rules.py`).
        ngram: see `repetition_penalty`.

    Returns:
        The sum of the two.
    """
    penalty_PG = repetition_penalty(
        formatted_PG, ids, repetition_weight=repetition_weight, ngram=ngram
    )
    return format_bonus(formatted_PG, ids, format_weight=format_weight) + penalty_PG


def _repeated(row: Sequence[int], ngram: int) -> float:
    """Return the share of a row's n-grams that occurred before in it; 0 where it has none."""
    grams = [tuple(row[i : i + ngram]) for i in range(len(row) - ngram + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
