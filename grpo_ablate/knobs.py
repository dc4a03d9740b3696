"""The types a configuration knob may have, with their ranges; torch-free.

A technique annotates its keyword-only knobs with these, and the checker below holds a config
value against the annotation. So a range is declared once, beside the formula that needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Range:
    """An interval; `open_low` / `open_high` exclude the end itself."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        """Tell whether value lies inside; NaN lies nowhere."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        """Write the interval as mathematicians do."""
        low = "(" if self.open_low else "["
        high = ")" if self.open_high or math.isinf(self.high) else "]"
        return f"{low}{self.low:g}, {self.high:g}{high}"


Fraction = Annotated[float, Range(0, 1, open_low=True, open_high=True)]
"""A number strictly between 0 and 1, such as a clip width."""
Share = Annotated[float, Range(0, 1)]
"""A number from 0 to 1, both included."""
SmallShare = Annotated[float, Range(0, 0.1)]
"""A share of the main reward that shaping may add or take (article: L4)."""
Decay = Annotated[float, Range(0, 1, open_high=True)]
"""A weight of the past: 0 forgets at once, 1 is excluded because it would never learn."""
Positive = Annotated[float, Range(0, open_low=True, high=1e12)]
NonNegative = Annotated[float, Range(0, high=1e12)]
Bound = Positive | None
"""A bound above 0, or null for none."""
Cap = Annotated[float, Range(1, 1e12)] | None
"""A factor of at least 1, or null for no cap."""
Count = Annotated[int, Range(1, 2**31)]
"""A whole number, at least 1."""
Index = Annotated[int, Range(0, 2**31)]
"""A whole number, at least 0."""


def problem_with(value: Any, annotation: Any) -> str | None:
    """Say why a config value does not fit an annotation; None where it does.

    Whole numbers count as floats; booleans count as neither, since `true` for a number is a
    slip of the pen that Python would take for 1.
    """
    if get_origin(annotation) in (Union, UnionType):
        inner, nothing = get_args(annotation)
        assert nothing is NoneType, "a knob has one type, or that type and null"
        wrong = problem_with(value, inner)
        return None if value is None or not wrong else wrong.replace(", got", " or null, got")
    if get_origin(annotation) is Annotated:
        kind, interval = get_args(annotation)
        wrong = problem_with(value, kind)
        if wrong or value in interval:
            return wrong
        return f"must lie in {interval}, got {value!r}"
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        same = any(value == choice and type(value) is type(choice) for choice in choices)
        return None if same else f"must be one of {list(choices)}, got {value!r}"
    if annotation is str and value == "":
        return "must not be empty"
    fits = isinstance(value, (int, float) if annotation is float else annotation)
    if fits and (annotation is bool or not isinstance(value, bool)):
        return None
    return f"must be {_WORDS[annotation]}, got {value!r} ({type(value).__name__})"


_WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    dict: "a mapping",
}
