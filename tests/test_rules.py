"""Compatibility: each rule fires where its options meet, and is silent beside that place."""

from __future__ import annotations

import re

import pytest

from grpo_ablate.rules import RULES, findings
from tests.conftest import ROOT, composed

OVERLONG = ["length_penalty=overlong_soft"]
# options of the rule -> (overrides that fire it, overrides next to them that do not)
CASES = {
    "a std or a group mean × `group_size=1`": (
        ["sampling.group_size=1"],
        ["sampling.group_size=1", "advantage=length_buckets"],
    ),
    "a filter × `group_size=1`": (
        ["sampling=dynamic", "sampling.group_size=1", "advantage=length_buckets"],
        ["sampling=dynamic", "sampling.group_size=2"],
    ),
    "`clip=asymmetric` × a lower bound that is not the looser one": (
        ["clip=asymmetric", "clip.eps_low=0.15"],
        ["clip=asymmetric"],
    ),
    "`dual_clip` × a bound inside the trusted interval": (
        ["clip=clip_higher", "clip.dual_clip=1.27"],
        ["clip=clip_higher", "clip.dual_clip=1.28"],
    ),
    "`clip=cispo` × weights that exclude 1": (
        ["clip=cispo", "clip.weight_min=1.1"],
        ["clip=cispo", "clip.weight_min=1.0"],
    ),
    "one update a rollout × any `clip`": (
        ["lr_batch.minibatches=1"],
        ["lr_batch.minibatches=1", "lr_batch.epochs=2"],
    ),
    "sequence ratio (`gspo`) × a token-scale width": (
        ["clip=gspo", "clip.eps_high=0.2"],
        ["clip=gspo"],
    ),
    "token ratio, or an unnormalised sequence ratio × a sequence-scale width": (
        ["clip=gspo", "clip.length_normalised=false"],
        ["clip=gspo"],
    ),
    "`clip=gspo` × a reduction that is not `sequence_mean`": (
        ["clip=gspo"],
        ["clip=gspo", "reduction=sequence_mean"],
    ),
    "`length_penalty=target_interval` × an empty interval": (
        ["length_penalty=target_interval", "length_penalty.low=13"],
        ["length_penalty=target_interval", "length_penalty.low=12"],
    ),
    "`length_penalty=overlong_soft` × a margin beyond its limit": (
        [*OVERLONG, "length_penalty.margin=33"],
        [*OVERLONG, "length_penalty.margin=32"],
    ),
    "`length_penalty=overlong_soft` × an engine that stops before it begins": (
        [*OVERLONG, "length_penalty.max_length=48"],
        [*OVERLONG, "length_penalty.max_length=47"],
    ),
    "shaping weights × a tenth of the main reward": (
        ["shaping=format_and_repetition", "shaping.format_weight=0.06"],
        ["shaping=format_and_repetition"],
    ),
    "`sampling.filter_on=shaped` × nothing that shapes": (
        ["sampling=dynamic", "sampling.filter_on=shaped"],
        ["sampling=dynamic", "sampling.filter_on=shaped", *OVERLONG],
    ),
    "`sampling.filter_on=shaped` × a length penalty or shaping": (
        ["sampling=dynamic", "sampling.filter_on=shaped", "shaping=format_bonus"],
        ["sampling=dynamic", "shaping=format_bonus"],
    ),
    "a filter on dead groups × `advantage=length_buckets`": (
        ["sampling=dynamic", "advantage=length_buckets"],
        ["sampling=dynamic"],
    ),
    "`masking=overlong` × `length_penalty=overlong_soft`": (
        ["masking=overlong", *OVERLONG],
        ["masking=overlong"],
    ),
    "`reduction.empty_rows=skip` × no masking": (
        ["reduction=sequence_mean", "reduction.empty_rows=skip"],
        ["reduction=sequence_mean", "reduction.empty_rows=skip", "masking=overlong"],
    ),
    "`tis` × bounds that exclude 1": (
        ["tis=token", "tis.maximum=0.9"],
        ["tis=token", "tis.maximum=1.0"],
    ),
    "`tis` × `engine=transformers`": (["tis=sequence"], ["tis=none"]),
    "more `lr_batch.minibatches` × fewer `lr_batch.prompts`": (
        ["lr_batch.minibatches=33"],
        ["lr_batch.minibatches=32"],
    ),
    "`lr_batch=linear_decay` × a warm-up as long as the run": (
        ["lr_batch=linear_decay", "lr_batch.warmup=300"],
        ["lr_batch=linear_decay", "lr_batch.warmup=299"],
    ),
    "more than three levers × one arm": (
        ["clip=gspo", "sampling=dynamic", "advantage=group_std", "lr_batch.lr_scale=2"],
        ["clip=gspo", "sampling=dynamic", "advantage=group_std"],
    ),
    "fewer than 300 `steps` × any verdict": (["steps=299"], ["steps=300"]),
}
BY_OPTIONS = {rule.options: rule for rule in RULES}


def test_each_rule_has_its_case():
    assert CASES.keys() == BY_OPTIONS.keys()
    assert len(BY_OPTIONS) == len(RULES)


@pytest.mark.parametrize("options", CASES)
def test_fires_where_its_options_meet_and_nowhere_else(options):
    fires, silent = CASES[options]
    rule = BY_OPTIONS[options]
    config = composed(*fires)
    assert rule.fires(config)
    assert rule.message.format(**config) in "\n".join(findings(config, rule.level))
    assert not rule.fires(composed(*silent))


def test_the_default_breaks_no_rule():
    config = composed()
    assert not [rule.options for rule in RULES if rule.fires(config)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.options)
def test_documented(rule):
    """docs/techniques.md shows the level, the options and the source of each rule in one row."""
    rows = (ROOT / "docs/techniques.md").read_text().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if "|" in row]
    assert any(row[:2] == [rule.level, rule.options] and row[-1] == rule.source for row in cells)


def test_every_refusal_says_what_to_do():
    for rule in RULES:
        if rule.level == "refuse":
            assert re.search(r"raise|lower|swap|make|use |leave|must", rule.message), rule.options
