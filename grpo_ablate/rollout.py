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
        while kept < prompts and tally.rounds < self.sampling.max_rounds:
            slots = range(tally.sampled, tally.sampled + prompts - kept)
            groups, took = self._sample(seed, step, slots)
            seconds += took
            groups, tally = self._filter(groups, tally)
            kept += int(groups.keep_PG.any(1).sum())
            rounds.append(groups)
        return Rollout(concatenate(rounds), tally, seconds)

    def _sample(self, seed: int, step: int, slots: range) -> tuple[Groups, float]:
        """Sample and score one round; return how long the engine took, too."""
        problems = [self._draw(seed, step, slot) for slot in slots]
        prompt_ids = [self.policy.encode(problem.prompt) for problem in problems]
        began = time.perf_counter()
        completions = self.engine.generate(
            prompt_ids,
            self.sampling.group_size,
            temperature=self.sampling.temperature,
            seeds=[subseed(seed, Stream.GENERATE, step, slot) for slot in slots],
        )
        seconds = time.perf_counter() - began
        return self._score(tuple(problems), prompt_ids, completions), seconds

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

    def _score(
        self, problems: tuple[Problem, ...], prompt_ids: list[list[int]], completions: Completions
    ) -> Groups:
        """Judge each completion; add the length penalty and the shaping; say who votes."""
        shape = (len(problems), self.sampling.group_size)
        texts = [self.policy.decode(ids) for ids in completions.ids]
        asked = [problem for problem in problems for _ in range(self.sampling.group_size)]
        scores = self.judge(self.task, asked, texts)
        raw_PG, real_PG = without_faults(torch.tensor(scores, dtype=torch.float64).view(shape))
        zero_PG = torch.zeros_like(raw_PG)
        bare = Groups(
            problems,
            prompt_ids,
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
        completions=Completions(
            [ids for part in parts for ids in part.completions.ids],
            [row for part in parts for row in part.completions.logprobs],
            [cut for part in parts for cut in part.completions.truncated],
            [cached for part in parts for cached in part.completions.cached],
        ),
        texts=[text for part in parts for text in part.texts],
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in tensors},
    )
