"""Between a run and its checkpoints: what goes in, and how a run becomes what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from grpo_ablate import ranks
from grpo_ablate.checkpoint import Checkpoints, Progress
from grpo_ablate.evaluation import Evaluation
from grpo_ablate.learner import Learner
from grpo_ablate.records import Records
from grpo_ablate.sentry import Sentry, StoppedError


class Keeper:
    """Saves and restores learner, alarms, files and progress together."""

    def __init__(
        self, checkpoints: Checkpoints, learner: Learner, sentry: Sentry, records: Records
    ) -> None:
        """Connect what makes up a run's state."""
        self._checkpoints, self._learner, self._sentry = checkpoints, learner, sentry
        self.records = records
        self._scores: dict[int, tuple[float, float]] = {}
        self.fresh = True
        """The run began anew."""

    def due(self, step: int) -> bool:
        """Tell whether the cadence asks for a checkpoint after this step."""
        return self._checkpoints.due(step)

    def score(self, step: int, evaluation: Evaluation) -> None:
        """Note a step's held-out accuracy on both halves: it goes with that step's checkpoint."""
        found = evaluation.scores
        self._scores = {step: (found["eval/selection_accuracy"], found["eval/test_accuracy"])}

    def save(self, progress: Progress) -> None:
        """Write a checkpoint of the run as it is now."""
        score, test = self._scores.get(progress.step, (None, None))
        self._write(progress, self.records.position(), score, test, self._sentry.healthy())

    def restore(self, columns: Sequence[str]) -> Progress:
        """Go on at the newest good checkpoint, or begin anew where there is none.

        Args:
            columns: of eval.csv.
        """
        step = self._checkpoints.newest()
        self.fresh = step is None
        ranks.barrier()  # all look before rank 0 begins to write
        self.records.start(columns, anew=self.fresh)
        if step is None:
            return Progress()
        found = self._read(step)
        self._checkpoints.drop_after(step)  # damaged ones: they will be written again
        return self._become(*found, events=True)

    def rollback(self) -> Progress:
        """Go back to the newest checkpoint from before the alarm, and on at a lower rate.

        Healthy: no entropy alarm had gone off within its window. Later checkpoints are removed,
        the tables cut, the events kept. The alarms' windows are the checkpoint's, so that they do
        not see the steps that were undone.

        Raises:
            StoppedError: there is none, or the rollbacks are used up.
        """
        sentry, checkpoints = self._sentry, self._checkpoints
        target = checkpoints.newest(lambda state: state["healthy"])
        if target is None:
            raise StoppedError(f"{sentry.reason}; no healthy checkpoint to roll back to")
        sentry.rolled_back()
        rate, count = sentry.lr_factor, sentry.rollbacks
        state, tensors = self._read(target)
        checkpoints.drop_after(target)
        progress = self._become(state, tensors, events=False)
        sentry.lr_factor, sentry.rollbacks = rate, count
        position = self.records.position()
        self._write(progress, position, state["score"], state["test"], healthy=True)
        return progress

    def best(self) -> dict[str, Any] | None:
        """Return step, selection and test accuracy of the best checkpoint kept."""
        return self._checkpoints.best()

    def _read(self, step: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Read a checkpoint on every rank before rank 0 changes anything on disk."""
        found = self._checkpoints.state(step), self._checkpoints.tensors(step)
        ranks.barrier()
        return found

    def _become(
        self, state: dict[str, Any], tensors: dict[str, Tensor], *, events: bool
    ) -> Progress:
        step: int = state["step"]
        self._learner.load_state(tensors)
        self._scores = {} if state["score"] is None else {step: (state["score"], state["test"])}
        self._sentry.load_state(state["sentry"])
        self.records.go_back(state["position"], step, events=events)
        window = [{name: (v, w) for name, (v, w) in row.items()} for row in state["window"]]
        return Progress(step, state["advantage"], window)

    def _write(
        self,
        progress: Progress,
        position: dict[str, Any],
        score: float | None,
        test: float | None,
        healthy: bool,
    ) -> None:
        state = {
            "score": score,
            "test": test,
            "healthy": healthy,
            "advantage": dict(progress.advantage),
            "window": progress.window,
            "sentry": self._sentry.state(),
            "position": position,
        }
        self._checkpoints.save(progress.step, self._learner.state(), state)
