"""One GPU a run: claimed by a file lock that the kernel releases if its holder dies; torch-free."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Claim:
    """A GPU held for one process."""

    environment: dict[str, str]
    """What to add to the environment of the process that uses it; {} on a CPU machine."""
    descriptors: tuple[int, ...]
    """What that process must inherit, so that the claim lives as long as it does."""


@contextmanager
def claim(count: int = 1, *, poll: float = 1.0) -> Iterator[Claim]:
    """Hold the first free GPUs, waiting while there are too few; none is held meanwhile.

    Args:
        count: GPUs for one process and its ranks.
        poll: seconds between looks.
    """
    names = visible()
    if names and count > len(names):
        raise ValueError(f"ranks={count} needs as many GPUs, {len(names)} are visible; lower ranks")
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
