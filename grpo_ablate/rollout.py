"""Prompt → rollout → reward → (length penalty, shaping) → (filter): the first half of a step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from grpo_ablate.models import Policy
from grpo_ablate.plans import Roles, Sampling, Tally
from grpo_ablate.scoring import Judge, without_faults
from grpo_ablate.streams import Stream, rng, subseed
from grpo_ablate.types import Completions, Engine, Groups, Problem, Task


@dataclass(frozen=True)
class Rollout:
    """Everything sampled for one step, dropped groups included, and the count of it."""

    groups: Groups
    tally: Tally
    seconds: float = math.nan
    """Time the engine took."""


@dataclass(frozen=True)
class _Answered:
    """A prompt and the responses to it, not judged yet."""

    problem: Problem
    prompt_ids: list[int]
    completions: Completions


@dataclass(frozen=True)
class Collector:
    """The fixed parts of rollout collection; one call of `collect` a step."""

    policy: Policy
    task: Task
    engine: Engine
    sampling: Sampling
    length_penalty: Callable[[Tensor], Tensor]
    shaping: Callable[[Tensor, Sequence[Sequence[int]]], Tensor]
    masking: Callable[[Tensor], Roles]
    max_prompt_tokens: int
    judge: Judge = field(default_factory=Judge)

    def collect(self, seed: int, step: int, prompts: int) -> Rollout:
        """Sample groups until the batch is full or the technique's rounds are used up.

        Args:
            seed: of the run.
            step: names the random streams.
            prompts: groups wanted.

        Returns:
            All groups sampled, kept ones marked by `keep_PG`; possibly none kept.
        """
        rounds: list[Groups] = []
        tally, kept, seconds = Tally(), 0, 0.0
        stock: list[_Answered] = []
        while kept < prompts and tally.rounds < self.sampling.max_rounds:
            missing = prompts - kept
            if missing > len(stock):
                first = tally.sampled + len(stock)
                slots = range(first, tally.sampled + self._ahead(missing, tally))
                answered, took = self._sample(seed, step, slots)
                stock += answered
                seconds += took
            groups, tally = self._filter(self._score(stock[:missing]), tally)
            del stock[:missing]
            kept += int(groups.keep_PG.any(1).sum())
            rounds.append(groups)
        return Rollout(concatenate(rounds), tally, seconds)

    def _ahead(self, missing: int, tally: Tally) -> int:
        """Return how many groups to have at hand: what is missing, and what the filter will drop.

        A few rows cost an engine nearly as much time as many, so the next rounds are generated
        with this one, as many as the step's filter ratio so far will ask for. Which groups are
        used stays as if each round had been generated alone: those left over are never looked at.
        """
        left = self.sampling.max_rounds - tally.rounds
        if left * missing * (1 - tally.filter_ratio) <= missing:
            return left * missing
        return math.ceil(missing / (1 - tally.filter_ratio))

    def _sample(self, seed: int, step: int, slots: range) -> tuple[list[_Answered], float]:
        """Sample the groups of some slots; return how long the engine took, too."""
        problems = [self._draw(seed, step, slot) for slot in slots]
        prompt_ids = [self.policy.encode(problem.prompt) for problem in problems]
        size = self.sampling.group_size
        began = time.perf_counter()
        completions = self.engine.generate(
            prompt_ids,
            size,
            temperature=self.sampling.temperature,
            seeds=[subseed(seed, Stream.GENERATE, step, slot) for slot in slots],
        )
        seconds = time.perf_counter() - began
        parts = [completions.rows(slice(i * size, (i + 1) * size)) for i in range(len(slots))]
        return list(map(_Answered, problems, prompt_ids, parts)), seconds

    def _draw(self, seed: int, step: int, slot: int) -> Problem:
        """Draw the slot's problem; prompts over the limit are passed over."""
        stream = rng(seed, Stream.PROMPT, step, slot)
        for _ in range(1000):
            problem = self.task.sample(stream)
            if len(self.policy.encode(problem.prompt)) <= self.max_prompt_tokens:
                return problem
        raise ValueError(
            f"1000 problems in a row exceed engine.max_prompt_tokens={self.max_prompt_tokens};"
            " raise it or make the task's questions shorter"
        )

    def _score(self, answered: Sequence[_Answered]) -> Groups:
        """Judge each completion; add the length penalty and the shaping; say who votes."""
        problems = tuple(each.problem for each in answered)
        completions = Completions.joined([each.completions for each in answered])
        shape = (len(problems), self.sampling.group_size)
        texts = [self.policy.decode(ids) for ids in completions.ids]
        asked = [problem for problem in problems for _ in range(self.sampling.group_size)]
        scores = self.judge(self.task, asked, texts)
        raw_PG, real_PG = without_faults(torch.tensor(scores, dtype=torch.float64).view(shape))
        zero_PG = torch.zeros_like(raw_PG)
        bare = Groups(
            problems,
            [each.prompt_ids for each in answered],
            completions,
            texts,
            raw_rewards_PG=raw_PG,
            penalty_PG=zero_PG,
            shaping_PG=zero_PG,
            keep_PG=real_PG,
            vote_PG=real_PG,
            train_PG=real_PG,
        )
        return self._dressed(bare)

    def _dressed(self, groups: Groups) -> Groups:
        """Add to judged responses what the techniques add: penalty, shaping, roles."""
        shape, real_PG = groups.raw_rewards_PG.shape, groups.keep_PG
        formatted_PG = torch.tensor([self.task.formatted(text) for text in groups.texts])
        roles = self.masking(torch.tensor(groups.completions.truncated).view(shape))
        return replace(
            groups,
            penalty_PG=self.length_penalty(groups.lengths_PG),
            shaping_PG=self.shaping(formatted_PG.view(shape), groups.completions.ids),
            vote_PG=roles.vote_PG & real_PG,
            train_PG=roles.train_PG & real_PG,
        )

    def replay(self, groups: Groups) -> Rollout:
        """Treat responses that were sampled already as this collector would have.

        Args:
            groups: of one round, nothing dropped but responses without a reward.

        Returns:
            Them with this collector's penalty, shaping, roles and filter; nothing is sampled anew.
        """
        filtered, tally = self._filter(self._dressed(groups), Tally())
        return Rollout(filtered, tally)

    def _filter(self, groups: Groups, tally: Tally) -> tuple[Groups, Tally]:
        """Mark what the technique keeps, and count what it drops."""
        seen_PG = groups.raw_rewards_PG if self.sampling.on == "raw" else groups.rewards_PG
        keep_PG = self.sampling.keep(seen_PG, groups.vote_PG, tally) & groups.keep_PG
        dropped = int((~keep_PG.any(1)).sum())
        kept = replace(
            groups,
            keep_PG=keep_PG,
            vote_PG=groups.vote_PG & keep_PG,
            train_PG=groups.train_PG & keep_PG,
        )
        return kept, Tally(
            tally.rounds + 1,
            tally.sampled + len(groups),
            tally.dropped + dropped,
            tally.excluded + int((~groups.keep_PG).sum()),
        )


def concatenate(parts: Sequence[Groups]) -> Groups:
    """Return the groups of several rounds as one, in order."""
    tensors = [name for name in Groups.__dataclass_fields__ if name.endswith("_PG")]
    return Groups(
        problems=tuple(problem for part in parts for problem in part.problems),
        prompt_ids=[ids for part in parts for ids in part.prompt_ids],
        completions=Completions.joined([part.completions for part in parts]),
        texts=[text for part in parts for text in part.texts],
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in tensors},
    )
