"""Counter-based random streams: every number is named by what it is for, not by when it is drawn.

A draw depends only on (seed, stream, step, prompt, sample). So a trick that draws more numbers
shifts nobody else's, arms share their randomness pair by pair, and a resumed run needs no
generator state. Source: numpy's SeedSequence with spawn_key.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np


class Stream(IntEnum):
    """What a number is used for. Values are part of a run's identity: append, never renumber."""

    PROMPT = 0
    GENERATE = 1
    MINIBATCH = 2
    EVALUATE = 3
    REPEAT = 4


def rng(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """Return the generator of one purpose; the same arguments give the same numbers anywhere."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(stream), *key)))


def subseed(seed: int, stream: Stream, *key: int) -> int:
    """Return a 63-bit seed for a consumer that takes an integer (an engine, a library)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(int(stream), *key))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def run_seed(config: Mapping[str, Any]) -> int:
    """Return the seed a run draws by: its own, or one derived from it for an A/A arm."""
    seed = int(config["seed"])
    again = config["arm"].get("repeat") == "other_seed"
    return subseed(seed, Stream.REPEAT) if again else seed
