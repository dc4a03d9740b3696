"""A made-up study, written as runs write theirs: what a page shows needs no training."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from grpo_ablate.files import write_json
from grpo_ablate.metrics import METRICS

EVIL = "<script>alert(1)</script>\x1b[31mred\x07 \u202etfel\u2066</SCRIPT>"
EVIL += "<img src=x onerror=alert(2)>[/red][bold]"
"""What a model could write to whoever reads its answers."""


def study(root: Path, *, arms: int, seeds: int, steps: int = 300, every: int = 10) -> Path:
    """Write arms × seeds runs whose curves rise and saturate; the third arm's seed 2 failed."""
    for a in range(arms):
        for seed in range(1, seeds + 1):
            _run(root, a, seed, steps, every)
    return root


def report() -> dict:
    """Verdicts as `analysis.report.build` returns them, of a study of four arms, by hand."""
    seeds = [
        {"seed": s, "delta": d, "score": 0.6, "baseline": 0.6 - d}
        for s, d in ((1, 0.02), (2, 0.05))
    ]
    helps = {
        **{"arm": "arm_1", "baseline": "baseline", "verdict": "helps", "reason": "", "repeat": ""},
        **{"sentence": "arm_1 helps: +3.1 pt", "delta": 0.031, "lo": 0.012, "hi": 0.05, "n": 3},
        **{"p_holm": 0.004, "finished": 3, "planned": 3, "activity": 0.01, "per_seed": seeds},
        **{"mde": {"n": 0.024, "5": 0.017, "10": 0.011}, "cost": {"tokens": 1.04}},
        **{"paired": {"lo": 0.001, "hi": 0.06, "p": 0.04}, "welch": None},
        **{"difficulty": {"3": {"delta": -0.01}}},
        **{"smoothness": {"value": 0.0123, "floor": 0.02, "rank": 1}},
    }
    null = dict.fromkeys(("delta", "lo", "hi", "p_holm", "mde", "activity", "paired", "welch", "n"))
    early = {"arm": "arm_2", "verdict": "incomplete", "reason": EVIL, "sentence": EVIL}
    early |= {"finished": 1, "per_seed": [], "cost": {}, "difficulty": {}}
    early |= {"smoothness": {"value": None, "floor": None, "rank": None}}
    again = {"arm": "arm_3", "verdict": "equivalent within ±δ", "repeat": "other_seed"}
    again |= {"delta": -0.002, "lo": -0.011, "hi": 0.009, "p_holm": None, "sentence": ""}
    stack = {"ab": "arm_1+arm_2", "a": "arm_1", "b": "arm_2", "baseline": "baseline"}
    return {
        "study": {"horizon": 500, "earliest": 300, "window": 5, "margin": 0.02, "alpha": 0.05},
        "baselines": [
            {"arm": "baseline", "unstable": "", "mean": 0.57, "finished": 3, "planned": 3}
            | {"smoothness": {"value": 0.02, "floor": 0.02, "rank": 2}}
        ],
        "arms": [helps, helps | null | early, helps | again],
        "interactions": [
            stack
            | {"word": "undetermined", "n": 3, "p_holm": 0.2}
            | {"raw": {"delta": 0.01, "lo": -0.01, "hi": 0.03}}
        ],
        "missing": [{"what": f"failed: {EVIL}", "command": ""}],
        "warnings": ["a warning"],
    }


def _run(root: Path, a: int, seed: int, steps: int, every: int) -> None:
    rng = random.Random(1000 * a + seed)
    arm = f"arm_{a}" if a else "baseline"
    folder = root / arm / f"seed={seed}"
    folder.mkdir(parents=True)
    failed = (a, seed) == (2, 2)
    manifest = {"arm": arm, "seed": seed, "study": "made up", "baseline": "baseline", "hash": "x"}
    delta = {"clip.eps_high": [0.2, round(0.2 + a / 100, 2)]} if a else {}
    write_json(folder / "manifest.json", manifest | {"delta": delta})
    reason = f"ValueError: {EVIL}" if failed else ""
    state = {"state": "failed" if failed else "complete", "reason": reason}
    write_json(folder / "status.json", state | {"step": steps, "steps": steps, "seconds": 200.0})

    def value(step: int, top: float) -> float:
        return 0.3 + top * (1 - math.exp(-step / steps * (2 + a / 5))) + rng.gauss(0, 0.01)

    rows = [["step", *METRICS]]
    for step in sorted({1, *range(every, steps + 1, every)}):
        cells = {name: f"{value(step, 0.4)!r}" for name in METRICS}
        rows.append([str(step), *(cells | {"perf/generated_tokens": str(600 * every)}).values()])
    (folder / "metrics.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    evaluated = range(0, steps + 1, 25)
    scores = [f"{step},{value(step, 0.3)!r}\n" for step in evaluated]
    (folder / "eval.csv").write_text("step,eval/accuracy\n" + "".join(scores))
    samples = [_sample(a, q, step) for step in evaluated for q in range(8)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    event = {"step": steps // 2, "monitor": "M2", "signal": "policy/entropy", "action": "warn"}
    lines = [json.dumps(event | {"message": "entropy fell <b>"}) + "\n"] * (a % 2)
    (folder / "events.jsonl").write_text("".join(lines))


def _sample(a: int, q: int, step: int) -> dict:
    texts = [EVIL, "y" * (1_000_000 if a == 1 and step == 0 else 40), f"{q}+{a}={q + a}"]
    asked = f"{q}+3=" + EVIL * (q == 0)
    return {
        "step": step,
        "prompt": asked,
        "answer": str(q + 3),
        "completion": texts[min(q, 2)],
        "reward": float((q + step) % 2),
        "difficulty": 2,
    }
