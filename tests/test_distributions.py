"""Histograms by hand: counts of equal bins, over the rows that the documentation names."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grpo_ablate.distributions import BINS, HISTOGRAMS, distributions
from grpo_ablate.types import Advantages


def found(*, log_ratio=(0.0, 0.6931472), vote=((True, False),), advantages=((0.5, 9.0),)):
    """Distributions of one prompt with two responses of 2 and 34 tokens and rewards 0 and 1."""
    groups = SimpleNamespace(
        lengths_PG=torch.tensor([[2.0, 34.0]]),
        rewards_PG=torch.tensor([[0.0, 1.0]]),
        vote_PG=torch.tensor(vote),
    )
    return distributions(
        SimpleNamespace(groups=groups),
        Advantages(torch.tensor(advantages)),
        SimpleNamespace(trace=SimpleNamespace(log_ratio_N=torch.tensor(log_ratio))),
    )


def test_ends_and_counts():
    histograms = found()
    assert histograms["completion/length_histogram"] == {
        "low": 2.0,
        "high": 34.0,
        "counts": [1, *[0] * (BINS - 2), 1],
    }
    assert histograms["ratio/histogram"]["low"] == 1.0
    assert histograms["ratio/histogram"]["high"] == pytest.approx(2.0)
    assert histograms["reward/histogram"]["counts"] == [1, *[0] * (BINS - 2), 1]


def test_only_voters_advantages_count():
    assert sum(found()["advantage/histogram"]["counts"]) == 1
    assert sum(found(vote=((True, True),))["advantage/histogram"]["counts"]) == 2


@pytest.mark.parametrize("log_ratio", [(), (math.nan, math.inf)], ids=["none", "not finite"])
def test_nothing_to_count_is_left_out(log_ratio):
    assert set(found(log_ratio=log_ratio)) == {*HISTOGRAMS} - {"ratio/histogram"}


def test_counts_are_numpys():
    values = np.random.default_rng(1).normal(size=500)
    one = found(log_ratio=tuple(np.log(np.abs(values)) + 0))["ratio/histogram"]
    counts, edges = np.histogram(np.abs(values), bins=BINS)
    assert (one["low"], one["high"]) == pytest.approx((edges[0], edges[-1]))
    assert sum(one["counts"]) == counts.sum() == 500


def test_values_a_rounding_apart_are_one_point():
    one = found(log_ratio=(0.0, 4e-16))["ratio/histogram"]
    assert sum(one["counts"]) == 2
    assert one["low"] < 1 < one["high"]
