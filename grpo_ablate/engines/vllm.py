"""Rollouts by vLLM (Hydra group `engine`): for language models, on CPU or GPU.

vLLM is a second implementation of the learner's model. So its weights are pushed after each
update, and what it says of its samples is compared with the learner's own log-probabilities
(`engine/logprob_diff_mean`), from which the ratios start.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from grpo_ablate.engines._vllm_core import Core, Settings
from grpo_ablate.engines._vllm_server import Server
from grpo_ablate.knobs import Count, Positive, Share
from grpo_ablate.models import Policy, plain_weights
from grpo_ablate.types import Completions

_T = TypeVar("_T")


class EngineError(RuntimeError):
    """The engine failed again after a restart."""


class Vllm:
    """vLLM in this process (`mode: inprocess`) or in one of its own (`mode: server`)."""

    is_learner = False

    def __init__(
        self,
        policy: Policy,
        *,
        max_prompt_tokens: Count,
        max_new_tokens: Count,
        max_rows: Count,
        dtype: Literal["float32", "bfloat16", "float16"],
        kv_cache_gib: Positive,
        gpu_memory_share: Share,
        tensor_parallel_size: Count,
        sleep: bool,
        mode: Literal["inprocess", "server"],
        devices: str | None,
    ) -> None:
        """Start vLLM on the policy's files; the first push brings its weights.

        Args:
            policy: whose weights are pushed.
            max_prompt_tokens: longer prompts are never drawn.
            max_new_tokens: response limit, end-of-sequence included.
            max_rows: responses generated at once.
            dtype: of the engine's weights; equality with the learner needs its own.
            kv_cache_gib: the most that the cache may take.
            gpu_memory_share: of the memory free at start that weights and cache may take.
            tensor_parallel_size: GPUs one copy of the model is spread over.
            sleep: lend the GPU's memory to the learner between rollouts.
            mode: see the class.
            devices: the server's CUDA_VISIBLE_DEVICES; null for the run's own.

        Raises:
            MemoryError: not enough of it is free.
        """
        self.policy = policy
        self._settings = Settings(
            folder=str(policy.folder),
            trust_remote_code=policy.trust_remote_code,
            eos_ids=policy.eos_ids,
            max_model_len=max_prompt_tokens + max_new_tokens,
            max_new_tokens=max_new_tokens,
            max_rows=max_rows,
            dtype=dtype,
            kv_cache_gib=kv_cache_gib,
            gpu_memory_share=gpu_memory_share,
            tensor_parallel_size=tensor_parallel_size,
            sleep=sleep,
        )
        self._mode, self._devices = mode, devices
        self._pushed: torch.nn.Module | None = None
        self._restarts = 0
        self._core = self._start()

    def generate(
        self,
        prompt_ids: Sequence[Sequence[int]],
        n: int,
        *,
        temperature: float,
        seeds: Sequence[int],
    ) -> Completions:
        """Sample n responses to each prompt; see `Engine`."""
        return self._surviving(
            lambda core: core.generate(prompt_ids, n, temperature, seeds), "generating"
        )

    def push(self, model: torch.nn.Module) -> None:
        """Make the engine sample from the model's current weights."""
        self._pushed = model
        self._surviving(self._load, "taking weights")

    def sleep(self) -> None:
        """Lend the engine's memory to the learner, until the next push."""
        if self._settings.sleep:
            self._core.sleep()

    def close(self) -> None:
        """Stop vLLM."""
        self._core.close()

    def _start(self) -> Core | Server:
        if self._mode == "server":
            return Server(self._settings, self._devices)
        return Core(self._settings)

    def _surviving(self, action: Callable[[Core | Server], _T], doing: str) -> _T:
        """Act; where the engine fails, restart it with the current weights, once a run."""
        again = f"vLLM failed again while {doing}, after a restart"
        try:
            return action(self._core)
        except Exception as error:  # whatever breaks in a stranger's engine
            if self._restarts:
                raise EngineError(f"{again}: {error}") from error
            print(f"vLLM failed while {doing} and is restarted: {error}", file=sys.stderr)
        self._restarts += 1
        self._discard()
        try:
            self._core = self._start()
            if self._pushed is not None:
                self._load(self._core)
            return action(self._core)
        except Exception as error:
            raise EngineError(
                f"vLLM failed again while {doing}, after a restart: {error}"
            ) from error

    def _discard(self) -> None:
        """Close an engine that is broken already."""
        try:
            self._core.close()
        except Exception as error:
            print(f"the broken engine did not close: {error}", file=sys.stderr)

    def _load(self, core: Core | Server) -> None:
        assert self._pushed is not None
        named = _cast(plain_weights(self._pushed), getattr(torch, self._settings.dtype))
        if isinstance(core, Core) and self._settings.tensor_parallel_size == 1:
            core.load(named)
            return
        with _shared_file(dict(named)) as path:
            core.load_file(str(path))


def _cast(named: Iterator[tuple[str, Tensor]], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    return ((name, weight.to(dtype)) for name, weight in named)


@contextmanager
def _shared_file(named: Mapping[str, Tensor]) -> Iterator[Path]:
    """Yield a safetensors file that other processes read, in memory where the system has such."""
    memory = Path("/dev/shm")
    folder = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="grpo_ablate-", dir=folder) as name:
        path = Path(name) / "weights.safetensors"
        save_file({key: weight.contiguous().cpu() for key, weight in named.items()}, path)
        yield path
