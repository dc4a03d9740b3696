"""Losses, gradients and advantages against numbers that TRL 1.16 and verl 0.10 computed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.techniques.oracle_adapter import evaluate, load, out_of_scope

CASES = load()["cases"]
IN_SCOPE = [case for case in CASES if not out_of_scope(case)]


@pytest.mark.parametrize("case", IN_SCOPE, ids=[case["name"] for case in IN_SCOPE])
def test_agrees_with_the_peer(case):
    found = evaluate(case)
    for key, value in found.items():
        np.testing.assert_allclose(
            value, case[key], rtol=case["rtol"], atol=case["atol"], err_msg=key
        )


def test_most_cases_are_in_scope():
    """So that a mistake in `out_of_scope` cannot empty the test above."""
    assert len(IN_SCOPE) == 113


@pytest.mark.parametrize("kind", ["loss", "e2e", "accumulation"])
def test_gradients_are_compared(kind):
    assert all({"loss", "grad"} <= evaluate(c).keys() for c in IN_SCOPE if c["kind"] == kind)
