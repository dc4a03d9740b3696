"""The arrows of the pipeline: prompt → rollout → reward → filter → advantage → loss → step.

One frozen dataclass per arrow. Axes, used as name suffixes everywhere:

    P  prompts of one step          G  responses per prompt (the group)
    B  rows, one response each      T  response tokens, right-padded
    L  prompt + response tokens, right-padded       V  vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the command line reads tasks and must start without torch
    import numpy as np
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """One question with its answer.

    Example: ``Problem(prompt="3+5-2=", answer="6", difficulty=3)``.
    """

    prompt: str
    answer: str
    difficulty: int
    """What a report splits accuracy by (article: A7); arithmetic: the number of operands."""


class Task(Protocol):
    """Where problems come from and how answers are judged."""

    def sample(self, rng: np.random.Generator) -> Problem:
        """Draw one training problem, never one of the held-out questions."""
        ...

    def held_out(self) -> tuple[Problem, ...]:
        """Return the fixed evaluation set, the same for every arm and seed."""
        ...

    def score(self, problem: Problem, completion: str) -> float:
        """Return the raw reward of one completion; see `scoring.py` for one that fails."""
        ...

    def formatted(self, completion: str) -> bool:
        """Tell whether a completion has the form asked for, right or wrong (article: L4)."""
        ...


@dataclass(frozen=True)
class Completions:
    """What an engine returns for P prompts with n samples each, in prompt-major order.

    Example, one prompt and two samples: ``Completions(ids=[[7, 2], [9, 9]],
    logprobs=[[-0.1, -0.2], [-1.3, -0.7]], truncated=[False, True])``.
    """

    ids: list[list[int]]
    """[B] response token ids, the end-of-sequence token included where it was sampled."""
    logprobs: list[list[float]]
    """[B] natural-log probability of each token under the sampling temperature, at sampling."""
    truncated: list[bool]
    """[B] whether the token limit, not the model, ended the response."""
    cached: list[int] = field(default_factory=list)
    """[B] prompt tokens the engine took from its prefix cache; empty where it has none."""

    def rows(self, chosen: slice) -> Completions:
        """Return some of the completions."""
        return Completions(
            self.ids[chosen], self.logprobs[chosen], self.truncated[chosen], self.cached[chosen]
        )

    @staticmethod
    def joined(parts: Sequence[Completions]) -> Completions:
        """Return those of several calls as one, in order."""
        return Completions(
            [ids for part in parts for ids in part.ids],
            [row for part in parts for row in part.logprobs],
            [cut for part in parts for cut in part.truncated],
            [cached for part in parts for cached in part.cached],
        )


class Engine(Protocol):
    """Prompts in, completions with log-probabilities out; tests/engines holds each to this.

    The prompt's ids are used as they are. Log-probabilities are natural logs of the distribution
    the token was drawn from: the learner's own at this temperature, nothing cut off it. Sample j
    of a prompt depends on (seed, j) and the weights.
    """

    is_learner: bool
    """Samples from the learner's own model: its log-probabilities are the learner's."""

    def generate(
        self,
        prompt_ids: Sequence[Sequence[int]],
        n: int,
        *,
        temperature: float,
        seeds: Sequence[int],
    ) -> Completions:
        """Sample n responses a prompt; one seed a prompt; temperature 0 is greedy."""
        ...

    def push(self, model: torch.nn.Module) -> None:
        """Make the engine sample from the model's current weights."""
        ...

    def sleep(self) -> None:
        """Lend what memory the engine can to the learner, until the next push."""
        ...

    def close(self) -> None:
        """Release everything the engine holds."""
        ...


@dataclass(frozen=True)
class Groups:
    """P prompts × G responses with their rewards.

    Example, one prompt and G = 2: problems (Problem("1+1=", "2", 2),), prompt_ids [[1, 5, 3, 5]],
    texts ["2", "3"], raw_rewards_PG [[1, 0]], penalty_PG [[0, -0.1]], shaping_PG [[0.1, 0.1]],
    keep_PG, vote_PG and train_PG [[True, True]].
    """

    problems: tuple[Problem, ...]
    prompt_ids: list[list[int]]
    completions: Completions
    texts: list[str]
    """[B] completions as text."""
    raw_rewards_PG: Tensor
    """Task reward before any penalty, float64."""
    penalty_PG: Tensor
    """Added for length, float64."""
    shaping_PG: Tensor
    """Added for form, float64."""
    keep_PG: Tensor
    """bool; False on responses the filter dropped, on all of them where it dropped the group."""
    vote_PG: Tensor
    """bool; kept responses that count in their group's baseline."""
    train_PG: Tensor
    """bool; kept responses whose tokens carry the loss."""

    def __len__(self) -> int:
        """Return the number of prompts P."""
        return len(self.problems)

    @property
    def group_size(self) -> int:
        """Return G."""
        return self.raw_rewards_PG.shape[1]

    @property
    def rewards_PG(self) -> Tensor:
        """Return what the advantage sees: raw reward + length penalty + shaping, float64."""
        return self.raw_rewards_PG + self.penalty_PG + self.shaping_PG

    @property
    def lengths_PG(self) -> Tensor:
        """Return response lengths in tokens, float64."""
        lengths = [float(len(ids)) for ids in self.completions.ids]
        return self.raw_rewards_PG.new_tensor(lengths).view(len(self), self.group_size)

    @property
    def prompt_lengths_P(self) -> Tensor:
        """Return prompt lengths in tokens, float64."""
        return self.raw_rewards_PG.new_tensor([float(len(ids)) for ids in self.prompt_ids])


AdvantageState = Mapping[str, float]
"""What an advantage technique remembers between steps; plain numbers, so that it is saved as is."""


@dataclass(frozen=True)
class Advantages:
    """Advantage of each response, and the technique's memory for the next step."""

    values_PG: Tensor
    """0 where vote_PG is False."""
    state: AdvantageState = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyTerm:
    """The policy-gradient term of one batch, token by token, before any averaging."""

    loss_BT: Tensor
    clipped_low_BT: Tensor
    """bool; the lower bound cut this token's gradient to zero (advantage < 0)."""
    clipped_high_BT: Tensor
    """bool; the upper bound cut this token's gradient to zero (advantage > 0)."""
    capped_BT: Tensor
    """bool; dual clip cut this token's gradient to zero (advantage < 0)."""
    unbounded_BT: Tensor
    """bool; ratio above the upper bound, advantage < 0, and nothing bounds the loss (K24)."""


@dataclass(frozen=True)
class Batch:
    """Rows of one optimizer step, right-padded: prompt then response.

    Example, prompt [1, 5] and response [7, 2]: ids_BL [[1, 5, 7, 2]], response_BL
    [[False, False, True, True]], old_logprobs_BL [[0, 0, -0.1, -0.2]].
    """

    ids_BL: Tensor
    attention_BL: Tensor
    """bool; False on padding."""
    response_BL: Tensor
    """bool; True on response tokens that are trained; all False in a masked row."""
    old_logprobs_BL: Tensor
    """Log-probability before this rollout's updates, at the sampling temperature; 0 elsewhere."""
    ref_logprobs_BL: Tensor
    """The same under the reference; 0 where no technique needs it."""
    weights_BL: Tensor
    """What each token's policy loss is weighted by: 1, or a `tis` correction."""
    advantages_B: Tensor
    group_B: Tensor
    """Which group each row belongs to; optimizer steps never split a group."""
    rewards_B: Tensor
    """What the advantage saw of each row; for dumps, never trained on."""

    def __len__(self) -> int:
        """Return the number of rows B."""
        return self.ids_BL.shape[0]

    def rows(self, index: Tensor) -> Batch:
        """Return the rows named by index, padding columns that none of them needs cut off."""
        width = int(self.attention_BL[index].sum(1).max()) if len(index) else 0
        rows = {name: getattr(self, name)[index] for name in self.__dataclass_fields__}
        return Batch(**{n: t[:, :width] if n.endswith("_BL") else t for n, t in rows.items()})


@dataclass(frozen=True)
class Trace:
    """Each trained token once: N tokens in S responses, over any number of optimizer steps."""

    log_ratio_N: Tensor
    """log pi / pi_old, under the weights just before the token's own update."""
    sequence_log_ratio_S: Tensor
    """Its mean over each response."""
    entropy_N: Tensor
    """Entropy of the policy at the token's place, under those same weights, nats, at the
    sampling temperature."""
    clipped_low_N: Tensor
    """bool; see PolicyTerm."""
    clipped_high_N: Tensor
    """bool; see PolicyTerm."""
    capped_N: Tensor
    """bool; see PolicyTerm."""
    unbounded_N: Tensor
    """bool; see PolicyTerm."""
    kl_N: Tensor
    """k3 estimate of KL(policy || reference), nats; empty where no technique needs it."""
    regularizer_N: Tensor
    """What the regularizer adds to the token's loss."""
    weight_N: Tensor
    """The `tis` correction, 1 without one."""


@dataclass(frozen=True)
class Update:
    """What the optimizer steps of one rollout did."""

    losses: list[float]
    """Value of the loss of each mini-batch."""
    grad_norms: list[float]
    """L2 norm of its gradient before clipping; exactly 0 means that no step was taken."""
    trace: Trace
    lr: float
    planned: int
    """Optimizer steps that the configuration asks for."""
    skipped: int = 0
    """Mini-batches left out because loss or gradient was not a number; not in the lists above."""
    halted: bool = False
    """An alarm stopped it midway."""
    mismatch_N: Tensor | None = None
    """|learner - sampler| log-probability of each trained token before the updates, nats; None
    where the learner did not compute its own."""

    @property
    def applied(self) -> int:
        """Optimizer steps taken."""
        return sum(norm > 0 for norm in self.grad_norms)
