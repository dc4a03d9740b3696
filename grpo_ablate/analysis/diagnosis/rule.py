"""What a rule of `diagnose` is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from grpo_ablate.analysis.diagnosis.log import Evidence, Log

Level = Literal["fault", "caution", "note"]

LEVELS: tuple[Level, ...] = ("fault", "caution", "note")
"""From what to act on to what to know."""


@dataclass(frozen=True)
class Rule:
    """One sign of trouble."""

    id: str
    level: Level
    signals: tuple[str, ...]
    """What the check reads; `a|b` stands for either."""
    check: Callable[[Log], Evidence | None]
    says: str
    """What was seen, filled in from the evidence's numbers."""
    cause: str
    remedies: tuple[str, ...]
    """Names in `REMEDIES`, in the order to try."""
    source: str
    window: int = 0
    """Steps that a log must span before the rule is asked."""
    unless: tuple[str, ...] = ()
    """Rules whose firing silences this one."""
