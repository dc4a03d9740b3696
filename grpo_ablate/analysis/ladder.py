"""The staged order as a page and a picture, from order.json alone; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from grpo_ablate.files import write_atomic

matplotlib.use("Agg")

import matplotlib.pyplot as plt

_CARRIED, _OTHER = "#0072b2", "#7f7f7f"


def write(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ORDER.md and, where a stage has been judged, ladder.png and ladder.svg.

    Args:
        record: order.json.
        folder: where they go.

    Returns:
        The files written; the same bytes for the same record.
    """
    page = folder / "ORDER.md"
    write_atomic(page, "\n".join(_page(record)) + "\n")
    judged = [done for done in record["stages"] if done.get("arms")]
    return [page, *(_draw(judged, folder) if judged else [])]


def _page(record: Mapping[str, Any]) -> list[str]:
    asked = record["asked"]
    typed = " ".join([f"seed={','.join(map(str, asked['seeds']))}", *asked["conditions"]])
    lines = ["# The staged order (article: X6)", "", f"`python -m grpo_ablate order {typed}`", ""]
    lines += [f"State: **{record['state']}**. {record.get('reason', '')}".rstrip(), ""]
    for done in record["stages"]:
        lines += [f"## {_title(done)}", "", *_body(done), ""]
    if "recipe" in record:
        lines += ["## The recipe", ""]
        lines += [f"- `{lever}`: {_knobs(node)}" for lever, node in record["recipe"].items()]
        lines += [] if record["recipe"] else [f"The baseline, `{asked['plan']['baseline']}`."]
    return lines


def _title(done: Mapping[str, Any]) -> str:
    return done["stage"] if "name" not in done else f"{done['stage']}: {done['name']}"


def _body(done: Mapping[str, Any]) -> list[str]:
    if "looks" in done:
        return [
            *(
                f"- rate x{look['lr_scale']:g}: reward {look['gain']:+.3f}, ratios beyond limits"
                f" in {look['wild']:.0%} of the rows: {look['advice']}"
                for look in done["looks"]
            ),
            "",
            f"Settled: {done['lr_scale']}. {done['why']}",
        ]
    lines = [f"- {arm['sentence']}" for arm in done["arms"]]
    lines += [f"- {arm} left out: {reason}" for arm, reason in done.get("skipped", {}).items()]
    if done["stage"] == "leave_one_out":
        return [
            f"On seeds {', '.join(map(str, done['seeds']))}, with which nothing was chosen.",
            *lines,
        ]
    return [*lines, "", f"Carried on: {done['carried'] or 'nothing'}. {done['why']}"]


def _knobs(node: Mapping[str, Any]) -> str:
    knobs = ", ".join(f"{key}={value}" for key, value in node.items() if key != "name")
    return f"{node['name']}" + (f" ({knobs})" if knobs else "")


def _draw(judged: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw each stage's arms against its baseline: difference and interval, the carried in blue."""
    rows = [(done, arm) for done in judged for arm in done["arms"] if arm["delta"] is not None]
    figure, axis = plt.subplots(figsize=(9, 1.6 + 0.36 * len(rows)), layout="constrained")
    for y, (done, arm) in enumerate(rows):
        chosen = done.get("carried") and arm["arm"].endswith(f"+{done['carried']}")
        colour = _CARRIED if chosen else _OTHER
        if arm["lo"] is not None:
            axis.plot([arm["lo"], arm["hi"]], [y, y], color=colour, linewidth=2)
        axis.plot(arm["delta"], y, "o", color=colour, markerfacecolor=colour if chosen else "white")
        if y and done is not rows[y - 1][0]:
            axis.axhline(y - 0.5, color="black", linewidth=0.5, alpha=0.4)
    labels = [f"{done['stage']}: {arm['arm'].split('+', 1)[-1]}" for done, arm in rows]
    axis.set_yticks(range(len(rows)), labels)
    axis.invert_yaxis()
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlabel(
        "difference of held-out accuracy from the stage's baseline; bars: 95 % interval"
    )
    axis.set_title("the staged order, top to bottom; filled: carried on", fontsize=11)
    axis.grid(axis="x", alpha=0.25)
    paths = [folder / "ladder.png", folder / "ladder.svg"]
    with plt.rc_context({"svg.hashsalt": "ladder"}):
        for path in paths:
            figure.savefig(
                path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None
            )
    plt.close(figure)
    return paths
