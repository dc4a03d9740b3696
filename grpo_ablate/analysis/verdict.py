"""The ladder: one verdict an arm, the first of eight that applies (docs/judging.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grpo_ablate.analysis import power, screens, stats
from grpo_ablate.analysis.evidence import Evidence
from grpo_ablate.analysis.stats import Estimate
from grpo_ablate.study import Design

LADDER = (
    "invalid",
    "incomplete",
    "too early to judge",
    "unstable",
    "inert",
    "helps",
    "hurts",
    "equivalent within ±δ",
    "underpowered",
)
"""In the order in which they are tried; helps and hurts share a rung."""


@dataclass(frozen=True)
class Comparison:
    """An arm against its baseline in numbers."""

    estimate: Estimate
    method: str
    """block, paired or welch."""
    sigma: float
    """Noise of one run."""
    arms: int
    """K of the fit: sets the degrees of freedom that more seeds would give."""
    seeds: tuple[int, ...]
    """Those compared; of the arm alone where none is shared."""
    icc: float | None = None
    """What pairing by seed bought; None outside a block."""

    def resolution(self, seeds: int, alpha: float) -> float:
        """Return the effect that this comparison finds with probability .8 at so many seeds."""
        if self.method == "welch" and seeds == len(self.seeds):
            df = self.estimate.df
        else:
            df = max(self.arms - 1, 1) * (seeds - 1)
        return power.resolution(self.sigma, seeds, df, alpha)


@dataclass(frozen=True)
class Verdict:
    """What is said of an arm, and on what grounds."""

    arm: str
    verdict: str
    """One of LADDER."""
    reason: str
    seeds: tuple[int, ...]
    """Planned."""
    scores: dict[int, float]
    per_seed: dict[int, float] = field(default_factory=dict)
    """Seed → difference from the baseline, of shared finished seeds."""
    comparison: Comparison | None = None
    p_holm: float | None = None
    equivalence_p: float | None = None
    paired: Estimate | None = None
    welch: Estimate | None = None
    repeat: str = ""


def judge(baseline: Evidence, arms: Sequence[Evidence], design: Design) -> list[Verdict]:
    """Judge all arms of one stage against their baseline.

    Args:
        baseline: what they are compared with.
        arms: the stage's other arms.
        design: as frozen in study.yaml.

    Returns:
        One verdict an arm, in the same order.
    """
    early = {arm.arm: _early(arm, baseline, design) for arm in arms}
    sound = [arm for arm in arms if early[arm.arm] is None]
    flags = screens.unstable(baseline, sound, design)
    shaky = {arm: flag.reason for arm, flag in flags.items()}
    stable = [arm for arm in sound if arm.arm not in shaky and not arm.inert]
    compared = _compare(baseline, stable, design)
    for arm in arms:
        if arm.arm not in compared:
            compared[arm.arm] = _alone(baseline, arm, design)
    doubt = any(flag.doubtful for flag in flags.values())
    adjusted = _holm(baseline, stable, compared, doubt, len(shaky)) if stable else {}
    verdicts = []
    for arm in arms:
        found = _blank(baseline, arm, compared[arm.arm], design)
        said = (
            early[arm.arm]
            or _said("unstable", shaky.get(baseline.arm, ""), "the baseline is unstable: ")
            or _said("unstable", shaky.get(arm.arm, ""))
            or _said("inert", arm.inert)
        )
        if said:
            verdicts.append(replace(found, verdict=said[0], reason=said[1]))
        else:
            verdicts.append(_decide(found, adjusted.get(arm.arm), design))
    return verdicts


def instability(baseline: Evidence, arms: Sequence[Evidence], design: Design) -> str:
    """Return why the baseline is unstable, which stops all verdicts; empty where it is not."""
    sound = [arm for arm in arms if _early(arm, baseline, design) is None]
    flag = screens.unstable(baseline, sound, design).get(baseline.arm)
    return flag.reason if flag else ""


def _said(verdict: str, reason: str, before: str = "") -> tuple[str, str] | None:
    return (verdict, before + reason) if reason else None


def _early(arm: Evidence, baseline: Evidence, design: Design) -> tuple[str, str] | None:
    """Try the rungs before any number counts: invalid, incomplete, too early."""
    if arm.invalid or baseline.invalid:
        return "invalid", arm.invalid or baseline.invalid
    for each in (arm, baseline):
        if not each.seeds:
            return "incomplete", f"there is no run of {each.arm} to compare with"
        if len(each.scores) < 2:
            done = f"{len(each.scores)}/{len(each.seeds)} seeds of {each.arm} finished"
            return "incomplete", f"{done}; a spread needs two"
    reached = min(arm.reached, baseline.reached)
    if min(reached, design.horizon) < design.earliest:
        at = min(reached, design.horizon)
        return "too early to judge", f"step {at}; nothing is judged before step {design.earliest}"
    if reached < design.horizon:
        return "too early to judge", f"step {reached} of the horizon {design.horizon}"
    return None


def _compare(
    baseline: Evidence, arms: Sequence[Evidence], design: Design
) -> dict[str, Comparison | None]:
    """Fit the block of all arms that may help each other to an estimate of the noise."""
    members, seeds = screens.members(baseline, arms)
    if not members:
        return {}
    fit = stats.block(screens.table([baseline, *members], seeds), design.alpha)
    method = "block" if fit.arms > 2 else "paired"
    return {
        arm.arm: Comparison(found, method, fit.sigma, fit.arms, seeds, fit.icc)
        for arm, found in zip(members, fit.contrasts, strict=True)
    }


def _alone(baseline: Evidence, arm: Evidence, design: Design) -> Comparison | None:
    """Compare an arm that is in no block, on its own seeds; None where there are too few."""
    shared = tuple(sorted(baseline.scores.keys() & arm.scores.keys()))
    if len(shared) >= 2:
        found = stats.paired(*_pair(baseline, arm, shared), design.alpha)
        return Comparison(found, "paired", found.se * (len(shared) / 2) ** 0.5, 2, shared)
    if min(len(baseline.scores), len(arm.scores)) < 2:
        return None
    found = stats.welch(list(arm.scores.values()), list(baseline.scores.values()), design.alpha)
    seeds = tuple(sorted(arm.scores))
    return Comparison(found, "welch", found.se * (len(seeds) / 2) ** 0.5, 2, seeds)


def _pair(
    baseline: Evidence, arm: Evidence, seeds: Sequence[int]
) -> tuple[list[float], list[float]]:
    return [arm.scores[s] for s in seeds], [baseline.scores[s] for s in seeds]


def _holm(
    baseline: Evidence,
    arms: Sequence[Evidence],
    compared: Mapping[str, Comparison | None],
    doubt: bool,
    unstable: int,
) -> dict[str, float]:
    """Adjust within the stage; an A/A arm is a measurement of the noise, no hypothesis.

    Unstable arms count in the family as they were planned. Where one was taken out on thin
    evidence, the rest may merely be quiet by chance, and σ with it: then the paired test must
    agree. Without this, 5.6 % instead of 5 % of null studies raise an alarm.
    """
    known = {}
    for arm in arms:
        comparison = compared[arm.arm]
        assert comparison is not None, "a sound arm and its baseline have two scores each"
        known[arm.arm] = comparison.estimate.p
        if doubt and comparison.method == "block":
            pair = stats.paired(*_pair(baseline, arm, comparison.seeds))
            known[arm.arm] = max(pair.p, comparison.estimate.p)
    family = [arm.arm for arm in arms if not arm.repeat]
    raised = stats.holm([*(known[name] for name in family), *[1.0] * unstable])
    return known | dict(zip(family, map(float, raised), strict=False))


def _blank(
    baseline: Evidence, arm: Evidence, comparison: Comparison | None, design: Design
) -> Verdict:
    """Collect an arm's numbers before anything is said of them."""
    shared = sorted(baseline.scores.keys() & arm.scores.keys())
    both = min(len(baseline.scores), len(arm.scores)) >= 2
    ours, theirs = _pair(baseline, arm, shared)
    every = list(arm.scores.values()), list(baseline.scores.values())
    return Verdict(
        arm=arm.arm,
        verdict="",
        reason="",
        seeds=arm.seeds,
        scores=arm.scores,
        per_seed={seed: arm.scores[seed] - baseline.scores[seed] for seed in shared},
        comparison=comparison,
        equivalence_p=(
            stats.equivalence_p(comparison.estimate, design.margin) if comparison else None
        ),
        paired=stats.paired(ours, theirs, design.alpha) if len(shared) >= 2 else None,
        welch=stats.welch(*every, design.alpha) if both else None,
        repeat=arm.repeat,
    )


def _decide(found: Verdict, p_holm: float | None, design: Design) -> Verdict:
    """Climb the last rungs: helps or hurts, equivalent, underpowered."""
    comparison, far = found.comparison, found.equivalence_p
    assert comparison is not None and p_holm is not None and far is not None
    found = replace(found, p_holm=p_holm)
    if p_holm < design.alpha:
        up = comparison.estimate.delta > 0
        return replace(
            found, verdict="helps" if up else "hurts", reason=f"Holm p below {design.alpha:g}"
        )
    if far < design.alpha:
        wide = 100 * (1 - 2 * design.alpha)
        inside = f"the {wide:g} % interval lies inside ±{100 * design.margin:g} pt"
        return replace(found, verdict="equivalent within ±δ", reason=inside)
    return replace(found, verdict="underpowered", reason=_blind(comparison, design))


def _blind(comparison: Comparison, design: Design) -> str:
    """Say what the study could not see, and how many seeds would."""
    n = len(comparison.seeds)
    sees = comparison.resolution(n, design.alpha)
    text = f"cannot see effects below {100 * sees:.1f} pt"
    if comparison.estimate.p < design.alpha:
        text = f"{text}; of several arms one may leave 0 out by chance, which Holm counts"
    needed = power.seeds_needed(comparison.sigma, design.margin, comparison.arms, design.alpha)
    if needed is None:
        return f"{text}; no affordable number of seeds would see {100 * design.margin:g} pt"
    if needed <= n:
        return f"{text}; the difference lies at the edge of what {n} seeds see"
    return f"{text}; {needed} seeds would see {100 * design.margin:g} pt"
