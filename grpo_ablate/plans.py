"""What a technique of several parts turns its knobs into: numbers and pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Tally:
    """How much was sampled for one step so far, and how much of it the filter dropped."""

    rounds: int = 0
    sampled: int = 0
    """Groups."""
    dropped: int = 0
    """Groups."""
    excluded: int = 0
    """Responses whose reward function failed."""

    @property
    def filter_ratio(self) -> float:
        """Dropped groups / sampled groups (article: S2); 0 before anything is sampled."""
        return self.dropped / self.sampled if self.sampled else 0.0


@dataclass(frozen=True)
class Sampling:
    """How a step's groups are sampled and filtered; what every `sampling` technique returns.

    ``keep(rewards_PG, vote_PG, tally)`` is pure: bool [P, G]; a group of False is dropped whole.
    """

    temperature: float
    group_size: int
    max_rounds: int
    """Generation rounds a step may use to fill its batch; 1 means: never sample again."""
    keep: Callable[[Tensor, Tensor, Tally], Tensor]
    filters: bool = True
    """False where keep keeps everything."""
    on: Literal["raw", "shaped"] = "raw"
    """Which reward keep is shown."""


@dataclass(frozen=True)
class Roles:
    """What each response is good for; what every `masking` technique returns."""

    vote_PG: Tensor
    """bool; counts in its group's baseline and in the filter."""
    train_PG: Tensor
    """bool; its tokens carry the loss."""


@dataclass(frozen=True)
class LrBatch:
    """Learning rate and batch of a run; what every `lr_batch` technique returns.

    ``lr(updates, steps, base_lr)`` is the rate of the step that follows `updates` applied steps.
    """

    prompts: int
    minibatches: int
    epochs: int
    max_grad_norm: float
    lr: Callable[[int, int, float], float]


@dataclass(frozen=True)
class Regularizer:
    """A term beside the policy's; what every `regularizer` technique returns.

    ``loss(logprobs_BT, ref_logprobs_BT, entropy_BT, mask_BT)`` is pure and returns loss_BT.
    """

    loss: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    entropy: bool = False
    """Whether it needs the entropy's gradient."""
    reference: bool = False
    """Whether it needs the reference's log-probabilities."""


@dataclass(frozen=True)
class Correction:
    """Weights for what the sampler got wrong; what every `tis` technique returns.

    ``weights(learner_logprobs_BT, sampler_logprobs_BT, mask_BT)`` is pure; None where the
    sampler's log-probabilities are taken as the learner's.
    """

    weights: Callable[[Tensor, Tensor, Tensor], Tensor] | None
