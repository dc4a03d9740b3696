"""One training step of this project beside TRL's GRPOTrainer and a page of plain PyTorch.

python scripts/bench/bench_step.py [--lengths ragged|equal] [--updates 4] [--rounds 3] [--steps 4]

Needs the extra `bench`.

Same random-weight Llama (1 M), prompts, reward, samples, updates, threads, learning rate. Each
measurement runs in a fresh process, the three alternating, so that peaks do not mix. Ratios are of
neighbours in time; the first step of each is left out. In an update, "forward" is the decoder,
"log-probabilities" the head and the softmax; what none of the parts covers is "other".
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Callable

import step_ways

WAYS = {"ours": step_ways.ours, "TRL": step_ways.trl, "plain": step_ways.floor}
PARTS = ("generate", "reward", "forward", "log-probabilities", "backward", "optimizer", "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", choices=("ragged", "equal"), default="ragged")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print every measurement as well")
    args = parser.parse_args()
    rounds = [{name: fresh(way, args) for name, way in WAYS.items()} for _ in range(args.rounds)]
    if args.json:
        print("\n".join(map(json.dumps, rounds)))
    print(f"{args.lengths} lengths, {args.updates} updates, {args.rounds} rounds\n")
    print("| | ours | TRL | plain | ours / TRL | ours / plain |\n|---|---|---|---|---|---|")
    for key in (*PARTS, "step", "peak MiB"):
        print(row(key, rounds))


def row(key: str, rounds: list[dict[str, dict[str, float]]]) -> str:
    """Return a part's medians and the spread of its ratios."""
    cells = [f"{statistics.median(each[way].get(key, 0.0) for each in rounds):.4g}" for way in WAYS]
    for peer in ("TRL", "plain"):
        pairs = [(each["ours"].get(key, 0.0), each[peer].get(key, 0.0)) for each in rounds]
        found = [own / other for own, other in pairs if other]
        middle = f"{statistics.median(found):.2f}" if found else "–"
        cells.append(f"{middle} ({min(found):.2f}…{max(found):.2f})" if found else "–")
    return f"| {key} | {' | '.join(cells)} |"


def fresh(
    way: Callable[[argparse.Namespace], dict[str, float]], args: argparse.Namespace
) -> dict[str, float]:
    """Measure one way in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(way, (args,))


if __name__ == "__main__":
    main()
