"""The verdicts as the page's table, its forest plot and the smaller tables under it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from grpo_ablate.text import one_line

Report = Mapping[str, Any]
"""As `analysis.report.build` returns it."""

_JUDGED = (
    ("verdict", "verdict", "word", "the first of the ladder that applies (docs/judging.md)"),
    ("delta", "Δ points", "number", "difference from the baseline in held-out accuracy, points"),
    ("interval", "interval", "number", "of Δ, at the study's level"),
    ("n", "seeds", "word", "finished / asked for"),
    ("p_holm", "Holm p", "number", "corrected for the arms judged together"),
    ("resolves", "resolves", "number", "the smallest difference this study would see, points"),
    ("score", "accuracy", "share", "mean over the seeds of their scores at the horizon"),
    ("activity", "activity", "number", "how much the trick found to act on"),
    ("tokens", "tokens", "number", "generated, as a multiple of the baseline's"),
)
_MEASURED = (
    ("finished", "finished", "word", "complete runs / runs"),
    ("accuracy", "accuracy", "share", "last held-out accuracy, mean of the seeds"),
    ("reward", "reward", "share", "last row of metrics.csv, mean of the seeds"),
)
_ALWAYS = (
    ("entropy", "entropy", "share", "last row of metrics.csv, mean of the seeds"),
    ("length", "length", "number", "last row of metrics.csv, mean of the seeds"),
    ("alarms", "alarms", "number", "of all its runs"),
)


def of(report: Report | None) -> list[dict[str, str]]:
    """Return the columns of the arms' table: key, label, kind, meaning."""
    chosen = (_JUDGED if report else _MEASURED) + _ALWAYS
    return [dict(zip(("key", "label", "kind", "meaning"), c, strict=True)) for c in chosen]


def cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a judged arm's cells: a value, or [what sorts, what is shown].

    Args:
        row: one of the report's arms or baselines.
    """
    found: dict[str, Any] = {"n": f"{row['finished']}/{row['planned']}"}
    if "verdict" not in row:
        word = "baseline, unstable" if row["unstable"] else "baseline"
        return found | {"verdict": word, "score": row["mean"]}
    scores = [one["score"] for one in row["per_seed"]]
    found["verdict"] = one_line(row["verdict"] + (" (A/A)" if row["repeat"] else ""))
    found["score"] = fmean(scores) if scores else None
    if row["delta"] is not None:
        found["delta"] = [row["delta"], _points(row["delta"])]
        found["interval"] = [row["lo"], _interval(row["lo"], row["hi"])]
        found["resolves"] = [row["mde"]["n"], f"{100 * row['mde']['n']:.1f}"]
    for key, digits in (("p_holm", ".3f"), ("activity", ".3g")):
        if row[key] is not None:
            found[key] = [row[key], f"{row[key]:{digits}}"]
    if row["cost"].get("tokens"):
        found["tokens"] = [row["cost"]["tokens"], f"×{row['cost']['tokens']:.2f}"]
    return found


def notes(row: Mapping[str, Any]) -> list[str]:
    """Return what unfolds under a judged arm: its sentence, its seeds, the secondary tests."""
    if "verdict" not in row:
        return [one_line(row["unstable"], 1000)] if row["unstable"] else []
    found = [row["sentence"]]
    if row["per_seed"]:
        each = ", ".join(f"seed {one['seed']} {_points(one['delta'])}" for one in row["per_seed"])
        found.append(f"Δ of each seed, points: {each}")
    for name in ("paired", "welch"):
        if test := row[name]:
            shown = _interval(test["lo"], test["hi"])
            found.append(f"{name}: interval {shown}, p {test['p']:.3f}")
    if row["difficulty"]:
        levels = row["difficulty"].items()
        each = ", ".join(f"{level}: {_points(one['delta'])}" for level, one in levels)
        found.append(f"Δ by difficulty, points: {each}")
    return [one_line(text, 1000) for text in found]


def forest(report: Report | None) -> dict[str, Any] | None:
    """Return the forest plot's rows in points; None where nothing is estimated."""
    rows = [
        {
            "arm": one_line(arm["arm"]),
            "verdict": arm["verdict"],
            **{key: 100 * arm[key] for key in ("delta", "lo", "hi")},
            "seeds": [100 * one["delta"] for one in arm["per_seed"]],
            "resolves": 100 * arm["mde"]["n"],
        }
        for arm in (report or {}).get("arms", [])
        if arm["delta"] is not None
    ]
    if not rows or report is None:
        return None
    design = report["study"]
    level = 100 * (1 - design["alpha"])
    caption = (
        f"Difference from the baseline in held-out accuracy, points, at step {design['horizon']}"
        f" (mean of {design['window']} evaluations). Bar: {level:g} % interval; large dot: mean;"
        f" small dots: seeds; n = {_counts(report)}; shaded: ±δ = {100 * design['margin']:g}"
        " points; ticks: what the study resolves."
    )
    return {"rows": rows, "margin": 100 * design["margin"], "caption": caption}


def _counts(report: Report) -> str:
    counts = sorted({arm["n"] for arm in report["arms"] if arm["delta"] is not None})
    return "–".join(str(n) for n in sorted({counts[0], counts[-1]}))


def tables(report: Report | None) -> list[dict[str, Any]]:
    """Return interactions and smoothness as tables of text."""
    found = []
    rows = (report or {}).get("interactions", [])
    if rows:
        found.append(
            {
                "title": "Interactions",
                "note": "Stack less the sum of its parts, points: above 0 they help each other.",
                "columns": ["stack", "parts", "verdict", "Δ points", "interval", "Holm p", "n"],
                "rows": [_interaction(row) for row in rows],
            }
        )
    arms = [*(report or {}).get("baselines", []), *(report or {}).get("arms", [])]
    ranked = sorted(
        (r for r in arms if r["smoothness"]["rank"]), key=lambda r: r["smoothness"]["rank"]
    )
    if len(ranked) > 1:
        found.append(
            {
                "title": "Smoothness",
                "note": "Spread of the curve's steps, of arms that are not worse, smoothest first"
                " (article: C5); a flat curve is perfectly smooth.",
                "columns": ["arm", "spread, points", "of sampling alone"],
                "rows": [_smooth(row) for row in ranked],
            }
        )
    return found


def _smooth(row: Mapping[str, Any]) -> list[str]:
    found = row["smoothness"]
    floor = "–" if found["floor"] is None else f"{100 * found['floor']:.2f}"
    return [one_line(row["arm"]), f"{100 * found['value']:.2f}", floor]


def _interaction(row: Mapping[str, Any]) -> list[str]:
    raw = row["raw"]
    return [
        one_line(row["ab"]),
        one_line(f"{row['a']} + {row['b']}"),
        one_line(row["word"]),
        _points(raw["delta"]) if raw else "–",
        _interval(raw["lo"], raw["hi"]) if raw else "–",
        "–" if row["p_holm"] is None else f"{row['p_holm']:.3f}",
        str(row["n"]),
    ]


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _interval(low: float, high: float) -> str:
    return f"{_points(low)}…{_points(high)}"
