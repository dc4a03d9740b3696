"""The loop: prompt → rollout → reward → filter → advantage → loss(clip) → step → metrics.

Axes: P prompts, G responses each, B rows, T tokens (see `types.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_ablate.evaluation import HeldOut
from grpo_ablate.learner import Learner, Objective
from grpo_ablate.loss import pack
from grpo_ablate.metrics import Weighted, pool, step_metrics
from grpo_ablate.models import Policy, frozen
from grpo_ablate.plans import LrBatch
from grpo_ablate.records import Records
from grpo_ablate.rollout import Collector
from grpo_ablate.streams import Stream, rng
from grpo_ablate.types import Advantages, AdvantageState, Engine
from grpo_ablate.variants import bind


@dataclass(frozen=True)
class Stages:
    """A run's configuration, each node bound to its function."""

    policy: Policy
    engine: Engine
    collector: Collector
    advantage: Callable[..., Advantages]
    learner: Learner
    objective: Objective
    lr_batch: LrBatch
    evaluate: HeldOut


def assemble(config: Mapping[str, Any]) -> Stages:
    """Bind every node of a checked configuration to the code it names."""
    policy: Policy = bind("model", config["model"])()
    task = bind("task", config["task"])()
    engine = bind("engine", config["engine"], policy)()
    sampling = bind("sampling", config["sampling"])()
    regularizer = bind("regularizer", config["regularizer"])()
    return Stages(
        policy=policy,
        engine=engine,
        collector=Collector(
            policy=policy,
            task=task,
            engine=engine,
            sampling=sampling,
            length_penalty=bind("length_penalty", config["length_penalty"]),
            shaping=bind("shaping", config["shaping"]),
            masking=bind("masking", config["masking"]),
            max_prompt_tokens=config["engine"]["max_prompt_tokens"],
        ),
        advantage=bind("advantage", config["advantage"]),
        learner=bind("learner", config["learner"], policy)(),
        objective=Objective(
            clip=bind("clip", config["clip"]),
            reduction=bind("reduction", config["reduction"]),
            regularizer=regularizer,
            correction=bind("tis", config["tis"])(),
            temperature=sampling.temperature,
            reference=frozen(policy.model) if regularizer.reference else None,
        ),
        lr_batch=bind("lr_batch", config["lr_batch"])(),
        evaluate=bind("evaluation", config["evaluation"], policy, task, engine)(),
    )


def train(config: Mapping[str, Any], records: Records) -> None:
    """Run one arm × seed to its last step.

    Args:
        config: a run's frozen configuration.
        records: where its results go.
    """
    stages = assemble(config)
    records.start(stages.evaluate.columns())
    records.evaluation(0, stages.evaluate())
    window: list[dict[str, Weighted]] = []
    state: AdvantageState = {}
    for step in range(1, config["steps"] + 1):
        row, state = _step(stages, config, step, state)
        window.append(row)
        records.progress(step, row)
        if step in (1, config["steps"]) or step % config["log_every"] == 0:
            records.metrics(step, pool(window))
            window.clear()
        if step == config["steps"] or step % config["eval_every"] == 0:
            records.evaluation(step, stages.evaluate())
    stages.engine.close()


def _step(
    stages: Stages, config: Mapping[str, Any], step: int, state: AdvantageState
) -> tuple[dict[str, Weighted], AdvantageState]:
    """Sample, judge, learn; return the step's metrics and the advantage's new state."""
    started = time.perf_counter()
    seed, policy = config["seed"], stages.policy
    rollout = stages.collector.collect(seed, step, stages.lr_batch.prompts)
    groups = rollout.groups
    advantages = stages.advantage(groups.rewards_PG, groups.vote_PG, groups.prompt_lengths_P, state)
    update = stages.learner.update(
        pack(groups, advantages, policy.pad_id, policy.model.device),
        stages.objective,
        stages.lr_batch,
        steps=config["steps"],
        base_lr=policy.base_lr,
        order=rng(seed, Stream.MINIBATCH, step),
    )
    stages.engine.push(policy.model)
    seconds = time.perf_counter() - started
    row = step_metrics(
        rollout,
        advantages,
        update,
        moved=config["arm"]["moves"] or [],
        filters=stages.collector.sampling.filters,
        seconds=seconds,
    )
    return row, advantages.state
