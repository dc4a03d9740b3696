"""A reward function that fails costs its own row, and only that."""

from __future__ import annotations

import math
import time

import pytest
import torch

from grpo_ablate.scoring import Judge, RewardFaultError, without_faults
from grpo_ablate.techniques import sampling
from grpo_ablate.types import Problem
from tests.test_rollout import Script, collect


class Faulty:
    """Scores 1, and fails in its own way on the text "bad"."""

    def __init__(self, fault):
        self.fault = fault

    def score(self, problem, text):
        return self.fault() if text == "bad" else 1.0


def hang():
    time.sleep(30)


def crash():
    raise ZeroDivisionError("oh")


FAULTS = {
    "raises": crash,
    "hangs": hang,
    "none": lambda: None,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "wrong length": lambda: [1.0, 0.0],
    "text": lambda: "1",
}


def ask(fault, texts, share=0.5):
    return Judge(timeout=0.05, max_fault_share=share)(
        Faulty(FAULTS[fault]), [Problem("?", "!", 1)] * len(texts), texts
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_only_the_faulty_row_is_lost(fault, capsys):
    rewards = ask(fault, ["a", "bad", "b"])
    assert rewards[0] == rewards[2] == 1.0 and math.isnan(rewards[1])
    assert "reward function failed 1 times" in capsys.readouterr().err


@pytest.mark.parametrize("fault", FAULTS)
def test_above_a_share_it_stops_and_says_why(fault):
    with pytest.raises(RewardFaultError, match=r"failed on 2 of 3 .* mend the task's score"):
        ask(fault, ["bad", "bad", "b"])


def test_a_faulty_row_moves_no_mean_and_is_not_trained():
    nan = math.nan
    rewards, real = without_faults(torch.tensor([[1.0, 0.0, nan], [nan, nan, nan]]).double())
    assert rewards.tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]]
    assert real.tolist() == [[True, True, False], [False, False, False]]


def test_excluded_rows_are_counted_and_left_out_of_the_batch():
    plan = sampling.standard(temperature=1.0, group_size=2)
    script = Script(lambda prompt, j: math.nan if (prompt, j) == (0, 1) else j)
    rollout = collect(script, plan, prompts=8)
    assert rollout.tally.excluded == 1
    assert rollout.groups.keep_PG.sum() == 15 and not rollout.groups.keep_PG[0, 1]
    assert not rollout.groups.rewards_PG.isnan().any()
