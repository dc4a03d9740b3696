"""Made-up logs: a row every ten steps, each signal a function of the step."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from grpo_ablate.analysis.diagnosis.log import Log


def log(
    last: int = 400,
    *,
    every: int = 10,
    trainer: str = "grpo_ablate",
    config: dict | None = None,
    **signals: Callable[[int], float],
) -> Log:
    """Return a log whose signals are named `reward_mean` for `reward/mean`."""
    steps = range(every, last + 1, every)
    named = {name.replace("_", "/", 1): call for name, call in signals.items()}
    series = {name: pd.Series({s: float(f(s)) for s in steps}) for name, f in named.items()}
    return Log("made up", trainer, series, config=config or {})


def flat(value: float) -> Callable[[int], float]:
    return lambda step: value


def line(start: float, end: float, over: int = 400) -> Callable[[int], float]:
    """Go from one value to another in so many steps, then stay."""
    return lambda step: start + (end - start) * min(1.0, step / over)


def at(steps: dict[int, float], otherwise: float) -> Callable[[int], float]:
    """Take special values at some steps."""
    return lambda step: steps.get(step, otherwise)


def wobble(size: float, *, spikes: dict[int, float] | None = None) -> Callable[[int], float]:
    """Go up and down by `size`, but for spikes."""
    return lambda step: (spikes or {}).get(step, size if step // 10 % 2 else -size)
