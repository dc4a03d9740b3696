"""The verdicts as the page's table, its forest plot and the smaller tables under it."""

from __future__ import annotations

from collections.abc import Mapping
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
    n = row["n"] if "n" in row else len(row["finished"])
    asked = row["asked"] if "n" in row else len(row["asked"])
    word = "baseline, unstable" if row["verdict"] == "unstable" else "baseline"
    if "delta" in row:
        word = row["verdict"] + (" (A/A)" if row["control"] else "")
    found: dict[str, Any] = {"verdict": one_line(word), "n": f"{n}/{asked}", "score": row["score"]}
    if row.get("delta") is not None:
        found["delta"] = [row["delta"], _points(row["delta"])]
        found["interval"] = [row["lo"], _interval(row["lo"], row["hi"])]
    if row.get("p_holm") is not None:
        found["p_holm"] = [row["p_holm"], f"{row['p_holm']:.3f}"]
    if "delta" in row and row["resolves"] is not None:
        found["resolves"] = [row["resolves"], f"{100 * row['resolves']:.1f}"]
    if row.get("activity") is not None:
        found["activity"] = [row["activity"], f"{row['activity']:.3g}"]
    if row.get("cost", {}).get("tokens"):
        found["tokens"] = [row["cost"]["tokens"], f"×{row['cost']['tokens']:.2f}"]
    return found


def notes(row: Mapping[str, Any]) -> list[str]:
    """Return what unfolds under a judged arm: its sentence, its seeds, the secondary tests."""
    found = [row["sentence"]] if row.get("sentence") else []
    if row["reason"] and row["reason"] not in "".join(found):
        found.append(row["reason"])
    if row.get("per_seed"):
        each = ", ".join(f"seed {seed} {_points(d)}" for seed, d in row["per_seed"].items())
        found.append(f"Δ of each seed, points: {each}")
    for name, test in row.get("secondary", {}).items():
        found.append(f"{name}: interval {_interval(test['lo'], test['hi'])}, p {test['p']:.3f}")
    if row.get("difficulty"):
        each = ", ".join(f"{k}: {_points(d)}" for k, d in row["difficulty"].items())
        found.append(f"Δ by difficulty, points: {each}")
    return [one_line(text, 1000) for text in found]


def forest(report: Report | None) -> dict[str, Any] | None:
    """Return the forest plot's rows in points; None where nothing is estimated."""
    rows = [
        {
            "arm": one_line(arm["arm"]),
            "verdict": arm["verdict"],
            **{key: 100 * arm[key] for key in ("delta", "lo", "hi")},
            "seeds": [100 * d for d in arm["per_seed"].values()],
            "resolves": None if arm["resolves"] is None else 100 * arm["resolves"],
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
    rows = (report or {}).get("smoothness", [])
    if rows:
        found.append(
            {
                "title": "Smoothness",
                "note": "Spread of the curve's steps, of arms that are not worse, smoothest first"
                " (article: C5); a flat curve is perfectly smooth.",
                "columns": ["arm", "roughness", "accuracy"],
                "rows": [
                    [one_line(r["arm"]), f"{r['roughness']:.4f}", f"{r['score']:.3f}"] for r in rows
                ],
            }
        )
    return found


def _interaction(row: Mapping[str, Any]) -> list[str]:
    known = row["delta"] is not None
    return [
        one_line(row["stack"]),
        one_line(f"{row['a']} + {row['b']}"),
        one_line(row["verdict"]),
        _points(row["delta"]) if known else "–",
        _interval(row["lo"], row["hi"]) if known else "–",
        "–" if row["p_holm"] is None else f"{row['p_holm']:.3f}",
        str(row["n"]),
    ]


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _interval(low: float, high: float) -> str:
    return f"{_points(low)}…{_points(high)}"
