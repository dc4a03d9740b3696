"""One run on several processes, its ranks: each has all weights and works on a share of the rows.

Rank 0 is the worker that was started; it starts the others. It alone judges, logs and saves. Every
rank holds the same weights: the gradients are summed over the ranks before each optimizer step,
under denominators of the whole mini-batch, so N ranks take the step that one would. With one rank
each function here is the identity.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from grpo_ablate.types import Completions, Engine

T = TypeVar("T")

_PATIENCE = timedelta(hours=2)
"""How long a rank waits for another: a reward function on rank 0 may be slow. A dead one is noticed
at once, not by this."""


def rank() -> int:
    """Return this process's number, 0 where there is one process."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """Return the number of ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def mine(count: int) -> slice:
    """Return which of `count` things are this rank's: every size()-th."""
    return slice(rank(), count, size())


def barrier() -> None:
    """Wait for all ranks."""
    if size() > 1:
        dist.barrier()


def gather(value: T) -> list[T]:
    """Return every rank's value, by rank; tensors in it must be on the CPU."""
    if size() == 1:
        return [value]
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, value)
    return found


def of_first(compute: Callable[[], T]) -> T:
    """Return on every rank what rank 0 computes: the clock, or a stranger's code, asked once."""
    if size() == 1:
        return compute()
    box = [compute() if rank() == 0 else None]
    dist.broadcast_object_list(box)
    return box[0]  # type: ignore[return-value]


def sum_(tensor: Tensor) -> Tensor:
    """Replace a tensor by its sum over the ranks, and return it."""
    if size() > 1:
        dist.all_reduce(tensor)
    return tensor


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace each gradient by its sum over the ranks; one that no rank has stays None."""
    if size() == 1:
        return
    chosen = list(parameters)
    here = torch.tensor([p.grad is not None for p in chosen], device=chosen[0].device).int()
    for parameter, anywhere in zip(chosen, sum_(here).tolist(), strict=True):
        if anywhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


class Dealt:
    """An engine whose prompts are dealt to the ranks; every rank gets all completions.

    A completion depends on its prompt's seed, not on who makes it, so this changes speed alone.
    """

    def __init__(self, engine: Engine) -> None:
        """Wrap this rank's own engine."""
        self._engine = engine
        self.is_learner = engine.is_learner

    def generate(
        self,
        prompt_ids: Sequence[Sequence[int]],
        n: int,
        *,
        temperature: float,
        seeds: Sequence[int],
    ) -> Completions:
        """Sample n responses a prompt; see `types.Engine`."""
        share = mine(len(prompt_ids))
        own = self._engine.generate(
            prompt_ids[share], n, temperature=temperature, seeds=seeds[share]
        )
        parts = gather(own)

        def in_order(name: str) -> list[Any]:
            columns = [iter(getattr(part, name)) for part in parts]
            return [
                next(columns[prompt % size()])
                for prompt in range(len(prompt_ids))
                for _ in range(n)
            ]

        cached = in_order("cached") if any(part.cached for part in parts) else []
        return Completions(in_order("ids"), in_order("logprobs"), in_order("truncated"), cached)

    def push(self, model: torch.nn.Module) -> None:
        """Make this rank's engine sample from the model's current weights."""
        self._engine.push(model)

    def sleep(self) -> None:
        """Lend this rank's memory to the learner."""
        self._engine.sleep()

    def close(self) -> None:
        """Release what this rank's engine holds."""
        self._engine.close()


@contextmanager
def started(folder: Path, count: int) -> Iterator[None]:
    """Be rank 0 of `count` ranks, and start the others as workers of the same folder.

    Whichever rank dies, all end at once: rank 0 watches its children, and a child watches the pipe
    that rank 0 holds, which the kernel closes however rank 0 ends.

    Args:
        folder: of the run.
        count: of ranks; 1 does nothing.
    """
    if count == 1:
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "grpo_ablate.worker", str(folder), "follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # rank 0 prints the same; errors of any rank are in the log
            env={**os.environ, **where, "RANK": str(number)},
        )
        for number in range(1, count)
    ]
    over = threading.Event()

    def watch(number: int, child: subprocess.Popen[bytes]) -> None:
        code = child.wait()
        if not over.is_set():
            print(f"rank {number} ended with exit code {code}: so does the run", file=sys.stderr)
            sys.stderr.flush()
            os._exit(1)

    for number, child in enumerate(children, 1):
        threading.Thread(target=watch, args=(number, child), daemon=True).start()
    os.environ |= {**where, "RANK": "0"}
    try:
        join()
        yield
        barrier()  # nobody leaves while another still talks to it
    finally:
        over.set()
        for child in children:
            child.kill()
            child.wait()
        if dist.is_initialized():
            dist.destroy_process_group()


def follow() -> None:
    """Be the rank that the environment names, and end when rank 0 does."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    join()


def join() -> None:
    """Meet the other ranks: over NCCL where there are GPUs, each rank with its own; else gloo."""
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=_PATIENCE)
