"""Shaping: bonus and penalty by hand, bounds, and what is too short to repeat."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_ablate.techniques import shaping

VARIANTS = {
    "none": shaping.none,
    "format_bonus": partial(shaping.format_bonus, format_weight=0.05),
    "repetition_penalty": partial(shaping.repetition_penalty, repetition_weight=0.1, ngram=2),
    "format_and_repetition": partial(
        shaping.format_and_repetition, format_weight=0.05, repetition_weight=0.05, ngram=2
    ),
}
FORMATTED = torch.tensor([[True, False]])
each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


# 1,2,1,2 has the bigrams 12, 21, 12: one of three is a repetition; 5,5,5,5 has 55 three times
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [0, 0]),
        ("format_bonus", [0.05, 0]),
        ("repetition_penalty", [-0.1 / 3, -0.1 * 2 / 3]),
        ("format_and_repetition", [0.05 - 0.05 / 3, -0.05 * 2 / 3]),
    ],
)
def test_by_hand(name, expected):
    """Article L4."""
    found = VARIANTS[name](FORMATTED, [[1, 2, 1, 2], [5, 5, 5, 5]])
    assert found.dtype == torch.float64
    assert found.tolist() == [pytest.approx(expected, rel=1e-12, abs=0)]


@each_variant
@given(rows=st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=2, max_size=2))
def test_within_a_tenth_of_the_main_reward(variant, rows):
    found = variant(FORMATTED, rows)
    assert found.shape == FORMATTED.shape
    assert found.abs().max() <= 0.1


@pytest.mark.parametrize("row", [[], [1], [1, 2, 3, 4]])
def test_nothing_repeats_in_a_short_or_varied_response(row):
    assert (VARIANTS["repetition_penalty"](FORMATTED, [row, row]) == 0).all()


def test_ngram_is_read():
    """1,2,1,2 repeats single tokens twice in four and no trigram."""
    penalty = partial(shaping.repetition_penalty, FORMATTED, [[1, 2, 1, 2], [1, 2, 3, 4]])
    assert penalty(repetition_weight=0.1, ngram=1)[0, 0].item() == pytest.approx(-0.05)
    assert penalty(repetition_weight=0.1, ngram=3)[0, 0].item() == 0


def test_more_repetition_never_pays():
    rows = [[1, 2, 3, 4, 5, 6], [1, 2, 1, 2, 1, 2]]
    varied, stuck = VARIANTS["repetition_penalty"](FORMATTED, rows)[0]
    assert stuck < varied
