"""Equality of two expressions by math-verify: may hang or raise, so call it isolated."""

from __future__ import annotations

from math_verify import parse, verify


def equal(gold: str, answer: str) -> bool:
    """Tell whether math-verify finds an answer's last expression equal to the gold one."""
    return bool(verify(_read(gold) or _read(f"${gold}$"), _read(answer), timeout_seconds=None))


def _read(text: str) -> list[object]:
    # its own time limits are signals of the main thread, which the caller needs itself
    found: list[object] = parse(text, parsing_timeout=None)
    return found


# the first call takes a second to build its grammars: once, in the process children fork from
equal("1/2", "$\\frac{1}{2}$")
