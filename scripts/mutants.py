# ruff: noqa: E501  (a mutant is one line, as the source is)
"""Change one sign, bound, denominator or mask at a time, and see whether the tests notice.

    python scripts/mutants.py [--only TEXT] [--jobs 2] [--out docs/mutants.md]

Each mutant is one textual change to a technique. Its own test module, the oracles and the tests
of the places that use techniques run against a copy of the repository that holds the change. A
mutant that survives them is a hole in the tests, or code that does nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mutant:
    """The first `old` in techniques/<module>.py, or <module>.py, becomes `new`."""

    module: str
    old: str
    new: str


M = Mutant
MUTANTS = (
    # clip
    M("clip", "bounded_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)\n    loss_BT = torch.maximum",
      "bounded_BT = ratio_BT.clamp(1 - eps_high, 1 + eps_low)\n    loss_BT = torch.maximum"),
    M("clip", "torch.maximum(", "torch.minimum("),
    M("clip", "-ratio_BT * advantages_B1, -bounded_BT", "ratio_BT * advantages_B1, -bounded_BT"),
    M("clip", "-bounded_BT * advantages_B1)", "bounded_BT * advantages_B1)"),
    M("clip", "rising_BT = (ratio_BT > 1 + eps_high) & (advantages_B1 < 0)",
      "rising_BT = (ratio_BT > 1 + eps_high) & (advantages_B1 > 0)"),
    M("clip", "capped_BT = (ratio_BT > dual_clip) & (advantages_B1 < 0)",
      "capped_BT = (ratio_BT > dual_clip)"),
    M("clip", "capped_BT = (ratio_BT > dual_clip)", "capped_BT = (ratio_BT < dual_clip)"),
    M("clip", "torch.where(capped_BT, -dual_clip * advantages_B1",
      "torch.where(capped_BT, dual_clip * advantages_B1"),
    M("clip", "low=(ratio_BT < 1 - eps_low) & (advantages_B1 < 0)",
      "low=(ratio_BT < 1 - eps_low) & (advantages_B1 > 0)"),
    M("clip", "high=(ratio_BT > 1 + eps_high) & (advantages_B1 > 0)",
      "high=(ratio_BT > 1 - eps_high) & (advantages_B1 > 0)"),
    M("clip", "unbounded=rising_BT & ~capped_BT", "unbounded=rising_BT"),
    M("clip", "loss_BT.masked_fill(~mask_BT, 0.0),", "loss_BT,"),
    M("clip", "clamp(max=LARGEST_LOG_RATIO).exp()", "exp()"),
    M("ratios", "logprobs_BT.masked_fill(~mask_BT, 0.0) - others_BT.masked_fill(~mask_BT, 0.0)",
      "logprobs_BT - others_BT"),
    M("ratios", "logprobs_BT.masked_fill(~mask_BT, 0.0) - others_BT.masked_fill(~mask_BT, 0.0)",
      "others_BT.masked_fill(~mask_BT, 0.0) - logprobs_BT.masked_fill(~mask_BT, 0.0)"),
    M("clip", "mask_BT.sum(1, keepdim=True).clamp(min=1) if length_normalised else 1",
      "mask_BT.shape[1] if length_normalised else 1"),
    M("clip", "if length_normalised else 1", "if not length_normalised else 1"),
    M("clip", "log_ratio_BT.sum(1, keepdim=True) / tokens_B1", "log_ratio_BT / tokens_B1"),
    M("clip", "loss_BT = -bounded_BT * _column", "loss_BT = bounded_BT * _column"),
    M("clip", "below_BT, above_BT = ratio_BT < 1 - eps_low",
      "below_BT, above_BT = ratio_BT < 1 - eps_high - 1"),
    M("clip", "ratio_BT.clamp(weight_min, weight_max)", "ratio_BT.clamp(weight_min)"),
    M("clip", "mask_BT)).detach()\n    weight_BT", "mask_BT))\n    weight_BT"),
    M("clip", "eps_low=eps, eps_high=eps, dual_clip=dual_clip", "eps_low=eps, eps_high=eps, dual_clip=None"),
    # advantage
    M("advantage", "rewards_PG - mean_P1)", "rewards_PG + mean_P1)"),
    M("advantage", ".masked_fill(~vote_PG, 0.0).sum(1", ".sum(1"),
    M("advantage", "vote_PG.sum(1, keepdim=True) - ddof", "vote_PG.sum(1, keepdim=True) + ddof"),
    M("advantage", "(vote_PG & _live(rewards_PG, vote_PG))", "(vote_PG)"),
    M("advantage", "_std(rewards_PG, vote_PG, ddof) + eps)", "_std(rewards_PG, vote_PG, ddof) - eps)"),
    M("advantage", "decay * state[\"std\"] + (1 - decay) * now",
      "(1 - decay) * state[\"std\"] + decay * now"),
    M("advantage", "std_P1[live_P1].mean()", "std_P1.mean()"),
    M("advantage", "(1 - weight) * variance_P1 + weight * pooled",
      "weight * variance_P1 + (1 - weight) * pooled"),
    M("advantage", "variance_P1[live_P1].mean()", "variance_P1.mean()"),
    M("advantage", "_centred(rewards_PG, vote_PG) / scale)", "_centred(rewards_PG, vote_PG) * scale)"),
    M("advantage", "(voters_P1 - 1).clamp", "(voters_P1 + 1).clamp"),
    M("advantage", "rewards_PG.reshape(1, -1), vote_PG.reshape(1, -1), ddof",
      "rewards_PG.reshape(1, -1), vote_PG.reshape(1, -1), 1 - ddof"),
    M("advantage", "rank_P * buckets // len(prompt_lengths_P)", "rank_P % buckets"),
    # reduction
    M("reduction", "mask_BT.sum().clamp(min=1).double()", "mask_BT.numel()"),
    M("reduction", "mask_BT / tokens_B1 / _rows(mask_BT, empty_rows)", "mask_BT / tokens_B1 / len(mask_BT)"),
    M("reduction", "(_rows(mask_BT, empty_rows) * horizon)", "_rows(mask_BT, empty_rows)"),
    M("reduction", 'empty_rows == "skip"', 'empty_rows != "skip"'),
    M("reduction", "tokens.index_add_(0, index_B, mask_BT.sum(1).double())",
      "tokens.index_add_(0, index_B, torch.ones(len(mask_BT)).double())"),
    M("reduction", "/ max(1, len(groups))", "/ max(1, len(group_B))"),
    # sampling
    M("sampling", "dead_P = ~varies", "dead_P = varies"),
    M("sampling", "- tally.dropped", "+ tally.dropped"),
    M("sampling", "+ 1e-9)", "- 1e-9)"),
    M("sampling", "<= allowance", "< allowance"),
    M("sampling", "earlier_PG < keep_per_reward", "earlier_PG <= keep_per_reward"),
    M("sampling", "& vote_PG[:, None, :]", ""),
    M("sampling", "| ~vote_PG", ""),
    # length_penalty
    M("length_penalty", "(low - lengths_PG).clamp(min=0)", "(lengths_PG - low).clamp(min=0)"),
    M("length_penalty", "+ (lengths_PG - high)", "- (lengths_PG - high)"),
    M("length_penalty", "-coefficient * distance_PG", "coefficient * distance_PG"),
    M("length_penalty", "(max_length - margin - lengths_PG) / margin", "(max_length - lengths_PG) / margin"),
    M("length_penalty", ".clamp(-1, 0)", ".clamp(max=0)"),
    # shaping
    M("shaping", "-repetition_weight * repeated_PG", "repetition_weight * repeated_PG"),
    M("shaping", "1 - len(set(grams)) / len(grams)", "len(set(grams)) / len(grams)"),
    M("shaping", "range(len(row) - ngram + 1)", "range(len(row) - ngram)"),
    M("shaping", "format_weight=format_weight) + penalty_PG", "format_weight=format_weight) - penalty_PG"),
    # regularizer
    M("regularizer", "-coefficient * entropy_BT.masked_fill(~mask_BT, 0.0)",
      "coefficient * entropy_BT.masked_fill(~mask_BT, 0.0)"),
    M("regularizer", "entropy_BT.masked_fill(~mask_BT, 0.0)", "entropy_BT"),
    M("regularizer", "difference_BT.square() / 2", "difference_BT.square()"),
    M("regularizer", "(-difference_BT).clamp(max", "difference_BT.clamp(max"),
    M("regularizer", "LARGEST_LOG_RATIO)) + difference_BT", "LARGEST_LOG_RATIO)) - difference_BT"),
    M("regularizer", "torch.expm1((-difference_BT).clamp(max=LARGEST_LOG_RATIO))",
      "((-difference_BT).clamp(max=LARGEST_LOG_RATIO)).exp() - 1"),
    M("regularizer", ".clamp(max=LARGEST_LOG_RATIO)", ""),
    # masking
    M("masking", "whole_PG | vote", "whole_PG & vote"),
    M("masking", "whole_PG = ~truncated_PG", "whole_PG = truncated_PG"),
    # tis
    M("tis", "ratio.clamp(low, high)", "ratio.clamp(low)"),
    M("tis", "(ratio < (low or 0.0)) | (ratio > high)", "(ratio > high)"),
    M("tis", "difference.sum(1, keepdim=True)", "difference.mean(1, keepdim=True)"),
    M("tis", "counted.sum().clamp(min=1)", "counted.numel()"),
    M("tis", "mask_BT.any(1, keepdim=True)", "torch.ones_like(mask_BT[:, :1])"),
    M("tis", "learner_logprobs_BT.detach()", "learner_logprobs_BT"),
    # lr_batch
    M("lr_batch", "(updates + 1) / warmup", "updates / warmup"),
)  # fmt: skip


def main() -> int:
    """Run the mutants; 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="mutants whose module or text contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    chosen = [m for m in MUTANTS if args.only in f"{m.module} {m.old} {m.new}"]
    for mutant in chosen:
        text = _source(ROOT, mutant).read_text(encoding="utf-8")
        if mutant.old not in text:
            raise SystemExit(f"{mutant.module}: no such text: {mutant.old}")
    with ThreadPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(_verdict, chosen))
    rows = [_row(mutant, outcome) for mutant, outcome in zip(chosen, outcomes, strict=True)]
    survived = [row for row in rows if "| survived |" in row]
    summary = f"{len(chosen)} mutants, {len(survived)} survived."
    if args.out:
        args.out.write_text(_page(summary, rows), encoding="utf-8")
    print(summary, *survived, sep="\n")
    return bool(survived)


def _source(root: Path, mutant: Mutant) -> Path:
    own = root / f"grpo_ablate/techniques/{mutant.module}.py"
    return own if own.is_file() else root / f"grpo_ablate/{mutant.module}.py"


def _verdict(mutant: Mutant) -> str:
    """Return `caught`, or `survived`, in a copy of the repository of its own."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("grpo_ablate", "tests", "conf", "docs", "pyproject.toml"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / part)
        path = _source(copy, mutant)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new, 1), encoding="utf-8")
        own = f"tests/techniques/test_{mutant.module}.py"
        tests = [own, "tests/techniques/test_oracles.py"]
        if not (copy / own).is_file():
            tests = ["tests/techniques"]  # what several techniques share
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
    if done.returncode not in (0, 1):  # pytest's 1: a test failed; anything else proves nothing
        raise RuntimeError(f"{mutant}: pytest ended with {done.returncode}")
    return "caught" if done.returncode else "survived"


def _row(mutant: Mutant, outcome: str) -> str:
    old, new = (" ".join(text.split()).replace("|", "\\|") for text in (mutant.old, mutant.new))
    return f"| {mutant.module} | `{old}` | `{new or ' '}` | {outcome} |"


def _page(summary: str, rows: list[str]) -> str:
    head = [
        "# Mutants",
        "",
        "What the tests would miss if a formula were wrong: one change at a time to a technique,",
        "against its own test module and the oracles. Written by `python scripts/mutants.py --out",
        "docs/mutants.md`.",
        "",
        summary,
        "",
        "| technique | was | became | tests |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
