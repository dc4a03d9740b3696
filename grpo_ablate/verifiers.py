"""Is an answer right? Rules that never raise and never hang, whatever the model wrote; torch-free.

    exact                   the same text, outer blanks aside
    number                  the last number of the answer equals the gold one
    math                    math-verify finds the two expressions equal
    python:module.function  your own: function(question, gold, answer) -> a number

`math` and `python:` run in a process of their own with a second for each answer. Your own
function's failure counts as a fault, which `monitor.max_fault_share` bounds; an answer that
math-verify cannot digest is wrong.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable

from grpo_ablate.isolated import Isolated, IsolatedError

Verifier = Callable[[str, str, str], float]
"""(question, gold, answer) -> reward."""

NAMES = ("exact", "number", "math")
OWN = "python:"
_TAIL = 10_000
"""Characters that are looked at, from the end, where an answer stands."""
_MATH_TAIL = 2_000
_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9,]*)?\.?[0-9]+")


def verifier(name: str) -> Verifier:
    """Return a verifier by its configured name.

    Args:
        name: one of NAMES, or `python:module.function`.

    Raises:
        ValueError: there is no such verifier or module.
    """
    if name.startswith(OWN):
        return _own(name.removeprefix(OWN))
    rules: dict[str, Callable[[], Verifier]] = {
        "exact": lambda: exact,
        "number": lambda: number,
        "math": _math,
    }
    if name not in rules:
        raise ValueError(
            f"task.verifier={name} is unknown; there is {', '.join(NAMES)} and {OWN}module.function"
        )
    return rules[name]()


def exact(question: str, gold: str, answer: str) -> float:
    """Compare as text: no digit of another script passes for one of ours."""
    return float(answer.strip() == gold.strip())


def number(question: str, gold: str, answer: str) -> float:
    """Compare the last number of each; as text, so that no length of digits can raise."""
    found = last_number(answer)
    return float(found is not None and found == last_number(gold))


def last_number(text: str) -> str | None:
    """Return the last decimal number in its shortest form: `-1,200.50` is `-1200.5`.

    Args:
        text: anything; a sign, thousands commas and a decimal point are understood.
    """
    found = _NUMBER.findall(text[-_TAIL:])
    if not found:
        return None
    whole, _, fraction = found[-1].replace(",", "").lstrip("+-").partition(".")
    short = (whole.lstrip("0") or "0") + f".{fraction.rstrip('0')}".rstrip(".")
    return f"-{short}" if found[-1][0] == "-" and short != "0" else short


def _math() -> Verifier:
    call = Isolated("grpo_ablate.expressions.equal")

    def rule(question: str, gold: str, answer: str) -> float:
        try:
            return float(call(gold, answer[-_MATH_TAIL:]))
        except IsolatedError:
            return 0.0

    return rule


def _own(function: str) -> Verifier:
    module = function.rpartition(".")[0]
    try:
        known = bool(module) and importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        known = False
    if not known:
        raise ValueError(
            f"task.verifier={OWN}{function}: there is no module {module or function!r} to import;"
            " run from the folder it lies in, or install it"
        )
    call = Isolated(function)

    def rule(question: str, gold: str, answer: str) -> float:
        try:
            reward = float(call(question, gold, answer))
        except (IsolatedError, TypeError, ValueError):
            return math.nan  # the judge counts it as a fault
        return reward if math.isfinite(reward) else math.nan

    return rule
