"""Held-out accuracy: the one figure arms are compared by (Hydra group `evaluation`)."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from grpo_ablate.knobs import Count, Index, Positive
from grpo_ablate.models import Policy
from grpo_ablate.scoring import Judge
from grpo_ablate.streams import Stream, subseed
from grpo_ablate.types import Completions, Engine, Problem, Task


@dataclass(frozen=True)
class Sample:
    """One held-out question with the model's greedy answer."""

    prompt: str
    answer: str
    completion: str
    reward: float
    difficulty: int


@dataclass(frozen=True)
class Evaluation:
    """Scores of one evaluation, ready for `eval.csv`, and some of the answers to read."""

    scores: dict[str, float]
    samples: list[Sample]


class HeldOut:
    """Greedy and sampled accuracy on the task's held-out set, without penalty or shaping.

    The sampled pass has its own seed, the same for each arm, seed and evaluation, so that
    differences between arms are not differences in luck.
    """

    def __init__(
        self,
        policy: Policy,
        task: Task,
        engine: Engine,
        judge: Judge = Judge(),  # noqa: B008  frozen, so it may be shared
        *,
        problems: Count,
        temperature: Positive,
        seed: Index,
        samples: Index,
    ) -> None:
        """Choose the questions.

        Args:
            policy: encodes and decodes.
            task: asks and judges.
            engine: answers.
            judge: asks the task for rewards.
            problems: held-out questions used, the first of the task's set.
            temperature: of the sampled pass.
            seed: of the sampled pass.
            samples: questions written to samples.jsonl with the model's answer.

        Raises:
            ValueError: the task holds out fewer questions than asked for.
        """
        held_out = task.held_out()
        if problems > len(held_out):
            raise ValueError(
                f"evaluation.problems={problems} exceeds the {len(held_out)} questions the task"
                " holds out; lower it or raise task.held_out"
            )
        self.policy, self.task, self.engine, self.judge = policy, task, engine, judge
        self.problems = held_out[:problems]
        self.temperature, self.seed, self.samples = temperature, seed, samples

    def columns(self) -> list[str]:
        """Return the names of all scores, in the order of `eval.csv`."""
        by_difficulty = [f"eval/accuracy_{level}" for level in self._levels()]
        return [
            "eval/accuracy",
            "eval/selection_accuracy",
            "eval/test_accuracy",
            "eval/sampled_accuracy",
            "eval/length_mean",
            *by_difficulty,
        ]

    def __call__(self) -> Evaluation:
        """Evaluate the engine's current weights."""
        greedy, sampled = self._answer(0.0), self._answer(self.temperature)
        texts = [self.policy.decode(ids) for ids in greedy.ids]
        rewards = self._score(texts)
        by_level: dict[int, list[float]] = defaultdict(list)
        for problem, reward in zip(self.problems, rewards, strict=True):
            by_level[problem.difficulty].append(reward)
        scores = {
            "eval/accuracy": fmean(rewards),
            # disjoint halves: what chooses a checkpoint must not grade it (article: X7)
            "eval/selection_accuracy": fmean(rewards[::2]),
            "eval/test_accuracy": fmean(rewards[1::2]) if rewards[1:] else math.nan,
            "eval/sampled_accuracy": fmean(
                self._score([self.policy.decode(ids) for ids in sampled.ids])
            ),
            "eval/length_mean": fmean(len(ids) for ids in greedy.ids),
        } | {f"eval/accuracy_{level}": fmean(by_level[level]) for level in self._levels()}
        shown = zip(self.problems, texts, rewards, strict=True)
        return Evaluation(scores, [self._sample(*row) for row in list(shown)[: self.samples]])

    def _levels(self) -> list[int]:
        return sorted({problem.difficulty for problem in self.problems})

    def _answer(self, temperature: float) -> Completions:
        return self.engine.generate(
            [self.policy.encode(problem.prompt) for problem in self.problems],
            1,
            temperature=temperature,
            seeds=[subseed(self.seed, Stream.EVALUATE, i) for i in range(len(self.problems))],
        )

    def _score(self, texts: list[str]) -> list[float]:
        scores = self.judge(self.task, self.problems, texts)
        # an answer that cannot be judged is not right: the denominator stays the same for all
        return [0.0 if math.isnan(score) else score for score in scores]

    @staticmethod
    def _sample(problem: Problem, text: str, reward: float) -> Sample:
        return Sample(problem.prompt, problem.answer, text, reward, problem.difficulty)
