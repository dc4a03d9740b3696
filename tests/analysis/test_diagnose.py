"""Every rule: a log that fires it at the right steps, and one that must not."""

from __future__ import annotations

import json
import math
import re

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from grpo_ablate.analysis import diagnose
from grpo_ablate.analysis.diagnosis.alarms import monitor_rules
from grpo_ablate.analysis.diagnosis.aliases import ALIASES
from grpo_ablate.analysis.diagnosis.log import Log, gain
from grpo_ablate.analysis.diagnosis.remedies import REMEDIES
from grpo_ablate.analysis.diagnosis.rule import LEVELS
from tests.analysis.logs import at, flat, line, log, wobble
from tests.conftest import ROOT, composed

RISING, STILL = line(0.2, 0.8), flat(0.5)
STD = {"reward_std": flat(0.5)}
VARIED = {"reward_frac_zero_std": flat(0.1), "policy_entropy": flat(0.3), **STD}
INTERVAL = {"length_penalty": {"name": "target_interval", "low": 10, "high": 20}}
ONE_UPDATE = {"lr_batch": {"name": "constant", "minibatches": 1, "epochs": 1}}
FOUR_UPDATES = {"lr_batch": {"name": "constant", "minibatches": 4, "epochs": 1}}
GSPO = {"clip": {"name": "gspo"}}
SYMMETRIC = {"clip": {"name": "symmetric"}}
CLIMB_THEN_FLAT = line(0.2, 0.5, over=300)
DOUBLING = lambda step: 100 * 2 ** (step / 200)  # noqa: E731

# How the steps below follow. D1_difficulty: .001 a step up to 300; rows from s on join the plateau
# once .2 + .001 (s + 20), their mean, is at least .5 - .05 × .5: s = 260, a row that begins at 251.
# collapse: of the five rows up to 240 four are .1, a mean of .16, less than half of .4.
# D2: at s the largest entropy of 200 steps is 1 - .0015 (s - 190), and .285 less is 30 % from 230.

# rule, a log that fires it, first and last step of the evidence, a log that must not
CASES = [
    ("D1_variance", log(reward_mean=STILL, reward_frac_zero_std=flat(0.8), **STD), (10, 400),
     log(reward_mean=STILL, reward_frac_zero_std=flat(0.4), **STD)),
    ("D1_entropy", log(reward_mean=STILL, **VARIED | {"policy_entropy": flat(0.04)}), (10, 400),
     log(reward_mean=STILL, **VARIED)),
    ("D1_lr", log(reward_mean=STILL, **VARIED), (10, 400),
     log(reward_mean=RISING, **VARIED)),
    ("D1_difficulty", log(600, reward_mean=CLIMB_THEN_FLAT, **VARIED), (251, 600),
     log(600, reward_mean=line(0.2, 0.8, over=600), **VARIED)),
    ("D2", log(reward_mean=STILL, policy_entropy=line(1.0, 0.4), **STD), (221, 400),
     log(reward_mean=RISING, policy_entropy=line(1.0, 0.4), **STD)),
    ("collapse", log(reward_mean=lambda s: 0.4 if s <= 200 else 0.1), (231, 400),
     log(reward_mean=lambda s: 0.4 if s <= 200 else 0.25)),
    ("D3_ratio", log(policy_loss=wobble(0.01, spikes={200: 0.9}),
                     ratio_p99=at({200: 3.5}, 1.2)), (191, 200),
     log(policy_loss=wobble(0.01, spikes={200: 0.9}), ratio_p99=flat(1.2))),
    ("D3_gradient", log(policy_loss=wobble(0.01, spikes={200: -0.9}),
                        optim_grad_norm=at({200: 8.0}, 1.0)), (191, 200),
     log(policy_loss=wobble(0.01), optim_grad_norm=at({200: 8.0}, 1.0))),
    ("D3_frequent", log(policy_loss=wobble(0.01, spikes=dict.fromkeys((150, 200, 280), 0.9))),
     (141, 280), log(policy_loss=wobble(0.01, spikes=dict.fromkeys((150, 400), 0.9)))),
    ("D3_lr", log(policy_loss=wobble(0.01, spikes={150: 0.9})), (141, 150),
     log(policy_loss=wobble(0.01, spikes={150: 0.04}))),
    ("D4", log(reward_mean=STILL, completion_length_mean=DOUBLING, **STD), (201, 400),
     log(reward_mean=RISING, completion_length_mean=DOUBLING, **STD)),
    ("D5", log(reward_frac_zero_std=flat(0.35), sampling_filter_ratio=flat(0.0)), (301, 400),
     log(reward_frac_zero_std=flat(0.35), sampling_filter_ratio=flat(0.35))),
    ("D6", log(eval_accuracy=flat(0.5), baseline_accuracy=flat(0.53)), (351, 400),
     log(eval_accuracy=flat(0.52), baseline_accuracy=flat(0.53))),
    # 5 rows against 5: std falls from .49-.41 to .39-.31
    ("M1", log(100, reward_mean=RISING, reward_std=lambda s: 0.5 - s / 500), (91, 100),
     log(100, reward_mean=RISING, reward_std=flat(0.5))),
    ("M2", log(100, policy_entropy=at({80: 0.69}, 1.0)), (71, 80),
     log(100, policy_entropy=at({80: 0.71}, 1.0))),
    ("M3", log(config=INTERVAL, completion_length_mean=at({50: 24.1, 60: 7.9}, 15)), (41, 60),
     log(config=INTERVAL, completion_length_mean=at({50: 23.9, 60: 8.1}, 15))),
    ("M3_std", log(completion_length_std=at({200: 4.2}, 2.0)), (191, 200),
     log(completion_length_std=at({200: 3.9}, 2.0))),
    ("M4_blown", log(ratio_p99=at({200: 3.1}, 1.2)), (191, 200),
     log(ratio_p99=at({200: 2.9}, 1.2))),
    ("M4", log(ratio_p99=at({200: 2.1}, 1.2)), (191, 200), log(ratio_p99=at({200: 2.0}, 1.2))),
    ("M4_low", log(ratio_p01=at({200: 0.49}, 0.8)), (191, 200),
     log(ratio_p01=at({200: 0.5}, 0.8))),
    ("M5", log(optim_grad_norm=flat(1.0), optim_grad_norm_max=at({200: 3.1}, 1.5)), (191, 200),
     log(optim_grad_norm=flat(1.0), optim_grad_norm_max=at({200: 2.9}, 1.5))),
    ("M6", log(sampling_filter_ratio=at({30: 0.51}, 0.3)), (21, 30),
     log(sampling_filter_ratio=flat(0.5))),
    ("M7", log(policy_entropy=at({400: 0.049}, 0.06)), (391, 400),
     log(policy_entropy=flat(0.05))),
    ("truncation", log(completion_truncated_frac=lambda s: 0.2 * (s > 200)), (221, 400),
     log(completion_truncated_frac=at({200: 0.4}, 0.0))),
    ("wrong_longer", log(completion_length_wrong_mean=line(10, 20),
                         completion_length_right_mean=line(10, 12)), (201, 400),
     log(completion_length_wrong_mean=line(10, 20), completion_length_right_mean=line(10, 20))),
    ("shaped_reward", log(reward_mean=RISING, reward_raw_mean=STILL, eval_accuracy=STILL, **STD),
     (201, 400),
     log(reward_mean=RISING, reward_raw_mean=RISING, eval_accuracy=STILL, **STD)),
    ("sampler_drift", log(engine_logprob_diff_mean=line(0.001, 0.02)), (301, 400),
     log(engine_logprob_diff_mean=flat(0.02))),
    ("loss_zero", log(policy_loss=wobble(1e-6), config=ONE_UPDATE), (10, 400),
     log(policy_loss=wobble(1e-6), config=FOUR_UPDATES)),
    ("sequence_clip", log(ratio_clip_frac_low=flat(0.1), ratio_clip_frac_high=flat(0.1),
                          config=GSPO), (10, 400),
     log(ratio_clip_frac_low=flat(0.1), ratio_clip_frac_high=flat(0.1), config=SYMMETRIC)),
]  # fmt: skip


def fired(made: Log) -> dict[str, diagnose.Finding]:
    return {found.rule.id: found for found in diagnose.examine(made).findings}


@pytest.mark.parametrize("rule,ill,steps,well", CASES, ids=[case[0] for case in CASES])
def test_each_fires_at_its_steps_and_only_there(rule, ill, steps, well):
    assert rule in fired(ill)
    evidence = fired(ill)[rule].evidence
    assert (evidence.first, evidence.last) == steps
    answer = diagnose.examine(well)
    assert rule in answer.quiet, dict(answer.unasked).get(rule, "it fired")


def test_every_rule_has_its_logs():
    assert {case[0] for case in CASES} == {rule.id for rule in diagnose.RULES}
    assert len({rule.id for rule in diagnose.RULES}) == len(diagnose.RULES)


def test_a_plateau_has_one_cause():
    """The article's order: with everything wrong at once, variance is named first and alone."""
    ill = {"policy_entropy": flat(0.01), "reward_frac_zero_std": flat(0.9)}
    found = fired(log(reward_mean=STILL, **ill, **STD))
    assert [name for name in found if name.startswith("D1")] == ["D1_variance"]


def test_low_entropy_while_the_reward_rises_is_no_fault():
    """Article D2: told as a note, and the same entropy under a flat reward as a fault."""
    entropy = line(0.4, 0.01)
    rising = fired(log(reward_mean=RISING, policy_entropy=entropy, **STD))
    assert {rising[name].rule.level for name in ("M2", "M7")} == {"note"}
    assert "D2" not in rising
    still = fired(log(reward_mean=STILL, policy_entropy=entropy, **STD))
    assert still["D2"].rule.level == "fault"


def test_the_first_hundred_steps_say_nothing():
    """Article X4: a reward that is flat for 90 steps makes no entropy collapse."""
    young = log(90, reward_mean=STILL, policy_entropy=line(1.0, 0.1, over=90), **STD)
    assert "M2" in fired(young)
    assert "D2" not in fired(young)
    assert math.isnan(gain(young, "reward/mean"))


def test_the_most_important_come_first():
    found = diagnose.examine(
        log(reward_mean=STILL, reward_frac_zero_std=flat(0.8), ratio_p99=flat(2.5), **STD)
    ).findings
    order = [LEVELS.index(item.rule.level) for item in found]
    assert order == sorted(order)
    assert found[0].rule.id == "D1_variance"


def test_evidence_has_its_numbers():
    found = fired(log(completion_truncated_frac=flat(0.25)))["truncation"]
    assert "25%" in found.says
    assert found.evidence.numbers["worst"] == pytest.approx(0.25)


def test_gain_by_hand():
    """Halves of steps 210-300 and 310-400 of a rise by .0015 a step lie .15 apart: .3 std."""
    assert gain(log(reward_mean=RISING, **STD), "reward/mean") == pytest.approx(0.3)
    assert gain(log(reward_mean=RISING), "reward/mean") == pytest.approx(0.15 / 0.6575)


def test_without_a_std_a_gain_is_relative_to_the_reward():
    """Verl logs no std: a tenfold reward scale changes nothing."""
    small, large = (log(reward_mean=lambda s, k=k: k * s) for k in (0.001, 0.01))
    assert gain(small, "reward/mean") == pytest.approx(gain(large, "reward/mean"))


def test_a_signal_that_is_missing_is_named():
    answer = diagnose.examine(log(reward_mean=STILL))
    why = dict(answer.unasked)
    assert why["M4"] == "no ratio/p99 in this log"
    assert why["D1_variance"] == "no reward/frac_zero_std or reward/group_std in this log"
    lengths = diagnose.examine(log(completion_length_mean=flat(9.0)))
    assert "no target interval" in dict(lengths.unasked)["M3"]
    short = dict(diagnose.examine(log(50, reward_mean=STILL)).unasked)
    assert short["D1_lr"] == "asks for 200 steps; this log spans 41"


def test_a_foreign_log_gets_the_articles_entropy_level():
    """Article M7: 0.5 is a language model's; the embedded one starts near 0.3."""
    assert "M7" in fired(log(policy_entropy=flat(0.45), trainer="trl"))
    assert "M7" not in fired(log(policy_entropy=flat(0.45)))
    assert monitor_rules(log(policy_entropy=flat(1.0), trainer="verl"))["M7"]["threshold"] == 0.5


def test_a_runs_own_thresholds_count():
    rules = composed("monitor.rules.M7.threshold=0.2")["monitor"]
    assert "M7" not in fired(log(policy_entropy=flat(0.15)))
    assert "M7" in fired(log(policy_entropy=flat(0.15), config={"monitor": rules}))


def test_jumps_need_ten_rows_however_far_apart():
    """At a row every 50 steps M3_std's window of 50 steps would hold one row."""
    lengths = at({1000: 4.2}, 2.0)
    assert "M3_std" in fired(log(1000, every=50, completion_length_std=lengths))


def test_dead_groups_are_read_off_the_group_std_where_they_are_not_logged():
    ill = log(reward_mean=STILL, reward_group_std=flat(0.05), **STD)
    assert "D1_variance" in fired(ill)


def test_a_plateau_reaches_back_to_where_the_climb_ended():
    made = log(800, reward_mean=CLIMB_THEN_FLAT, **VARIED)
    evidence = fired(made)["D1_difficulty"].evidence
    assert 200 < evidence.first <= 301
    assert evidence.last == 800


def test_an_empty_run_is_told_so():
    empty = Log("a seed=1", "grpo_ablate", {}, arm="a", seed=1, state="waiting")
    answer = diagnose.examine(empty)
    assert not answer.findings
    assert {why for _, why in answer.unasked} == {"no row in this log yet"}
    assert "no row yet" in diagnose.text(answer)


def test_options_are_filled_in_from_the_log():
    made = log(reward_mean=STILL, optim_lr=flat(1e-6), trainer="trl", **VARIED
               | {"policy_entropy": flat(0.9)})  # fmt: skip
    assert ("learning_rate=2e-06") in [option for _, option in fired(made)["D1_lr"].tries]
    ours = log(reward_mean=STILL, config={"lr_batch": {"lr_scale": 0.5, "minibatches": 4,
               "epochs": 1}}, **VARIED)  # fmt: skip
    assert ("lr_batch.lr_scale=1") in [option for _, option in fired(ours)["D1_lr"].tries]


@pytest.mark.parametrize("name", [n for n, r in REMEDIES.items() if r.ours])
def test_our_remedies_can_be_pasted(name):
    """Each override names a file of its group or a key of one."""
    for override in REMEDIES[name].ours.replace("{one_by_one}", "+experiment=gspo").split():
        group, _, choice = override.lstrip("+").partition("=")
        if "." not in group:
            assert (ROOT / f"conf/{group}/{choice}.yaml").is_file(), override
        else:
            group, _, key = group.partition(".")
            assert any(key in OmegaConf.load(p) for p in (ROOT / "conf" / group).glob("*.yaml"))


def test_trls_remedies_are_its_own_options():
    """tests/data/trl/options.json is what TRL says of itself."""
    options = json.loads((ROOT / "tests/data/trl/options.json").read_text())
    assert options["trl"] == "1.16.0"
    named = {text.split("=")[0] for remedy in REMEDIES.values() for text in remedy.trl.split()}
    assert len(named) > 10
    assert named <= set(options["GRPOConfig"])


def test_every_remedy_is_used_and_known():
    used = {name for rule in diagnose.RULES for name in rule.remedies}
    assert used == set(REMEDIES)


def test_rules_that_silence_others_stand_before_them():
    order = [rule.id for rule in diagnose.RULES]
    for rule in diagnose.RULES:
        assert all(order.index(other) < order.index(rule.id) for other in rule.unless), rule.id


def test_docs_list_exactly_the_rules_and_the_aliases():
    text = (ROOT / "docs/diagnose.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", text, re.MULTILINE))
    rules = {rule.id: rule for rule in diagnose.RULES}
    assert rows.keys() == rules.keys()
    for name, rule in rules.items():
        cells = [cell.strip() for cell in rows[name].split(" | ")]
        assert cells[0] == rule.level, name
        named = set(re.findall(r"`([^`]+)`", cells[1]))
        assert named == {part for signal in rule.signals for part in signal.split("|")}, name
        assert cells[-1].rstrip(" |") == rule.source, name
        assert REMEDIES[rule.remedies[0]].what in rows[name], name
    listed = set(re.findall(r"^\| (\w+) `([^`]+)` \| `([^`]+)` \|", text, re.MULTILINE))
    assert listed == {(a.trainer, a.theirs, a.ours) for a in ALIASES if a.ours}


def test_pandas_series_stay_as_they_were():
    """A diagnosis reads only."""
    made = log(reward_mean=STILL, **VARIED)
    before = {name: values.copy() for name, values in made.signals.items()}
    diagnose.examine(made)
    for name, values in made.signals.items():
        pd.testing.assert_series_equal(values, before[name])


NAMES = sorted({n for r in diagnose.RULES for s in r.signals for n in s.split("|") if "/" in n})
VALUES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, 0.5, math.nan]))


@given(
    st.dictionaries(st.sampled_from(NAMES), st.lists(VALUES, max_size=30)),
    st.sampled_from([1, 7, 50, 200]),
    st.sampled_from(["grpo_ablate", "trl", "verl", "unknown"]),
)
@settings(max_examples=60, deadline=None)
def test_any_log_is_answered(columns, every, trainer):
    """Rules meet gaps, zeros, single rows: every rule answers, in range, and can be told."""
    series = {
        n: pd.Series({every * i: v for i, v in enumerate(vs, 1)}) for n, vs in columns.items()
    }
    whole = {n: values.astype(float).dropna() for n, values in series.items()}
    made = Log("any", trainer, {n: values for n, values in whole.items() if len(values)})
    answer = diagnose.examine(made)
    named = {f.rule.id for f in answer.findings} | {*answer.quiet} | {r for r, _ in answer.unasked}
    assert named == {rule.id for rule in diagnose.RULES}
    for found in answer.findings:
        assert made.first <= found.evidence.first <= found.evidence.last <= made.last
    diagnose.text(answer)
    json.dumps(diagnose.plain(answer), allow_nan=False)


def test_a_collapse_that_was_regained_is_none():
    dip = log(reward_mean=lambda s: 0.1 if 100 < s <= 200 else 0.4)
    assert "collapse" not in fired(dip)
    assert "collapse" not in fired(log(reward_mean=lambda s: -0.5 - s / 100)), "no level to lose"
