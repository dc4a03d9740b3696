"""What a training step costs in tokens, FLOPs, bytes and seconds: pure arithmetic; torch-free.

The counts follow from the model's shape; seconds rest on a machine's rates, which are assumptions
until they are measured (`scripts/bench/bench_scale.py`; docs/scaling.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FP32, BF16 = 4, 2
"""Bytes a number."""


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer with a gated MLP (Llama, Qwen2). Example: QWEN["0.5B"]."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    tied: bool = True
    """The output projection is the embedding."""
    head_dim: int = 0
    """0 means hidden / heads."""

    @property
    def width(self) -> int:
        """Numbers a head holds for a token."""
        return self.head_dim or self.hidden // self.heads

    @property
    def multiplied(self) -> int:
        """Weights that each token is multiplied with: all matrices, the output projection too.

        layers · (2·hidden·heads·d + 2·hidden·kv_heads·d + 3·hidden·intermediate) + hidden·V
        """
        attention = 2 * self.hidden * self.width * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + (
            self.hidden * self.vocabulary
        )

    @property
    def parameters(self) -> int:
        """Weights to store, norms and biases (under .1 %) left out."""
        return self.multiplied + (0 if self.tied else self.hidden * self.vocabulary)


QWEN = {
    "0.5B": Shape(24, 896, 14, 2, 4864, 151_936),
    "1.5B": Shape(28, 1536, 12, 2, 8960, 151_936),
    "3B": Shape(36, 2048, 16, 2, 11_008, 151_936),
    "7B": Shape(28, 3584, 28, 4, 18_944, 152_064, tied=False),
}
"""Qwen2.5, by the config.json that its authors publish."""


@dataclass(frozen=True)
class Work:
    """One training step. Example: 32 prompts × 8 samples, 200 + 600 tokens, one epoch."""

    rows: int
    """Responses: prompts · group."""
    group: int
    """Responses that share a prompt, which the learner computes once."""
    prompt: int
    """Tokens of a prompt."""
    response: int
    """Tokens of a response, in the mean."""
    epochs: int = 1
    """Passes of the learner over the batch."""
    reference: bool = False
    """A frozen model's log-probabilities are needed too (β > 0)."""

    @property
    def learned_tokens(self) -> int:
        """Tokens of one learner pass: rows · (response + prompt / group)."""
        return round(self.rows * (self.response + self.prompt / self.group))


@dataclass(frozen=True)
class Machine:
    """Rates of one device. Example: H200, 9.9e14 FLOP/s dense bf16 and 4.8e12 bytes/s (NVIDIA)."""

    name: str
    flops: float
    """FLOP/s at best, in the numbers' format."""
    bandwidth: float
    """Bytes/s of its memory."""
    utilisation: float = 0.3
    """Share of flops that the learner and prefill reach (MFU)."""
    decode: float = 0.5
    """Share of bandwidth that decoding reaches."""
    bytes: int = BF16
    """A weight's bytes while sampling."""
    overhead: float = 0.0
    """Seconds a decoding call costs beside its arithmetic."""
    logit: float = 1e-11
    """Seconds to sample from one logit: a handful of passes over it, bound by memory."""


H200 = Machine("H200", 9.9e14, 4.8e12)
CPU_CORE = Machine("one CPU core", 9.1e10, 1.0e10, 0.54, bytes=FP32, overhead=0.005, logit=1.7e-8)
"""As measured on a 2-core machine, one thread (docs/bench/scale.csv); bandwidth is a guess."""


def forward_flops(shape: Shape, tokens: float, context: float) -> float:
    """FLOPs of a forward pass: 2·N a token, and 4·layers·heads·d·context for attention.

    Source: Kaplan et al. 2020, section 2.1; attention's two products as in PaLM, appendix B.

    Args:
        shape: of the model.
        tokens: computed.
        context: tokens each of them attends to, in the mean (half a sequence's length).
    """
    attention = 4 * shape.layers * shape.heads * shape.width * context
    return tokens * (2 * shape.multiplied + attention)


def learn_flops(shape: Shape, work: Work) -> float:
    """FLOPs of the learner in a step: 3 forwards a pass (backward is two), 1 for a reference."""
    context = work.prompt + work.response / 2
    passes = 3 * work.epochs + int(work.reference)
    return passes * forward_flops(shape, work.learned_tokens, context)


def state_bytes(parameters: int, *, mixed: bool = False) -> int:
    """Bytes of fp32 weights, gradients and AdamW's two moments: 16 a parameter; 18 with bf16 too.

    Source: Rajbhandari et al. 2020 (ZeRO), section 3.1, there with half-precision gradients.
    """
    return parameters * (18 if mixed else 16)


def logits_bytes(tokens: int, vocabulary: int) -> int:
    """Bytes of fp32 logits of this many tokens: the learner's chunk, or a whole micro-batch."""
    return FP32 * tokens * vocabulary


def kv_bytes(shape: Shape, tokens: float, size: int = BF16) -> float:
    """Bytes of the sampler's cache: 2 · layers · kv_heads · head_dim · size · tokens."""
    return 2 * shape.layers * shape.kv_heads * shape.width * size * tokens


def push_bytes(shape: Shape, size: int = BF16) -> int:
    """Bytes that a weight push moves to each sampler, once a step."""
    return shape.parameters * size


def generate_seconds(shape: Shape, work: Work, machine: Machine, devices: int = 1) -> float:
    """Seconds of sampling: prefill by arithmetic, then `response` decoding calls.

    A decoding call takes the longer of its arithmetic and of reading weights and cache once, and
    then samples from rows · V logits.
    """
    rows = work.rows / devices
    rate = machine.flops * machine.utilisation
    prefill = forward_flops(shape, rows * work.prompt, work.prompt / 2) / rate
    context = work.prompt + work.response / 2
    compute = forward_flops(shape, rows, context) / rate
    read = shape.multiplied * machine.bytes + kv_bytes(shape, rows * context, machine.bytes)
    call = max(compute, read / (machine.bandwidth * machine.decode)) + machine.overhead
    return prefill + work.response * (call + rows * shape.vocabulary * machine.logit)


def learn_seconds(shape: Shape, work: Work, machine: Machine, devices: int = 1) -> float:
    """Seconds of the learner: FLOPs / (devices · FLOP/s · utilisation); communication left out."""
    return learn_flops(shape, work) / (devices * machine.flops * machine.utilisation)


def step_seconds(shape: Shape, work: Work, machine: Machine, devices: int = 1) -> float:
    """Seconds of a training step, evaluation and checkpoints left out."""
    parts = (generate_seconds, learn_seconds)
    return sum(part(shape, work, machine, devices) for part in parts)


def device_bytes(shape: Shape, work: Work, devices: int = 1, chunk: int = 2**26) -> float:
    """Bytes a device needs: sharded learner state, the sampler's copy and cache, a logits chunk.

    Activations are left out: they follow `learner.micro_tokens`, which is there to bound them.
    """
    cache = kv_bytes(shape, work.rows * (work.prompt + work.response) / devices)
    return state_bytes(shape.parameters) / devices + push_bytes(shape) + cache + FP32 * chunk


def shape_of(path: str) -> Shape | None:
    """Return the shape of a model by its config.json; None where it is not on this machine."""
    for size, shape in QWEN.items():
        if path.removesuffix("-Instruct") == f"Qwen/Qwen2.5-{size}":
            return shape
    assets = Path(__file__).parent / "assets"
    folder = assets / path.removeprefix("embedded:") if path.startswith("embedded:") else Path(path)
    if not (folder / "config.json").is_file():
        return None
    found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if found.get("num_hidden_layers") is None or found.get("intermediate_size") is None:
        return None
    return Shape(
        found["num_hidden_layers"],
        found["hidden_size"],
        found["num_attention_heads"],
        found.get("num_key_value_heads") or found["num_attention_heads"],
        found["intermediate_size"],
        found["vocab_size"],
        bool(found.get("tie_word_embeddings", True)),
        found.get("head_dim") or 0,
    )


def work_of(config: Mapping[str, Any]) -> Work:
    """Return a configuration's step, each response at its longest: an upper bound."""
    batch, group = config["lr_batch"], config["sampling"]["group_size"]
    return Work(
        rows=batch["prompts"] * group,
        group=group,
        prompt=config["engine"]["max_prompt_tokens"],
        response=config["engine"]["max_new_tokens"],
        epochs=batch.get("epochs", 1),
        reference=config["regularizer"]["name"] == "kl",
    )
