"""Does a trick act at all? Each arm's update on one and the same rollout.

A probe samples a few rollouts from the baseline, and lets the baseline and every arm treat one as
they would: reward → penalty, shaping → filter → advantage → loss → optimizer steps, each from the
same weights and the same AdamW, at the rate after warm-up. Nothing it does is kept. Two things are
compared with the baseline's:

- the gradient of the whole batch at the weights that sampled it, where every ratio is 1;
- the change of the weights over all optimizer steps of the rollout, which ratios have a part in.

What is seen is the first step's: a trick for what comes later (long responses, ratios that blow
up) may be inert here and act then. The report after the runs has the last word.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

from grpo_ablate import stages
from grpo_ablate.effects import compare
from grpo_ablate.files import read_json, write_json
from grpo_ablate.groups import varies
from grpo_ablate.learner import Learner
from grpo_ablate.loss import pack
from grpo_ablate.metrics import step_metrics
from grpo_ablate.models import Policy
from grpo_ablate.rollout import Collector, Rollout
from grpo_ablate.scoring import Judge
from grpo_ablate.streams import Stream, rng
from grpo_ablate.types import Advantages, Batch, Completions, Engine, Groups, Problem, Task
from grpo_ablate.variants import bind

_MEMORY = 5
"""Rollouts beside the first: AdamW has seen their gradients before any update that counts, and
an arm that does nothing with the first rollout is shown them too."""


class Bench:
    """One baseline's model, engine and learner, and the rollouts that it sampled."""

    def __init__(self, config: Mapping[str, Any], saved: Path) -> None:
        """Load everything once.

        Args:
            config: the baseline's.
            saved: where its rollouts lie, or will.
        """
        self.config = config
        self.policy: Policy = bind("model", config["model"])()
        self.task: Task = bind("task", config["task"])()
        self.engine: Engine = bind("engine", config["engine"], self.policy)()
        self.engine.push(self.policy.model)
        monitor = config["monitor"]
        self.judge = Judge(monitor["reward_timeout"], monitor["max_fault_share"])
        self.learner: Learner = bind("learner", config["learner"], self.policy)()
        if not saved.is_file():
            rollouts = [self._sample(config, step) for step in range(1, 2 + _MEMORY)]
            write_json(saved, {"rollouts": [_plain(groups) for groups in rollouts]})
        self.rollouts = [_groups(one) for one in read_json(saved)["rollouts"]]
        self._remember(config, self.rollouts[1:])
        self._start = self.learner.state()
        self._base: dict[int, dict[str, Any]] = {}

    def look(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Compare an arm with the baseline, rollout by rollout, until one shows that it acts."""
        for number in range(len(self.rollouts)):
            found = compare(self.measure(config, number), self.base(number), config)
            if found["verdict"] != "inert":
                break
        return {"rollouts": number + 1, **found}

    def base(self, number: int) -> dict[str, Any]:
        """Return what the baseline does with a rollout."""
        if number not in self._base:
            self._base[number] = self.measure(self.config, number)
        return self._base[number]

    def measure(self, config: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return what an arm, or the baseline itself, does with a rollout."""
        own = self._needs_own(config)
        groups = self._sample(config, number + 1) if own else self.rollouts[number]
        collector = self._collector(config)
        rollout = collector.replay(groups)
        batch, advantages = self._packed(config, rollout)
        gradient, loss = self._gradient(config, batch)
        update = self._learn(config, batch, bind("lr_batch", config["lr_batch"])(), None)
        moves = config.get("arm", {}).get("moves") or []
        filters = collector.sampling.filters
        row = step_metrics(rollout, advantages, update, moved=moves, filters=filters, seconds=0.0)
        value, weight = row["technique/activity"]
        moved = self._moved()
        self.learner.load_state(self._start)
        return {
            "gradient": gradient,
            "moved": moved,
            "loss": loss,
            "activity": value if weight > 0 else None,
            "own_responses": own,
            "lr": update.lr,
            "planned": update.planned,
            "rollout": rollout,
            "update": update,
        }

    def summary(self) -> dict[str, Any]:
        """Return the share of right responses of each prompt, and of dead groups."""
        live = [varies(one.raw_rewards_PG, one.vote_PG) for one in self.rollouts]
        rates = [one.raw_rewards_PG.mean(1) for one in self.rollouts]
        dead = float((~torch.cat(live)).double().mean())
        return {"pass_rates": torch.cat(rates).tolist(), "dead": dead}

    def close(self) -> None:
        """Release the engine."""
        self.engine.close()

    def _remember(self, config: Mapping[str, Any], rollouts: Sequence[Groups]) -> None:
        """Fill AdamW's memory with the baseline's gradients on other prompts; no weight moves.

        With an empty one every weight would go a full step at once, which no later step does.
        """
        plan = bind("lr_batch", config["lr_batch"])()
        still = replace(plan, lr=lambda updates, steps, base_lr: 0.0)
        for groups in rollouts:
            rollout = self._collector(config).replay(groups)
            self._learn(config, self._packed(config, rollout)[0], still, None)
        self.learner.applied = config["lr_batch"]["warmup"]  # at its full rate from now on

    def _packed(self, config: Mapping[str, Any], rollout: Rollout) -> tuple[Batch, Advantages]:
        groups = rollout.groups
        advantages = bind("advantage", config["advantage"])(
            groups.rewards_PG, groups.vote_PG, groups.prompt_lengths_P, {}
        )
        return pack(groups, advantages, self.policy.pad_id, self.policy.model.device), advantages

    def _needs_own(self, config: Mapping[str, Any]) -> bool:
        """Tell whether an arm would have asked for other responses than the baseline."""
        sampled = (config["sampling"], self.config["sampling"])
        other = any(sampled[0][key] != sampled[1][key] for key in ("temperature", "group_size"))
        return other or config["lr_batch"]["prompts"] != self.config["lr_batch"]["prompts"]

    def _collector(self, config: Mapping[str, Any]) -> Collector:
        return stages.collector(config, self.policy, self.task, self.engine, self.judge)

    def _sample(self, config: Mapping[str, Any], step: int = 1) -> Groups:
        """Sample one round of a step, nothing filtered."""
        plain = bind(
            "sampling",
            {"name": "standard"}
            | {key: config["sampling"][key] for key in ("temperature", "group_size")},
        )()
        collector = replace(self._collector(config), sampling=plain)
        return collector.collect(config["seed"], step, config["lr_batch"]["prompts"]).groups

    def _gradient(self, config: Mapping[str, Any], batch: Batch) -> tuple[Tensor, float]:
        """Return the unclipped gradient of the whole batch, and the loss; take no step."""
        found: list[Tensor] = []

        def look(norm: float, loss: float, part: Batch) -> Any:
            clipped = torch.cat(
                [p.grad.flatten() for p in self._parameters() if p.grad is not None]
            )
            size = clipped.norm()
            found.append(clipped * (norm / size) if size > 0 else clipped)
            losses.append(loss)
            return "skip"

        losses: list[float] = []
        whole = replace(bind("lr_batch", config["lr_batch"])(), minibatches=1, epochs=1)
        self._learn(config, batch, whole, look)
        nothing = torch.zeros(sum(p.numel() for p in self._parameters()))
        return (found or [nothing])[0].cpu().double(), (losses or [0.0])[0]

    def _learn(self, config: Mapping[str, Any], batch: Batch, plan: Any, guard: Any) -> Any:
        return self.learner.update(
            batch,
            stages.objective(config, self.policy, trust_sampler=self.engine.is_learner),
            plan,
            steps=config["steps"],
            base_lr=self.policy.base_lr,
            order=rng(config["seed"], Stream.MINIBATCH, 1),
            guard=guard,
        )

    def _parameters(self) -> list[Tensor]:
        return [p for p in self.policy.model.parameters() if p.requires_grad]

    def _moved(self) -> Tensor:
        """Return how far all weights have moved from the start."""
        named = self.policy.model.named_parameters()
        parts = [
            (p.detach().cpu().double() - self._start[f"model.{name}"].double()).flatten()
            for name, p in named
        ]
        return torch.cat(parts)


def _plain(groups: Groups) -> dict[str, Any]:
    """Return sampled and judged responses as JSON holds them, exactly."""
    made = groups.completions
    return {
        "problems": [vars(problem) for problem in groups.problems],
        "prompt_ids": groups.prompt_ids,
        "ids": made.ids,
        "logprobs": made.logprobs,
        "truncated": made.truncated,
        "texts": groups.texts,
        "rewards": groups.raw_rewards_PG.tolist(),
        "judged": groups.keep_PG.tolist(),
    }


def _groups(saved: Mapping[str, Any]) -> Groups:
    raw_PG = torch.tensor(saved["rewards"], dtype=torch.float64)
    real_PG, zero_PG = torch.tensor(saved["judged"]), torch.zeros_like(raw_PG)
    return Groups(
        tuple(Problem(**problem) for problem in saved["problems"]),
        saved["prompt_ids"],
        Completions(saved["ids"], saved["logprobs"], saved["truncated"]),
        saved["texts"],
        raw_rewards_PG=raw_PG,
        penalty_PG=zero_PG,
        shaping_PG=zero_PG,
        keep_PG=real_PG,
        vote_PG=real_PG,
        train_PG=real_PG,
    )


def run(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Probe every arm of a specification.

    Args:
        spec: baselines, each with its config, the file of its batch, and its arms' configs.

    Returns:
        `baselines`: pass rates and dead groups; `arms`: one comparison each.
    """
    baselines, arms = [], []
    for one in spec["baselines"]:
        bench = Bench(one["config"], Path(one["batch"]))
        baselines.append({"baseline": one["name"], **bench.summary()})
        for name, config in one["arms"].items():
            arms.append({"arm": name, "baseline": one["name"], **bench.look(config)})
        bench.close()
    return {"baselines": baselines, "arms": arms}


def main(spec: Path, target: Path) -> int:
    """Read a specification, write what was found; the entry of a process of its own."""
    wanted = read_json(spec)
    logging.disable_progress_bar()
    torch.set_num_threads(wanted["threads"])
    torch.use_deterministic_algorithms(True, warn_only=True)
    write_json(target, run(wanted))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
