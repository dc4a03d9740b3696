"""A run's configuration, bound: which function or object does each stage of the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_ablate import ranks
from grpo_ablate.evaluation import HeldOut
from grpo_ablate.keeper import Keeper
from grpo_ablate.learner import Learner, Objective
from grpo_ablate.models import Policy, frozen
from grpo_ablate.monitor import Limits
from grpo_ablate.plans import LrBatch
from grpo_ablate.records import Records
from grpo_ablate.rollout import Collector
from grpo_ablate.scoring import Judge
from grpo_ablate.sentry import Sentry
from grpo_ablate.types import Advantages, Engine, Task
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
    sentry: Sentry
    keeper: Keeper


def collector(
    config: Mapping[str, Any], policy: Policy, task: Task, engine: Engine, judge: Judge
) -> Collector:
    """Bind what turns prompts into rewarded groups."""
    return Collector(
        policy=policy,
        task=task,
        engine=engine,
        sampling=bind("sampling", config["sampling"])(),
        length_penalty=bind("length_penalty", config["length_penalty"]),
        shaping=bind("shaping", config["shaping"]),
        masking=bind("masking", config["masking"]),
        max_prompt_tokens=config["engine"]["max_prompt_tokens"],
        judge=judge,
    )


def objective(config: Mapping[str, Any], policy: Policy, *, trust_sampler: bool) -> Objective:
    """Bind the loss; its reference is the model as it is now.

    Args:
        config: of the run.
        policy: whose model is the reference, where one is needed.
        trust_sampler: whether the sampler's log-probabilities are the learner's own.
    """
    regularizer = bind("regularizer", config["regularizer"])()
    return Objective(
        clip=bind("clip", config["clip"]),
        reduction=bind("reduction", config["reduction"]),
        regularizer=regularizer,
        correction=bind("tis", config["tis"])(),
        temperature=config["sampling"]["temperature"],
        # taken before a checkpoint is restored: the model as the run began with it
        reference=frozen(policy.model) if regularizer.reference else None,
        trust_sampler=trust_sampler,
    )


def assemble(config: Mapping[str, Any], records: Records) -> Stages:
    """Bind every node of a checked configuration to the code it names."""
    policy: Policy = bind("model", config["model"])()
    task = bind("task", config["task"])()
    engine: Engine = bind("engine", config["engine"], policy)()
    if ranks.size() > 1:
        engine = ranks.Dealt(engine)
    penalty = config["length_penalty"]
    interval = {bound: penalty[bound] for bound in ("low", "high") if bound in penalty}
    alarms = bind("monitor", config["monitor"], Limits(**interval))()
    judge = Judge(alarms.reward_timeout, alarms.max_fault_share)
    learner = bind("learner", config["learner"], policy)()
    sentry = Sentry(alarms, policy, learner, records, config["sampling"]["temperature"])
    checkpoints = bind("checkpoint", config["checkpoint"], records.folder, records.hash)()
    return Stages(
        policy=policy,
        engine=engine,
        collector=collector(config, policy, task, engine, judge),
        advantage=bind("advantage", config["advantage"]),
        learner=learner,
        objective=objective(config, policy, trust_sampler=engine.is_learner),
        lr_batch=bind("lr_batch", config["lr_batch"])(),
        evaluate=bind("evaluation", config["evaluation"], policy, task, engine, judge)(),
        sentry=sentry,
        keeper=Keeper(checkpoints, learner, sentry, records),
    )
