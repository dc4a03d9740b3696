"""Makes the embedded default: a tiny character-level Llama that can almost do arithmetic.

The model imitates a careless pupil (``Demonstrator``) for some minutes on a CPU and is packaged
with the project, so that the default experiment needs no download. It is chosen for the shape that
plain GRPO shows on it, never for what any trick does. Seeded: the same versions of torch and numpy
on the same kind of processor give the same weights.

Usage: ``python scripts/make_tiny_model.py [--out DIR] [--seed N]``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import string
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
import yaml
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grpo_ablate.tasks.arithmetic import Arithmetic, Demonstrator

_ROOT = Path(__file__).resolve().parent.parent
_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
_ALPHABET = string.digits + "+-=:"
_PUPIL = Demonstrator(direct=0.5, merge=0.25, miscount=0.3, doubt=1.0, facts_seed=0)
_IGNORED = -100  # the target that cross_entropy skips


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights."""

    seed: int = 0
    steps: int = 2000
    batch: int = 128
    chunk: int = 32
    lr: float = 3e-3
    lr_floor: float = 0.02
    warmup_steps: int = 100
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    hidden: int = 96
    layers: int = 3
    heads: int = 3  # 32 a head: a size that every attention kernel of the engines supports
    intermediate: int = 192
    positions: int = 128
    initializer_range: float = 0.05
    max_new_tokens: int = 32
    demonstrator: Demonstrator = _PUPIL


def load_knobs(path: Path = _ROOT / "conf" / "task" / "arithmetic.yaml") -> dict[str, int]:
    """Reads the task's knobs from the packaged configuration: one place holds them."""
    knobs = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: value for name, value in knobs.items() if name != "name"}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Builds a tokenizer with one token a character, which decodes without added spaces."""
    vocab = {token: index for index, token in enumerate((*_SPECIAL, *_ALPHABET))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), _SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        **names,
    )


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Builds the untrained network."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=recipe.positions,
        initializer_range=recipe.initializer_range,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def encode(
    prompts: list[str], replies: list[str], tokenizer: PreTrainedTokenizerFast
) -> list[tuple[list[int], list[int]]]:
    """Returns ids and targets of each demonstration; only the reply is a target."""
    rows = []
    asked = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    answered = tokenizer(replies, add_special_tokens=False)["input_ids"]
    for prompt, reply in zip(asked, answered, strict=True):
        ids = [tokenizer.bos_token_id, *prompt, *reply, tokenizer.eos_token_id]
        rows.append((ids, [_IGNORED] * (1 + len(prompt)) + ids[1 + len(prompt) :]))
    return rows


def pad(rows: list[list[int]], value: int) -> torch.Tensor:
    """Pads rows on the right: under causal attention a pad there cannot be seen by a target."""
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


def rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine down to a floor."""
    cosine = 0.5 * (1.0 + float(np.cos(np.pi * step / recipe.steps)))
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    return recipe.lr * warm * (recipe.lr_floor + (1.0 - recipe.lr_floor) * cosine)


def backward(
    model: LlamaForCausalLM, rows: list[tuple[list[int], list[int]]], recipe: Recipe
) -> float:
    """Accumulates the gradient of the mean loss per target, in chunks of similar length.

    Sorting by length halves the padding, and so nearly halves the time.
    """
    rows = sorted(rows, key=lambda row: len(row[0]))
    targets = sum(label != _IGNORED for _, labels in rows for label in labels)
    total = 0.0
    for start in range(0, len(rows), recipe.chunk):
        ids, labels = zip(*rows[start : start + recipe.chunk], strict=True)
        logits = model(input_ids=pad(list(ids), model.config.pad_token_id)).logits[:, :-1]
        wanted = pad(list(labels), _IGNORED)[:, 1:]
        summed = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")
        loss = summed / targets
        torch.autograd.backward(loss)
        total += float(loss.detach())
    return total


def warm_start(
    model: LlamaForCausalLM, task: Arithmetic, tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> None:
    """Trains the model to imitate the demonstrator on fresh problems, in place."""
    rng = np.random.default_rng(recipe.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay
    )
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, recipe)
        problems = [task.sample(rng) for _ in range(recipe.batch)]
        replies = [recipe.demonstrator.write(problem, rng) for problem in problems]
        rows = encode([problem.prompt for problem in problems], replies, tokenizer)
        optimizer.zero_grad(set_to_none=True)
        loss = backward(model, rows, recipe)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}/{recipe.steps}: loss {loss:.3f}", flush=True)


@torch.no_grad()
def accuracy(
    model: LlamaForCausalLM,
    task: Arithmetic,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    *,
    sampled: bool,
) -> dict[str, Any]:
    """Measures held-out accuracy and response length, greedy or at temperature 1."""
    torch.manual_seed(recipe.seed)
    problems = task.held_out()
    rows = [tokenizer.bos_token + problem.prompt for problem in problems]
    prompts = tokenizer(rows, add_special_tokens=False, padding=True, return_tensors="pt")
    output = model.generate(
        **{name: prompts[name] for name in ("input_ids", "attention_mask")},
        max_new_tokens=recipe.max_new_tokens,
        **({"do_sample": True, "top_k": 0} if sampled else {"do_sample": False}),
    )[:, prompts["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(output, skip_special_tokens=True)
    scores = [task.score(p, text) for p, text in zip(problems, texts, strict=True)]
    levels: dict[int, list[float]] = {}
    for problem, score in zip(problems, scores, strict=True):
        levels.setdefault(problem.difficulty, []).append(score)
    lengths = (output != model.config.pad_token_id).sum(1).float()
    return {
        "accuracy": float(np.mean(scores)),
        "mean_length": float(lengths.mean()),
        "by_difficulty": {str(level): float(np.mean(levels[level])) for level in sorted(levels)},
    }


def architecture_hash(config: LlamaConfig) -> str:
    """Hashes the architecture alone, not what saving and loading add to a configuration."""
    added = ("transformers_version", "architectures", "dtype")
    kept = {k: v for k, v in config.to_diff_dict().items() if k not in added}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def main() -> None:
    """Trains, measures and writes the model, its tokenizer and its recipe."""
    parser = argparse.ArgumentParser(description="Makes the embedded default model.")
    parser.add_argument("--out", type=Path, default=_ROOT / "grpo_ablate" / "assets" / "tiny")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    args = parser.parse_args()
    torch.set_num_threads(1)  # faster at this size, and sums in one order whatever the machine
    recipe, knobs, tokenizer = Recipe(seed=args.seed), load_knobs(), build_tokenizer()
    task = Arithmetic(**knobs)
    model = build_model(recipe, tokenizer)
    started = time.perf_counter()
    warm_start(model, task, tokenizer, recipe)
    print(f"warm start: {time.perf_counter() - started:.0f} s")
    measured = {
        name: accuracy(model.eval(), task, tokenizer, recipe, sampled=name == "sampled")
        for name in ("greedy", "sampled")
    }
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    record = {
        "recipe": asdict(recipe),
        "task": knobs,
        "parameters": model.num_parameters(),
        "architecture_sha256": architecture_hash(model.config),
        "held_out": measured,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }
    (args.out / "recipe.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
