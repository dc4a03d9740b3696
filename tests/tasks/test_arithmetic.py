"""The embedded task: right answers, held-out questions that stay out, a total verifier."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_ablate.tasks.arithmetic import Arithmetic, Demonstrator
from grpo_ablate.types import Problem

KNOBS = {"min_operands": 2, "max_operands": 4, "max_number": 9, "held_out": 60, "held_out_seed": 1}
TASK = Arithmetic(**KNOBS)


def questions(n=300, task=TASK):
    rng = np.random.default_rng(0)
    return [task.sample(rng) for _ in range(n)]


def test_answers_are_right_and_totals_never_negative():
    for problem in [*questions(), *TASK.held_out()]:
        terms = re.findall(r"[+-]?\d+", problem.prompt)
        totals = np.cumsum([int(term) for term in terms])
        assert problem.answer == str(totals[-1])
        assert (totals >= 0).all()
        assert problem.difficulty == len(terms)
        assert re.fullmatch(r"\d(?:[+-]\d)+:", problem.prompt)


def test_held_out_questions_are_unique_balanced_and_never_trained_on():
    held_out = TASK.held_out()
    prompts = {problem.prompt for problem in held_out}
    assert len(prompts) == len(held_out) == 60
    assert [p.difficulty for p in held_out[:6]] == [2, 3, 4, 2, 3, 4], "any prefix is balanced"
    assert not prompts & {problem.prompt for problem in questions(3000)}


def test_held_out_set_follows_its_seed_alone():
    assert Arithmetic(**KNOBS).held_out() == TASK.held_out()
    assert Arithmetic(**{**KNOBS, "held_out_seed": 2}).held_out() != TASK.held_out()


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("=12", 1.0),
        ("7+8=15-3=12", 1.0),
        ("7+8=14-3=12", 1.0),  # what follows the last = counts, working is not judged
        ("=12=13", 0.0),
        ("=012", 0.0),
        ("=12.0", 0.0),
        ("= 12 ", 1.0),
        ("", 0.0),
        ("12", 1.0),
        ("=１２", 0.0),
        ("=" * 1_000_000, 0.0),
        ("=" + "9" * 1_000_000, 0.0),
        ("=12\x00", 0.0),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_score(completion, reward):
    assert TASK.score(Problem("7+8-3:", "12", 3), completion) == reward


@given(st.text())
def test_score_is_total(text):
    assert TASK.score(Problem("7+8-3:", "12", 3), text) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"min_operands": 1}, "give 2 <= min_operands <= max_operands"),
        ({"min_operands": 5}, "give 2 <= min_operands <= max_operands"),
        ({"held_out": 5000}, "lower task.held_out"),
    ],
)
def test_bad_knobs(knobs, message):
    with pytest.raises(ValueError, match=message):
        Arithmetic(**{**KNOBS, **knobs})


def test_a_set_that_leaves_nothing_to_train_on_is_an_error_not_a_loop():
    task = Arithmetic(min_operands=2, max_operands=2, max_number=2, held_out=7, held_out_seed=0)
    with pytest.raises(ValueError, match="draws in a row were held-out"):
        task.sample(np.random.default_rng(0))


def test_a_sure_pupil_is_always_right():
    rng = np.random.default_rng(0)
    for direct in (0.0, 1.0):
        pupil = Demonstrator(direct=direct, merge=0.3, miscount=0.0, doubt=0.0, facts_seed=0)
        assert all(TASK.score(p, pupil.write(p, rng)) == 1.0 for p in questions(200))


def test_a_doubtful_pupil_errs_and_carries_the_error_on():
    rng = np.random.default_rng(0)
    pupil = Demonstrator(direct=0.0, merge=0.0, miscount=0.0, doubt=1.0, facts_seed=0)
    share = np.mean([TASK.score(p, pupil.write(p, rng)) for p in questions(1000)])
    assert 0.1 < share < 0.5
