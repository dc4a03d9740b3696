"""Metrics by hand, and how steps pool into a row."""

from __future__ import annotations

import math

import pytest
import torch

from grpo_ablate import metrics
from grpo_ablate.learner import _joined
from grpo_ablate.loss import from_logits
from grpo_ablate.plans import Tally
from grpo_ablate.rollout import Rollout
from grpo_ablate.types import Advantages, Completions, Groups, Problem, Trace, Update


def step(
    raw,
    *,
    keep=None,
    log_ratio=(0.0,),
    moved=("clip",),
    norms=(1.0,),
    lengths=None,
    filters=True,
    shaping=None,
    train=None,
    **trace,
):
    """Metrics of a made-up step of P prompts × G responses."""
    raw_PG = torch.tensor(raw, dtype=torch.float64)
    keep_PG = torch.ones_like(raw_PG).bool() if keep is None else torch.tensor(keep)
    count = raw_PG.numel()
    ids = [[0] * n for n in (lengths or [2] * count)]
    completions = Completions(ids, [[0.0] * len(i) for i in ids], [False] * count)
    problems = tuple(Problem("?", "!", 1) for _ in raw)
    groups = Groups(
        problems,
        [[1]] * len(raw),
        completions,
        [""] * count,
        raw_rewards_PG=raw_PG,
        penalty_PG=torch.full_like(raw_PG, -0.75),
        shaping_PG=torch.tensor(shaping).double() if shaping else torch.full_like(raw_PG, 0.25),
        keep_PG=keep_PG,
        vote_PG=keep_PG,
        train_PG=keep_PG if train is None else torch.tensor(train),
    )
    dropped = int((~keep_PG.any(1)).sum())
    seen = {
        "log_ratio_N": torch.tensor(log_ratio).double(),
        "sequence_log_ratio_S": torch.zeros(1),
        "entropy_N": torch.ones(len(log_ratio)),
        "clipped_low_N": torch.zeros(len(log_ratio)).bool(),
        "clipped_high_N": torch.zeros(len(log_ratio)).bool(),
        "capped_N": torch.zeros(len(log_ratio)).bool(),
        "unbounded_N": torch.zeros(len(log_ratio)).bool(),
        "kl_N": torch.zeros(0),
        "regularizer_N": torch.zeros(len(log_ratio)),
        "weight_N": torch.ones(len(log_ratio)),
    } | trace
    update = Update([0.5] * len(norms), list(norms), Trace(**seen), lr=1e-4, planned=4)
    rollout = Rollout(groups, Tally(1, len(raw), dropped))
    return metrics.step_metrics(
        rollout, Advantages(raw_PG), update, moved=list(moved), filters=filters, seconds=2.0
    )


def value(row, name):
    return row[name][0]


def test_rewards_are_over_everything_sampled():
    row = step([[1, 0], [0, 0]], keep=[[True, True], [False, False]])
    assert value(row, "reward/raw_mean") == 0.25
    assert value(row, "reward/mean") == -0.25
    assert value(row, "reward/penalty_mean") == -0.75
    assert value(row, "reward/shaping_mean") == 0.25
    assert value(row, "reward/group_std") == 0.25, "population std 0.5 and 0"
    assert value(row, "reward/std") == pytest.approx(math.sqrt(0.1875))
    assert value(row, "reward/frac_zero_std") == 0.5
    assert value(row, "sampling/filter_ratio") == 0.5
    assert value(row, "sampling/effective_groups") == 1
    assert value(row, "sampling/effective_responses") == 2


def test_kept_dead_groups_are_not_effective():
    assert value(step([[1, 1], [1, 0]]), "sampling/effective_groups") == 1


def test_lengths_of_right_and_wrong_responses():
    row = step([[1, 0], [0.5, 0.25]], lengths=[2, 5, 4, 9])
    assert value(row, "completion/length_right_mean") == 3
    assert value(row, "completion/length_wrong_mean") == 7
    assert step([[1, 1]])["completion/length_wrong_mean"][1] == 0, "nothing wrong, nothing to tell"


def test_lengths_tokens_and_truncation():
    row = step([[1, 0]], lengths=[1, 3])
    assert value(row, "completion/length_mean") == 2
    assert value(row, "completion/length_std") == 1
    assert value(row, "perf/generated_tokens") == 4
    assert value(row, "completion/truncated_frac") == 0


def test_ratio_quantiles_are_nearest_ranks():
    """100 ratios 0.01, 0.02 … 1.00: ranks 1, 50 and 99."""
    ratios = [math.log(i / 100) for i in range(100, 0, -1)]
    row = step([[1, 0]], log_ratio=ratios)
    found = [value(row, f"ratio/{q}") for q in ("p01", "p50", "p99", "max")]
    assert found == pytest.approx([0.01, 0.5, 0.99, 1.0])


def test_clip_fractions_and_activity():
    low = torch.tensor([True, False, False, False])
    high = torch.tensor([False, True, False, False])
    row = step([[1, 0]], log_ratio=[0.0] * 4, clipped_low_N=low, clipped_high_N=high)
    assert value(row, "ratio/clip_frac_low") == 0.25
    assert value(row, "ratio/clip_frac_high") == 0.25
    assert value(row, "technique/activity") == value(row, "technique/activity_clip") == 0.5


def test_k24_dual_clip_and_the_unbounded_branch_are_counted_apart():
    """K24: of four tokens one is capped and two are where nothing bounds the loss."""
    flags = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 0]]).bool()
    row = step([[1, 0]], log_ratio=[0.0] * 4, capped_N=flags[0], unbounded_N=flags[1])
    assert value(row, "ratio/clip_frac_dual") == 0.25
    assert value(row, "ratio/unbounded_frac") == 0.5
    assert value(row, "technique/activity_clip") == 0.25, "a cap acts, an absent one does not"


def test_the_reference_is_measured_only_where_there_is_one():
    assert step([[1, 0]])["policy/kl_ref"][1] == 0
    assert value(step([[1, 0]], kl_N=torch.tensor([0.1, 0.3])), "policy/kl_ref") == pytest.approx(
        0.2
    )


def test_shaping_that_a_whole_group_gets_alike_has_nothing_to_act_on():
    """It cancels in the group's baseline: one of two groups varies."""
    row = step([[1, 0], [1, 0]], shaping=[[0.05, 0.05], [0.05, 0.0]], moved=["shaping"])
    assert value(row, "technique/activity") == 0.5


def test_activity_of_masking_regularizer_and_tis():
    row = step(
        [[1, 0], [1, 0]],
        train=[[True, False], [True, True]],
        log_ratio=[0.0] * 2,
        regularizer_N=torch.tensor([-0.3, 0.1]),
        weight_N=torch.tensor([1 + 1e-6, 1.5]),
    )
    assert value(row, "technique/activity_masking") == 0.25
    assert value(row, "technique/activity_regularizer") == pytest.approx(0.2)
    assert value(row, "technique/activity_tis") == 0.5, "rounding is no action"
    assert value(row, "sampling/effective_responses") == 3


def test_c8_both_variances():
    """Article C8: sequence ratios e^0 twice have no variance; token ratios 1 and 3 have 1."""
    row = step([[1, 0]], log_ratio=[0.0, math.log(3)], sequence_log_ratio_S=torch.zeros(2))
    assert value(row, "ratio/token_var") == pytest.approx(1.0)
    assert value(row, "ratio/sequence_var") == 0.0


def test_a_stack_acts_as_far_as_its_idlest_part():
    row = step([[1, 0], [1, 0]], moved=["clip", "sampling", "advantage"])
    assert value(row, "technique/activity") == 0.0
    assert math.isnan(value(step([[1, 0]], moved=[]), "technique/activity")), (
        "a baseline moves nothing"
    )


def test_sampling_without_a_filter_has_no_activity_to_measure():
    """A temperature arm is not inert because nothing was dropped."""
    row = step([[1, 0]], moved=["sampling"], filters=False)
    assert row["technique/activity_sampling"][1] == row["technique/activity"][1] == 0


def test_advantage_activity_is_zero_where_all_stds_are_equal():
    """Std against no std is then a mere change of scale."""
    assert value(step([[1, 0], [0, 1]]), "technique/activity_advantage") == 0.0
    spread = step([[1, 0, 0, 0], [1, 1, 0, 0]])
    assert value(spread, "technique/activity_advantage") > 0


def test_hard_and_easy_prompts():
    """Article A7: mean |advantage| of prompts below and from half right."""
    row = step([[1, 1], [0, 0]])
    assert value(row, "advantage/abs_easy") == 1.0
    assert value(row, "advantage/abs_hard") == 0.0


def test_k4_an_empty_step_has_empty_metrics_not_nan():
    """K4, K9: nothing kept, no update: what cannot be measured has weight 0 and no value."""
    empty = torch.zeros(0)
    row = step(
        [[0, 0]],
        keep=[[False, False]],
        log_ratio=[],
        norms=[],
        sequence_log_ratio_S=empty,
        clipped_low_N=empty.bool(),
        clipped_high_N=empty.bool(),
        capped_N=empty.bool(),
        unbounded_N=empty.bool(),
        regularizer_N=empty,
        weight_N=empty,
    )
    pooled = metrics.pool([row])
    assert pooled["optim/updates"] == 0
    assert pooled["sampling/effective_groups"] == 0
    for name in (
        "policy/entropy",
        "ratio/p99",
        "optim/grad_norm",
        "technique/activity_clip",
        "technique/activity",
    ):
        assert row[name][1] == 0, name
        assert math.isnan(pooled[name]), name
    full = metrics.pool([row, step([[1, 0]])])
    assert full["policy/entropy"] == 1.0, "an empty step does not dilute the window"
    assert full["technique/activity"] == 0.0, "nor blank it"


def test_k9_what_the_learner_returns_when_it_trained_nothing_can_be_measured():
    """K9: its trace is empty in every field, whatever their types."""
    trace = _joined([])
    row = step([[0, 0]], keep=[[False, False]], norms=[], **vars(trace))
    assert all(row[name][1] == 0 for name in row if name.startswith(("ratio/", "policy/")))
    assert row["technique/activity_regularizer"][1] == 0


def test_pooling_weighs_tokens_not_steps():
    """Entropy 1 over one token and 4 over three tokens pool to 3.25, not 2.5."""
    few = step([[1, 0]])
    many = step([[1, 0]], log_ratio=[0.0] * 3, entropy_N=torch.full((3,), 4.0))
    assert metrics.pool([few, many])["policy/entropy"] == pytest.approx(13 / 4)


def test_pooling_sums_and_maxima():
    rows = [step([[1, 0]], norms=[1.0, 5.0]), step([[1, 0]], norms=[2.0])]
    pooled = metrics.pool(rows)
    assert pooled["perf/seconds"] == 4.0
    assert pooled["optim/updates"] == 3
    assert pooled["optim/grad_norm_max"] == 5.0
    assert pooled["optim/grad_norm"] == pytest.approx(8 / 3)


def test_k13_uniform_logits_have_entropy_ln_v():
    """K13: V = 4 gives ln 4 = 1.386294."""
    stats = from_logits(torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), 0.6)
    torch.testing.assert_close(stats.entropy_BL, torch.full((2, 3), 1.386294), rtol=0, atol=1e-6)
