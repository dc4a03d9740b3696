"""One training step of this project beside one of TRL's GRPOTrainer, on the same work.

python scripts/bench/bench_step.py [--updates 4] [--rounds 3] [--steps 4]

Needs the extra `bench`.

Same random-weight Llama (1 M), prompts, reward, samples, updates, threads, learning rate. Each
measurement runs in a fresh process, the two alternating, so that peaks do not mix. Responses never
end early: equal lengths. Ratios are of neighbours in time; the first step of each is left out.
Split: generate and optimizer are timed in both; the rest of a step is "learn" (forward, backward,
log-probabilities, reward and everything else).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROMPT, NEW, VOCABULARY = 12, 23, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    pairs = [(fresh(ours, args), fresh(trl, args)) for _ in range(args.rounds)]
    for pair in pairs:
        print(json.dumps(dict(zip(("ours", "trl"), pair, strict=True))))
    for key in pairs[0][0]:
        ratios = [own[key] / peer[key] for own, peer in pairs]
        low, high = min(ratios), max(ratios)
        print(f"{key}: ours / TRL {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")


def fresh(way: Callable[..., dict[str, float]], args: argparse.Namespace) -> dict[str, float]:
    """Measure one way in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(way, (args,))


def model_and_tokenizer() -> tuple[Any, Any]:
    """Return a 1.05 M Llama with random weights and a tokenizer of one word an id."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    torch.set_num_threads(1)
    words = {"<pad>": 0, "<eos>": VOCABULARY} | {f"w{i}": i for i in range(1, VOCABULARY)}
    core = Tokenizer(models.WordLevel(words, unk_token="w2"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=160,
            intermediate_size=448,
            num_hidden_layers=4,
            num_attention_heads=4,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=VOCABULARY,  # no logit of the model's: equal lengths
        )
    )
    return model.eval(), tokenizer


def texts(count: int) -> list[str]:
    """Return prompts of PROMPT words."""
    return [" ".join(f"w{2 + (7 * i + 3 * j) % 60}" for j in range(PROMPT)) for i in range(count)]


class Clock:
    """Seconds spent inside wrapped calls, by name."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.spent: dict[str, float] = {}

    def wrap(self, owner: Any, name: str, label: str) -> None:
        """Time every call of a method under `label`."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self(label):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)

    @contextmanager
    def __call__(self, label: str) -> Any:
        """Time a block under `label`."""
        started = time.perf_counter()
        yield
        self.spent[label] = self.spent.get(label, 0.0) + time.perf_counter() - started

    def rows(self, steps: int, total: float) -> dict[str, float]:
        """Return seconds a step; what no label covers is "learn"; and the peak in MiB."""
        found = {label: seconds / steps for label, seconds in self.spent.items()}
        found["learn"] = total / steps - sum(found.values())
        found["step"] = total / steps
        found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {label: round(value, 4) for label, value in found.items()}


def reward(text: str) -> float:
    """Reward even words: something that differs within a group."""
    words = [int(word[1:]) for word in text.split() if word.startswith("w")]
    return sum(word % 2 == 0 for word in words) / max(1, len(words))


def ours(args: argparse.Namespace) -> dict[str, float]:
    """Time this project's collector, advantage and learner."""
    from functools import partial

    import numpy as np
    from torch.optim import AdamW

    from grpo_ablate.engines.transformers import Transformers
    from grpo_ablate.learner import Learner, Objective
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

    model, tokenizer = model_and_tokenizer()
    policy = Policy(model, tokenizer, 1e-6, (VOCABULARY,), 0)
    prompts = texts(args.prompts)

    class Words:
        """The bench's prompts as a task."""

        def sample(self, rng: np.random.Generator) -> Problem:
            return Problem(prompts[int(rng.integers(len(prompts)))], "", 1)

        def score(self, problem: Problem, completion: str) -> float:
            return reward(completion)

        def formatted(self, completion: str) -> bool:
            return True

    engine = Transformers(policy, max_prompt_tokens=64, max_new_tokens=NEW, max_rows=256)
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
    learner = Learner(policy, micro_tokens=1024, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0)
    plain_clip = partial(clip.symmetric, eps=0.2, dual_clip=None)
    goal = Objective(plain_clip, reduction.token_mean, regularizer.none(), tis.none(), 1.0, None)
    plan = lr_batch.constant(
        lr_scale=1.0, warmup=0, prompts=args.prompts, minibatches=args.updates, epochs=1,
        max_grad_norm=1.0,
    )  # fmt: skip
    clock = Clock()
    clock.wrap(engine, "generate", "generate")
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
    from datasets import Dataset
    from torch.optim import AdamW
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = model_and_tokenizer()
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
            max_completion_length=NEW,
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
        clock.wrap(AdamW, "step", "optimizer")
        trainer.train()
    return clock.rows(args.steps, time.perf_counter() - started[0])


if __name__ == "__main__":
    main()
