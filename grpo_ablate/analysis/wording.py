"""How a verdict is put into words: numbers in points of accuracy, no claim beyond the interval."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_ablate.analysis.verdict import Comparison, Verdict
from grpo_ablate.study import Design

_NUMBERED = ("helps", "hurts", "equivalent within ±δ", "underpowered")


def sentence(found: Verdict, design: Design, cost: Mapping[str, float | None]) -> str:
    """Return a verdict in one sentence.

    Example: "clip_higher helps: +3.1 pt held-out accuracy at step 500 (95 % interval +1.2…+5.0;
    3 seeds, all up; Holm p .004; this study resolves 2.4 pt; 4 % more generated tokens)."

    Args:
        found: the verdict.
        design: of the study.
        cost: the arm's cost relative to the baseline's, by name; "tokens" is told.
    """
    comparison = found.comparison
    if found.verdict not in _NUMBERED or comparison is None:
        return f"{found.arm}: {found.verdict}: {found.reason}."
    details = "; ".join(filter(None, _details(found, comparison, design, cost)))
    change = points(comparison.estimate.delta)
    text = f"{change} pt held-out accuracy at step {design.horizon} ({details})"
    if found.repeat:
        return f"{found.arm} (the baseline run again): {_noise(found)}: {text}."
    if found.verdict == "underpowered":
        return f"{found.arm}: underpowered: {found.reason}: {text}."
    return f"{found.arm} {_verb(found.verdict, design)}: {text}."


def points(share: float) -> str:
    """Return a difference of shares in points with its sign: .0312 → +3.1."""
    return f"{100 * share:+.1f}"


def p_value(p: float) -> str:
    """Return a p-value as journals write it: .004; below .001 no digits."""
    return "below .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _details(
    found: Verdict, comparison: Comparison, design: Design, cost: Mapping[str, float | None]
) -> list[str]:
    estimate, n = comparison.estimate, len(comparison.seeds)
    wide = 100 * (1 - design.alpha)
    sees = f"{100 * comparison.resolution(n, design.alpha):.1f} pt"
    holm = "" if found.repeat or found.p_holm is None else f"Holm p {p_value(found.p_holm)}"
    return [
        f"{wide:g} % interval {points(estimate.lo)}…{points(estimate.hi)}",
        _seeds(found, n),
        holm or f"p {p_value(estimate.p)}",
        ""
        if found.verdict == "underpowered" and not found.repeat
        else f"this study resolves {sees}",
        _tokens(cost.get("tokens")),
    ]


def _seeds(found: Verdict, compared: int) -> str:
    planned = len(found.seeds)
    count = f"{compared} seeds" if compared == planned else f"{compared}/{planned} seeds"
    if not found.per_seed:
        return f"{count}, none shared"
    if not any(found.per_seed.values()):
        return f"{count}, none moved"
    up = sum(d > 0 for d in found.per_seed.values())
    down = sum(d < 0 for d in found.per_seed.values())
    if up == len(found.per_seed):
        return f"{count}, all up"
    return f"{count}, all down" if down == len(found.per_seed) else f"{count}, {up} up, {down} down"


def _tokens(ratio: float | None) -> str:
    if ratio is None:
        return ""
    percent = round(100 * (ratio - 1))
    if percent == 0:
        return "as many generated tokens"
    return f"{abs(percent)} % {'more' if percent > 0 else 'fewer'} generated tokens"


def _noise(found: Verdict) -> str:
    if found.verdict in ("helps", "hurts"):
        return "an effect where there can be none, which is to happen in 1 study of 20"
    return "no detectable effect, the noise floor"


def _verb(verdict: str, design: Design) -> str:
    if verdict.startswith("equivalent"):
        return f"is equivalent to the baseline within ±{100 * design.margin:g} pt"
    return verdict
