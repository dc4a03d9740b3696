"""What is wrong with a run, in the article's order of checks, and what to try.

`examine` asks one log all rules; `study` does so for every run of a study and compares arms with
their baseline (D6). Nothing here changes a verdict: advice is advice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_ablate.analysis.diagnosis.alarms import limits
from grpo_ablate.analysis.diagnosis.log import Evidence, Log
from grpo_ablate.analysis.diagnosis.remedies import REMEDIES
from grpo_ablate.analysis.diagnosis.rule import LEVELS, Rule
from grpo_ablate.analysis.diagnosis.signs import SIGNS
from grpo_ablate.analysis.diagnosis.sources import of_run, read
from grpo_ablate.analysis.diagnosis.symptoms import SYMPTOMS
from grpo_ablate.analysis.load import Run

RULES: tuple[Rule, ...] = SYMPTOMS + SIGNS

ACROSS_SEEDS = "D6"
"""The one rule that is asked of an arm's mean over its seeds, not of a run."""


@dataclass(frozen=True)
class Finding:
    """A rule that fired."""

    rule: Rule
    evidence: Evidence
    says: str
    tries: tuple[tuple[str, str], ...]
    """(what, option to paste or "") in the order to try."""


@dataclass(frozen=True)
class Diagnosis:
    """What all rules said of one log."""

    log: Log
    findings: tuple[Finding, ...]
    """The most important first: by level, then in the article's order."""
    quiet: tuple[str, ...]
    """Rules that were asked and saw nothing."""
    unasked: tuple[tuple[str, str], ...]
    """(rule, why it could not be asked)."""


def examine(log: Log, rules: Sequence[Rule] = RULES) -> Diagnosis:
    """Ask a log the rules in their order."""
    fired: dict[str, Finding] = {}
    quiet, unasked = [], []
    for rule in rules:
        why = _lacks(log, rule)
        evidence = None if why else rule.check(log)
        if why:
            unasked.append((rule.id, why))
        elif evidence is None or any(other in fired for other in rule.unless):
            quiet.append(rule.id)
        else:
            fired[rule.id] = _finding(log, rule, evidence)
    findings = sorted(fired.values(), key=lambda found: LEVELS.index(found.rule.level))
    return Diagnosis(log, tuple(findings), tuple(quiet), tuple(unasked))


def _lacks(log: Log, rule: Rule) -> str:
    """Return why a rule cannot be asked; empty where it can."""
    if not log.signals and log.seed is not None:
        return "no row in this log yet"
    for name in rule.signals:
        if name == "baseline/accuracy" and name not in log.signals:
            return "no run of its baseline on the same seeds among these"
        if name == "target interval":
            if not math.isfinite(limits(log).high):
                return "no target interval of lengths in this run's configuration"
        elif not any(option in log.signals for option in name.split("|")):
            return f"no {name.replace('|', ' or ')} in this log"
    spans = log.last - log.first + 1
    if spans < rule.window:
        return f"asks for {rule.window} steps; this log spans {spans}"
    return ""


def _finding(log: Log, rule: Rule, evidence: Evidence) -> Finding:
    fill = _blanks(log)
    tries = [(REMEDIES[name].what, REMEDIES[name].option(log.trainer)) for name in rule.remedies]
    filled = tuple((what, option.format_map(fill)) for what, option in tries)
    return Finding(rule, evidence, _told(rule.says, evidence.numbers), filled)


def _told(text: str, numbers: Mapping[str, float]) -> str:
    """Fill in numbers; one that this log does not tell becomes a question mark."""

    class Number(float):
        def __format__(self, form: str) -> str:
            return super().__format__(form) if math.isfinite(self) else "?"

    return text.format_map({name: Number(value) for name, value in numbers.items()})


def _blanks(log: Log) -> dict[str, str]:
    """Return what options are filled in with, from the log or its configuration."""
    scale = float(log.config.get("lr_batch", {}).get("lr_scale", 1.0))
    rates, lengths = log.signals.get("optim/lr"), log.signals.get("completion/length_mean")
    lr = float(rates.max()) if rates is not None else math.nan
    start = float(lengths.iloc[0]) if lengths is not None else math.nan
    limit = log.config.get("engine", {}).get("max_new_tokens", math.nan)

    def known(value: float, form: str = ".3g", otherwise: str = "<twice the present>") -> str:
        return f"{value:{form}}" if math.isfinite(value) else otherwise

    return {
        "scale_double": known(2 * scale),
        "scale_half": known(scale / 2),
        "lr_double": known(2 * lr),
        "lr_half": known(lr / 2, otherwise="<half the present>"),
        "low": known(start * 0.8, ".0f", "<from>"),
        "high": known(start * 1.2, ".0f", "<to>"),
        "limit_double": known(2 * float(limit), ".0f"),
        "one_by_one": log.apart,
    }


def study(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the findings of all runs of a study as plain rows, the most important first.

    Args:
        runs: of one study, in any state.

    Returns:
        A dict a finding: arm, seed (None: over all seeds), rule, level, first, last, says, cause,
        tries, source. Empty where nothing was seen.
    """
    found = [
        _row(report.log, finding)
        for report in (*reports(runs), *against_baseline(runs))
        for finding in report.findings
    ]
    return sorted(found, key=lambda row: LEVELS.index(row["level"]))


def of_paths(paths: Sequence[Path]) -> list[Diagnosis]:
    """Return what the rules say of everything at some paths: our runs, arms, others' logs.

    Raises:
        ConfigError: what cannot be read.
    """
    runs, logs = read(paths)
    return [*reports(runs), *against_baseline(runs), *(examine(log) for log in logs)]


def reports(runs: Sequence[Run]) -> list[Diagnosis]:
    """Return what the rules say of each run alone."""
    rules = [rule for rule in RULES if rule.id != ACROSS_SEEDS]
    return [examine(of_run(run), rules) for run in runs]


def against_baseline(runs: Sequence[Run]) -> list[Diagnosis]:
    """Return what D6 says of each arm, its mean over the seeds it shares with its baseline."""
    rules = [rule for rule in RULES if rule.id == ACROSS_SEEDS]
    by_arm: dict[str, dict[int, Run]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, {})[run.seed] = run
    found = []
    for arm, members in by_arm.items():
        baseline = next(iter(members.values())).baseline
        if arm != baseline:
            found.append(examine(_pooled(members, by_arm.get(baseline, {})), rules))
    return found


def _pooled(members: Mapping[int, Run], base: Mapping[int, Run]) -> Log:
    """Return an arm's held-out accuracy and its baseline's, means over seeds at common steps."""
    seeds = sorted({*members} & {*base})
    signals: dict[str, pd.Series[float]] = {}
    for name, runs in (("eval/accuracy", members), ("baseline/accuracy", base)):
        curves = [of_run(runs[seed]).signals.get("eval/accuracy") for seed in seeds]
        known = [curve for curve in curves if curve is not None]
        if known:
            mean = pd.concat(known, axis=1, join="inner").mean(axis=1)
            signals |= {name: mean} if len(mean) else {}
    run = next(iter(members.values()))
    name = f"{run.arm}, mean of {len(seeds)} seeds"
    return Log(name, "grpo_ablate", signals, arm=run.arm, apart=_apart(run, seeds))


def _apart(run: Run, seeds: Sequence[int]) -> str:
    """Return the overrides that run a stack's tricks one by one; empty where there is one."""
    tricks = [part for part in run.arm.split("+") if part != run.baseline]
    if len(tricks) < 2 or any("=" in trick for trick in tricks):
        return ""
    listed = ",".join(str(seed) for seed in seeds)
    return " ".join([f"+experiment={','.join(tricks)}", "-m", *run.conditions, f"seed={listed}"])


def _row(log: Log, finding: Finding) -> dict[str, Any]:
    rule, evidence = finding.rule, finding.evidence
    return {
        "arm": log.arm,
        "seed": log.seed,
        "rule": rule.id,
        "level": rule.level,
        "first": evidence.first,
        "last": evidence.last,
        "says": finding.says,
        "cause": rule.cause,
        "tries": [f"{what}: {option}" if option else what for what, option in finding.tries],
        "source": rule.source,
    }


def plain(report: Diagnosis) -> dict[str, Any]:
    """Return a report as JSON can hold it; a number that is none becomes None."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    log = report.log
    return {
        "log": log.name,
        "trainer": log.trainer,
        "state": log.state,
        "steps": [log.first, log.last] if log.signals else [],
        "findings": [
            _row(log, found)
            | {"numbers": {k: number(v) for k, v in found.evidence.numbers.items()}}
            for found in report.findings
        ],
        "quiet": list(report.quiet),
        "unasked": dict(report.unasked),
        "unknown_columns": list(log.unknown),
    }


def text(report: Diagnosis) -> str:
    """Return a report for a person to read."""
    log = report.log
    if log.arm and log.seed is None and not log.signals:
        return "\n".join(f"{log.arm}: {rule} not checked: {why}" for rule, why in report.unasked)
    span = f"steps {log.first}-{log.last}" if log.signals else "no row yet"
    lines = [f"{log.name} ({', '.join(filter(None, [log.trainer, log.state, span]))})"]
    for found in report.findings:
        rule, seen = found.rule, found.evidence
        lines.append(
            f"  {rule.level.upper():<8}{rule.id}, steps {seen.first}-{seen.last}: {found.says}"
        )
        lines.append(f"          why: {rule.cause} ({rule.source})")
        lines += [f"          try: {what}{'  ' * bool(o)}{o}" for what, o in found.tries]
    if not report.findings:
        lines.append("  nothing to report")
    if report.quiet:
        lines.append(f"  quiet: {', '.join(report.quiet)}")
    reasons: dict[str, list[str]] = {}
    for rule_id, why in report.unasked:
        reasons.setdefault(why, []).append(rule_id)
    lines += [f"  not checked: {', '.join(ids)}: {why}" for why, ids in reasons.items()]
    if log.unknown:
        lines.append(f"  columns not known here: {', '.join(log.unknown)}")
    return "\n".join(lines)


def section(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a report's section in Markdown: one line for a rule and an arm, its seeds together.

    Args:
        rows: of `study`.
    """
    if not rows:
        return "Nothing to report.\n"
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["rule"], row["arm"]), []).append(row)
    lines = ["| level | arm | seeds | steps | what | try first |", "|---|---|---|---|---|---|"]
    for (rule, arm), seen in groups.items():
        seeds = ", ".join(str(row["seed"]) for row in seen if row["seed"] is not None) or "mean"
        steps = f"{min(row['first'] for row in seen)}–{max(row['last'] for row in seen)}"
        what = f"{rule}: {seen[0]['says']}. {seen[0]['cause']}"
        cells = (seen[0]["level"], arm, seeds, steps, what, seen[0]["tries"][0])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
