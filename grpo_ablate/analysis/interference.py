"""Do two levers help or fight each other? Base, A, B and AB over the same seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_ablate.analysis import stats
from grpo_ablate.analysis.stats import Estimate
from grpo_ablate.analysis.verdict import Verdict
from grpo_ablate.analysis.wording import p_value, points
from grpo_ablate.study import Design

WORDS = ("synergy", "interference", "additive within ±δ", "undetermined", "scale-dependent")

_UNFIT = ("invalid", "incomplete", "too early to judge", "unstable", "inert")


@dataclass(frozen=True)
class Interaction:
    """What a pair of levers does beyond the sum of its parts."""

    a: str
    b: str
    ab: str
    word: str = "undetermined"
    reason: str = ""
    per_seed: dict[int, float] | None = None
    raw: Estimate | None = None
    """In shares of held-out accuracy."""
    logit: Estimate | None = None
    """In log odds, where a ceiling bends less."""
    p_holm: float | None = None
    method: str = ""
    """block: σ of all arms; seeds: the spread of this contrast alone."""


def pairs(deltas: Mapping[str, Mapping[str, Any] | None]) -> list[tuple[str, str, str]]:
    """Return (A, B, AB) wherever an arm's delta is exactly that of two other arms together."""
    known = {arm: delta for arm, delta in sorted(deltas.items()) if delta}
    return [
        (a, b, ab)
        for a, b in itertools.combinations(known, 2)
        for ab in known
        if not known[a].keys() & known[b].keys() and {**known[a], **known[b]} == known[ab]
    ]


def judge(
    baseline: Mapping[int, float],
    verdicts: Mapping[str, Verdict],
    triples: Sequence[tuple[str, str, str]],
    design: Design,
) -> list[Interaction]:
    """Judge each pair; p-values are adjusted (Holm) over the pairs of the stage.

    Args:
        baseline: seed → score.
        verdicts: of all arms of the stage.
        triples: as `pairs` found them.
        design: of the study.
    """
    found = [_measure(baseline, verdicts, triple, design) for triple in triples]
    known = [i for i in found if i.raw is not None and i.logit is not None]
    raised = stats.holm([i.raw.p for i in known if i.raw])
    odds = stats.holm([i.logit.p for i in known if i.logit])
    named = {
        i.ab: _name(i, float(p), float(q), design)
        for i, p, q in zip(known, raised, odds, strict=True)
    }
    return [named.get(i.ab, i) for i in found]


def _measure(
    baseline: Mapping[int, float],
    verdicts: Mapping[str, Verdict],
    triple: tuple[str, str, str],
    design: Design,
) -> Interaction:
    a, b, ab = triple
    blank = Interaction(a, b, ab)
    for name in triple:
        if verdicts[name].verdict in _UNFIT:
            return replace(blank, reason=f"{name}: {verdicts[name].verdict}")
    rows = [baseline, *(verdicts[name].scores for name in triple)]
    seeds = sorted(set.intersection(*(set(row) for row in rows)))
    if len(seeds) < 2:
        return replace(blank, reason=f"{len(seeds)} seeds shared by all four arms; two are needed")
    table = [[row[seed] for seed in seeds] for row in rows]
    base, one, two, both = table
    values, raw = stats.interaction(base, one, two, both, design.alpha)
    odds_of = [stats.logit(row) for row in table]
    _, odds = stats.interaction(odds_of[0], odds_of[1], odds_of[2], odds_of[3], design.alpha)
    method = "seeds"
    fits = [verdicts[name].comparison for name in triple]
    if all(fit and fit.method == "block" and fit.seeds == tuple(seeds) for fit in fits):
        fit = fits[0]
        assert fit is not None
        se = 2 * fit.sigma / len(seeds) ** 0.5
        raw, method = stats.estimate(raw.delta, se, fit.estimate.df, design.alpha), "block"
        four = stats.block(odds_of, design.alpha)
        odds = stats.estimate(odds.delta, 2 * four.sigma / len(seeds) ** 0.5, four.df, design.alpha)
    spread = dict(zip(seeds, map(float, values), strict=True))
    return replace(blank, per_seed=spread, raw=raw, logit=odds, method=method)


def _name(found: Interaction, p_raw: float, p_logit: float, design: Design) -> Interaction:
    raw, logit = found.raw, found.logit
    assert raw is not None and logit is not None
    seen, seen_in_odds = p_raw < design.alpha, p_logit < design.alpha
    if seen and seen_in_odds and (raw.delta > 0) == (logit.delta > 0):
        word = "synergy" if raw.delta > 0 else "interference"
        reason = "the interval excludes 0 on both scales"
    elif seen or seen_in_odds:
        scale = "points" if seen else "log odds"
        word, reason = "scale-dependent", f"the interval excludes 0 in {scale} alone"
        if seen and seen_in_odds:
            reason = "the sign differs between points and log odds"
    elif stats.equivalence_p(raw, design.margin) < design.alpha:
        word = "additive within ±δ"
        reason = f"{100 * (1 - 2 * design.alpha):g} % interval inside ±{100 * design.margin:g} pt"
    else:
        word, reason = "undetermined", "the interval holds both 0 and more than the margin"
    return replace(found, word=word, reason=reason, p_holm=p_raw)


def sentence(found: Interaction, design: Design) -> str:
    """Return an interaction in one sentence."""
    head = f"{found.a} × {found.b}: {found.word.replace('±δ', f'±{100 * design.margin:g} pt')}"
    if found.raw is None or found.p_holm is None or found.per_seed is None:
        return f"{head}: {found.reason}."
    raw = found.raw
    return (
        f"{head}: {points(raw.delta)} pt beyond the sum of both"
        f" ({100 * (1 - design.alpha):g} % interval {points(raw.lo)}…{points(raw.hi)};"
        f" {len(found.per_seed)} seeds; Holm p {p_value(found.p_holm)})."
    )
