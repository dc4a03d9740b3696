"""Three ways to take one GRPO step: this project, TRL's GRPOTrainer, a page of plain PyTorch."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from step_work import Clock, limit, model_and_tokenizer, reward, texts


def ours(args: argparse.Namespace) -> dict[str, float]:
    """Time this project's collector, advantage and learner."""
    from functools import partial

    import numpy as np
    import torch
    from torch.optim import AdamW

    from grpo_ablate import learner as learning
    from grpo_ablate.engines.transformers import Transformers
    from grpo_ablate.loss import pack
    from grpo_ablate.models import Policy
    from grpo_ablate.rollout import Collector
    from grpo_ablate.techniques import (
        advantage,
        clip,
        length_penalty,
        lr_batch,
        masking,
        reduction,
        regularizer,
        sampling,
        shaping,
        tis,
    )
    from grpo_ablate.types import Problem

    model, tokenizer = model_and_tokenizer(args)
    policy = Policy(model, tokenizer, 1e-6, (model.config.eos_token_id,), 0)
    prompts = texts(args.prompts)

    class Words:
        """The bench's prompts as a task."""

        def sample(self, rng: np.random.Generator) -> Problem:
            return Problem(prompts[int(rng.integers(len(prompts)))], "", 1)

        def score(self, problem: Problem, completion: str) -> float:
            return reward(completion)

        def formatted(self, completion: str) -> bool:
            return True

    rows = args.prompts * args.group
    engine = Transformers(policy, max_prompt_tokens=64, max_new_tokens=limit(args), max_rows=rows)
    collector = Collector(
        policy,
        Words(),
        engine,
        sampling.standard(group_size=args.group, temperature=1.0),
        partial(length_penalty.none),
        partial(shaping.none),
        partial(masking.none),
        64,
    )
    learner = learning.Learner(
        policy, micro_tokens=1024, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0
    )
    goal = learning.Objective(
        partial(clip.symmetric, eps=0.2, dual_clip=None),
        reduction.token_mean,
        regularizer.none(),
        tis.none(),
        1.0,
        None,
    )
    plan = lr_batch.constant(
        lr_scale=1.0,
        warmup=0,
        prompts=args.prompts,
        minibatches=args.updates,
        epochs=1,
        max_grad_norm=1.0,
    )
    clock = Clock()
    clock.wrap(engine, "generate", "generate")
    clock.wrap(Collector, "_score", "reward")
    clock.wrap(learning, "token_stats", "log-probabilities")
    clock.wrap(model.model, "forward", "forward")
    clock.wrap(torch.autograd, "backward", "backward")
    clock.wrap(AdamW, "step", "optimizer")

    def step(number: int) -> None:
        groups = collector.collect(0, number, args.prompts).groups
        values = advantage.group_std(
            groups.rewards_PG, groups.vote_PG, groups.prompt_lengths_P, {}, ddof=1, eps=1e-4
        )
        batch = pack(groups, values, 0, model.device)
        learner.update(batch, goal, plan, 100, 1e-6, np.random.default_rng(number))

    step(0)
    clock.spent.clear()
    started = time.perf_counter()
    for number in range(1, args.steps + 1):
        step(number)
    return clock.rows(args.steps, time.perf_counter() - started)


def trl(args: argparse.Namespace) -> dict[str, float]:
    """Time GRPOTrainer; `updates` optimizer steps share one generation."""
    import torch
    from datasets import Dataset
    from torch.optim import AdamW
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = model_and_tokenizer(args)
    clock, started = Clock(), [0.0]

    class Warm(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, trainer_args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == args.updates:
                clock.spent.clear()
                started[0] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        rows = args.prompts * args.group
        config = GRPOConfig(
            output_dir=str(Path(folder)),
            per_device_train_batch_size=rows // args.updates,
            steps_per_generation=args.updates,
            num_generations=args.group,
            max_completion_length=limit(args),
            max_steps=args.updates * (args.steps + 1),
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            beta=0.0,
            loss_type="dapo",
            temperature=1.0,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_steps=10_000,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [reward(text) for text in completions],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": texts(args.prompts)}),
            processing_class=tokenizer,
            callbacks=[Warm()],
        )
        clock.wrap(trainer.model, "generate", "generate")
        clock.wrap(trainer, "_calculate_rewards", "reward")
        clock.wrap(trainer, "_get_per_token_logps_and_entropies", "log-probabilities")
        clock.wrap(model.model, "forward", "forward")
        clock.wrap(torch.autograd, "backward", "backward")
        clock.wrap(AdamW, "step", "optimizer")
        trainer.train()
    return clock.rows(args.steps, time.perf_counter() - started[0])


def floor(args: argparse.Namespace) -> dict[str, float]:
    """Time the least code that takes the same step: no metric, no check, one padded batch."""
    import torch
    from transformers import DynamicCache

    model, tokenizer = model_and_tokenizer(args)
    prompt_ids = torch.tensor(tokenizer(texts(args.prompts))["input_ids"])
    prompt_ids = prompt_ids.repeat_interleave(args.group, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), fused=True)
    end, width = model.config.eos_token_id, prompt_ids.shape[1]
    clock = Clock()

    @torch.no_grad()
    def generate() -> tuple[Any, Any, Any]:
        cache, ids, alive = DynamicCache(), prompt_ids, torch.ones(len(prompt_ids), 1).bool()
        last, logprobs, live = ids, [], []
        for _ in range(limit(args)):
            logits = model(last, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            every = logits[:, -1].log_softmax(-1)
            last = torch.multinomial(every.exp(), 1)
            live.append(alive)
            logprobs.append(every.gather(1, last))
            ids, alive = torch.cat([ids, last], 1), alive & (last != end)
            if not alive.any():
                break
        return ids, torch.cat(logprobs, 1), torch.cat(live, 1)

    def step() -> None:
        with clock("generate"):
            ids, old, mask = generate()
        with clock("reward"):
            words = [row[keep] for row, keep in zip(ids[:, width:], mask, strict=True)]
            rewards = torch.tensor([reward(text) for text in tokenizer.batch_decode(words)])
        groups = rewards.view(-1, args.group)
        spread = groups.std(1, keepdim=True) + 1e-4
        advantages = ((groups - groups.mean(1, keepdim=True)) / spread).view(-1, 1)
        order = torch.randperm(args.prompts)[:, None] * args.group + torch.arange(args.group)
        for rows in order.view(args.updates, -1):
            with clock("forward"):
                logits = model(ids[rows], use_cache=False).logits[:, width - 1 : -1]
            with clock("log-probabilities"):
                new = logits.log_softmax(-1).gather(2, ids[rows, width:, None])[..., 0]
                ratio = (new - old[rows]).exp()
                terms = torch.minimum(
                    ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows]
                )
                loss = -(terms * mask[rows]).sum() / mask[rows].sum()
            with clock("backward"):
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with clock("optimizer"):
                optimizer.step()
            optimizer.zero_grad()

    step()
    clock.spent.clear()
    started = time.perf_counter()
    for _ in range(args.steps):
        step()
    return clock.rows(args.steps, time.perf_counter() - started)
