"""Losses, gradients and advantages against numbers that TRL 1.16 and verl 0.10 computed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.techniques.oracle_adapter import evaluate, load, out_of_scope

CASES = load()["cases"]
IN_SCOPE = [case for case in CASES if not out_of_scope(case)]
COMPARED = ("loss", "grad", "output", "logprobs", "entropy", "per_token", "is_weights")


@pytest.mark.parametrize("case", IN_SCOPE, ids=[case["name"] for case in IN_SCOPE])
def test_agrees_with_the_peer(case):
    found = evaluate(case)
    assert {key for key in COMPARED if key in case} <= found.keys()
    for key, value in found.items():
        np.testing.assert_allclose(
            value, case[key], rtol=case["rtol"], atol=case["atol"], err_msg=key
        )


def test_all_but_one_case_are_in_scope():
    """So that a mistake in `out_of_scope` cannot empty the test above."""
    assert [case["name"] for case in CASES if out_of_scope(case)] == [
        "length/verl/dapo_overlong_10_5"
    ]
    assert len(IN_SCOPE) == 267
