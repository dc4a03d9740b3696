"""How a step grows with rows, length and vocabulary, and with runs at once.

python scripts/bench/bench_scale.py [--rounds 3] [--full] [--out docs/bench/scale.csv]

Random-weight Llama (1 M beside its embedding), 1 thread. `learn`: forward and backward with chunked
log-probabilities in micro-batches; `generate`: transformers' sampler, no early end. Rounds go over
all cases in turn and the least time of a case counts, so that a busy moment does not sit on one
case. Each doubling's time ratio is printed: above 2 it grows faster than linearly. `load` is the
machine's load average when the case was last measured. --full goes to 2,048 rows, 1,024 tokens and
152,000 words; without, to a quarter of that.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_ablate import costs

PROMPT, MICRO = 12, 4096
DOUBLING = 2


@dataclass(frozen=True)
class Case:
    """One point: a sweep varies one of rows, length, vocabulary and processes."""

    sweep: str
    part: str
    rows: int = 64
    length: int = 32
    vocabulary: int = 1_000
    processes: int = 1


def cases(full: bool) -> list[Case]:
    top = 2 if full else 0
    found = []
    for part in ("learn", "generate"):
        found += [Case("rows", part, rows=64 * 2**i) for i in range(4 + top)]
        found += [Case("length", part, length=32 * 2**i) for i in range(4 + top)]
        widths = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 76_000, 152_000]
        found += [Case("vocabulary", part, vocabulary=v) for v in widths[: 8 if full else 6]]
        found += [Case("processes", part, processes=n) for n in (1, 2, 4)]
    return found


def shape_of(case: Case) -> costs.Shape:
    return costs.Shape(4, 160, 4, 4, 448, case.vocabulary)


def work_of(case: Case) -> costs.Work:
    return costs.Work(case.rows, 1, PROMPT, case.length)


def seconds(case: Case) -> float:
    """Time a case once, all its processes at once; the slowest counts."""
    if case.processes == 1:
        return measure(case)
    with multiprocessing.get_context("spawn").Pool(case.processes) as pool:
        pool.map(warm, [case] * case.processes, chunksize=1)
        return max(pool.map(measure, [case] * case.processes, chunksize=1))


def warm(case: Case) -> None:
    """Load what is needed, and stay until each process of the pool has."""
    build(case)
    time.sleep(2.0)


def build(case: Case) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = shape_of(case)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config)


def measure(case: Case) -> float:
    import torch

    model = build(case)
    ids = torch.randint(case.vocabulary, (case.rows, PROMPT + case.length))
    act = learn if case.part == "learn" else generate
    act(model, ids[:2])  # first calls allocate
    begin = time.perf_counter()
    act(model, ids)
    return time.perf_counter() - begin


def learn(model: Any, ids: Any) -> None:
    from grpo_ablate.logprobs import chunked_stats

    for part in ids.split(max(1, MICRO // ids.shape[1])):
        hidden = model.model(input_ids=part).last_hidden_state[:, :-1].flatten(0, 1)
        logprobs, _ = chunked_stats(hidden, model.lm_head.weight, part[:, 1:].flatten(), 1.0)
        logprobs.mean().backward()


def generate(model: Any, ids: Any) -> None:
    import torch

    new = ids.shape[1] - PROMPT
    with torch.no_grad():
        model.generate(ids[:, :PROMPT], max_new_tokens=new, do_sample=True, top_k=0)


def predicted(case: Case) -> float:
    """Seconds by the cost model, of one process."""
    model = costs.learn_seconds if case.part == "learn" else costs.generate_seconds
    return model(shape_of(case), work_of(case), costs.CPU_CORE)


def doublings(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line for each neighbour in a sweep: time ratio per factor of size."""
    lines = []
    for sweep, part in dict.fromkeys((row["sweep"], row["part"]) for row in rows):
        mine = [row for row in rows if (row["sweep"], row["part"]) == (sweep, part)]
        for less, more in itertools.pairwise(mine):
            size, took = more[sweep] / less[sweep], more["seconds"] / less["seconds"]
            faster = "  faster than linear" if took > size * 1.05 else ""
            lines.append(
                f"{part} {sweep} {less[sweep]} → {more[sweep]} (× {size:.3g}):"
                f" time × {took:.2f}{faster}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs/bench/scale.csv"))
    args = parser.parse_args()
    found: dict[Case, tuple[float, float]] = {}
    for number in range(args.rounds):
        for case in cases(args.full):
            took = seconds(case)
            before = found.get(case, (took, 0.0))[0]
            found[case] = min(before, took), os.getloadavg()[0]
            print(f"round {number + 1}: {case}: {took:.3f} s", flush=True)
    rows = [vars(case) | {"seconds": took, "load": load} for case, (took, load) in found.items()]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            rounded = {key: round(row[key], 4) for key in ("seconds", "load")}
            writer.writerow(row | rounded)
    print("\n".join(doublings(rows)))


if __name__ == "__main__":
    main()
