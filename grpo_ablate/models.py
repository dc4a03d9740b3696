"""Loading a language model and its tokenizer (Hydra group `model`)."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from grpo_ablate import assets
from grpo_ablate.knobs import Index, Positive
from grpo_ablate.prompts import encode


@dataclass(frozen=True)
class Policy:
    """The model being trained, its tokenizer, and the rate its `lr_batch` is a multiple of."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    base_lr: float
    eos_ids: tuple[int, ...]
    pad_id: int
    folder: Path = Path()
    """Where it was loaded from: an engine of its own loads it again."""
    trust_remote_code: bool = False
    template: Literal["raw", "chat"] = "raw"
    system: str | None = None

    def encode(self, prompt: str) -> list[int]:
        """Return the prompt's ids; beginning-of-sequence first where the model has one, once."""
        return encode(self.tokenizer, prompt, self.template, self.system)

    def decode(self, ids: list[int]) -> str:
        """Return a response's text without special tokens."""
        text = self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)


def causal_lm(
    *, path: str, base_lr: Positive, dtype: Literal["float32", "float64", "bfloat16"]
) -> Policy:
    """Load a decoder-only model that completes raw text, all of whose weights are trained.

    Args:
        path: `embedded:tiny`, a folder, or the name of a model on the Hugging Face hub.
        base_lr: learning rate that `lr_batch.lr_scale` multiplies.
        dtype: of the weights.

    Returns:
        See `language_model`.
    """
    return language_model(
        path=path,
        base_lr=base_lr,
        dtype=dtype,
        attention="sdpa",
        template="raw",
        system=None,
        lora_rank=0,
        lora_alpha=1.0,
        trust_remote_code=False,
    )


def language_model(
    *,
    path: str,
    base_lr: Positive,
    dtype: Literal["float32", "float64", "bfloat16"],
    attention: Literal["sdpa", "eager", "flash_attention_2"],
    template: Literal["raw", "chat"],
    system: str | None,
    lora_rank: Index,
    lora_alpha: Positive,
    trust_remote_code: bool,
) -> Policy:
    """Load a decoder-only model in Hugging Face format (safetensors only).

    The model stays in evaluation mode throughout: with dropout the ratio of an unchanged policy
    would not be 1.

    Args:
        path: `embedded:tiny`, a folder, or the name of a model on the Hugging Face hub.
        base_lr: learning rate that `lr_batch.lr_scale` multiplies.
        dtype: of the weights. AdamW loses updates smaller than a bfloat16 weight's last digit:
            train in float32 where the memory allows it.
        attention: implementation of attention.
        template: `chat` asks in the tokenizer's chat template, `raw` gives the question as it is.
        system: system message of the chat; null for none.
        lora_rank: of a LoRA adapter on all linear layers; 0 trains all weights.
        lora_alpha: the adapter counts lora_alpha / lora_rank times.
        trust_remote_code: run Python code that comes with the model.

    Returns:
        Model on the first GPU where there is one, else on the CPU.

    Raises:
        ValueError: the model names no end-of-sequence token, or no chat template.
    """
    folder = assets.folder(path)
    code = "runs Python code from its files" if trust_remote_code else "no remote code"
    print(f"model {path}: safetensors only, {code}", file=sys.stderr)
    common: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(folder, **common)
    if template == "chat" and not tokenizer.chat_template:
        raise ValueError(f"model.path={path} has no chat template; set model.template=raw")
    common |= {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, **common)
    eos_ids = _eos_ids(model, tokenizer, path)
    # a shipped repetition penalty and the like would bend the sampler away from the learner
    model.generation_config = GenerationConfig()
    if lora_rank:
        model = _adapted(model, lora_rank, lora_alpha)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    pad = eos_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    source = (folder, trust_remote_code)
    return Policy(model, tokenizer, base_lr, eos_ids, pad, *source, template, system)


def plain_weights(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's weights under the names of its files, adapters merged in.

    W = W_base + lora_alpha / lora_rank * B A

    Args:
        model: as loaded here; tied weights come once.
    """
    layers = dict(model.named_modules())
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            continue
        plain = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
        layer: Any = layers[name.rpartition(".base_layer.")[0]]
        if name.endswith(".base_layer.weight"):
            (adapter,) = layer.active_adapters
            yield plain, weight.detach() + layer.get_delta_weight(adapter).detach()
        else:
            yield plain, weight.detach()


def frozen(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model as it is now that nothing trains: the reference of a KL term."""
    reference: PreTrainedModel = copy.deepcopy(model)
    return reference.requires_grad_(False)


def _eos_ids(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: str
) -> tuple[int, ...]:
    """Return every token that ends a response: chat models have several."""
    eos = model.generation_config.eos_token_id
    eos = tokenizer.eos_token_id if eos is None else eos
    if eos is None:
        raise ValueError(f"model.path={path} names no end-of-sequence token in its configuration")
    return tuple(eos) if isinstance(eos, list) else (eos,)


def _adapted(model: PreTrainedModel, rank: int, alpha: float) -> PreTrainedModel:
    """Put a LoRA adapter on all linear layers but the output; it alone is trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)  # every arm and seed starts at the same adapter
        adapted: PreTrainedModel = get_peft_model(model, config)
    return adapted
