"""What every way of bench_step.py works on, and the clock that splits a step."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

PROMPT, WORDS = 12, 64
EQUAL, RAGGED = 23, 32
"""Response limit: of responses that never end early, and of those that do."""


def limit(args: argparse.Namespace) -> int:
    """Return the response limit in tokens."""
    return RAGGED if args.lengths == "ragged" else EQUAL


def model_and_tokenizer(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return a 1.05 M Llama with random weights and a tokenizer of one word an id.

    Its end-of-sequence token is a word like any other where lengths are ragged (one token in 64
    ends a response), and else one that it has no logit for.
    """
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    torch.set_num_threads(1)
    end = WORDS - 1 if args.lengths == "ragged" else WORDS
    words = {"<pad>": 0, "<eos>": end} | {f"w{i}": i for i in range(1, WORDS) if i != end}
    core = Tokenizer(models.WordLevel(words, unk_token="w2"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=160,
            intermediate_size=448,
            num_hidden_layers=4,
            num_attention_heads=4,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=end,
        )
    )
    return model.eval(), tokenizer


def texts(count: int) -> list[str]:
    """Return prompts of PROMPT words."""
    return [" ".join(f"w{2 + (7 * i + 3 * j) % 60}" for j in range(PROMPT)) for i in range(count)]


def reward(text: str) -> float:
    """Reward even words: something that differs within a group."""
    words = [int(word[1:]) for word in text.split() if word.startswith("w")]
    return sum(word % 2 == 0 for word in words) / max(1, len(words))


class Clock:
    """Seconds spent inside wrapped calls; an inner call's time is not its caller's as well."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.spent: dict[str, float] = {}
        self.open: list[str] = []
        self.since = 0.0

    def wrap(self, owner: Any, name: str, label: str) -> None:
        """Time every call of a method under `label`; all that `generate` does counts as that."""
        inner = getattr(owner, name)

        @wraps(inner)  # what a model can do is read off its forward's arguments
        def timed(*args: Any, **kwargs: Any) -> Any:
            if "generate" in self.open:
                return inner(*args, **kwargs)
            with self(label):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)

    @contextmanager
    def __call__(self, label: str) -> Iterator[None]:
        """Time a block under `label`."""
        self._charge()
        self.open.append(label)
        yield
        self._charge()
        self.open.pop()

    def _charge(self) -> None:
        now = time.perf_counter()
        if self.open:
            self.spent[self.open[-1]] = self.spent.get(self.open[-1], 0.0) + now - self.since
        self.since = now

    def rows(self, steps: int, total: float) -> dict[str, float]:
        """Return seconds a step by label, what no label covers as "other", and the peak in MiB."""
        found = {label: seconds / steps for label, seconds in self.spent.items()}
        found["other"] = total / steps - sum(found.values())
        found["step"] = total / steps
        found["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {label: round(value, 4) for label, value in found.items()}
