"""What the article saw, one claim a row, beside what these runs say of it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from runs import BASE, CLIP, DYNAMIC, NO_STD, STACK, Study

from grpo_ablate.analysis import stats

Value = Callable[[Study], stats.Estimate | None]


def difference(arm: str, other: str, column: str) -> Value:
    """Return arm - other of a metric's end, seed by seed; `score` is the held-out accuracy."""

    def value(found: Study) -> stats.Estimate | None:
        ours, theirs = (
            found.scores(name) if column == "score" else found.end(name, column)
            for name in (arm, other)
        )
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) < 2:
            return None
        return stats.paired([ours[s] for s in seeds], [theirs[s] for s in seeds])

    return value


def change(arm: str, column: str) -> Value:
    """Return end - start of a metric over an arm's seeds."""

    def value(found: Study) -> stats.Estimate | None:
        runs = [run for run in found.runs if run.arm == arm and run.state == "complete"]
        ends = found.end(arm, column)
        moved = [ends[run.seed] - float(run.metrics[column].iloc[0]) for run in runs]
        return stats.one_sample(moved) if len(moved) > 1 else None

    return value


def by_difficulty(arm: str, column: str) -> Value:
    """Return arm - baseline of held-out accuracy on questions of one difficulty."""

    def value(found: Study) -> stats.Estimate | None:
        horizon = found.found["study"]["horizon"]
        ends: dict[str, dict[int, float]] = {arm: {}, BASE: {}}
        for run in found.runs:
            if run.arm in ends and run.state == "complete":
                curve = run.evals.loc[run.evals.index <= horizon, column]
                ends[run.arm][run.seed] = float(curve.tail(found.found["study"]["window"]).mean())
        seeds = sorted(ends[arm].keys() & ends[BASE].keys())
        if len(seeds) < 2:
            return None
        return stats.paired([ends[arm][s] for s in seeds], [ends[BASE][s] for s in seeds])

    return value


CLAIMS: list[tuple[str, str, int, Value]] = [
    # id, what the article saw, the sign of it, our number
    ("E", "standard GRPO: reward rises", 1, change(BASE, "reward/mean")),
    ("E", "standard GRPO: entropy falls", -1, change(BASE, "policy/entropy")),
    ("E", "standard GRPO: responses grow longer", 1, change(BASE, "completion/length_mean")),
    ("E", "clip-higher: accuracy above standard", 1, difference(CLIP, BASE, "score")),
    ("C6", "clip-higher: entropy above standard", 1, difference(CLIP, BASE, "policy/entropy")),
    ("E", "clip-higher: shorter than standard", -1,
     difference(CLIP, BASE, "completion/length_mean")),
    ("E", "dynamic sampling: accuracy above standard", 1, difference(DYNAMIC, BASE, "score")),
    ("A7", "no std: accuracy below standard", -1, difference(NO_STD, BASE, "score")),
    ("A7", "no std: better on hard questions (4 numbers)", 1,
     by_difficulty(NO_STD, "eval/accuracy_4")),
    ("A7", "no std: worse on easy questions (2 numbers)", -1,
     by_difficulty(NO_STD, "eval/accuracy_2")),
    ("G9", "the stack: accuracy below clip-higher alone", -1, difference(STACK, CLIP, "score")),
    ("E", "the stack: entropy below clip-higher alone", -1,
     difference(STACK, CLIP, "policy/entropy")),
]  # fmt: skip


def table(found: Study) -> str:
    lines = [
        "## Where the shape agrees",
        "",
        "One row for each thing the article saw. *agrees*: the 95 % interval lies on its side of"
        " zero; *disagrees*: on the other; *not resolved*: it holds zero. Intervals are Student's t"
        " over paired seeds, each for itself and not corrected for their number: of a dozen, one"
        " may well leave zero by chance.",
        "",
        "| article | what it saw | here: change (95 % interval) | |",
        "|---|---|---|---|",
    ]
    for source, text, sign, value in CLAIMS:
        if (estimate := value(found)) is not None:
            word = "not resolved"
            if estimate.lo > 0 or estimate.hi < 0:
                word = "agrees" if estimate.delta * sign > 0 else "**disagrees**"
            digits = 1 if "longer" in text or "shorter" in text else 3
            numbers = [f"{x:+.{digits}f}" for x in (estimate.delta, estimate.lo, estimate.hi)]
            lines.append(
                f"| {source} | {text} | {numbers[0]} ({numbers[1]}…{numbers[2]}) | {word} |"
            )
    return "\n".join([*lines, "", *_filtering(found)])


def _filtering(found: Study) -> list[str]:
    """Say what the filter dropped and what it cost (S2, S5)."""
    share = found.end(DYNAMIC, "sampling/filter_ratio")
    if not share:
        return []
    goal = {
        arm: [row for row in found.found["runs"] if row["arm"] == arm] for arm in (BASE, DYNAMIC)
    }
    lines = [
        f"The filter dropped {fmean(share.values()):.0%} of the sampled groups at the end (the"
        f" article: 35 %; S2 calls 20–40 % healthy), and dynamic sampling generated"
        f" {found.arm(DYNAMIC)['cost']['tokens']:.2f} times the tokens of standard GRPO."
    ]
    ratios = []
    for unit in ("step", "tokens"):
        reached = {
            arm: [row[f"{unit}_to_goal"] for row in rows if row[f"{unit}_to_goal"] is not None]
            for arm, rows in goal.items()
        }
        if all(reached.values()):
            ratio = fmean(reached[DYNAMIC]) / fmean(reached[BASE])
            ratios.append(f"{ratio:.2f} times the {'steps' if unit == 'step' else unit}")
            seeds = f"{len(reached[DYNAMIC])} and {len(reached[BASE])} seeds got there"
    if ratios:
        lines[0] += f" To 90 % of standard GRPO's gain it took {' and '.join(ratios)} ({seeds})."
    return lines
