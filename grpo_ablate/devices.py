"""GPUs of a run, claimed by file locks that the kernel releases if it dies; torch-free."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_ablate.files import LockHeldError, lock


def visible() -> list[str]:
    """Return the GPUs this process may use, as CUDA names them; none on a CPU machine."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip()]
    nodes = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").glob("nvidia*"))
    return sorted((node[1] for node in nodes if node), key=int)


def runs_at_once() -> int:
    """Return how many runs this machine can hold: its GPUs, without any its cores."""
    return len(visible()) or len(os.sched_getaffinity(0))


def wanted(config: Mapping[str, Any]) -> int:
    """Return how many GPUs a run takes for itself.

    One for each rank, and as many as its engine spreads a model over. A server with
    `engine.devices` is on GPUs that the user set aside.

    Args:
        config: of the run.
    """
    engine = config["engine"]
    spread: int = 1 if engine.get("devices") else engine.get("tensor_parallel_size", 1)
    ranks: int = config.get("ranks", 1)
    return max(ranks, spread)


@dataclass(frozen=True)
class Claim:
    """GPUs held for one run."""

    environment: dict[str, str]
    """What to add to the environment of the process that uses it; {} on a CPU machine."""
    descriptors: tuple[int, ...]
    """What that process must inherit, so that the claim lives as long as it does."""


@contextmanager
def claim(count: int = 1, *, poll: float = 1.0) -> Iterator[Claim]:
    """Hold the first free GPUs, waiting while there are too few; none is held meanwhile.

    Args:
        count: GPUs for one run; see `wanted`.
        poll: seconds between looks.
    """
    names = visible()
    if names and count > len(names):
        raise ValueError(
            f"a run on {count} GPUs, but {len(names)} are visible; lower ranks or"
            " engine.tensor_parallel_size"
        )
    while names:
        with ExitStack() as held:
            got: dict[str, int] = {}
            for name in names:
                if len(got) < count:
                    with suppress(LockHeldError):
                        got[name] = held.enter_context(lock(_lock_file(name)))
            if len(got) == count:
                yield Claim({"CUDA_VISIBLE_DEVICES": ",".join(got)}, tuple(got.values()))
                return
        time.sleep(poll)
    yield Claim({}, ())


def _lock_file(name: str) -> Path:
    safe = re.sub(r"\W", "_", name)
    return Path(tempfile.gettempdir()) / f"grpo_ablate-{os.getuid()}-gpu-{safe}.lock"
