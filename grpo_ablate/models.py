"""Loading a language model and its tokenizer (Hydra group `model`)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from grpo_ablate import assets
from grpo_ablate.knobs import Positive


@dataclass(frozen=True)
class Policy:
    """The model being trained, its tokenizer, and the rate its `lr_batch` is a multiple of."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    base_lr: float
    eos_ids: tuple[int, ...]
    pad_id: int

    def encode(self, prompt: str) -> list[int]:
        """Return the prompt's ids; beginning-of-sequence first where the model has one, once."""
        ids: list[int] = self.tokenizer.encode(prompt, add_special_tokens=False)
        bos = self.tokenizer.bos_token_id
        return ids if bos is None else [bos, *ids]

    def decode(self, ids: list[int]) -> str:
        """Return a response's text without special tokens."""
        text = self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)


def causal_lm(*, path: str, base_lr: Positive, dtype: Literal["float32", "float64"]) -> Policy:
    """Load a decoder-only model from a folder in Hugging Face format (safetensors only).

    The model stays in evaluation mode throughout: with dropout the ratio of an unchanged policy
    would not be 1.

    Args:
        path: `embedded:tiny` or a folder.
        base_lr: learning rate that `lr_batch.lr_scale` multiplies.
        dtype: of the weights.

    Returns:
        Model on the first GPU where there is one, else on the CPU.

    Raises:
        ValueError: the model names no end-of-sequence token.
    """
    folder = assets.folder(path)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), local_files_only=True, use_safetensors=True
    )
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    eos = model.generation_config.eos_token_id
    eos = tokenizer.eos_token_id if eos is None else eos
    if eos is None:
        raise ValueError(f"model.path={path} names no end-of-sequence token in its configuration")
    eos_ids = tuple(eos) if isinstance(eos, list) else (eos,)
    # a shipped repetition penalty and the like would bend the sampler away from the learner
    model.generation_config = GenerationConfig()
    pad = tokenizer.pad_token_id
    return Policy(model, tokenizer, base_lr, eos_ids, eos_ids[0] if pad is None else pad)


def frozen(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model as it is now that nothing trains: the reference of a KL term."""
    reference: PreTrainedModel = copy.deepcopy(model)
    return reference.requires_grad_(False)
