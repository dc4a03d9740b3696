"""Sums and differences with a scratchpad: the procedural task of the embedded default.

A question is a chain such as ``7+8-3+9:``. A response may answer at once (``=21``) or work step by
step (``7+8=15-3=12+9=21``): what follows the last ``=`` is the answer either way, so working is
never rewarded for itself, only for being right more often.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from grpo_ablate.knobs import Count, Index
from grpo_ablate.types import Problem

_MAX_DRAWS = 1000
_TERM = re.compile(r"([+-])([0-9]+)")
_FORM = re.compile(r"=[0-9]+|[0-9]+([+-][0-9]+=[0-9]+)+")


class Arithmetic:
    """Chains of additions and subtractions whose running total never falls below zero.

    The number of operands is the difficulty: it is drawn uniformly, so a batch always holds easy
    chains and a hard tail, and results can be read by difficulty (article: A7). Chains that are
    held out are drawn again, so short chains, few of which exist, are rarer in training.

    Example:
        >>> task = Arithmetic(
        ...     min_operands=3, max_operands=5, max_number=9, held_out=90, held_out_seed=1
        ... )
        >>> problem = Problem(prompt="7+8-3:", answer="12", difficulty=3)
        >>> task.score(problem, "7+8=15-3=12"), task.score(problem, "=12")
        (1.0, 1.0)
        >>> task.score(problem, "7+8=15-3=2")
        0.0
    """

    def __init__(
        self,
        *,
        min_operands: Count,
        max_operands: Count,
        max_number: Count,
        held_out: Count,
        held_out_seed: Index,
    ) -> None:
        """Set the held-out questions aside.

        Args:
            min_operands: Fewest numbers in a chain, at least 2.
            max_operands: Most numbers in a chain.
            max_number: Each number is drawn from 1 to this one.
            held_out: How many questions to set aside for evaluation.
            held_out_seed: Seed of those questions; training never sees them.

        Raises:
            ValueError: The operands are out of order, or the space of questions is too small to
                set `held_out` of them aside.
        """
        if not 2 <= min_operands <= max_operands:
            raise ValueError(
                f"task.min_operands={min_operands} and task.max_operands={max_operands} leave no"
                " chain to ask for; give 2 <= min_operands <= max_operands"
            )
        self._operands = range(min_operands, max_operands + 1)
        self._max_number = max_number
        self._held_out = self._draw_held_out(held_out, held_out_seed)
        self._reserved = frozenset(problem.prompt for problem in self._held_out)

    def sample(self, rng: np.random.Generator) -> Problem:
        """Draw one training problem, never a held-out question.

        Args:
            rng: The only source of randomness.

        Returns:
            A problem whose question is not held out.

        Raises:
            ValueError: The held-out set leaves next to no questions to train on.
        """
        for _ in range(_MAX_DRAWS):
            problem = self._draw(rng, int(rng.integers(self._operands.start, self._operands.stop)))
            if problem.prompt not in self._reserved:
                return problem
        raise ValueError(
            f"{_MAX_DRAWS} draws in a row were held-out questions; lower task.held_out, or raise"
            " task.max_operands or task.max_number"
        )

    def held_out(self) -> tuple[Problem, ...]:
        """Return the evaluation problems: unique, balanced over difficulties, set by the seed."""
        return self._held_out

    def score(self, problem: Problem, completion: str) -> float:
        """Score a completion: right or wrong, nothing in between.

        The answer is the text after the last ``=``, compared as text: no number is parsed, so no
        length of digits and no foreign digit can raise or pass for a right answer.

        Args:
            problem: The problem that was asked.
            completion: The decoded response, without special tokens.

        Returns:
            1.0 if the answer is exactly ``problem.answer``, else 0.0.
        """
        return float(completion.rpartition("=")[2].strip() == problem.answer)

    def formatted(self, completion: str) -> bool:
        """Tell whether a completion is `=N`, or a chain of steps each of which states its total.

        Args:
            completion: The decoded response, without special tokens.
        """
        return _FORM.fullmatch(completion) is not None

    def _draw(self, rng: np.random.Generator, operands: int) -> Problem:
        """Draw a chain of exactly so many operands."""
        numbers = rng.integers(1, self._max_number + 1, size=operands).tolist()
        pluses = (rng.random(operands) < 0.5).tolist()
        total, text = numbers[0], str(numbers[0])
        for number, plus in zip(numbers[1:], pluses[1:], strict=True):
            # A total below zero would need a sign, a skill beside the one under study.
            add = plus or number > total
            total += number if add else -number
            text += f"{'+' if add else '-'}{number}"
        return Problem(prompt=f"{text}:", answer=str(total), difficulty=operands)

    def _draw_held_out(self, count: int, seed: int) -> tuple[Problem, ...]:
        """Draw unique questions, one difficulty after the other, until there are enough."""
        rng = np.random.default_rng(seed)
        chosen: dict[str, Problem] = {}
        for index in range(count):
            operands = self._operands[index % len(self._operands)]
            for _ in range(_MAX_DRAWS):
                problem = self._draw(rng, operands)
                if problem.prompt not in chosen:
                    chosen[problem.prompt] = problem
                    break
            else:
                raise ValueError(
                    f"task.held_out={count} exceeds the questions of {operands} operands that exist"
                    f" with task.max_number={self._max_number}; lower task.held_out, or raise"
                    " task.min_operands or task.max_number"
                )
        return tuple(chosen.values())


@dataclass(frozen=True)
class Demonstrator:
    """Writes the responses that the tiny model's supervised warm start imitates.

    It is a careless pupil on purpose. It often answers at once, else works step by step and merges
    some steps; what it does in its head it miscounts more often; and it has learned its sums one by
    one, many of them wrongly. A model that imitates it is unsure how to work and unsure of single
    facts. Thousands of facts have to be put right separately, so reinforcement learning improves
    gradually: one common flaw would be unlearned within twenty steps.

    Example:
        >>> sure = Demonstrator(direct=0.0, merge=0.0, miscount=0.0, doubt=0.0, facts_seed=0)
        >>> sure.write(Problem("7+8-3:", "12", 3), np.random.default_rng(0))
        '7+8=15-3=12'

    Attributes:
        direct: Share of responses that answer at once.
        merge: Chance, in a worked response, that a step is folded into the next one.
        miscount: Chance that a step done in the head comes out one too many or too few.
        doubt: The most that a single fact is got wrong; see ``fact``.
        facts_seed: Seed of which facts are got wrong, how often and by how much.
    """

    direct: float
    merge: float
    miscount: float
    doubt: float
    facts_seed: int

    def write(self, problem: Problem, rng: np.random.Generator) -> str:
        """Write one response to a problem.

        Args:
            problem: A problem of ``Arithmetic``.
            rng: The source of randomness for the style and for each slip.

        Returns:
            The response's text, without an end mark.
        """
        first, terms = re.split(r"[+-]", problem.prompt)[0], _TERM.findall(problem.prompt)
        last = len(terms) - 1
        direct = rng.random() < self.direct
        total, text, merging = int(first), first, False
        for index, (sign, digits) in enumerate(terms):
            text += sign + digits
            show = index == last or not (direct or rng.random() < self.merge)
            in_head = merging or not show
            total = self._step(total, int(sign + digits), rng, in_head=in_head)
            merging = not show
            if show:
                text += f"={total}"
        return f"={total}" if direct else text

    def _step(self, total: int, change: int, rng: np.random.Generator, *, in_head: bool) -> int:
        """Add a signed number the way the pupil does."""
        wrong, offset = fact(self.facts_seed, total, change)
        result = total + change
        if rng.random() < self.doubt * wrong:
            result += offset
        if in_head and rng.random() < self.miscount:
            result += 1 if rng.random() < 0.5 else -1
        return max(result, 0)


@cache
def fact(seed: int, total: int, change: int) -> tuple[float, int]:
    """Return how one sum is remembered: how doubtful it is, 0 to 1, and by how much it is off.

    Doubt is uniform, so that right and wrong facts come in equal numbers: were most facts right,
    a general habit of preferring the commoner kind of answer would mend all of them at once.

    Args:
        seed: Seed of the whole set of facts.
        total: The total before the step.
        change: The signed number added.
    """
    rng = np.random.default_rng([seed, total, abs(change), int(change > 0)])
    return float(rng.random()), int(rng.choice((-2, -1, 1, 2)))
