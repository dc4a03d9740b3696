"""Estimators against known answers and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from grpo_ablate.analysis import curve, power, stats, unused
from tests.analysis.known_answers_adapter import evaluate, load

CASES = load()
NOISY = st.tuples(st.integers(3, 8), st.integers(0, 999)).map(
    lambda given: np.random.default_rng(given[1]).normal(0.5, 0.1, given[0])
)
SCORES = st.lists(st.floats(0, 1), min_size=3, max_size=8)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_known_answer(case):
    found = evaluate(case)
    assert case["expected"].keys() <= found.keys()
    for key, value in case["expected"].items():
        np.testing.assert_allclose(found[key], value, atol=case["tol"], rtol=0, err_msg=key)


def test_all_known_answers_are_there():
    assert len(CASES) == 21


@given(NOISY, st.integers(0, 999))
@settings(deadline=None)
def test_paired_and_welch_are_scipys(arm, number):
    base = np.asarray(arm) + np.random.default_rng(number).normal(0, 0.1, len(arm))
    for ours, theirs in (
        (stats.paired(arm, base), scipy_stats.ttest_rel(arm, base)),
        (stats.welch(arm, base), scipy_stats.ttest_ind(arm, base, equal_var=False)),
    ):
        interval = theirs.confidence_interval()
        expected = (theirs.statistic, theirs.pvalue, theirs.df, interval.low, interval.high)
        assert (ours.t, ours.p, ours.df, ours.lo, ours.hi) == pytest.approx(expected, abs=1e-9)


@given(SCORES, st.integers(0, 999))
@settings(deadline=None)
def test_a_block_of_two_arms_is_the_paired_test(base, number):
    arm = np.asarray(base) + np.random.default_rng(number).normal(0.02, 0.05, len(base))
    (ours,), theirs = stats.block([base, arm]).contrasts, stats.paired(arm, base)
    assert ours.delta == pytest.approx(theirs.delta)
    assert (ours.se, ours.p, ours.df) == pytest.approx((theirs.se, theirs.p, theirs.df))


@given(st.integers(3, 6), st.integers(2, 8), st.integers(0, 99))
@settings(deadline=None)
def test_a_block_does_not_see_what_seeds_share(arms, seeds, number):
    rng = np.random.default_rng(number)
    table = rng.normal(size=(arms, seeds))
    one, other = stats.block(table), stats.block(table + rng.normal(size=seeds) * 3)
    assert one.sigma == pytest.approx(other.sigma)
    assert [c.p for c in one.contrasts] == pytest.approx([c.p for c in other.contrasts])


def test_block_sigma_is_unbiased():
    """Mean of σ² over 2,000 tables of true σ = .02: within 4 standard errors."""
    rng = np.random.default_rng(1)
    found = [stats.block(rng.normal(0, 0.02, (4, 3))).sigma ** 2 for _ in range(2000)]
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - 0.02**2) < 4 * error


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
@settings(deadline=None)
def test_adjusted_p_values(p):
    ours = stats.benjamini_hochberg(p)
    np.testing.assert_allclose(ours, scipy_stats.false_discovery_control(p))
    raised = stats.holm(p)
    assert (raised >= ours - 1e-12).all(), "Holm is the stricter"
    assert raised.min() == pytest.approx(min(1.0, min(p) * len(p))), "Bonferroni for the first"
    assert stats.holm(p[::-1]) == pytest.approx(raised[::-1])


@given(st.floats(-0.05, 0.05), st.floats(0.001, 0.05), st.integers(2, 20))
def test_equivalence_is_the_90_percent_interval_inside_the_margin(delta, se, df):
    found = stats.estimate(delta, se, df, alpha=0.1)
    inside = found.lo > -0.02 and found.hi < 0.02
    assert (stats.equivalence_p(found, 0.02) < 0.05) == inside


def test_spread_test_has_its_level():
    """Among 4,000 tables of equal noise, the F test flags 1 % of arms within 4 SE."""
    rng = np.random.default_rng(2)
    for arms in (2, 4):
        flags = np.mean([stats.spread_p(rng.normal(size=(arms, 4)), 1) < 0.01 for _ in range(4000)])
        assert abs(flags - 0.01) < 4 * math.sqrt(0.01 * 0.99 / 4000)


def test_screen_constant_has_its_level():
    rng = np.random.default_rng(3)
    for n in (3, 5, 10):
        c, d = power.screen_constant(n), rng.normal(size=(40_000, n))
        flags = ((d > c).any(1) & (d < -c).any(1)).mean()
        assert abs(flags - 0.025) < 4 * math.sqrt(0.025 * 0.975 / 40_000)


def test_seeds_needed_is_the_first_that_resolves():
    n = power.seeds_needed(0.02, 0.02, arms=4)
    assert power.resolution(0.02, n, 3 * (n - 1)) <= 0.02
    assert power.resolution(0.02, n - 1, 3 * (n - 2)) > 0.02
    assert power.seeds_needed(1.0, 0.001, arms=2) is None
    assert power.seeds_needed(0.0, 0.02, arms=2) == 2


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_paired_resolution_has_its_power(n):
    """Of 20,000 studies with that effect 80 % pass, within 4 SE."""
    rng = np.random.default_rng(n)
    d = rng.normal(power.mde_paired(n), 1, (20_000, n))
    t = d.mean(1) / d.std(1, ddof=1) * n**0.5
    found = (np.abs(t) > stats.t_critical(n - 1)).mean()
    assert abs(found - 0.8) < 4 * math.sqrt(0.8 * 0.2 / 20_000)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: stats.paired([1, 2], [1, 2, 3]), "pair them"),
        (lambda: stats.paired([1], [2]), "at least 2"),
        (lambda: stats.welch([1, math.nan], [1, 2]), "numbers"),
        (lambda: stats.block([[1, 2]]), "2 arms"),
        (lambda: stats.interaction([1, 2], [1, 2], [1, 2], [1, 2, 3]), "same seeds"),
        (lambda: unused.bootstrap_interval(list(range(11))), "1 to 10"),
    ],
    ids=["unpaired", "one seed", "nan", "one arm", "ragged", "too many"],
)
def test_bad_input(call, what):
    with pytest.raises(ValueError, match=what):
        call()


def test_without_spread():
    """Two runs that agree to the last bit: no division by zero, no false certainty of 0."""
    same, shifted = stats.paired([0.5, 0.6], [0.5, 0.6]), stats.paired([1.5, 1.5], [1.0, 1.0])
    assert (same.p, same.lo, same.hi) == (1.0, 0.0, 0.0)
    assert (shifted.p, shifted.lo, shifted.hi) == (0.0, 0.5, 0.5)
    assert stats.equivalence_p(same, 0.02) == 0.0
    assert stats.equivalence_p(shifted, 0.02) == 1.0
    assert stats.welch([1.0, 1.0], [1.0, 1.0]).p == 1.0


def test_bootstrap_of_five_by_hand_counted_resamples():
    """Against 3,125 resamples written out."""
    x = [0.1, 0.5, 0.2, 0.9, 0.4]
    grid = np.stack(np.meshgrid(*[x] * 5)).reshape(5, -1).mean(0)
    lo, hi = np.quantile(grid, (0.025, 0.975), method="inverted_cdf")
    assert unused.bootstrap_interval(x) == pytest.approx((lo, hi))


class TestCurve:
    def test_time_to_needs_two_in_a_row_and_stays_censored(self):
        t, y = [0, 25, 50, 75, 100], [0.2, 0.6, 0.4, 0.6, 0.7]
        assert curve.time_to(t, y, 0.6) == 75
        assert curve.time_to(t, y, 0.65) is None
        assert curve.time_to(t, y, 0.65, run=1) == 100
        assert curve.time_to([], [], 0.5) is None

    def test_a_line_is_perfectly_smooth_and_short_curves_unknown(self):
        assert curve.smoothness(np.linspace(0, 1, 12)) == pytest.approx(0)
        assert curve.smoothness([0, 0, 0, 0, 0.1, 0, 0.1, 0]) > 0
        assert math.isnan(curve.smoothness([0.1, 0.2]))

    def test_smoothness_floor_is_what_sampling_gives(self):
        rng = np.random.default_rng(4)
        found = [curve.smoothness(rng.binomial(250, 0.6, 80) / 250) for _ in range(300)]
        assert np.mean(found) == pytest.approx(curve.smoothness_floor(0.6, 250), rel=0.05)

    @pytest.mark.parametrize(
        ("y", "step"),
        [
            ([0.4, 0.5, 0.6, 0.7, 0.7, 0.5, 0.3, 0.1, 0.1], 125),
            ([0.4, 0.4, 0.35, 0.2, 0.05, 0.0, 0.0], 75),
            ([0.4, 0.5, 0.6, 0.2, 0.6, 0.65, 0.7], None),
            ([0.4, 0.5, 0.6, 0.65, 0.7, 0.71, 0.6], None),
            ([0.40, 0.45, 0.40, 0.44, 0.39, 0.40, 0.38], None),
            ([0.4, 0.1, 0.1], None),
        ],
        ids=["fell", "never rose", "recovered", "one low end", "flat and noisy", "too short"],
    )
    def test_collapse(self, y, step):
        found = curve.collapse([25 * i for i in range(len(y))], y, 0.02)
        assert (found and found.step) == step
