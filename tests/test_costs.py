"""The cost model's counts, against numbers counted another way."""

from __future__ import annotations

import pytest

from grpo_ablate import costs

PUBLISHED = {"0.5B": 0.49e9, "1.5B": 1.54e9, "3B": 3.09e9, "7B": 7.61e9}
"""Parameters as the models' cards state them."""


@pytest.mark.parametrize(("size", "wanted"), PUBLISHED.items())
def test_parameters_are_those_of_the_model_card(size, wanted):
    assert costs.QWEN[size].parameters == pytest.approx(wanted, rel=0.01)


def test_parameters_and_flops_are_those_of_the_embedded_model(policy):
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM

    shape = costs.shape_of("embedded:tiny")
    # the counter does not know the fused attention of a CPU
    model = AutoModelForCausalLM.from_config(policy.model.config, attn_implementation="eager")
    assert shape.parameters == pytest.approx(sum(p.numel() for p in model.parameters()), rel=0.01)
    ids = torch.ones(2, 32, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, use_cache=False)
    # torch multiplies each token with the whole sequence, future and all
    assert costs.forward_flops(shape, 64, context=32) == pytest.approx(
        counter.get_total_flops(), rel=0.02
    )


def test_bytes_by_hand():
    shape = costs.Shape(2, 8, 4, 2, 16, 100)
    assert shape.width == 2
    assert costs.kv_bytes(shape, 10) == 2 * 2 * 2 * 2 * 2 * 10
    assert costs.state_bytes(1000) == 16_000 and costs.state_bytes(1000, mixed=True) == 18_000
    assert costs.logits_bytes(3, 100) == 1200
    assert costs.push_bytes(shape) == 2 * shape.parameters
    untied = costs.Shape(2, 8, 4, 2, 16, 100, tied=False)
    assert untied.parameters - shape.parameters == 800 and untied.multiplied == shape.multiplied


def test_the_learner_passes_thrice_an_epoch_and_once_for_a_reference():
    shape = costs.QWEN["0.5B"]
    plain = costs.Work(256, 8, 200, 600)
    assert plain.learned_tokens == 256 * 625
    once = costs.forward_flops(shape, 256 * 625, 500)
    assert costs.learn_flops(shape, plain) == pytest.approx(3 * once)
    kl = costs.Work(256, 8, 200, 600, epochs=2, reference=True)
    assert costs.learn_flops(shape, kl) == pytest.approx(7 * once)


def test_more_devices_share_rows_but_each_reads_all_weights():
    shape, work = costs.QWEN["7B"], costs.Work(64, 8, 200, 600)
    one, many = (costs.generate_seconds(shape, work, costs.H200, n) for n in (1, 64))
    least = 600 * shape.multiplied * 2 / (costs.H200.bandwidth * costs.H200.decode)
    assert least < many < one
    halved = costs.learn_seconds(shape, work, costs.H200, 2)
    assert halved == pytest.approx(costs.learn_seconds(shape, work, costs.H200) / 2)


def test_a_model_that_is_not_here_has_no_shape(tmp_path):
    assert costs.shape_of(str(tmp_path)) is None
    assert costs.shape_of("Qwen/Qwen2.5-0.5B-Instruct") == costs.QWEN["0.5B"]
