"""Collection with a scripted engine: refilling, bounds, and what is counted."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from grpo_ablate.rollout import Collector
from grpo_ablate.techniques import length_penalty, masking, sampling, shaping
from grpo_ablate.types import Completions, Problem


class Script:
    """Task and engine in one: prompt k is its slot's draw, rewards come from a function of it."""

    def __init__(self, reward, prompt_length=1, cut=99):
        self.reward, self.prompt_length, self.cut = reward, prompt_length, cut
        self.asked: list[int] = []
        self.seeds: list[int] = []
        self.drawn = 0

    # task
    def sample(self, rng):
        self.drawn += 1
        return Problem("x" * self.prompt_length, str(self.drawn - 1), 1)

    def score(self, problem, text):
        return float(self.reward(int(problem.answer), int(text)))

    def formatted(self, text):
        return text == "1"

    # engine: the text of sample j is "j", its length j + 1
    def generate(self, prompt_ids, n, *, temperature, seeds):
        self.asked.append(len(prompt_ids))
        self.seeds += seeds
        rows = [[j] * (j + 1) for _ in prompt_ids for j in range(n)]
        return Completions(rows, [[0.0] * len(r) for r in rows], [len(r) > self.cut for r in rows])

    # policy
    def encode(self, prompt):
        return [1] * len(prompt)

    def decode(self, ids):
        return str(ids[0])


def collect(script, plan, prompts=4, seed=1, step=1, limit=8, **techniques):
    plain = {
        "length_penalty": length_penalty.none,
        "shaping": shaping.none,
        "masking": masking.none,
    }
    collector = Collector(
        policy=script,
        task=script,
        engine=script,
        sampling=plan,
        max_prompt_tokens=limit,
        **(plain | techniques),
    )
    return collector.collect(seed, step, prompts)


def dynamic(cap=1.0, rounds=4, group_size=2, filter_on="raw"):
    return sampling.dynamic(
        temperature=1.0,
        group_size=group_size,
        filter_on=filter_on,
        max_filter_ratio=cap,
        max_rounds=rounds,
    )


def test_refills_only_what_is_missing():
    """Prompts 0 and 1 of the first round are dead; their places are sampled again."""
    script = Script(lambda prompt, j: j if prompt >= 2 else 0)
    rollout = collect(script, dynamic())
    assert script.asked == [4, 4], "two are missing, and of these the filter may drop half"
    assert (rollout.tally.rounds, rollout.tally.sampled, rollout.tally.dropped) == (2, 6, 2)
    assert rollout.groups.keep_PG.any(1).tolist() == [False, False, True, True, True, True]


def test_k9_every_group_dead_for_ever():
    """K9: bounded rounds, nothing kept, everything counted, no crash."""
    script = Script(lambda prompt, j: 1)
    rollout = collect(script, dynamic(rounds=3))
    assert script.asked == [4, 8], "two rounds are left: no more than they can use"
    assert not rollout.groups.keep_PG.any()
    assert rollout.tally.filter_ratio == 1.0


@pytest.mark.parametrize("share", range(1, 10))
@pytest.mark.parametrize("cap", [0.4, 1.0])
def test_the_groups_are_those_of_rounds_generated_one_by_one(monkeypatch, share, cap):
    """Whatever share of the prompts is dead: groups, filter and counts; fewer calls."""

    def reward(prompt, j):
        return j if (prompt * 7 + share) % 10 >= share else 0

    found, script = [], Script(reward)
    found.append(collect(script, dynamic(cap, rounds=5), prompts=8))
    monkeypatch.setattr(Collector, "_ahead", lambda self, missing, tally: missing)
    lone = Script(reward)
    found.append(collect(lone, dynamic(cap, rounds=5), prompts=8))
    ahead, one_by_one = found
    assert ahead.tally == one_by_one.tally
    assert ahead.groups.problems == one_by_one.groups.problems
    assert ahead.groups.completions == one_by_one.groups.completions
    assert torch.equal(ahead.groups.keep_PG, one_by_one.groups.keep_PG)
    assert len(script.asked) <= len(lone.asked) and sum(script.asked) >= sum(lone.asked)
    used = sum(lone.asked)
    assert script.seeds[:used] == lone.seeds


def test_the_cap_ends_the_search():
    """At a cap of 0.5 two of four may go, then the refill's dead groups stay."""
    script = Script(lambda prompt, j: 1)
    rollout = collect(script, dynamic(cap=0.5))
    assert int(rollout.groups.keep_PG.any(1).sum()) == 4
    assert rollout.tally.filter_ratio <= 0.5


def test_standard_never_samples_again():
    script = Script(lambda prompt, j: 1)
    assert collect(script, sampling.standard(temperature=1.0, group_size=2)).groups.keep_PG.all()
    assert script.asked == [4]


def test_k8_a_length_penalty_does_not_bring_a_dead_group_to_life():
    """K8: accuracy all 0, penalties differ: the filter sees the raw reward."""

    def by_length(lengths):
        return -0.1 * lengths

    wrong = Script(lambda prompt, j: 0)
    rollout = collect(wrong, dynamic(rounds=1), length_penalty=by_length)
    assert not rollout.groups.keep_PG.any()
    shaped = collect(wrong, dynamic(rounds=1, filter_on="shaped"), length_penalty=by_length)
    assert shaped.groups.keep_PG.all(), "and with filter_on=shaped it does"
    assert rollout.groups.rewards_PG[0].tolist() == pytest.approx([-0.1, -0.2])


def test_rewards_are_raw_plus_penalty():
    def by_length(lengths):
        return -0.1 * lengths

    plan = sampling.standard(temperature=1.0, group_size=2)
    groups = collect(Script(lambda prompt, j: j), plan, length_penalty=by_length).groups
    assert groups.raw_rewards_PG[0].tolist() == [0, 1]
    assert groups.rewards_PG[0].tolist() == pytest.approx([-0.1, 0.8])
    torch.testing.assert_close(groups.lengths_PG[0], torch.tensor([1.0, 2.0]).double())


def test_common_random_numbers():
    """A filter that draws more leaves the first slots' seeds, and the next step's, alone."""
    plain, greedy = Script(lambda prompt, j: j), Script(lambda prompt, j: 0)
    collect(plain, sampling.standard(temperature=1.0, group_size=2))
    collect(greedy, dynamic())
    assert greedy.seeds[:4] == plain.seeds
    assert len(set(greedy.seeds)) == len(greedy.seeds)
    again = Script(lambda prompt, j: j)
    collect(again, sampling.standard(temperature=1.0, group_size=2), step=2)
    assert not set(again.seeds) & set(plain.seeds)


def test_no_prompt_that_fits_is_an_error_not_a_loop():
    with pytest.raises(ValueError, match="raise it or make the task's questions shorter"):
        collect(Script(lambda p, j: 0, prompt_length=9), dynamic())


def test_shaping_is_added_and_told_apart():
    """Sample 1 alone has the form; its bonus is no part of the raw reward."""
    bonus = partial(shaping.format_bonus, format_weight=0.05)
    plan = sampling.standard(temperature=1.0, group_size=2)
    groups = collect(Script(lambda prompt, j: 0), plan, shaping=bonus).groups
    assert groups.shaping_PG[0].tolist() == [0.0, 0.05]
    assert groups.rewards_PG[0].tolist() == [0.0, 0.05]
    assert groups.raw_rewards_PG[0].tolist() == [0.0, 0.0]


def test_k5_masked_rows_do_not_vote_and_leave_a_dead_group():
    """K5: only the long, truncated sample 3 is right: without its vote the group is dead."""
    script = Script(lambda prompt, j: j == 3, cut=3)
    plan = dynamic(rounds=1, group_size=4)
    silent = collect(script, plan, masking=partial(masking.overlong, vote=False)).groups
    assert not silent.keep_PG.any()
    voting = collect(script, plan, masking=partial(masking.overlong, vote=True)).groups
    assert voting.vote_PG.all()
    assert voting.train_PG[0].tolist() == [True, True, True, False]


def test_what_a_filter_drops_neither_votes_nor_trains():
    groups = collect(Script(lambda prompt, j: prompt), dynamic(rounds=1)).groups
    assert not (groups.vote_PG | groups.train_PG).any()
