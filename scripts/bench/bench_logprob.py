"""Chunked log-probabilities against the full logits: time, extra peak memory, error.

python scripts/bench/bench_logprob.py [--tokens 4096] [--vocabulary 152000] [--hidden 896]

The two ways alternate, each call in a fresh process so that peaks do not mix. Extra peak: resident
memory above that before the call, less the two gradients that either way returns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

LABELS = {"seconds": "seconds", "peak": "extra peak, MiB"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--elements", type=int, default=None)
    parser.add_argument("--entropy", action="store_true", help="with a gradient of the entropy")
    args = parser.parse_args()
    pairs = [(fresh("full", args), fresh("chunked", args)) for _ in range(args.rounds)]
    ratios = {
        key: [chunked[key] / full[key] for full, chunked in pairs] for key in ("seconds", "peak")
    }
    print("| | full | by tiles | by tiles / full |\n|---|---|---|---|")
    for key, values in ratios.items():
        full, chunked = (statistics.median(pair[way][key] for pair in pairs) for way in (0, 1))
        spread = f"{statistics.median(values):.3f} ({min(values):.3f}…{max(values):.3f})"
        print(f"| {LABELS[key]} | {full:.4g} | {chunked:.4g} | {spread} |")


def fresh(way: str, args: argparse.Namespace) -> dict[str, float]:
    """Measure one way in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (way, args))


def measure(way: str, args: argparse.Namespace) -> dict[str, float]:
    """Time one forward and backward pass; peak in MiB."""
    import torch

    from grpo_ablate.logprobs import chunked_stats
    from grpo_ablate.loss import from_logits

    torch.manual_seed(0)
    torch.set_num_threads(1)
    hidden = torch.randn(args.tokens, args.hidden, requires_grad=True)
    # in place: a temporary would hide the call's own peak
    weight = torch.empty(args.vocabulary, args.hidden).normal_(0.0, 0.02).requires_grad_()
    ids = torch.randint(args.vocabulary, (args.tokens,))

    def full() -> tuple[Any, Any]:
        stats = from_logits((hidden @ weight.T)[None], ids[None], 1.0, args.entropy)
        return stats.logprobs_BL, stats.entropy_BL

    def chunked() -> tuple[Any, Any]:
        return chunked_stats(hidden, weight, ids, 1.0, args.entropy, args.elements)

    ways: dict[str, Callable[[], tuple[Any, Any]]] = {"full": full, "chunked": chunked}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    logprobs, entropy = ways[way]()
    (logprobs.sum() + (entropy.sum() if args.entropy else 0.0)).backward()
    seconds = time.perf_counter() - started
    gradients = 4 * (hidden.numel() + weight.numel()) / 2**20
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 - gradients
    return {"seconds": round(seconds, 2), "peak": round(peak, 1)}


if __name__ == "__main__":
    main()
