"""REPORT.md: the verdicts to read, then what they rest on, then what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_ablate.analysis import diagnose

Row = Mapping[str, Any]


def render(report: Row) -> str:
    """Return the report as Markdown."""
    parts = [
        _head(report),
        _verdicts(report),
        _arms(report["arms"]),
        _interactions(report),
        _table("Cost, relative to the baseline", report["arms"], _COST),
        _difficulty(report["arms"]),
        _smoothness(report),
        _table("Runs", report["runs"], _RUN),
        _selection(report["runs"]),
        "## Diagnosis\n\n" + diagnose.section(report["diagnosis"]).rstrip(),
        _missing(report),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _head(report: Row) -> str:
    study = report["study"]
    bases = [
        f"- baseline `{row['arm']}`: {_number(row['mean'], 3)} held-out accuracy,"
        f" {row['finished']}/{row['planned']} seeds finished"
        + (f"; **unstable**: {row['unstable']}" if row["unstable"] else "")
        for row in report["baselines"]
    ]
    lines = [
        f"# Report of {study['name'] or 'the study'}",
        "",
        f"Score: mean of the last {study['window']} evaluations of `{study['metric']}` up to step"
        f" {study['horizon']}. A difference within ±{100 * study['margin']:g} pt does not matter;"
        f" α = {study['alpha']:g}. Method: docs/judging.md.",
        "",
        *bases,
        *[f"- warning: {text}" for text in report["warnings"]],
    ]
    return "\n".join(lines)


def _verdicts(report: Row) -> str:
    if not report["arms"]:
        return "## Verdicts\n\nNo arm beside the baseline yet."
    return "## Verdicts\n\n" + "\n".join(f"- {row['sentence']}" for row in report["arms"])


def _arms(arms: Sequence[Row]) -> str:
    text = _table("Arms", arms, _ARM)
    grey = any(row["provisional"] for row in arms)
    return f"{text}\n\nIn parentheses: numbers that say nothing yet." if grey else text


def _interactions(report: Row) -> str:
    if not report["interactions"]:
        return ""
    lines = "\n".join(f"- {row['sentence']}" for row in report["interactions"])
    return f"## Interactions\n\n{lines}"


def _difficulty(arms: Sequence[Row]) -> str:
    levels = sorted({level for row in arms for level in row["difficulty"]}, key=int)
    if not levels:
        return ""
    columns: list[tuple[str, Callable[[Row], str]]] = [("arm", lambda row: row["arm"])]
    for level in levels:
        columns.append((f"difficulty {level}", _split(level)))
    return _table("Difference by difficulty, pt", arms, columns)


def _split(level: str) -> Callable[[Row], str]:
    return lambda row: _points(row["difficulty"].get(level, {}).get("delta"))


def _smoothness(report: Row) -> str:
    everyone = [*report["baselines"], *report["arms"]]
    ranked = [row for row in everyone if row["smoothness"]["rank"]]
    if len(ranked) < 2:
        return ""
    ranked.sort(key=lambda row: (row.get("baseline", row["arm"]), row["smoothness"]["rank"]))
    text = _table("Smoothness, arms that are not worse", ranked, _SMOOTH)
    return (
        f"{text}\n\nInterquartile range of first differences over the last half of the evaluations;"
        "\nthe floor is what asking fresh questions would give a policy that stands still."
    )


def _selection(runs: Sequence[Row]) -> str:
    known = [row for row in runs if row["selection"]]
    if not known:
        return ""
    text = _table("Checkpoint selection", known, _SELECTION)
    return (
        f"{text}\n\nChosen by one half of the questions; the other half says what that gained over"
        "\nthe last checkpoint. No verdict uses it."
    )


def _missing(report: Row) -> str:
    if not report["missing"]:
        return ""
    lines = [
        f"- {row['what']}" + (f"\n  `{row['command']}`" if row["command"] else "")
        for row in report["missing"]
    ]
    return "## Missing\n\n" + "\n".join(lines)


def _table(title: str, rows: Sequence[Row], columns: Sequence[Any]) -> str:
    if not rows:
        return ""
    names = [name for name, _ in columns]
    lines = [f"## {title}", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(str(cell(row)) for _, cell in columns)} |" for row in rows]
    return "\n".join(lines)


def _points(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _interval(found: Row | None) -> str:
    return "" if found is None else f"{_points(found['lo'])}…{_points(found['hi'])}"


def _delta(row: Row) -> str:
    return _grey(row, _points(row["delta"]))


def _whole(row: Row) -> str:
    return "" if row["delta"] is None else _grey(row, _interval(row))


def _grey(row: Row, text: str) -> str:
    """Put numbers that say nothing yet in parentheses."""
    return f"({text})" if text and row["provisional"] else text


def _sees(row: Row, n: str) -> str:
    return "" if row["mde"] is None else f"{100 * row['mde'][n]:.1f}"


_ARM: list[tuple[str, Callable[[Row], str]]] = [
    ("arm", lambda row: row["arm"]),
    ("verdict", lambda row: row["verdict"]),
    ("Δ pt", _delta),
    ("interval", _whole),
    ("p Holm", lambda row: _number(row["p_holm"], 4)),
    ("p BH", lambda row: _number(row["p_bh"], 4)),
    ("seeds", lambda row: f"{row['finished']}/{row['planned']}"),
    ("resolves", lambda row: _sees(row, "n")),
    ("with 5", lambda row: _sees(row, "5")),
    ("with 10", lambda row: _sees(row, "10")),
    ("paired", lambda row: _interval(row["paired"])),
    ("Welch", lambda row: _interval(row["welch"])),
    ("activity", lambda row: _number(row["activity"], 4)),
]
_COST: list[tuple[str, Callable[[Row], str]]] = [
    ("arm", lambda row: row["arm"]),
    ("generated tokens, dropped ones too", lambda row: _number(row["cost"]["tokens"], 2)),
    ("optimizer steps", lambda row: _number(row["cost"]["updates"], 2)),
    ("seconds", lambda row: _number(row["cost"]["seconds"], 2)),
]
_SMOOTH: list[tuple[str, Callable[[Row], str]]] = [
    ("rank", lambda row: row["smoothness"]["rank"]),
    ("arm", lambda row: row["arm"]),
    ("smoothness", lambda row: _number(row["smoothness"]["value"], 4)),
    ("floor", lambda row: _number(row["smoothness"]["floor"], 4)),
    ("Δ pt", lambda row: _points(row.get("delta"))),
]
_RUN: list[tuple[str, Callable[[Row], str]]] = [
    ("arm", lambda row: row["arm"]),
    ("seed", lambda row: row["seed"]),
    ("state", lambda row: row["state"] + (", deviated" if row["deviated"] else "")),
    ("step", lambda row: "" if row["step"] is None else row["step"]),
    ("score", lambda row: _number(row["score"], 4)),
    ("area", lambda row: _number(row["auc"], 3)),
    ("drawdown", lambda row: _number(row["drawdown"], 3)),
    ("steps to 90 % of the baseline's gain", lambda row: _number(row["step_to_goal"], 0)),
]
_SELECTION: list[tuple[str, Callable[[Row], str]]] = [
    ("arm", lambda row: row["arm"]),
    ("seed", lambda row: row["seed"]),
    ("step chosen", lambda row: _number(row["selection"]["step"], 0)),
    ("graded", lambda row: _number(row["selection"]["test"], 3)),
    ("gain on the half it was chosen by, pt", lambda row: _points(row["selection"]["seeming"])),
    ("gain on the other half, pt", lambda row: _points(row["selection"]["real"])),
]
