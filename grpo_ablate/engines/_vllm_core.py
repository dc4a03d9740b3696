"""A vLLM engine for one model, in the process that imports this (see `vllm.py`)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_ablate.types import Completions


@dataclass(frozen=True)
class Settings:
    """What a vLLM engine needs to know to start; plain values, so that it can be sent."""

    folder: str
    trust_remote_code: bool
    eos_ids: tuple[int, ...]
    max_model_len: int
    max_new_tokens: int
    max_rows: int
    dtype: str
    kv_cache_gib: float
    gpu_memory_share: float
    tensor_parallel_size: int
    sleep: bool


class Core:
    """vLLM's `LLM` with what this package asks of a sampler."""

    def __init__(self, settings: Settings) -> None:
        """Start vLLM.

        Raises:
            MemoryError: weights and the smallest useful cache exceed the free memory.
            ValueError: the GPU lacks the dtype.
        """
        self.settings = settings
        self._on_gpu = torch.cuda.is_available()
        self._asleep = False
        _environment(self._on_gpu)
        if self._on_gpu and settings.dtype == "bfloat16" and not torch.cuda.is_bf16_supported():
            raise ValueError("this GPU has no bfloat16; set engine.dtype=float16")
        cache = cache_bytes(settings, _free_bytes(self._on_gpu))
        from vllm import LLM

        self._llm = LLM(
            model=settings.folder,
            skip_tokenizer_init=True,  # ids in, ids out: no text to tokenise a second way (K12)
            trust_remote_code=settings.trust_remote_code,
            dtype=settings.dtype,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_rows,
            kv_cache_memory_bytes=cache,
            tensor_parallel_size=settings.tensor_parallel_size,
            worker_extension_cls="grpo_ablate.engines._vllm_worker.TakesWeights",
            # the model's own top_p and penalties would bend the sampler away from the learner (K11)
            generation_config="vllm",
            # the default, raw_logprobs, ignores the temperature (K10)
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            enable_sleep_mode=self._sleeps,
            enforce_eager=not self._on_gpu,
            seed=0,
            **({} if self._on_gpu else {"block_size": 32}),
        )

    @property
    def _sleeps(self) -> bool:
        return self.settings.sleep and self._on_gpu  # on a CPU vLLM ignores it with a warning

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, temperature: float, seeds: Sequence[int]
    ) -> Completions:
        """Sample; see `Engine.generate`."""
        from vllm import SamplingParams

        assert not self._asleep, "weights were given back at sleep(); push them first"
        prompts = [{"prompt_token_ids": list(ids)} for ids in prompt_ids for _ in range(n)]
        sampling = [
            SamplingParams(
                temperature=temperature,
                seed=sample_seed(seed, sample),
                max_tokens=self.settings.max_new_tokens,
                # the learner's list of end tokens, whatever the model's files say
                ignore_eos=True,
                stop_token_ids=list(self.settings.eos_ids),
                logprobs=0,  # of the sampled token alone
                detokenize=False,
            )
            for seed in seeds
            for sample in range(n)
        ]
        outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
        for prompt, output in zip(prompts, outputs, strict=True):
            assert list(output.prompt_token_ids) == prompt["prompt_token_ids"], "K12"
        rows = [output.outputs[0] for output in outputs]
        return Completions(
            [list(row.token_ids) for row in rows],
            [_logprobs(row) for row in rows],
            [row.finish_reason == "length" for row in rows],
            [output.num_cached_tokens or 0 for output in outputs],
        )

    def load(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Take weights from this process's memory."""
        self._take("take_weights", list(named))

    def load_file(self, path: str) -> None:
        """Take weights from a safetensors file."""
        self._take("take_weights_file", path)

    def sleep(self) -> None:
        """Give weights and cache back to the GPU until the next load."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def close(self) -> None:
        """Stop vLLM and the process group it opened."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        gc.collect()
        cleanup_dist_env_and_memory()

    def _take(self, method: str, argument: Any) -> None:
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        self._llm.collective_rpc(method, args=(argument,))
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        # what the old weights computed must not answer for the new ones (K18)
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache: requests are still running")


def sample_seed(seed: int, sample: int) -> int:
    """Return the seed of one sample of a prompt: its own substream of the prompt's seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=(sample,))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def cache_bytes(settings: Settings, free: int) -> int:
    """Return the KV cache's size: what the configuration allows and the memory has.

    size = min(kv_cache_gib, gpu_memory_share * free - weights)

    Args:
        settings: of the engine.
        free: bytes.

    Raises:
        MemoryError: not even one response of full length fits.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(
        settings.folder, trust_remote_code=settings.trust_remote_code, local_files_only=True
    )
    size = torch.finfo(getattr(torch, settings.dtype)).bits // 8
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * width * size
    ranks = settings.tensor_parallel_size
    weights = _weights_bytes(settings.folder, size) // ranks
    least = per_token * settings.max_model_len // ranks
    found = min(int(settings.kv_cache_gib * 2**30), int(settings.gpu_memory_share * free) - weights)
    if found < least:
        raise MemoryError(
            f"engine=vllm has {max(found, 0) / 2**30:.3g} GiB for its cache, one response of"
            f" {settings.max_model_len} tokens needs {least / 2**30:.3g} GiB (free memory"
            f" {free / 2**30:.1f} GiB, weights {weights / 2**30:.1f} GiB): raise"
            " engine.kv_cache_gib or engine.gpu_memory_share, lower engine.max_new_tokens, or free"
            " memory"
        )
    return found


def _weights_bytes(folder: str, size: int) -> int:
    """Return the weights' size in memory: their number in the files times the dtype's bytes."""
    from pathlib import Path

    from safetensors import safe_open

    count = 0
    for path in Path(folder).glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            count += sum(int(np.prod(file.get_slice(key).get_shape())) for key in file.keys())  # noqa: SIM118
    return count * size


def _logprobs(row: Any) -> list[float]:
    return [step[token].logprob for token, step in zip(row.token_ids, row.logprobs, strict=True)]


def _free_bytes(on_gpu: bool) -> int:
    if on_gpu:
        return torch.cuda.mem_get_info()[0]
    import psutil  # vLLM requires it

    return int(psutil.virtual_memory().available)


def _environment(on_gpu: bool) -> None:
    """Set what vLLM reads at import; the user's own values win."""
    wanted = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the weights are handed over in this process
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",  # it warns of what is meant: no tokenizer, reloaded layers
    }
    if not on_gpu:
        wanted["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than it saves
    for key, value in wanted.items():
        os.environ.setdefault(key, value)
