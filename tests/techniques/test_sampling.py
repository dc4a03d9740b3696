"""Sampling filters: which groups and responses stay."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_ablate.plans import Tally
from grpo_ablate.techniques import sampling

LIVE, RIGHT, WRONG = [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]


def dynamic(cap=0.4, rounds=4, filter_on="raw"):
    return sampling.dynamic(
        temperature=1.0,
        group_size=2,
        filter_on=filter_on,
        max_filter_ratio=cap,
        max_rounds=rounds,
    )


def intra_group(per_reward=1):
    return sampling.intra_group(
        temperature=1.0, group_size=4, filter_on="raw", keep_per_reward=per_reward
    )


def kept(plan, rewards, tally=None, vote=None):
    rewards_PG = torch.tensor(rewards, dtype=torch.float64)
    vote_PG = torch.ones_like(rewards_PG).bool() if vote is None else torch.tensor(vote)
    found = plan.keep(rewards_PG, vote_PG, tally or Tally())
    assert found.dtype == torch.bool
    assert found.shape == (len(rewards), len(rewards[0]))
    return found.tolist()


def test_standard_keeps_everything_in_one_round():
    plan = sampling.standard(temperature=0.8, group_size=2)
    assert (plan.temperature, plan.group_size, plan.max_rounds) == (0.8, 2, 1)
    assert kept(plan, [RIGHT, LIVE]) == [[True] * 2] * 2


@pytest.mark.parametrize(
    ("cap", "groups", "expected"),
    [
        (1.0, [RIGHT, LIVE, WRONG], [0, 1, 0]),
        (0.4, [RIGHT, LIVE, WRONG, LIVE, LIVE], [0, 1, 0, 1, 1]),  # 2 of 5 is exactly the cap
        (0.4, [RIGHT, WRONG, WRONG, LIVE, LIVE], [0, 0, 1, 1, 1]),  # a third would be 60 %
        (0.0, [RIGHT, LIVE], [1, 1]),
        (1.0, [WRONG, WRONG], [0, 0]),
    ],
)
def test_dynamic_drops_dead_groups_up_to_its_cap(cap, groups, expected):
    """Article S1, P1."""
    assert [any(row) for row in kept(dynamic(cap), groups)] == [bool(e) for e in expected]


def test_the_cap_counts_over_the_rounds_of_a_step():
    """5 of 10 sampled are gone already: at a cap of 0.4 nothing more may go until 12.5 are."""
    tally = Tally(rounds=1, sampled=10, dropped=5)
    assert all(any(row) for row in kept(dynamic(0.4), [WRONG, WRONG], tally))
    tally = Tally(rounds=1, sampled=10, dropped=3)
    assert [any(row) for row in kept(dynamic(0.4), [WRONG, WRONG], tally)] == [False, True]


def test_cap_is_not_eaten_by_rounding():
    groups = [WRONG] * 12 + [LIVE] * 18
    assert sum(not any(row) for row in kept(dynamic(0.4), groups)) == 12, "0.4 * 30 is 12"


@pytest.mark.parametrize(
    ("per_reward", "group", "expected"),
    [
        (1, [1, 0, 0, 1], [1, 1, 0, 0]),
        (2, [0, 0, 0, 1], [1, 1, 0, 1]),
        (1, [0.5, 0.5, 1, 0], [1, 0, 1, 1]),
        (1, [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_intra_group_keeps_the_first_of_each_reward(per_reward, group, expected):
    """Article S4."""
    assert kept(intra_group(per_reward), [group]) == [[bool(e) for e in expected]]


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1))
def test_no_filter_drops_a_live_group(groups):
    for plan in (dynamic(1.0), dynamic(0.4), intra_group()):
        for rewards, keep in zip(groups, kept(plan, groups), strict=True):
            assert any(keep) or len(set(rewards)) == 1


def test_filter_ratio():
    """Article S2: dropped groups / sampled groups."""
    assert Tally(rounds=2, sampled=8, dropped=2).filter_ratio == 0.25
    assert Tally().filter_ratio == 0.0


def test_k5_a_response_that_does_not_vote_is_not_compared():
    """K5: rewards [1, 0, 0, 0], row 0 masked: its siblings agree, so the group is dead."""
    vote = [[False, True, True, True]]
    assert kept(dynamic(1.0), [[1, 0, 0, 0]], vote=vote) == [[False] * 4]
    assert kept(intra_group(), [[1, 0, 0, 0]], vote=vote) == [[False] * 4]


def test_a_response_that_does_not_vote_goes_with_its_group():
    """It is an empty row of a group that stays, and shadows nobody's reward."""
    vote = [[False, True, True, True]]
    assert kept(dynamic(1.0), [[1, 1, 0, 0]], vote=vote) == [[True] * 4]
    assert kept(intra_group(), [[1, 1, 0, 0]], vote=vote) == [[True, True, True, False]]
    last = [[True, True, True, False]]
    assert kept(intra_group(), [[1, 0, 0, 1]], vote=last) == [[True, True, False, True]]


@pytest.mark.parametrize("filter_on", ["raw", "shaped"])
def test_k8_which_reward_is_compared_is_a_knob(filter_on):
    """K8: the collector shows the filter what `on` names (tests/test_rollout.py)."""
    assert dynamic(filter_on=filter_on).on == filter_on
    knobs = {"temperature": 1.0, "group_size": 4, "keep_per_reward": 1}
    assert sampling.intra_group(**knobs, filter_on=filter_on).on == filter_on
