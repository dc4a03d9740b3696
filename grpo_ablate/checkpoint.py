"""Checkpoints: all that a run needs to go on as if it had never stopped (group `checkpoint`).

    checkpoints/step=<n>/model.safetensors  optimizer.safetensors  state.json  checksums.json

Random streams have no state (see `streams.py`), so this is little: weights, AdamW's memory, the
schedule's clock, the advantage's and the monitors' memory, the steps not yet logged, and the
lengths of the run's files, to which a resume cuts them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from grpo_ablate import ranks
from grpo_ablate.files import read_json, to_disk, write_json
from grpo_ablate.knobs import Count, Index
from grpo_ablate.types import AdvantageState

_PARTS = ("model", "optimizer")


@dataclass
class Progress:
    """How far a run is, beside what the learner and the alarms remember."""

    step: int = 0
    advantage: AdvantageState = field(default_factory=dict)
    window: list[dict[str, tuple[float, float]]] = field(default_factory=list)
    """Metrics of the steps since the last row of metrics.csv."""


class CheckpointError(RuntimeError):
    """A checkpoint belongs to another run, or none can be read where one is needed."""


class Checkpoints:
    """A run's checkpoints on disk: whole or not there, whenever the process dies."""

    def __init__(
        self, folder: Path, config_hash: str, *, every: Index, keep_last: Count, keep_best: Index
    ) -> None:
        """Name the folder.

        Args:
            folder: of the run.
            config_hash: of its configuration; another one's checkpoints are refused.
            every: steps between checkpoints; 0 for none but at an end or a stop.
            keep_last: newest ones kept; 2 survive damage to one.
            keep_best: of those with an evaluation, kept by held-out accuracy on the selection
                half; ties go to the earlier (K21).
        """
        self.folder, self.hash = folder / "checkpoints", config_hash
        self.every, self.keep_last, self.keep_best = every, keep_last, keep_best

    def due(self, step: int) -> bool:
        """Tell whether the cadence asks for one after this step."""
        return self.every > 0 and step % self.every == 0

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write a checkpoint, then remove those that need not be kept; rank 0 alone does.

        Everything goes to a temporary folder, each file and the folder itself to disk, and then
        the folder gets its name in one act.

        Args:
            step: its name.
            tensors: `model.*` and `optimizer.*`.
            state: JSON; `score` (selection accuracy or None) decides about keep_best.
        """
        if ranks.rank():
            return
        self.folder.mkdir(exist_ok=True)
        self._sweep_up()
        temporary = self.folder / f".step={step}.tmp"
        temporary.mkdir()
        for part in _PARTS:
            chosen = {k: t.contiguous() for k, t in tensors.items() if k.startswith(f"{part}.")}
            save_file(chosen, temporary / f"{part}.safetensors")
        write_json(temporary / "state.json", {"step": step, "hash": self.hash, **state})
        sums = {path.name: _digest(path) for path in sorted(temporary.iterdir())}
        write_json(temporary / "checksums.json", sums)
        for path in (*temporary.iterdir(), temporary):
            to_disk(path)
        target = self.folder / f"step={step}"
        if target.exists():
            os.replace(target, self.folder / f".step={step}.old.tmp")
        os.replace(temporary, target)
        to_disk(self.folder)
        self._sweep_up()
        self._prune()

    def newest(self, usable: Callable[[dict[str, Any]], bool] = lambda state: True) -> int | None:
        """Return the step of the newest good checkpoint, None where there is none.

        A damaged one is told of and passed over.

        Args:
            usable: asked of its state.

        Raises:
            CheckpointError: it was written by another configuration.
        """
        for step in reversed(self.steps()):
            fault = self._fault(step)
            if fault:
                print(f"checkpoint step={step} is damaged ({fault}): passed over", file=sys.stderr)
                continue
            state = self.state(step)
            if state["hash"] != self.hash:
                raise CheckpointError(
                    f"{self.folder}/step={step} was written by another configuration"
                    f" ({state['hash']}, now {self.hash}); remove it, or choose another output_dir"
                )
            if usable(state):
                return step
        return None

    def state(self, step: int) -> dict[str, Any]:
        """Return a checkpoint's JSON."""
        return read_json(self.folder / f"step={step}" / "state.json")

    def tensors(self, step: int) -> dict[str, Tensor]:
        """Return a checkpoint's tensors, on the CPU."""
        folder = self.folder / f"step={step}"
        parts = [load_file(folder / f"{part}.safetensors") for part in _PARTS]
        return {name: tensor for part in parts for name, tensor in part.items()}

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, damaged ones included, in ascending order."""
        return sorted(int(path.name[5:]) for path in self.folder.glob("step=*"))

    def best(self) -> dict[str, Any] | None:
        """Return {step, score, test} of the best one by the selection half, earlier of equals."""
        found = [self.state(step) for step in self.steps() if not self._fault(step)]
        scored = [state for state in found if state["score"] is not None]
        if not scored:
            return None
        first = max(scored, key=lambda state: (state["score"], -state["step"]))
        return {key: first[key] for key in ("step", "score", "test")}

    def drop_after(self, step: int) -> None:
        """Remove all checkpoints later than a step, the latest first; rank 0 alone does."""
        if ranks.rank():
            return
        for later in reversed([s for s in self.steps() if s > step]):
            self._remove(later)

    def _fault(self, step: int) -> str | None:
        """Say what is wrong with a checkpoint; None where all its checksums hold."""
        folder = self.folder / f"step={step}"
        try:
            sums = read_json(folder / "checksums.json")
            wrong = [name for name, digest in sums.items() if _digest(folder / name) != digest]
        except (OSError, ValueError) as error:
            return str(error)
        if not sums.keys() >= {"state.json", *(f"{part}.safetensors" for part in _PARTS)}:
            return "incomplete"
        return f"{wrong[0]} is not what was written" if wrong else None

    def _prune(self) -> None:
        steps = self.steps()
        keep = set(steps[-self.keep_last :])
        scored = {s: self._glance(s).get("score") for s in steps}
        scores = {s: float(score) for s, score in scored.items() if score is not None}
        ranked = sorted(scores, key=lambda s: (-scores[s], s))
        for step in set(steps) - keep - set(ranked[: self.keep_best]) - self._healthy(steps):
            self._remove(step)

    def _healthy(self, steps: list[int]) -> set[int]:
        """Return the newest one a rollback may go to."""
        good = [s for s in steps if self._glance(s).get("healthy")]
        return set(good[-1:])

    def _glance(self, step: int) -> dict[str, Any]:
        """Return the state without checking sums: a large model's would take as long as saving."""
        try:
            return self.state(step)
        except ValueError:
            return {}

    def _remove(self, step: int) -> None:
        """Take a checkpoint's name away first, so that a kill leaves no half of it."""
        gone = self.folder / f".step={step}.gone.tmp"
        os.replace(self.folder / f"step={step}", gone)
        shutil.rmtree(gone)

    def _sweep_up(self) -> None:
        for path in self.folder.glob(".*.tmp"):
            shutil.rmtree(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
