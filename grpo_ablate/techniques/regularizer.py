"""What is added to the policy loss, token by token (Hydra group `regularizer`; article: B5, D2).

A variant turns its knobs into a `Regularizer`, whose pure
`loss(logprobs_BT, ref_logprobs_BT, entropy_BT, mask_BT)` returns loss_BT, 0 where masked; it is
averaged by the study's `reduction`, as the policy term is. Log-probabilities and entropy are in
nats at the sampling temperature.

    logprobs_BT      of the policy being trained; carries the gradient
    ref_logprobs_BT  of the reference, the model as it was before the run's first update
    entropy_BT       of the policy at the token's place; carries the gradient
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from grpo_ablate.knobs import Positive
from grpo_ablate.plans import Regularizer
from grpo_ablate.ratios import LARGEST_LOG_RATIO, log_ratio


def none() -> Regularizer:
    """Add nothing.

    loss = 0

    Source: article: X1.

    Returns:
        A term that needs neither entropy nor reference.
    """
    return Regularizer(_zero)


def entropy_bonus(*, coefficient: Positive) -> Regularizer:
    """Pay for entropy, its gradient included.

    loss = -coefficient * H,  H = -sum over the vocabulary of p log p

    Against a policy that narrows too soon. Source: Mnih et al. 2016 (A3C), section 4; article:
    B5 (0.01-0.05), P2 (0.03), D2.

    Knobs:
        coefficient: reward per nat.

    Returns:
        A term that needs the entropy's gradient: a backward pass through the whole vocabulary.
    """
    return Regularizer(partial(_entropy, coefficient=coefficient), entropy=True)


def kl(*, estimator: Literal["k1", "k2", "k3"], coefficient: Positive) -> Regularizer:
    """Hold the policy near the reference.

    d = logprob - ref_logprob;  loss = coefficient * (k1: d,  k2: d^2 / 2,  k3: exp(-d) - 1 + d)

    All three *values* estimate KL(policy || reference), k1 and k3 without bias, but what trains is
    the gradient of the sampled value, which is another thing (K19, for a policy of 0.8 against
    0.5 on two tokens): k1's is 0 in expectation, noise and no pull; k2's is the gradient of the
    true KL(policy || reference), 0.2218; k3's is that of KL(reference || policy), 0.300. Source:
    Schulman 2020 (Approximating KL divergence); Shao et al. 2024 (GRPO), eq. 4 (k3, 0.04).

    Knobs:
        estimator: see above.
        coefficient: reward per nat.

    Returns:
        A term that needs the reference. A log ratio counts as at most 80, where k3 is still
        finite in float32; verl clamps at 20 and the value at 10.
    """
    loss = partial(_kl, estimate=_ESTIMATORS[estimator], coefficient=coefficient)
    return Regularizer(loss, reference=True)


def _zero(
    logprobs_BT: Tensor, ref_logprobs_BT: Tensor, entropy_BT: Tensor, mask_BT: Tensor
) -> Tensor:
    return torch.zeros_like(mask_BT, dtype=logprobs_BT.dtype)


def _entropy(
    logprobs_BT: Tensor,
    ref_logprobs_BT: Tensor,
    entropy_BT: Tensor,
    mask_BT: Tensor,
    *,
    coefficient: float,
) -> Tensor:
    return -coefficient * entropy_BT.masked_fill(~mask_BT, 0.0)


def _kl(
    logprobs_BT: Tensor,
    ref_logprobs_BT: Tensor,
    entropy_BT: Tensor,
    mask_BT: Tensor,
    *,
    estimate: Callable[[Tensor], Tensor],
    coefficient: float,
) -> Tensor:
    return coefficient * estimate(log_ratio(logprobs_BT, ref_logprobs_BT, mask_BT))


def _k1(difference_BT: Tensor) -> Tensor:
    return difference_BT


def _k2(difference_BT: Tensor) -> Tensor:
    return difference_BT.square() / 2


def _k3(difference_BT: Tensor) -> Tensor:
    # exp(-d) - 1 loses all digits near d = 0, where a policy spends most of its time
    return torch.expm1((-difference_BT).clamp(max=LARGEST_LOG_RATIO)) + difference_BT


_ESTIMATORS = {"k1": _k1, "k2": _k2, "k3": _k3}
