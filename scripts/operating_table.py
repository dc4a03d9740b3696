"""What the judgement does to studies whose truth is known: `python scripts/operating_table.py`.

Simulates studies of a baseline and three arms (K = 4), judges each with the ladder, and writes
false alarms, power and the share of each verdict into docs/judging.md. Same bytes each time.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from grpo_ablate.analysis import verdict  # noqa: E402
from grpo_ablate.analysis.evidence import Evidence  # noqa: E402
from grpo_ablate.study import Design  # noqa: E402

PAGE = ROOT / "docs" / "judging.md"
STUDIES = 2000
ARMS = 3
DESIGN = Design(horizon=500)
SHARED = 0.02
"""sd of what the arms of a seed have in common."""
SIGMAS, SEEDS, EFFECTS = (0.01, 0.02, 0.04), (3, 5), (0.0, 0.02, 0.04, 0.06)
_SHOWN = ("helps", "hurts", "equivalent within ±δ", "underpowered", "unstable")


def simulate(effect: float, sigma: float, seeds: int, studies: int, number: int) -> list[list[str]]:
    """Return the verdicts of `studies` studies; the first arm has the effect, the others none."""
    rng = np.random.default_rng([number, seeds, round(1000 * sigma), round(1000 * effect)])
    truth = np.array([0.0, effect] + [0.0] * (ARMS - 1))
    noise = rng.normal(0, sigma, (studies, ARMS + 1, seeds))
    scores = 0.6 + truth[:, None] + rng.normal(0, SHARED, (studies, 1, seeds)) + noise
    return [judge(table) for table in scores]


def judge(scores_KS: np.ndarray) -> list[str]:
    """Return the verdicts of a table of scores, the baseline in its first row."""
    everyone = [
        Evidence(
            arm=f"arm{k}",
            seeds=tuple(range(len(row))),
            scores=dict(enumerate(map(float, row))),
            reached=DESIGN.horizon,
        )
        for k, row in enumerate(scores_KS)
    ]
    return [found.verdict for found in verdict.judge(everyone[0], everyone[1:], DESIGN)]


def row(sigma: float, seeds: int, effect: float, studies: int = STUDIES) -> list[str]:
    """Return one line of the table."""
    found = simulate(effect, sigma, seeds, studies, number=1)
    first = Counter(verdicts[0] for verdicts in found)
    others = found if effect == 0 else [verdicts[1:] for verdicts in found]
    alarms = sum(any(v in ("helps", "hurts") for v in verdicts) for verdicts in others)
    shares = [f"{100 * first[word] / studies:.1f}" for word in _SHOWN]
    label = [f"{sigma:.2f}", str(seeds), f"{100 * effect:+.0f}" if effect else "0"]
    return [*label, f"{100 * alarms / studies:.1f}", *shares]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the table as Markdown."""
    head = [
        "σ",
        "seeds",
        "true effect, pt",
        "a null arm helps or hurts, %",
        *(f"{w}, %" for w in _SHOWN),
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    rows = [row(sigma, n, effect) for sigma in SIGMAS for n in SEEDS for effect in EFFECTS]
    text = PAGE.read_text(encoding="utf-8")
    block = f"<!-- operating table -->\n{table(rows)}\n<!-- end -->"
    found = re.sub(r"<!-- operating table -->.*?<!-- end -->", lambda _: block, text, flags=re.S)
    PAGE.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
