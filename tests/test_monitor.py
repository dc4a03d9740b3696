"""Alarms on made-up streams: one that fires each at the right step, one that must not."""

from __future__ import annotations

import pytest

from grpo_ablate.commands import replay
from grpo_ablate.manifest import config_hash
from grpo_ablate.monitor import Alarms, Limits, check_rules, hardest
from grpo_ablate.variants import ConfigError
from tests.conftest import composed


def alarms(*names, limits=Limits(), **changes):  # noqa: B008
    full = replay.named("default")
    rules = {name: full.rules[name] | changes for name in names or full.rules}
    settings = ("lr_factor", "max_rollbacks", "max_skipped", "reward_timeout", "max_fault_share")
    return Alarms(limits, rules=rules, **{key: getattr(full, key) for key in settings})


def fired(watch, stream):
    """Steps at which a stream of {signal: value}, from step 1 on, raises an alarm."""
    return [e.step for step, row in enumerate(stream, 1) for e in watch.observe(step, row)]


def signal(name, *values):
    return [{name: value} for value in values]


SPREAD = [{"reward/mean": 0.3 + i / 200, "reward/std": 0.5 - i / 200} for i in range(60)]
STEADY = [{"reward/mean": 0.3 + i / 200, "reward/std": 0.5} for i in range(60)]
ENTROPY = "policy/entropy"
LENGTH = Limits(10, 20)
# id, limits, a stream that fires it, at which step, a stream that must not
STREAMS = [
    # halves of 10 steps: std falls from .4775 to .4275 (.105); of 24: from .4425 to .3225 ...
    ("M1", Limits(), SPREAD, 37, STEADY),
    ("M2", Limits(), signal(ENTROPY, 1.0, 0.9, 0.71, 0.69), 4, signal(ENTROPY, *[0.71] * 9)),
    ("M3", LENGTH, signal("completion/length_mean", 15, 24, 24.1), 3,
     signal("completion/length_mean", 8.1, 23.9)),
    ("M3_std", Limits(), signal("completion/length_std", *[2.0] * 10, 4.1), 11,
     signal("completion/length_std", *[2.0] * 10, 3.9)),
    ("M4", Limits(), signal("ratio/p99", 1.9, 2.1), 2, signal("ratio/p99", 1.5, 2.0)),
    ("M4_low", Limits(), signal("ratio/p01", 0.6, 0.49), 2, signal("ratio/p01", 0.5, 0.9)),
    ("M4_blown", Limits(), signal("ratio/p99", 2.9, 3.1), 2, signal("ratio/p99", 2.9, 3.0)),
    ("M5", Limits(), signal("optim/grad_norm", *[1.0] * 10, 3.1), 11,
     signal("optim/grad_norm", *[1.0] * 10, 2.9)),
    ("M6", Limits(), signal("sampling/filter_ratio", 0.4, 0.51), 2,
     signal("sampling/filter_ratio", 0.2, 0.5)),
    ("M7", Limits(), signal(ENTROPY, 0.2, 0.04), 2, signal(ENTROPY, 0.2, 0.05)),
]  # fmt: skip


@pytest.mark.parametrize("name,limits,stream,step,quiet", STREAMS, ids=[s[0] for s in STREAMS])
def test_each_fires_at_its_step_and_only_then(name, limits, stream, step, quiet):
    """Article M1-M7."""
    assert fired(alarms(name, limits=limits), stream)[0] == step
    assert fired(alarms(name, limits=limits), quiet) == []


def test_every_rule_has_its_streams():
    assert {row[0] for row in STREAMS} == set(replay.named("default").rules)


def test_m1_by_hand():
    """At step n the halves' means of std are .5 - (h-1)/400 and .5 - (n - (h+1)/2)/200."""
    watch = alarms("M1", cooldown=0)
    first = fired(watch, SPREAD)[0]
    half = first // 2

    def std(start):
        return sum(row["reward/std"] for row in SPREAD[start : start + half]) / half

    assert 1 - std(first - half) / std(0) > 0.2
    half = (first - 1) // 2
    assert 1 - std(first - 1 - half) / std(0) <= 0.2


def test_m2_forgets_what_left_its_window():
    falling = signal(ENTROPY, *[1.0] * 5, *[0.75] * 200, 0.6)
    assert fired(alarms("M2"), falling) == []
    assert fired(alarms("M2", window=1000), falling) == [206]


def test_a_jump_needs_ten_values_to_compare_with():
    assert fired(alarms("M5"), signal("optim/grad_norm", *[1.0] * 9, 100.0)) == []


def test_cooldown_counts_steps():
    stream = signal("ratio/p99", *[5.0] * 120)
    assert fired(alarms("M4"), stream) == [1, 51, 101]


def test_no_interval_and_missing_signals_are_silent():
    rows = [*signal("completion/length_mean", 1.0, 500.0), {}, {"ratio/p99": float("nan")}]
    assert fired(alarms("M3", "M4"), rows) == []


def test_hardest_action_wins():
    watch = alarms("M4", "M4_blown")
    watch.rules["M4_blown"]["action"] = "stop"
    assert hardest(watch.observe(1, {"ratio/p99": 4.0})).action == "stop"
    assert hardest([]) is None


def test_memory_survives_json():
    import json

    stream = signal("optim/grad_norm", *[1.0] * 10, 3.1)
    watch, other = alarms("M5"), alarms("M5")
    fired(watch, stream[:-1])
    other.memory = json.loads(json.dumps(watch.memory))
    assert watch.observe(11, stream[-1]) == other.observe(11, stream[-1]) != []


@pytest.mark.parametrize(
    "change,message",
    [
        ({"kind": "abov"}, "kind=abov is unknown .did you mean above"),
        ({"action": "panic"}, "action=panic is unknown"),
        ({"threshold": None}, "threshold must be a number"),
        ({"beside": "x"}, "beside is no key of a rule"),
    ],
)
def test_rules_are_checked_at_start(change, message):
    rule = replay.named("default").rules["M4"]
    with pytest.raises(ConfigError, match=message):
        check_rules({"M4": rule | change})


def test_alarms_that_only_tell_and_the_cadence_of_saving_are_not_part_of_the_hash():
    plain = config_hash(composed())
    assert config_hash(composed("monitor=off")) == plain
    assert config_hash(composed("checkpoint.every=7")) == plain
    assert config_hash(composed("monitor=article")) != plain


def test_replay_of_a_file(tmp_path, capsys):
    path = tmp_path / "metrics.csv"
    path.write_text("step,ratio/p99,policy/entropy\n10,1.5,\n20,2.5,0.3\n")
    assert replay.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "step    20  M4 " in out and out.endswith("1 alarms\n")
    assert replay.main([str(tmp_path / "none.csv")]) == 2
    assert replay.main([str(path), "monitor=artcle"]) == 2
    assert "did you mean article?" in capsys.readouterr().err
