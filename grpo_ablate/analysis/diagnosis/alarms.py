"""The article's alarms (M1-M7) over a log: the rules of `monitor`, none of them stated twice."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from grpo_ablate.analysis.diagnosis.log import SETTLED, Evidence, Log, hits
from grpo_ablate.compose import config_dir
from grpo_ablate.monitor import Alarms, Limits


@cache
def _defaults() -> tuple[dict[str, Any], float]:
    """Return conf/monitor/default.yaml, and the article's entropy threshold for language models."""
    node = OmegaConf.to_container(OmegaConf.load(config_dir() / "monitor/default.yaml"))
    article = OmegaConf.load(config_dir() / "monitor/article.yaml")
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}, float(article.rules.M7.threshold)


def monitor_rules(log: Log) -> dict[str, dict[str, Any]]:
    """Return the alarms' rules for a log: a run's own, else the default's.

    The default's entropy level belongs to the embedded model; a foreign log gets the article's.
    """
    node, entropy = _defaults()
    rules = {name: dict(rule) for name, rule in node["rules"].items()}
    if log.trainer != "grpo_ablate":
        rules["M7"]["threshold"] = entropy
    rules |= {k: dict(v) for k, v in log.config.get("monitor", {}).get("rules", {}).items()}
    return rules


def limits(log: Log) -> Limits:
    """Return the target interval of lengths that a run was given."""
    node = log.config.get("length_penalty", {})
    return Limits(**{key: float(node[key]) for key in ("low", "high") if key in node})


def alarms(log: Log, name: str) -> dict[int, float]:
    """Return step → measure of each row at which one of `monitor`'s rules holds."""
    rule = monitor_rules(log)[name] | {"cooldown": 0}
    names = [rule["signal"], *([rule["beside"]] if "beside" in rule else [])]
    if not all(signal in log.signals for signal in names):
        return {}
    table = pd.DataFrame({signal: log.signals[signal] for signal in names}).dropna()
    if rule["kind"] == "jump" and len(table) > 1:
        # rows may lie further apart than steps do: a running mean of ten rows is still wanted
        gap = float(table.index.to_series().diff().median())
        rule["window"] = max(rule["window"], (SETTLED + 1) * gap)
    node = {k: v for k, v in _defaults()[0].items() if k not in ("name", "rules")}
    watch = Alarms(limits(log), rules={name: rule}, **node)
    raised: dict[int, float] = {}
    for step, row in zip(table.index, table.to_dict("records"), strict=True):
        raised |= {e.step: e.value for e in watch.observe(int(step), row)}  # type: ignore[arg-type]
    return raised


def alarm(log: Log, *, name: str) -> Evidence | None:
    """See where one of `monitor`'s rules holds, and its worst measure."""
    rule, raised = monitor_rules(log)[name], alarms(log, name)
    if not raised:
        return None
    values = log.signals[rule["signal"]]
    worst = min if rule["kind"] == "below" else max
    at = worst(float(values[step]) for step in raised)
    return hits(values, raised, worst=at, measure=worst(raised.values()))


def spikes(log: Log) -> dict[int, float]:
    """Return step → gradient norm / running mean where it exceeds M5's threshold.

    Of a row that pools several optimizer steps the largest norm counts, where it is logged.
    """
    mean = log.signals["optim/grad_norm"]
    peak = log.signals.get("optim/grad_norm_max", mean)
    before = mean.shift(1).rolling(SETTLED).mean()
    times = (peak / before[before > 0]).dropna()
    threshold = float(monitor_rules(log)["M5"]["threshold"])
    return {int(step): float(value) for step, value in times.items() if value > threshold}  # type: ignore[call-overload]


def gradient(log: Log) -> Evidence | None:
    """See gradient norms far above their running mean (article: M5)."""
    found = spikes(log)
    times = max(found.values(), default=math.nan)
    return hits(log.signals["optim/grad_norm"], found, times=times)
