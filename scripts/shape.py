"""The shape of the embedded default on the standard baseline, from its runs: a table and a figure.

    python -m grpo_ablate baseline=standard -m seed=1,2,3
    python scripts/shape.py multirun_outputs docs/embedded_default

Writes shape.md and shape.png, and copies the runs' CSVs beside them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from grpo_ablate.analysis import figures, load

ARM = "standard"


def row(run: load.Run) -> dict[str, str]:
    metrics, accuracy = run.metrics, run.evals["eval/accuracy"]
    entropy, length = metrics["policy/entropy"], metrics["completion/length_mean"]
    dead, reward = metrics["reward/frac_zero_std"], metrics["reward/mean"]
    return {
        "seed": str(run.seed),
        "reward": f"{reward.iloc[0]:.3f} → {reward.iloc[-1]:.3f}",
        "dead groups": f"{dead.iloc[0]:.0%} → {dead.iloc[-1]:.0%}",
        "held-out accuracy": f"{accuracy.iloc[0]:.3f} → {accuracy.iloc[-1]:.3f}",
        "change": f"{accuracy.iloc[-1] - accuracy.iloc[0]:+.3f}",
        "entropy": f"{entropy.iloc[0]:.3f} → {entropy.iloc[-1]:.3f}",
        "change of entropy": f"{entropy.iloc[-1] / entropy.iloc[0] - 1:+.0%}",
        "length": f"{length.iloc[0]:.1f} → {length.iloc[-1]:.1f}",
        "change of length": f"{length.iloc[-1] / length.iloc[0] - 1:+.0%}",
        "lowest ratio p01": f"{metrics['ratio/p01'].min():.3f}",
        "highest ratio p99": f"{metrics['ratio/p99'].max():.3f}",
        "seconds": f"{run.seconds:.0f}",
    }


def main(outputs: Path, target: Path) -> None:
    runs = [run for run in load.read_study(outputs) if run.arm == ARM and run.state == "complete"]
    if not runs:
        raise SystemExit(f"no complete run of {ARM} under {outputs}; see the top of this script")
    target.mkdir(parents=True, exist_ok=True)
    for run in runs:
        for name in ("metrics.csv", "eval.csv", "manifest.json"):
            copy = target / f"seed={run.seed}"
            copy.mkdir(exist_ok=True)
            shutil.copy(run.folder / name, copy / name)
    rows = [row(run) for run in runs]
    header = "| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|\n"
    body = "".join("| " + " | ".join(r.values()) + " |\n" for r in rows)
    note = "Rewards, entropy and lengths: the first step, then the mean of the last ten.\n\n"
    (target / "shape.md").write_text(note + header + body, encoding="utf-8")
    (drawn,) = figures.draw_comparison(runs, target)
    drawn.rename(target / "shape.png")
    print(header + body)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
