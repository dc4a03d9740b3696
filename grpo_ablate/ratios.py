"""How far one policy's probabilities are from another's: what clip, KL, tis and logs share."""

from __future__ import annotations

from torch import Tensor

LARGEST_LOG_RATIO = 80.0
"""Log ratios are clamped to this before they are exponentiated: float32 still has room there."""


def log_ratio(logprobs_BT: Tensor, others_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log(pi / other) of each token, exactly 0 where masked.

    Values under the mask may be anything: filling both sides first keeps an infinity or a NaN
    of padding out of the result and out of the gradient.

    Args:
        logprobs_BT: log pi(token), nats.
        others_BT: the same under the other policy.
        mask_BT: bool; True on tokens that count.
    """
    return logprobs_BT.masked_fill(~mask_BT, 0.0) - others_BT.masked_fill(~mask_BT, 0.0)
