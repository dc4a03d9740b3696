"""Calls of the task's reward function, which may fail: raise, hang, or return no number."""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from types import FrameType

from torch import Tensor

from grpo_ablate import ranks
from grpo_ablate.types import Problem, Task


class RewardFaultError(RuntimeError):
    """The reward function failed on too large a share of the responses."""


class _HungError(Exception):
    """One call took too long."""


@dataclass(frozen=True)
class Judge:
    """Asks for rewards, row by row; a row that cannot be judged becomes NaN."""

    timeout: float = 10.0
    """Seconds for one call. Python code is interrupted; a C function that never returns is not."""
    max_fault_share: float = 0.1

    def __call__(
        self, task: Task, problems: Sequence[Problem], texts: Sequence[str]
    ) -> list[float]:
        """Score each completion.

        Args:
            task: whose reward function it is.
            problems: [B].
            texts: [B].

        Returns:
            [B] rewards; NaN where the function raised, hung or returned anything but a number.

        Raises:
            RewardFaultError: it failed on more than the allowed share.
        """
        faults: list[str] = []
        pairs = list(zip(problems, texts, strict=True))
        rewards = ranks.of_first(lambda: [self._one(task, *pair, faults) for pair in pairs])
        if len(faults) > self.max_fault_share * len(rewards):
            raise RewardFaultError(
                f"the reward function failed on {len(faults)} of {len(rewards)} responses, above"
                f" monitor.max_fault_share={self.max_fault_share:g}; the first: {faults[0]}; mend"
                " the task's score()"
            )
        for fault in faults[:1]:
            print(f"reward function failed {len(faults)} times; first: {fault}", file=sys.stderr)
        return rewards

    def _one(self, task: Task, problem: Problem, text: str, faults: list[str]) -> float:
        try:
            with _time_limit(self.timeout):
                reward: object = task.score(problem, text)
        except Exception as error:  # whatever a stranger's function raises
            faults.append(f"{type(error).__name__}: {error} (prompt {problem.prompt!r})")
            return math.nan
        if isinstance(reward, Real) and math.isfinite(reward):
            return float(reward)
        faults.append(f"returned {reward!r}, not a finite number (prompt {problem.prompt!r})")
        return math.nan


def without_faults(rewards_PG: Tensor) -> tuple[Tensor, Tensor]:
    """Take the rows without a reward out of the running.

    Such a row gets the mean of its group's other rewards, so that no mean over the group moves,
    and 0 in a group without any.

    Args:
        rewards_PG: NaN where the reward function failed.

    Returns:
        Rewards without NaN, and bool [P, G]: which rows are real.
    """
    real_PG = ~rewards_PG.isnan()
    count_P1 = real_PG.sum(1, keepdim=True).clamp(min=1)
    mean_P1 = rewards_PG.nan_to_num(0.0).sum(1, keepdim=True) / count_P1
    return rewards_PG.where(real_PG, mean_P1), real_PG


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise inside the block when time is up; only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _HungError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
