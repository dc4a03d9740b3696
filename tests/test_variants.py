"""Exact keys, types and ranges; each refusal says what, where and the remedy."""

from __future__ import annotations

import pytest

from grpo_ablate import knobs, variants
from grpo_ablate.variants import ConfigError

SYMMETRIC = {"name": "symmetric", "eps": 0.2, "dual_clip": None}


@pytest.mark.parametrize(
    ("group", "node", "message"),
    [
        (
            "clip",
            {"name": "clip_hihger"},
            r"clip=clip_hihger is unknown \(did you mean clip_higher",
        ),
        ("clip", {**SYMMETRIC, "eps_hihg": 0.3}, r"clip\.eps_hihg is no knob of clip=symmetric"),
        ("clip", {"name": "symmetric"}, r"clip=symmetric needs clip\.eps; add clip\.eps=VALUE"),
        ("clip", {**SYMMETRIC, "eps": "0.2"}, r"clip\.eps must be a number, got '0\.2' \(str\)"),
        ("clip", {**SYMMETRIC, "eps": True}, r"clip\.eps must be a number, got True"),
        ("clip", {**SYMMETRIC, "eps": 0.0}, r"clip\.eps must lie in \(0, 1\), got 0\.0"),
        ("clip", {**SYMMETRIC, "dual_clip": 0.5}, r"must lie in \[1, 1e\+12\] or null, got 0\.5"),
        ("clip", {**SYMMETRIC, "dual_clip": "x"}, r"must be a number or null, got 'x'"),
        ("clip", {**SYMMETRIC, "eps": 1}, r"clip\.eps must lie in \(0, 1\), got 1"),
        ("clip", {**SYMMETRIC, "eps": float("nan")}, r"clip\.eps must lie in"),
        (
            "advantage",
            {"name": "group_std", "ddof": 2, "eps": 0.0},
            r"ddof must be one of \[0, 1\]",
        ),
        ("lr_batch", {"name": "constant", "lr_scale": -1.0}, r"lr_batch\.lr_scale must lie in \(0"),
        ("task", {"name": "arithmetics"}, r"did you mean arithmetic\?"),
    ],
)
def test_refusals(group, node, message):
    with pytest.raises(ConfigError, match=message):
        variants.check(group, node)


def test_bind_fills_the_knobs_in():
    bound = variants.bind("clip", SYMMETRIC)
    assert (bound.func.__name__, bound.keywords) == (
        "symmetric",
        {"eps": 0.2, "dual_clip": None},
    )


@pytest.mark.parametrize(
    ("value", "annotation", "fits"),
    [
        (1, knobs.Positive, True),
        (0, knobs.Positive, False),
        (float("inf"), knobs.Positive, False),
        (0, knobs.NonNegative, True),
        (1.0, knobs.Count, False),
        (0, knobs.Count, False),
        (1.0, knobs.Decay, False),
        (1, knobs.Share, True),
        (True, knobs.Count, False),
        (True, bool, True),
        (1, bool, False),
        ("x", str, True),
        (None, str, False),
    ],
)
def test_knob_types(value, annotation, fits):
    assert (knobs.problem_with(value, annotation) is None) == fits
