"""The loop: prompt → rollout → reward → filter → advantage → loss(clip) → step → metrics.

Axes: P prompts, G responses each, B rows, T tokens (see `types.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from grpo_ablate import ranks
from grpo_ablate.checkpoint import Progress
from grpo_ablate.distributions import distributions
from grpo_ablate.loss import pack
from grpo_ablate.metrics import pool, step_metrics
from grpo_ablate.records import Records
from grpo_ablate.stages import Stages, assemble
from grpo_ablate.streams import Stream, rng, run_seed


def train(
    config: Mapping[str, Any], records: Records, interrupted: Callable[[], bool] = lambda: False
) -> str:
    """Run one arm × seed to its last step, from its last checkpoint where it has one.

    Args:
        config: a run's frozen configuration.
        records: where its results go.
        interrupted: asked after each step; True ends the run at a checkpoint.

    Returns:
        "complete", "interrupted" or "paused".
    """
    stages = assemble(config, records)
    with closing(stages.engine):
        return _train(stages, config, records, interrupted)


def _train(
    stages: Stages, config: Mapping[str, Any], records: Records, interrupted: Callable[[], bool]
) -> str:
    """Go from step to step; see `train`."""
    steps = config["steps"]
    sentry, keeper = stages.sentry, stages.keeper
    progress = keeper.restore(stages.evaluate.columns())
    stages.engine.push(stages.policy.model)
    if keeper.fresh:
        records.evaluation(0, stages.evaluate())
    while progress.step < steps:
        outcome = _step(stages, config, progress)
        if outcome == "pause":
            sentry.undo()
            keeper.save(progress)
            return records.end("paused", sentry.reason)
        if outcome == "rollback":
            progress = keeper.rollback()
            stages.engine.push(stages.policy.model)
            continue
        step = progress.step
        if step in (1, steps) or step % config["log_every"] == 0:
            records.metrics(step, pool(progress.window))
            progress.window.clear()
        if step == steps or step % config["eval_every"] == 0:
            keeper.score(step, evaluation := stages.evaluate())
            records.evaluation(step, evaluation)
        stop = ranks.of_first(interrupted)
        if stop or step == steps or keeper.due(step):
            keeper.save(progress)
        if stop and step < steps:
            return records.end("interrupted", f"stopped after step {step}")
    return records.end("complete", best=ranks.of_first(keeper.best))


def _step(stages: Stages, config: Mapping[str, Any], progress: Progress) -> str:
    """Sample, judge, learn; move `progress` on unless an alarm says pause."""
    started, step, policy = time.perf_counter(), progress.step + 1, stages.policy
    stages.sentry.begin(step)
    seed = run_seed(config)
    rollout = stages.collector.collect(seed, step, stages.lr_batch.prompts)
    stages.engine.sleep()
    groups = rollout.groups
    advantages = stages.advantage(
        groups.rewards_PG, groups.vote_PG, groups.prompt_lengths_P, progress.advantage
    )
    batch = pack(groups, advantages, policy.pad_id, policy.model.device)
    update = stages.learner.update(
        batch,
        stages.objective,
        stages.lr_batch,
        steps=config["steps"],
        base_lr=policy.base_lr * stages.sentry.lr_factor,
        order=rng(seed, Stream.MINIBATCH, step),
        guard=stages.sentry.guard,
    )
    if update.halted:
        return stages.sentry.verdict
    stages.engine.push(policy.model)
    row = ranks.of_first(  # an alarm may look at the clock, and all must heed the same alarm
        lambda: step_metrics(
            rollout,
            advantages,
            update,
            moved=config["arm"]["moves"] or [],
            filters=stages.collector.sampling.filters,
            seconds=time.perf_counter() - started,
        )
    )
    outcome = stages.sentry.after(step, row, batch)
    if outcome != "pause":
        progress.step, progress.advantage = step, advantages.state
        progress.window.append(row)
        stages.keeper.records.progress(step, row)
        if step == config["steps"] or step % config["eval_every"] == 0:
            found = distributions(rollout, advantages, update)
            stages.keeper.records.histograms(step, found)
    return outcome
