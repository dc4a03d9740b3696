"""What to try, in each trainer's own words: overrides of ours, options of TRL and verl.

TRL's are fields of its GRPOConfig (1.16; a test holds them against the list that TRL gave), verl's
are Hydra overrides of its main_ppo (trainer/config). Braces are filled in from the log by
`diagnose`. Where a trainer has no such option there is none here, and the advice is words alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_ablate.analysis.diagnosis.aliases import Trainer

_ACTOR = "actor_rollout_ref.actor"


@dataclass(frozen=True)
class Remedy:
    """One thing to try."""

    what: str
    ours: str = ""
    """Overrides, or an arm to run."""
    trl: str = ""
    verl: str = ""

    def option(self, trainer: Trainer) -> str:
        """Return what to paste; empty where that trainer has nothing of the kind."""
        options = {"grpo_ablate": self.ours, "trl": self.trl, "verl": self.verl}
        return options.get(trainer, "")


REMEDIES: dict[str, Remedy] = {
    "look": Remedy("read the responses of these steps before changing anything"),
    "harder_data": Remedy(
        "give harder data where most answers are right, easier where most are wrong, or a reward"
        " that tells degrees",
        ours="task.min_operands=3 task.max_operands=5",
    ),
    "other_data": Remedy(
        "nothing is wrong with the training: change the data, or stop here",
        ours="task.max_operands=5",
    ),
    "larger_groups": Remedy(
        "more responses a prompt: larger groups are dead less often",
        ours="sampling.group_size=16",
        trl="num_generations=16",
        verl="actor_rollout_ref.rollout.n=16",
    ),
    "dynamic_sampling": Remedy(
        "drop dead groups and sample again",
        ours="sampling=dynamic",
        verl="algorithm.filter_groups.enable=True algorithm.filter_groups.metric=acc",
    ),
    "filter_data": Remedy("drop prompts that are always right or always wrong from the data"),
    "reward_design": Remedy("look at the reward's design before filtering more"),
    "clip_higher": Remedy(
        "raise the clip's upper bound alone",
        ours="clip=clip_higher",
        trl="epsilon_high=0.28",
        verl=f"{_ACTOR}.clip_ratio_high=0.28",
    ),
    "asymmetric_clip": Remedy(
        "or loosen the lower bound a little",
        ours="clip=asymmetric",
        trl="epsilon=0.3 epsilon_high=0.15",
        verl=f"{_ACTOR}.clip_ratio_low=0.3 {_ACTOR}.clip_ratio_high=0.15",
    ),
    "entropy_bonus": Remedy(
        "pay for entropy, 0.01 to 0.05",
        ours="regularizer=entropy_bonus regularizer.coefficient=0.03",
        trl="entropy_coef=0.03",
        verl=f"{_ACTOR}.entropy_coeff=0.03",
    ),
    "double_lr": Remedy(
        "double the learning rate for 200 steps and look again",
        ours="lr_batch.lr_scale={scale_double}",
        trl="learning_rate={lr_double}",
        verl=f"{_ACTOR}.optim.lr={{lr_double}}",
    ),
    "halve_lr": Remedy(
        "halve the learning rate",
        ours="lr_batch.lr_scale={scale_half}",
        trl="learning_rate={lr_half}",
        verl=f"{_ACTOR}.optim.lr={{lr_half}}",
    ),
    "roll_back": Remedy(
        "else go back to a checkpoint from before, when entropy was healthy",
        ours="monitor=article",
        trl="save_steps=25",
        verl="trainer.save_freq=25",
    ),
    "clip_gradient": Remedy(
        "clip the gradient's norm at 1.0",
        ours="lr_batch.max_grad_norm=1.0",
        trl="max_grad_norm=1.0",
        verl=f"{_ACTOR}.grad_clip=1.0",
    ),
    "mask_truncated": Remedy(
        "take responses cut off by the token limit out of the loss",
        ours="masking=overlong",
        trl="mask_truncated_completions=True",
    ),
    "dual_clip": Remedy(
        "bound the loss of tokens whose ratio blew up under a bad advantage",
        ours="clip.dual_clip=3.0",
        trl="delta=3.0",
        verl=f"{_ACTOR}.clip_ratio_c=3.0",
    ),
    "two_sided_clip": Remedy(
        "tighten the clip on both sides",
        ours="clip=two_sided",
        trl="epsilon=0.15 epsilon_high=0.15",
        verl=f"{_ACTOR}.clip_ratio_low=0.15 {_ACTOR}.clip_ratio_high=0.15",
    ),
    "gspo": Remedy(
        "or, above 800 tokens a response, one ratio a sequence",
        ours="clip=gspo",
        trl="importance_sampling_level=sequence epsilon=3e-4 epsilon_high=4e-4",
        verl=f"{_ACTOR}.policy_loss.loss_mode=gspo {_ACTOR}.clip_ratio_low=3e-4"
        f" {_ACTOR}.clip_ratio_high=4e-4",
    ),
    "fewer_updates": Remedy(
        "take fewer updates a rollout, so that ratios stay nearer to 1",
        ours="lr_batch.minibatches=2",
        trl="num_iterations=1 steps_per_generation=1",
        verl=f"{_ACTOR}.ppo_epochs=1",
    ),
    "length_penalty": Remedy(
        "charge lengths outside the interval they started in",
        ours="length_penalty=target_interval length_penalty.low={low} length_penalty.high={high}",
        verl="reward_model.reward_manager=dapo reward_model.overlong_buffer.enable=True",
    ),
    "soft_limit": Remedy(
        "or charge the last tokens before the limit",
        ours="length_penalty=overlong_soft",
        verl="reward_model.reward_manager=dapo reward_model.overlong_buffer.enable=True",
    ),
    "longer_limit": Remedy(
        "raise the token limit, if the answers need it",
        ours="engine.max_new_tokens={limit_double}",
        trl="max_completion_length={limit_double}",
        verl="data.max_response_length={limit_double}",
    ),
    "no_length_bias": Remedy(
        "divide the loss by a constant, not by each response's length, and drop the group std",
        ours="reduction=constant",
        trl="loss_type=dr_grpo scale_rewards=none",
        verl=f"{_ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"
        " algorithm.norm_adv_by_std_in_grpo=False",
    ),
    "no_shaping": Remedy(
        "take shaping and length penalty out, and look at the bare task reward",
        ours="shaping=none length_penalty=none",
    ),
    "correct_sampler": Remedy(
        "weight tokens by trainer/sampler probability",
        ours="tis=token",
        trl="vllm_importance_sampling_correction=True",
        verl="algorithm.rollout_correction.rollout_is=token",
    ),
    "same_precision": Remedy("give sampler and trainer one precision, and look at the weight push"),
    "one_by_one": Remedy(
        "a stack: run its tricks one by one and take the conflicting one out; else leave it out",
        ours="{one_by_one}",
    ),
    "leave_as_is": Remedy("nothing: go by reward and entropy, not by this number"),
    "watch": Remedy("nothing yet; look again when the reward stops rising"),
    "shorter_range": Remedy("compare sequence-level clip fractions with each other only"),
}
