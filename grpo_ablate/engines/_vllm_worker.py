"""What runs inside vLLM's workers: taking new weights (vLLM's `worker_extension_cls`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor


class TakesWeights:
    """Methods that vLLM adds to each of its workers; callable by `collective_rpc`."""

    def take_weights(self: Any, named: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights, layer by layer as at loading, and repack the output layer."""
        self.reload_weights(weights_iterator=iter(named))
        repack(self.model_runner.get_model())

    def take_weights_file(self: Any, path: str) -> None:
        """Replace the weights by a safetensors file's: for workers in other processes."""
        from safetensors.torch import load_file

        self.take_weights(load_file(path).items())


def repack(model: Any) -> None:
    """Prepare each output layer again, which reloading leaves out where embeddings are tied.

    On the CPU the layer multiplies with a packed copy of its weights. Without this the model goes
    on with the old copy, and its log-probabilities are silently wrong by up to 1.7 nats.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
