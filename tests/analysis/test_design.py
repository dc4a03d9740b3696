"""What to expect before a run."""

from __future__ import annotations

import pytest

from grpo_ablate.analysis.design import dead_share


@pytest.mark.parametrize(
    ("pass_rate", "group_size", "expected"),
    [(0.18, 2, 0.7048), (0.18, 8, 0.2044), (0.5, 1, 1.0), (0.0, 8, 1.0), (1.0, 3, 1.0)],
)
def test_k25_dead_share(pass_rate, group_size, expected):
    """K25: at a pass rate of .18, 70 % of groups of 2 are dead and 20 % of groups of 8."""
    assert dead_share(pass_rate, group_size) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("pass_rate", "group_size"), [(-0.1, 2), (1.1, 2), (0.5, 0)])
def test_out_of_range(pass_rate, group_size):
    with pytest.raises(ValueError, match="must lie in"):
        dead_share(pass_rate, group_size)
