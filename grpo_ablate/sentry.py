"""Where alarms meet a run: before each optimizer step and after each training step.

A pause must leave the run as it was before the step that raised it. With several mini-batches a
rollout the weights have moved by then, so a run whose alarms may pause keeps a copy of the step's
start (weights and AdamW's memory, on the CPU); others pay nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from grpo_ablate.dump import describe
from grpo_ablate.learner import Learner, not_finite
from grpo_ablate.metrics import Weighted
from grpo_ablate.models import Policy
from grpo_ablate.monitor import Alarms, Event, hardest
from grpo_ablate.records import Records
from grpo_ablate.types import Batch

_BEFORE = "optim/grad_norm"
"""The signal that is known before a step is taken: its rules can hold the step back (M5)."""


class StoppedError(RuntimeError):
    """An alarm ended the run."""


class Sentry:
    """One run's alarms at work."""

    def __init__(
        self, alarms: Alarms, policy: Policy, learner: Learner, records: Records, temperature: float
    ) -> None:
        """Connect the alarms.

        Args:
            alarms: the rules with their windows.
            policy: for dumps.
            learner: whose step's start is copied where an alarm may pause.
            records: where events and dumps go.
            temperature: the sampler's, for ratios in dumps.
        """
        self.alarms, self._policy, self._learner = alarms, policy, learner
        self._records, self._temperature = records, temperature
        self.lr_factor = 1.0
        self.rollbacks = 0
        self._skipped_in_row = 0
        self._start: dict[str, Tensor] | None = None
        self._step, self._raised = 0, 0
        self.verdict, self.reason = "go on", ""
        """What the last alarm asks for, and why."""

    def begin(self, step: int) -> None:
        """Note that a step begins."""
        self._step, self._raised = step, 0
        self._start = None
        if self.alarms.acts("pause"):
            self._start = self._learner.state()
            self._windows = {k: list(m["past"]) for k, m in self.alarms.memory.items()}

    def guard(self, norm: float, loss: float, batch: Batch) -> Literal["apply", "skip", "halt"]:
        """Judge a gradient before it moves anything; see `learner.Guard`.

        Raises:
            FloatingPointError: too many in a row were no numbers.
            StoppedError: an alarm says stop.
        """
        if not (math.isfinite(norm) and math.isfinite(loss)):
            return self._skip(norm, loss, batch)
        self._skipped_in_row = 0
        event = self._raise(self.alarms.observe(self._step, {_BEFORE: norm}), batch)
        if event is None or event.action in ("warn", "dump"):
            return "apply"
        if event.action == "lr_scale":
            self.lr_factor *= self.alarms.lr_factor  # from the next step on
            return "apply"
        self.verdict = event.action
        return "halt"

    def after(self, step: int, row: dict[str, Weighted], batch: Batch) -> str:
        """Show a finished step to the alarms, and count what it raised in `monitor/alarms`.

        Returns:
            "go on", "pause" or "rollback".

        Raises:
            StoppedError: an alarm says stop, or the rollbacks are used up.
        """
        values = {
            name: value for name, (value, weight) in row.items() if weight > 0 and name != _BEFORE
        }
        event = self._raise(self.alarms.observe(step, values), batch)
        row["monitor/alarms"] = (float(self._raised), 1.0)
        if event and event.action == "lr_scale":
            self.lr_factor *= self.alarms.lr_factor
        return event.action if event and event.action in ("pause", "rollback") else "go on"

    def undo(self) -> None:
        """Put the step's start back, after a pause.

        Only the mark of having fired stays, so that the resumed run is not paused by the very
        batch that somebody has just looked at: it is taken within the rule's cooldown.
        """
        assert self._start is not None
        self._learner.load_state(self._start)
        for name, past in self._windows.items():
            self.alarms.memory[name]["past"] = past

    def healthy(self) -> bool:
        """Tell whether no entropy alarm has gone off within its window: fit to roll back to."""
        rules = self.alarms.rules
        fired = {k: self.alarms.memory[k]["fired"] for k in rules}
        return not any(
            rules[k]["signal"] == "policy/entropy"
            and fired[k] is not None
            and self._step - fired[k] < max(rules[k]["window"], rules[k]["cooldown"])
            for k in rules
        )

    def state(self) -> dict[str, Any]:
        """Return what must survive a crash, as JSON."""
        return {
            "memory": self.alarms.memory,
            "lr_factor": self.lr_factor,
            "rollbacks": self.rollbacks,
            "skipped_in_row": self._skipped_in_row,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Become the sentry that `state` was taken from; rules new since then start empty."""
        self.alarms.memory |= {k: v for k, v in state["memory"].items() if k in self.alarms.rules}
        self.lr_factor, self.rollbacks = state["lr_factor"], state["rollbacks"]
        self._skipped_in_row = state["skipped_in_row"]

    def rolled_back(self) -> None:
        """Count a rollback, and go on with a lower rate: the same rate would go the same way.

        Raises:
            StoppedError: there were too many.
        """
        if self.rollbacks >= self.alarms.max_rollbacks:
            raise StoppedError(
                f"{self.reason}; monitor.max_rollbacks={self.alarms.max_rollbacks} are used up"
            )
        self.rollbacks += 1
        self.lr_factor *= self.alarms.lr_factor

    def _skip(self, norm: float, loss: float, batch: Batch) -> Literal["skip"]:
        self._skipped_in_row += 1
        message = f"step {self._step}: {not_finite(loss, norm)}"
        bad = Event(self._step, "finite", "not a number", _BEFORE, norm, math.inf, "skip", message)
        self._note(bad, batch)
        if self._skipped_in_row >= self.alarms.max_skipped:
            raise FloatingPointError(
                f"{self._skipped_in_row} optimizer steps in a row skipped: {message}"
            )
        return "skip"

    def _raise(self, events: list[Event], batch: Batch) -> Event | None:
        """Write events down and return the one to act on."""
        for event in events:
            self._note(event, batch if event.action != "warn" else None)
        chosen = hardest(events)
        if chosen and chosen.action not in ("warn", "dump"):
            self.reason = f"{chosen.monitor} at step {chosen.step}: {chosen.message}"
        if chosen and chosen.action == "stop":
            raise StoppedError(self.reason)
        return chosen

    def _note(self, event: Event, batch: Batch | None) -> None:
        self._raised += 1
        self._records.event(event.line())
        print(f"alarm {event.monitor} ({event.action}), step {event.step}: {event.message}")
        if batch is not None:
            text = describe(self._policy, batch, self._temperature, event)
            self._records.dump(f"step={event.step}-{event.monitor}.txt", text)
