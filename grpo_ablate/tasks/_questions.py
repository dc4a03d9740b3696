"""What tasks with a finite list of questions share: the split, the prompt, the verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grpo_ablate.types import Problem
from grpo_ablate.verifiers import verifier


class Questions:
    """Questions split once into training and held-out ones; no question is on both sides.

    The held-out ones are halved by `eval/selection_accuracy` and `eval/test_accuracy`.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        source: str,
        rule: str,
        answer_after: str | None,
        held_out: int,
        held_out_seed: int,
    ) -> None:
        """Split.

        Args:
            problems: prompts and gold answers; only the first of equal prompts counts.
            source: named in errors.
            rule: see `verifiers`.
            answer_after: the answer is what follows its last occurrence; None: the whole response.
            held_out: questions set aside for evaluation.
            held_out_seed: which ones.

        Raises:
            ValueError: no question would be left to train on, or there is no such rule.
        """
        first: dict[str, Problem] = {}
        for problem in problems:
            first.setdefault(problem.prompt, problem)
        unique = list(first.values())
        if len(unique) <= held_out:
            raise ValueError(
                f"{source} has {len(unique)} different questions, task.held_out={held_out} leaves"
                " none to train on; lower it or bring more"
            )
        order = np.random.default_rng(held_out_seed).permutation(len(unique)).tolist()
        self._held_out: tuple[Problem, ...] = tuple(unique[i] for i in order[:held_out])
        self._training: tuple[Problem, ...] = tuple(unique[i] for i in sorted(order[held_out:]))
        self._verify = verifier(rule)
        self._answer_after = answer_after

    def sample(self, rng: np.random.Generator) -> Problem:
        """Draw one training question; all are equally likely."""
        return self._training[int(rng.integers(len(self._training)))]

    def held_out(self) -> tuple[Problem, ...]:
        """Return the evaluation questions."""
        return self._held_out

    def training(self) -> tuple[Problem, ...]:
        """Return the training questions."""
        return self._training

    def score(self, problem: Problem, completion: str) -> float:
        """Judge the response's answer by the task's rule; a missing marker is wrong."""
        if not self.formatted(completion):
            return 0.0
        answer = completion
        if self._answer_after is not None:
            answer = completion.rpartition(self._answer_after)[2]
        return self._verify(problem.prompt, problem.answer, answer)

    def formatted(self, completion: str) -> bool:
        """Tell whether the response has the marker, or without one says anything."""
        if self._answer_after is not None:
            return self._answer_after in completion
        return bool(completion.strip())


def fill(template: str, question: str) -> str:
    """Return the prompt for a question.

    Raises:
        ValueError: the template has no place for it.
    """
    if "{question}" not in template:
        raise ValueError(f"task.template={template!r} has no {{question}} in it")
    return template.replace("{question}", question)
