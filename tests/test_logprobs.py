"""Chunked log-probabilities: the numbers and gradients of the full logits, any chunk size."""

from __future__ import annotations

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from grpo_ablate.logprobs import chunked_stats, plain_head
from grpo_ablate.loss import from_logits

SIZES = {
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "pad_token_id": 0,
}


def inputs(tokens=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, 5, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(13, 5, generator=generator, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(13, (tokens,), generator=generator)


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("elements", [1, 39, 10_000])
@pytest.mark.parametrize("temperature", [0.6, 1.3])
@pytest.mark.parametrize("entropy", [False, True])
def test_equal_to_the_full_logits(tokens, elements, temperature, entropy):
    """K10, K13 at any chunk: values and both gradients, float64, 1e-12."""
    hidden, weight, ids = inputs(tokens)
    full = from_logits((hidden @ weight.T)[None], ids[None], temperature, entropy)
    expected = (full.logprobs_BL[0], full.entropy_BL[0])
    found = chunked_stats(hidden, weight, ids, temperature, entropy, elements)
    pull = torch.linspace(-1, 2, tokens, dtype=torch.float64)

    def gradients(stats):
        total = (stats[0] * pull).sum() + (stats[1] * pull.flip(0)).sum() * entropy
        return torch.autograd.grad(total, (hidden, weight))

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients(found), gradients(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("elements", [13, 10_000])
def test_gradcheck(elements):
    hidden, weight, ids = inputs(3)
    assert torch.autograd.gradcheck(
        lambda h, w: chunked_stats(h, w, ids, 0.7, True, elements), (hidden, weight)
    )


def test_float32_gradients_agree_with_float64_to_1e_6():
    """Issue G: gradients of log-probability and entropy equal to 1e-6, relative to the largest."""
    exact, found = [], []
    for dtype, result in ((torch.float64, exact), (torch.float32, found)):
        hidden, weight, ids = (t.detach() for t in inputs())
        hidden, weight = (t.to(dtype).requires_grad_() for t in (hidden, weight))
        stats = chunked_stats(hidden, weight, ids, 0.9, True, 26)
        for stat in stats:
            result += torch.autograd.grad(stat.sum(), (hidden, weight), retain_graph=True)
    for a, b in zip(exact, found, strict=True):
        assert (a - b).abs().max() < 1e-6 * max(1.0, a.abs().max())


def test_half_precision_sums_over_tiles_in_float32():
    """A sum of hundreds of bfloat16 numbers in bfloat16 loses what one matrix product keeps."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(40, 16, generator=generator)
    weight = torch.randn(500, 16, generator=generator)
    ids = torch.randint(500, (40,), generator=generator)
    gradients = {}
    for dtype, elements in ((torch.float64, 10**6), (torch.bfloat16, 10**6), (torch.bfloat16, 8)):
        h, w = (t.bfloat16().to(dtype).requires_grad_() for t in (hidden, weight))
        chosen, _ = chunked_stats(h, w, ids, 1.0, elements=elements)
        gradients[dtype, elements] = torch.autograd.grad(chosen.double().sum(), (h, w))
    exact = gradients[torch.float64, 10**6]
    for number in range(2):
        once, tiled = (
            (gradients[torch.bfloat16, e][number].double() - exact[number]).norm()
            for e in (10**6, 8)
        )
        assert tiled < 1.5 * once


def test_a_plain_head_is_found_and_gives_the_models_logits():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    head, ids = plain_head(model), torch.tensor([[3, 4, 5]])
    hidden = head.decoder(input_ids=ids).last_hidden_state
    torch.testing.assert_close(hidden @ head.weight_VH.T, model(input_ids=ids).logits)


def test_a_soft_cap_or_a_bias_is_not_a_plain_head():
    torch.manual_seed(0)
    # a narrow cap, so that random weights' small logits feel it
    capped = Gemma2ForCausalLM(Gemma2Config(**SIZES, final_logit_softcapping=0.5)).eval()
    assert plain_head(capped) is None
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    model.set_output_embeddings(torch.nn.Linear(8, 13))
    assert plain_head(model) is None
