"""Alarms as data (Hydra group `monitor`; article: M1-M7); torch-free and pure but for their memory.

The same rules run in a training step and, offline, over any metrics.csv (`replay`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from grpo_ablate.knobs import Count, Index, Positive, Share
from grpo_ablate.variants import ConfigError, hint

ACTIONS = ("warn", "dump", "pause", "rollback", "lr_scale", "stop")
"""From the mildest to the hardest; of several at one step the hardest is taken."""

CHANGING = ("rollback", "lr_scale")
"""Those after which a run goes on at another learning rate than its configuration says."""

_KEYS = ("name", "kind", "signal", "window", "threshold", "cooldown", "action")
_SETTLED = 10
"""Values that a running mean needs before anything can be called a jump."""


@dataclass(frozen=True)
class Event:
    """One alarm: a line of events.jsonl."""

    step: int
    monitor: str
    name: str
    signal: str
    value: float
    threshold: float
    action: str
    message: str

    def line(self) -> dict[str, Any]:
        """Return it as JSON can hold it; a value that is no number becomes None."""
        return asdict(self) | {"value": self.value if math.isfinite(self.value) else None}


@dataclass(frozen=True)
class Limits:
    """What the kinds compare with beside the threshold: the target interval of lengths."""

    low: float = 0.0
    high: float = math.inf


History = list[list[float]]
"""[step, value, value of `beside`] of the window, oldest first; the newest is last."""


def above(past: History, threshold: float, limits: Limits) -> tuple[float, bool]:
    """The newest value exceeds the threshold."""
    return past[-1][1], past[-1][1] > threshold


def below(past: History, threshold: float, limits: Limits) -> tuple[float, bool]:
    """The newest value lies below the threshold."""
    return past[-1][1], past[-1][1] < threshold


def drop(past: History, threshold: float, limits: Limits) -> tuple[float, bool]:
    """1 - value / (largest of the window) exceeds the threshold (article: M2)."""
    top = max(row[1] for row in past)
    fall = 1 - past[-1][1] / top if top > 0 else 0.0
    return fall, fall > threshold


def jump(past: History, threshold: float, limits: Limits) -> tuple[float, bool]:
    """Value / (mean of the window before it) exceeds the threshold (article: M5).

    Silent until 10 values have gone before.
    """
    before = [row[1] for row in past[:-1]]
    mean = fmean(before) if before else 0.0
    times = past[-1][1] / mean if mean > 0 else 0.0
    return times, len(before) >= _SETTLED and times > threshold


def outside(past: History, threshold: float, limits: Limits) -> tuple[float, bool]:
    """The value lies further than a share of the bound outside the target interval (article: M3).

    Silent in a run whose length penalty has no interval.
    """
    value = past[-1][1]
    over = value / limits.high - 1
    under = 1 - value / limits.low if limits.low > 0 else 0.0
    return max(over, under, 0.0), max(over, under) > threshold


def converging(past: History, threshold: float, limits: Limits) -> tuple[float, bool]:
    """From the window's first half to its second the signal rises and `beside` falls (M1).

    The fall is relative, and held against the threshold.
    """
    half = len(past) // 2
    if half < _SETTLED // 2:
        return 0.0, False
    (signal0, beside0), (signal1, beside1) = (
        (fmean(row[1] for row in part), fmean(row[2] for row in part))
        for part in (past[:half], past[-half:])
    )
    fall = 1 - beside1 / beside0 if beside0 > 0 else 0.0
    return fall, signal1 > signal0 and fall > threshold


_KINDS: dict[str, Callable[[History, float, Limits], tuple[float, bool]]] = {
    f.__name__: f for f in (above, below, drop, jump, outside, converging)
}


class Alarms:
    """All rules of a run with their windows."""

    def __init__(
        self,
        limits: Limits = Limits(),
        *,
        rules: dict,  # type: ignore[type-arg]
        lr_factor: Positive,
        max_rollbacks: Index,
        max_skipped: Count,
        reward_timeout: Positive,
        max_fault_share: Share,
    ) -> None:
        """Prepare the rules.

        Args:
            limits: the run's target interval of response lengths.
            rules: id → name, kind, signal (and `beside`), window, threshold, cooldown, action.
            lr_factor: what actions lr_scale and rollback multiply the learning rate by.
            max_rollbacks: rollbacks of a run; the next one stops it.
            max_skipped: optimizer steps in a row that may be skipped as not finite.
            reward_timeout: seconds for one call of the reward function.
            max_fault_share: of a rollout's rows whose reward function may fail.

        Raises:
            ConfigError: a rule is not well-formed.
        """
        check_rules(rules)
        self.limits, self.rules = limits, rules
        self.lr_factor, self.max_rollbacks, self.max_skipped = lr_factor, max_rollbacks, max_skipped
        self.reward_timeout, self.max_fault_share = reward_timeout, max_fault_share
        self.memory: dict[str, dict[str, Any]] = {
            name: {"past": [], "fired": None} for name in rules
        }
        """JSON: the windows, and the step at which each rule fired last."""

    def acts(self, *actions: str) -> bool:
        """Tell whether some rule has one of these actions."""
        return any(rule["action"] in actions for rule in self.rules.values())

    def observe(self, step: int, values: Mapping[str, float]) -> list[Event]:
        """Show the rules a step's values.

        Args:
            step: not below the step before.
            values: signal → value; a rule whose signal is missing or NaN is not asked.

        Returns:
            The alarms raised, in the order of the rules.
        """
        events = [self._ask(name, step, values) for name in self.rules]
        return [event for event in events if event]

    def _ask(self, name: str, step: int, values: Mapping[str, float]) -> Event | None:
        rule, memory = self.rules[name], self.memory[name]
        value = values.get(rule["signal"], math.nan)
        beside = values.get(rule.get("beside", rule["signal"]), math.nan)
        if not (math.isfinite(value) and math.isfinite(beside)):
            return None
        past = [row for row in memory["past"] if row[0] > step - rule["window"]]
        memory["past"] = past = [*past, [step, value, beside]]
        measure, fires = _KINDS[rule["kind"]](past, rule["threshold"], self.limits)
        fired = memory["fired"]
        if not fires or (fired is not None and step - fired < rule["cooldown"]):
            return None
        memory["fired"] = step
        return Event(
            step=step,
            monitor=name,
            name=rule["name"],
            signal=rule["signal"],
            value=measure,
            threshold=rule["threshold"],
            action=rule["action"],
            message=f"{rule['name']}: {rule['signal']} {value:.4g}; {rule['kind']} "
            f"{measure:.4g}, threshold {rule['threshold']:g}",
        )


def hardest(events: list[Event]) -> Event | None:
    """Return the event with the hardest action, the first of equals; None where there is none."""
    return max(events, key=lambda event: ACTIONS.index(event.action), default=None)


def check_rules(rules: Mapping[str, Any]) -> None:
    """Hold the rules against what a rule must be.

    Raises:
        ConfigError: what, where and the remedy.
    """
    for name, rule in rules.items():
        where = f"monitor.rules.{name}"
        if not isinstance(rule, Mapping):
            raise ConfigError(f"{where} must hold {', '.join(_KEYS)}; got {rule!r}")
        wanted = {*_KEYS, "beside"} if rule.get("kind") == "converging" else {*_KEYS}
        for key in sorted(wanted ^ set(rule)):
            fault = "is missing" if key in wanted else f"is no key of a rule{hint(key, wanted)}"
            raise ConfigError(f"{where}.{key} {fault}")
        for key, known in (("kind", _KINDS), ("action", ACTIONS)):
            if rule[key] not in known:
                raise ConfigError(f"{where}.{key}={rule[key]} is unknown{hint(rule[key], known)}")
        for key, low in (("window", 1), ("threshold", -math.inf), ("cooldown", 0)):
            if not isinstance(rule[key], (int, float)) or not low <= rule[key] < math.inf:
                raise ConfigError(f"{where}.{key} must be a number from {low}; got {rule[key]!r}")


def acting(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node less what changes no number of a run.

    That is: rules that only tell, and the settings of actions that no rule takes.
    """
    silent = ("warn", "dump")
    rules = {k: rule for k, rule in node["rules"].items() if rule["action"] not in silent}
    taken = {rule["action"] for rule in rules.values()}
    used = {"lr_factor": taken & {*CHANGING}, "max_rollbacks": taken & {"rollback"}}
    return {k: value for k, value in node.items() if used.get(k, True)} | {"rules": rules}
