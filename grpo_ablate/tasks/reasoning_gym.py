"""Any of the procedural tasks of reasoning-gym (extra `tasks`), by name and options.

The package's own score gives half a point where the gold answer is part of the response, and a
hundredth for anything: here an answer is right or wrong by the rule of `task.verifier`. Tasks
with many right answers (countdown) need a `python:` rule.
"""

from __future__ import annotations

from typing import Any

from grpo_ablate.knobs import Count, Index
from grpo_ablate.tasks._questions import Questions, fill
from grpo_ablate.types import Problem


class ReasoningGym(Questions):
    """Questions of one reasoning-gym data set, de-duplicated."""

    def __init__(
        self,
        *,
        dataset: str,
        options: dict,  # type: ignore[type-arg]
        size: Count,
        data_seed: Index,
        template: str,
        verifier: str,
        answer_after: str | None,
        held_out: Count,
        held_out_seed: Index,
    ) -> None:
        """Generate the questions.

        Args:
            dataset: its name in reasoning-gym.
            options: of its configuration.
            size: questions generated; small configurations repeat some, which then count once.
            data_seed: of the generator.
            template: the prompt, with `{question}` in it.
            verifier: see `verifiers`.
            answer_after: the answer follows its last occurrence; null: the whole response.
            held_out: questions set aside for evaluation.
            held_out_seed: which ones.

        Raises:
            ValueError: unknown name or option, or too few different questions.
        """
        source = f"task.dataset={dataset}"
        entries = _entries(dataset, options, size, data_seed)
        super().__init__(
            [Problem(fill(template, e["question"]), str(e["answer"]).strip(), 1) for e in entries],
            source=source,
            rule=verifier,
            answer_after=answer_after,
            held_out=held_out,
            held_out_seed=held_out_seed,
        )


def _entries(dataset: str, options: dict[str, Any], size: int, seed: int) -> list[dict[str, Any]]:
    import reasoning_gym

    try:
        made = reasoning_gym.create_dataset(dataset, size=size, seed=seed, **options)
        return [made[i] for i in range(size)]
    except (ValueError, TypeError, AssertionError) as error:
        raise ValueError(
            f"reasoning-gym refuses task.dataset={dataset} with task.options={options}: {error}"
        ) from error
