"""Rollouts by transformers: for small models, on the weights being trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)

from grpo_ablate.engines._sampler import Draw, able, sample
from grpo_ablate.knobs import Count
from grpo_ablate.models import Policy
from grpo_ablate.types import Completions


class Transformers:
    """Samples from the learner's model itself, so that there is nothing to push.

    The token is drawn by inverse CDF from one uniform number per (prompt seed, sample, position).
    So a response depends on its own seed and on the weights alone: not on the batch it is in, nor
    on how much anybody else drew. Log-probabilities come from the very logits that were sampled.
    """

    is_learner = True

    def __init__(
        self, policy: Policy, *, max_prompt_tokens: Count, max_new_tokens: Count, max_rows: Count
    ) -> None:
        """Prepare sampling.

        Args:
            policy: model and tokenizer.
            max_prompt_tokens: longer prompts are never drawn.
            max_new_tokens: response limit, end-of-sequence included.
            max_rows: responses generated at once; bounds memory.
        """
        self.policy = policy
        self.max_prompt_tokens = max_prompt_tokens
        self.max_new_tokens = max_new_tokens
        self.max_rows = max_rows

    def generate(
        self,
        prompt_ids: Sequence[Sequence[int]],
        n: int,
        *,
        temperature: float,
        seeds: Sequence[int],
    ) -> Completions:
        """Sample n responses to each prompt.

        Args:
            prompt_ids: [P] token ids.
            n: responses per prompt.
            temperature: softmax temperature; 0 takes the likeliest token.
            seeds: [P] one seed a prompt; sample j draws from its j-th substream.

        Returns:
            P * n completions in prompt-major order.
        """
        rows = [list(ids) for ids in prompt_ids for _ in range(n)]
        keys = [(seed, j) for seed in seeds for j in range(n)]
        ids: list[list[int]] = [[] for _ in rows]
        logprobs: list[list[float]] = [[] for _ in rows]
        for chunk in self._chunks(rows):
            uniforms = _uniforms([keys[i] for i in chunk], self.max_new_tokens)
            sampled = self._generate([rows[i] for i in chunk], temperature, uniforms)
            for i, row_ids, row_logprobs in zip(chunk, *sampled, strict=True):
                ids[i], logprobs[i] = row_ids, row_logprobs
        return Completions(ids, logprobs, [row[-1] not in self.policy.eos_ids for row in ids])

    def push(self, model: torch.nn.Module) -> None:
        """Do nothing: the engine samples from the learner's own weights."""
        assert model is self.policy.model

    def sleep(self) -> None:
        """Do nothing: the learner's weights are the only ones."""

    def close(self) -> None:
        """Do nothing: the engine owns no resource."""

    def _chunks(self, rows: list[list[int]]) -> Iterator[list[int]]:
        """Yield row numbers of similar prompt length, at most max_rows at a time."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), self.max_rows):
            yield order[start : start + self.max_rows]

    def _generate(
        self, rows: list[list[int]], temperature: float, uniforms: np.ndarray
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Generate one batch; cut each response after its end-of-sequence token."""
        device = self.policy.model.device
        uniforms_BT = torch.from_numpy(uniforms).to(device)

        def draw(logits_RV: Tensor, row_R: Tensor, position: int) -> tuple[Tensor, Tensor]:
            return _drawn(logits_RV, temperature, uniforms_BT[row_R, position])

        way = sample if able(self.policy.model, rows) else self._by_generate
        new_ids, new_logprobs = (
            found.tolist()
            for found in way(
                self.policy.model, rows, self.max_new_tokens, self.policy.eos_ids, draw
            )
        )
        lengths = [self._length(row) for row in new_ids]
        return (
            [row[:n] for row, n in zip(new_ids, lengths, strict=True)],
            [row[:n] for row, n in zip(new_logprobs, lengths, strict=True)],
        )

    def _by_generate(
        self,
        model: PreTrainedModel,
        rows: Sequence[Sequence[int]],
        tokens: int,
        eos_ids: Sequence[int],
        draw: Draw,
    ) -> tuple[Tensor, Tensor]:
        """Do what `sample` does by transformers' own loop, for any causal language model."""
        pad, width, device = self.policy.pad_id, max(map(len, rows)), model.device
        padded = [[pad] * (width - len(row)) + list(row) for row in rows]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        picker = _Picker(draw)
        out = model.generate(
            input_ids=torch.tensor(padded, device=device),
            attention_mask=torch.tensor(mask, device=device),
            generation_config=GenerationConfig(
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=list(eos_ids),
                pad_token_id=pad,
            ),
            logits_processor=LogitsProcessorList([picker]),
        )
        return out[:, width:], torch.stack(picker.logprobs, 1)

    def _length(self, row: list[int]) -> int:
        """Return the response's length up to and including its first end-of-sequence token."""
        return next((i for i, t in enumerate(row, 1) if t in self.policy.eos_ids), len(row))


class _Picker(LogitsProcessor):  # type: ignore[misc]
    """Chooses the next token itself and leaves `generate` a foregone conclusion.

    This keeps transformers' loop, caches and model families while the randomness stays ours, and
    it records the chosen token's log-probability at no extra memory.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        row_B = torch.arange(len(scores), device=scores.device)
        chosen_B, logprobs_B = self.draw(scores, row_B, len(self.logprobs))
        self.logprobs.append(logprobs_B)
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen_B[:, None], 0.0)


def _drawn(logits_RV: Tensor, temperature: float, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """Draw each row's next token by inverse CDF; return it and its log-probability, [R] each."""
    logits_RV = logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))
    logprobs_RV = (logits_RV / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        chosen_R1 = logits_RV.argmax(-1, keepdim=True)
    else:
        # float64: in float32 the cumulated rounding of a large vocabulary exceeds rare tokens
        cdf_RV = logprobs_RV.double().exp().cumsum(-1)
        level_R1 = uniform_R[:, None] * cdf_RV[:, -1:]
        chosen_R1 = torch.searchsorted(cdf_RV, level_R1, right=True)
        chosen_R1 = chosen_R1.clamp(max=logits_RV.shape[-1] - 1)
    return chosen_R1[:, 0], logprobs_RV.gather(-1, chosen_R1)[:, 0]


def _uniforms(keys: list[tuple[int, int]], tokens: int) -> np.ndarray:
    """Return [B, T] uniforms in [0, 1), row i from the substream (seed, sample) of keys[i]."""
    return np.stack(
        [
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(sample,))).random(tokens)
            for seed, sample in keys
        ]
    )
