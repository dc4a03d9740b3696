"""A report's files under `report/`: the same runs give the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_ablate.analysis import markdown
from grpo_ablate.files import write_atomic

Row = Mapping[str, Any]

VERDICTS = (
    *("arm", "baseline", "verdict", "reason", "method", "n", "finished", "planned"),
    *("delta", "se", "df", "lo", "hi", "p", "p_holm", "p_bh", "equivalence_p", "sigma", "icc"),
    *("mde.n", "mde.5", "mde.10", "paired.lo", "paired.hi", "paired.p"),
    *("welch.lo", "welch.hi", "welch.p", "activity", "cost.tokens", "cost.updates"),
    *("cost.seconds", "smoothness.value", "smoothness.floor", "smoothness.rank", "sentence"),
)
SCORES = (
    *("arm", "baseline", "seed", "state", "finished", "deviated", "step", "score", "auc"),
    *("drawdown", "smoothness", "step_to_goal", "tokens_to_goal", "updates_to_goal"),
    *("seconds_to_goal", "tokens", "updates", "seconds", "selection.step"),
    *("selection.test", "selection.seeming", "selection.real", "alarms", "reason"),
)
CURVES = ("arm", "seed", "step", "accuracy", "tokens", "updates", "seconds")
INTERACTIONS = (
    *("a", "b", "ab", "baseline", "word", "reason", "method", "n", "raw.delta", "raw.lo"),
    *("raw.hi", "raw.p", "p_holm", "logit.delta", "logit.lo", "logit.hi", "logit.p", "sentence"),
)
DIAGNOSE = ("level", "arm", "seed", "rule", "first", "last", "says", "cause", "tries", "source")
"""Columns of each table; `a.b` is key b of the row's value a."""


def write(report: Row, folder: Path) -> list[Path]:
    """Write verdicts, scores, curves and interactions as CSV, the whole as JSON and to read.

    Args:
        report: as `report.build` made it.
        folder: `report/` of the study; made if need be.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "verdicts.csv": table(report["arms"], VERDICTS),
        "scores.csv": table(report["runs"], SCORES),
        "curves.csv": table(report["curves"], CURVES),
        "interactions.csv": table(report["interactions"], INTERACTIONS),
        "diagnose.csv": table(report["diagnosis"], DIAGNOSE),
        "report.json": json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "REPORT.md": markdown.render(report),
    }
    for name, text in texts.items():
        write_atomic(folder / name, text)
    return [folder / name for name in texts]


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return rows as CSV; an empty cell is unknown, never zero."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row, column) for column in columns] for row in rows)
    return text.getvalue()


def _cell(row: Row, column: str) -> str:
    value: Any = row
    for key in column.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return repr(value) if isinstance(value, float) else str(value)
