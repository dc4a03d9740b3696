"""docs/faq.md: what its answers show, the program says."""

from __future__ import annotations

import os
import re

import pytest

from grpo_ablate.analysis.load import read_run
from grpo_ablate.variants import ConfigError
from tests import markdown
from tests.conftest import ROOT, plan, shell

TEXT = " ".join((ROOT / "docs/faq.md").read_text(encoding="utf-8").split())
ONE_UPDATE = ("lr_batch.minibatches=1", "evaluation.problems=8", "log_every=1")


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_one_update_a_rollout_has_a_loss_near_0_and_no_clipping(tmp_path):
    done = shell(*ONE_UPDATE, "steps=6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "multirun_outputs/lr_batch.minibatches=1/seed=1")
    assert (run.metrics[["ratio/clip_frac_low", "ratio/clip_frac_high"]] == 0).all(axis=None)
    assert (run.metrics[["ratio/p01", "ratio/p99"]] - 1).abs().max(axis=None) < 1e-5
    assert (run.metrics["optim/grad_norm"] > 0).all()
    told = said(shell("diagnose", cwd=tmp_path).stdout)
    for words in ("NOTE loss_zero", "why: normal: every ratio is 1 and advantages sum to 0; the"):
        assert words in told
        assert words in TEXT


@pytest.mark.slow
def test_a_clip_is_inert_with_one_update(tmp_path):
    page = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    (command,) = (c for c in markdown.commands(page) if "tests/test_faq.py" in c.marks.values())
    told = said(shell(*command.words[3:], cwd=tmp_path).stdout)
    why = "inert one update a rollout: every ratio is 1, so no bound can act;"
    assert why in TEXT
    assert re.search(why.replace("inert ", r"inert .*?").replace(" can act", r".*?can.*?act"), told)


@pytest.mark.slow
def test_without_a_key_a_run_is_kept_offline(tmp_path):
    pytest.importorskip("wandb")
    away = {name: "" for name in os.environ if name.startswith("WANDB_")} | {
        name: str(tmp_path) for name in ("HOME", "NETRC", "WANDB_DIR", "WANDB_CONFIG_DIR")
    }
    short = ("steps=2", "evaluation.problems=8", "log_every=1")
    done = shell("tracker=wandb", *short, cwd=tmp_path, **away)
    assert done.returncode == 0, done.stderr
    words = "1 run not on W&B: no W&B API key; set WANDB_API_KEY; later: python -m grpo_ablate push"
    assert words in done.stdout
    assert words in TEXT


def test_two_arms_with_one_seed_begin_alike_and_go_apart():
    for seed in (1, 2, 3):
        one, other = (
            read_run(ROOT / f"docs/results/recorded/{arm}/seed={seed}").metrics["reward/mean"]
            for arm in ("standard", "standard+clip_higher")
        )
        assert one.loc[1] == other.loc[1]
        assert one.iloc[-1] != other.iloc[-1]


def test_threads_are_part_of_the_configuration():
    (one,), (two,) = plan("threads=1"), plan("threads=2")
    assert one.baseline_hash != two.baseline_hash


def test_two_levers_are_refused():
    with pytest.raises(ConfigError, match=r"says it moves \[clip\] but moves \[clip, lr_batch\]"):
        plan("+experiment=clip_higher", "lr_batch.minibatches=1")
    assert "says it moves [clip] but moves [clip, lr_batch]" in TEXT


def test_what_saves_memory_moves_no_lever():
    (job,) = plan("learner.micro_tokens=512", "engine.max_rows=64", "model.path=embedded:tiny")
    assert (job.arm, dict(job.delta)) == ("baseline", {})
