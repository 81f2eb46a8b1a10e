"""Vocabulary of the metrics that the package knows, each with its definition.

A metric is a definition, not a key: trainers log the same quantity under different keys, and different quantities under
the same key. Which key of an engine is which metric stands in `logs/trainers/`, a file per engine.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Literal

Direction = Literal["up", "down", "none"]
"""Which way is better: up, down, or neither by itself."""


@dataclass(frozen=True)
class Metric:
    """A quantity with a value per optimiser step.

    unit: empty for pure numbers, "share" for fractions of 1. direction: which way is better.
    """

    name: str
    title: str
    unit: str
    definition: str
    direction: Direction = "none"


_TABLE = (
    Metric("step", "Step", "", "optimiser step, from 1"),
    Metric("reward", "Reward", "", "mean task reward of the batch of rollouts, before shaping", "up"),
    Metric("reward_std", "Reward spread within a group", "",
           "standard deviation of the rewards within a group (ddof 1), mean over groups; not defined for G = 1"),
    Metric("dead_fraction", "Dead groups", "share",
           "share of groups drawn whose rewards are all equal, so they teach nothing", "down"),
    Metric("reward_errors", "Rewards that failed", "rollouts",
           "rollouts of the batch whose reward function raised an error, hung or returned no number", "down"),
    Metric("entropy", "Entropy", "nats",
           "mean over tokens of the entropy of the sampling distribution, before top-k and top-p"),
    Metric("kl", "KL to the starting policy", "nats",
           "mean over trained tokens of the k3 estimate of the KL divergence to the starting policy; "
           "not defined without one"),
    Metric("kl_old", "KL to the sampling policy", "nats",
           "mean over trained tokens of the k3 estimate of the KL divergence to the policy that sampled the "
           "batch; with a correction, to the trainer's policy when the batch arrived"),
    Metric("length", "Completion length", "tokens", "mean number of tokens of a completion"),
    Metric("truncated", "Truncated", "share",
           "share of completions that reached the token limit without an end token", "down"),
    Metric("loss", "Loss", "", "value of the objective that was minimised; near 0 by construction where advantages "
           "sum to zero, so judge by reward and gradient"),
    Metric("grad_norm", "Gradient norm", "",
           "norm of the gradient before clipping; if it is not finite, the step was skipped"),
    Metric("clip_low", "Clipped from below", "share", "share of tokens clipped at the lower bound of the ratio"),
    Metric("clip_high", "Clipped from above", "share", "share of tokens clipped at the upper bound of the ratio"),
    Metric("lr", "Learning rate", "", "learning rate of the step"),
    Metric("weights_moved", "Weights that moved", "share",
           "share of up to 8,192 weights with a gradient, taken evenly, that the optimiser step changed at all"),
    Metric("rollouts_trained", "Rollouts trained on", "rollouts",
           "rollouts that took part in the update; those with no weight on any token are left out"),
    Metric("tokens", "Tokens", "tokens", "completion tokens of the batch"),
    Metric("tokens_generated", "Tokens generated", "tokens",
           "all tokens generated for the batch, including replaced groups and continuations for credit; tokens "
           "that leaves of a tree share count once; 0 except on the first step of a batch"),
    Metric("seconds_sample", "Sampling", "s", "time to sample the batch; on the first step of a batch, else 0", "down"),
    Metric("seconds_grade", "Grading", "s", "time to grade the batch; on the first step of a batch, else 0", "down"),
    Metric("seconds_update", "Update", "s", "time of the optimiser step: forward, backward and update", "down"),
    Metric("tokens_per_second", "Speed", "tokens/s",
           "completion tokens of the batch divided by the time to sample, grade and update", "up"),
    Metric("time", "Time", "s", "when the row was written, in seconds since 1970 (UTC)"),
)  # fmt: skip

_ALLOCATION = (
    Metric(
        "allocation/groups",
        "Groups drawn",
        "groups",
        "groups of a batch, where their number follows from success rates",
    ),
    Metric("allocation/live", "Live groups", "share", "groups of the batch with two different rewards"),
    Metric(
        "allocation/live_promised",
        "Live groups forecast",
        "share",
        "groups of the batch forecast to have two different rewards",
    ),
    Metric(
        "allocation/effective_prompts",
        "Effective prompts",
        "prompts",
        "(Σw)²/Σw² over live groups of weight w: the number of equally weighted groups that would be as noisy",
    ),
    Metric(
        "allocation/reward", "Reward over all problems", "", "mean reward over all problems, estimated from those drawn"
    ),
    Metric(
        "allocation/tokens",
        "Tokens generated",
        "tokens",
        "tokens of the batch and of rollouts that were drawn but not trained on",
    ),
    Metric("allocation/seconds", "Allocating", "s", "time to forecast, choose and put batches together", "down"),
)

_GEOMETRY = (
    Metric("geometry/prompts", "Prompts probed", "prompts",
           "prompts of the batch on whose rollouts the geometry of this step is measured; 0: none had a "
           "gradient"),
    Metric("geometry/dead", "Dead groups of the batch", "share",
           "share of the groups trained on whose rewards, after shaping, were all equal"),
    Metric("geometry/dead_predicted", "Dead groups if all prompts were alike", "share",
           "p^G + (1−p)^G at the batch's mean reward p; not defined for rewards other than 0 and 1"),
    Metric("geometry/layer_stable", "Stable rank of a layer's gradient", "",
           "Σσ²/σ₁² of the gradient of a weight matrix, mean over matrices"),
    Metric("geometry/layer_participation", "Participation ratio of a layer's gradient", "",
           "(Σσ²)²/Σσ⁴ of the gradient of a weight matrix, mean over matrices, middle of its bounds from 8 values"),
    Metric("geometry/layer_entropy_sq", "Entropy rank of a layer's gradient", "",
           "exp of the entropy of σ²/Σσ² of the gradient of a weight matrix, mean over matrices, middle of its bounds "
           "from 8 values"),
    Metric("geometry/rollout_stable", "Stable rank of the rollouts", "",
           "Σσ²/σ₁² of the matrix whose rows are the rollouts' weighted scores"),
    Metric("geometry/rollout_participation", "Participation ratio of the rollouts", "",
           "(Σσ²)²/Σσ⁴ of the matrix whose rows are the rollouts' weighted scores"),
    Metric("geometry/rollout_entropy_sq", "Entropy rank of the rollouts", "",
           "exp of the entropy of σ²/Σσ² of the matrix whose rows are the rollouts' weighted scores"),
    Metric("geometry/token_gini", "Gini of token scores", "",
           "Gini index of the tokens' score norms ‖e_y − π‖ at the logits: 0 all equal, 1 one token holds all"),
    Metric("geometry/token_hoyer", "Hoyer of token scores", "",
           "Hoyer's sparsity of the tokens' score norms ‖e_y − π‖: 0 all equal, 1 one token holds all"),
    Metric("geometry/token_top_1", "Top 1% of tokens", "share",
           "share of the squared score norms that the largest 1% of the tokens hold"),
    Metric("geometry/token_top_5", "Top 5% of tokens", "share",
           "share of the squared score norms that the largest 5% of the tokens hold"),
    Metric("geometry/token_top_20", "Top 20% of tokens", "share",
           "share of the squared score norms that the largest 20% of the tokens hold"),
    Metric("geometry/parameter_gini", "Gini of gradient entries", "",
           "Gini index of the sizes of the gradient's entries: 0 all equal, 1 one entry holds all"),
    Metric("geometry/parameter_hoyer", "Hoyer of gradient entries", "",
           "Hoyer's sparsity of the gradient's entries: 0 all equal, 1 one entry holds all"),
    Metric("geometry/parameter_top_1", "Top 1% of gradient entries", "share",
           "share of the gradient's squared norm in the largest 1% of its entries"),
    *(Metric(f"geometry/parameter_below_{tau}", f"Gradient entries below {tau} of the largest", "share",
             f"share of the gradient's entries smaller than {tau} × the largest") for tau in ("0.1", "0.01", "0.001")),
    Metric("geometry/parameter_visible_sgd", "Weights a plain step would change in bfloat16", "share",
           "share of weights that θ − lr × gradient would change if they were kept in bfloat16; gradient before "
           "clipping"),
    Metric("geometry/parameter_visible_adam", "Weights an Adam step would change in bfloat16", "share",
           "share of weights that Adam's first step (of size lr wherever the gradient is not 0) would change if they "
           "were kept in bfloat16"),
    Metric("geometry/baseline_gap", "Best baseline less the group mean", "",
           "b* − V = Cov(r, ‖s‖²)/E‖s‖² in units of reward, pooled over prompts: 0 if the group mean is the best "
           "constant baseline"),
    Metric("geometry/baseline_gap_se", "Standard error of that gap", "",
           "jackknife standard error over prompts of the best baseline less the group mean"),
    Metric("geometry/baseline_saves", "Variance that the best constant baseline would save", "share",
           "share of Σ₁, the variance per rollout with the prompt's value as baseline: 0 if score norms do not vary "
           "with rewards (assumption A2 of arXiv:2603.01162)"),
    Metric("geometry/group_rank", "Rank of a group's rows A_i ψ_i", "",
           "(Σσ)²/Σσ² of the matrix with a row per rollout of a group, its advantage times a layer's part of its "
           "score: median over weight matrices, mean over groups with unequal rewards"),
    Metric("geometry/group_rank_of_two", "The same, cut at two singular values", "",
           "at most 2 whatever the gradient; what a singular value decomposition cut at two values would give"),
    Metric("geometry/group_rank_null", "The same for orthogonal rows", "",
           "(Σ|A|)²/ΣA²: 4K(R−K)/R for K of R rollouts right; the rank if scores were isotropic"),
    Metric("geometry/group_top_1", "Share of the first direction of these rows", "share", "σ₁²/Σσ² of the same matrix"),
    Metric("geometry/reward_deviation", "Standard deviation of a group's rewards", "",
           "σ_r of the probed groups with unequal rewards, divided by R; mean over groups"),
    Metric("geometry/cancelled", "Credit that cancels", "share",
           "share of Σ|w|·‖e_y − π‖ that cancels between successes and failures on the text they share"),
    Metric("geometry/score_norm", "Score norm", "", "root mean square over rollouts of ‖∇ log π(y)‖, all parameters"),
    Metric("geometry/self_check", "Self-check", "",
           "relative difference between the gradient assembled from layers and autograd's, on a few tokens; "
           "at one probe in ten", "down"),
    Metric("seconds_probe", "Probe", "s", "time to measure the geometry; only on steps that measured it", "down"),
)  # fmt: skip
"""Metrics of steps whose geometry was probed: the policy gradient of the recipe, without KL and entropy terms, on a few
prompts that have one. Absent on other steps; NaN where the gradient is zero or the quantity is not defined."""

_CRITIC = (
    Metric("critic/explained_variance", "Variance of the reward that the critic explains", "share",
           "1 − Var(r − V̂)/Var(r) over the tokens of a fresh batch, before the critic learns from it; at 0 "
           "the critic predicts nothing, below 0 it adds noise", "up"),
    Metric("critic/explained_by_group", "Variance that the group's other rollouts explain", "share",
           "share of Var(r) explained by the mean reward of the group's other rollouts; a critic has to beat it", "up"),
    Metric("critic/loss", "Critic's loss", "",
           "mean over tokens of (V̂ − target)², V̂ as it was when the batch was drawn", "down"),
    Metric("critic/grad_norm", "Critic's gradient norm", "",
           "largest norm of the critic's gradient over its updates of the step, before clipping; if it is not finite, "
           "the update was skipped"),
    Metric("seconds_critic", "Critic", "s", "time in which the critic learned, after the policy's update", "down"),
)  # fmt: skip
"""Metrics of runs whose credit has a critic."""

_LOGGED = (
    Metric("reward_std_batch", "Reward spread of the batch", "",
           "standard deviation of all rewards of the batch (ddof 1): within and between groups together"),
    Metric("reward_std_unclear", "Reward spread (within groups or of the batch)", "",
           "TRL's reward_std where the log does not show its version: within a group, mean over groups, up to "
           "TRL 0.26, of the whole batch from 0.27; ddof 1 in both"),
    Metric("rollouts", "Rollouts", "rollouts", "rollouts drawn for the batch"),
    Metric("tokens_batch", "Tokens of the batch", "tokens", "prompt and completion tokens of the batch"),
    Metric("prompt_length", "Prompt length", "tokens", "mean number of tokens of a prompt"),
    Metric("reward_after_kl", "Reward after the KL penalty", "",
           "mean reward with the KL penalty subtracted: advantages are computed from it; not the task reward", "up"),
    Metric("reward_max", "Largest reward", "", "largest reward of the batch, before a KL penalty"),
    Metric("reward_min", "Smallest reward", "", "smallest reward of the batch, before a KL penalty"),
    Metric("score", "Score", "", "the score that a reward model or function returned beside the reward; used to "
           "filter prompts", "up"),
    Metric("dead_batches", "Dead batches", "share",
           "share of batches whose rewards are all equal over all groups (TRL's frac_reward_zero_std with "
           "scale_rewards=batch or normalize_then_sum); it says nothing about single groups", "down"),
    Metric("entropy_loss", "Entropy in the update", "nats",
           "mean entropy of the policy during the update, as its bonus sees it, by the trainer's own averaging"),
    Metric("kl_sequence", "KL to the starting policy, mean of completions", "nats",
           "k3 estimate averaged over the tokens of a completion, then over completions: short ones weigh more per "
           "token than in kl"),
    Metric("kl_loss", "KL loss to the reference", "nats",
           "KL term of the loss before its coefficient, by the configured estimator (low_var_kl = k3 by default) and "
           "averaged as the loss is"),
    Metric("kl_estimate", "KL to the reference, configured estimator", "nats",
           "mean KL to the reference by the estimator that the trainer was configured with: k1 may be negative"),
    Metric("kl_k1", "KL to the reference (k1)", "nats",
           "mean over tokens of the log-ratio of the sampling policy to the reference (k1); may be negative"),
    Metric("kl_penalty", "KL penalty in the reward", "nats",
           "KL of the sampling policy to the reference, before its coefficient: mean over a completion's tokens, then "
           "over completions; k1 unless configured otherwise, so it may be negative"),
    Metric("kl_old_k1", "KL to the sampling policy (k1)", "nats",
           "mean over tokens of minus the log-ratio of the new to the sampling policy (k1): how far an update moved, "
           "not how far the run is from its start; may be negative"),
    Metric("length_min", "Shortest completion", "tokens", "fewest tokens of a completion of the batch"),
    Metric("length_max", "Longest completion", "tokens", "most tokens of a completion of the batch"),
    Metric("length_terminated", "Length of ended completions", "tokens",
           "mean number of tokens of the completions that ended by themselves"),
    Metric("at_limit", "At the token limit", "share",
           "share of completions as long as the limit; one whose end token is the last that fits counts too", "down"),
    Metric("policy_loss", "Policy loss", "", "the policy term of the loss, without KL and entropy terms"),
    Metric("clip_fraction", "Clipped", "share", "share of tokens clipped at either bound of the ratio"),
    Metric("clip_dual", "Clipped by the dual clip", "share",
           "share of tokens with negative advantage clipped by the dual clip (verl's pg_clipfrac_lower); not the lower "
           "side of the ratio clip"),
    Metric("tokens_total", "Tokens so far", "tokens", "prompt and completion tokens since the start of the run"),
    Metric("seconds_step", "Step", "s", "time of a whole step", "down"),
    Metric("epoch", "Epoch", "", "passes over the data so far"),
    Metric("trained", "Updates made", "share",
           "1 where the trainer made an update of the batch, 0 where it says that it made none", "up"),
    Metric("advantage_mean", "Mean advantage", "", "mean over tokens of the advantages"),
    Metric("advantage_max", "Largest advantage", "", "largest advantage of a token"),
    Metric("advantage_min", "Smallest advantage", "", "smallest advantage of a token"),
)  # fmt: skip

_MISMATCH = (
    Metric("mismatch/k1", "Sampler to trainer KL (k1)", "nats",
           "mean over the sampled tokens of log π_sampler − log π_trainer, before any cap or mask; an estimate of the "
           "KL divergence that may be negative; stale weights count too"),
    Metric("mismatch/k3", "Sampler to trainer KL (k3)", "nats",
           "mean over the sampled tokens of ρ − 1 − log ρ, ρ = π_trainer/π_sampler, before any cap or mask; "
           "never negative; stale weights count too"),
    Metric("importance/ratio", "Mean ρ", "",
           "mean of ρ = π_trainer/π_sampler, before any cap or mask; per token unless sequence ratios are set; 1 "
           "whatever the mismatch where the sampler can draw every token, and below 1 where it cannot"),
    Metric("importance/ess_raw", "Effective sample size of raw weights", "share",
           "(Σw)²/(nΣw²) over completions of w = Πρ, before any cap or mask; falls with length and mismatch", "up"),
    Metric("importance/weight", "Mean weight of the correction", "",
           "mean importance weight of the correction, per token or per sequence as configured; after its cap or mask "
           "(verl: before it in some versions)"),
    Metric("importance/masked", "Tokens dropped by the correction", "share",
           "share of tokens that the correction masks", "down"),
    Metric("staleness/mean", "Staleness", "versions",
           "mean over samples of the weight versions between the one that drew and the one that trains; in "
           "GRPOscope's own runs, optimiser steps"),
    Metric("staleness/max", "Largest staleness", "versions", "the same for the most stale sample of the batch"),
)  # fmt: skip
"""Metrics of runs with staleness or a correction. π_trainer is the policy when the batch comes to it."""

_OFF_POLICY = (
    Metric("mismatch/k2", "Sampler to trainer KL (k2)", "nats",
           "half the mean over the sampled tokens of (log π_sampler − log π_trainer)², before any cap or mask"),
    Metric("mismatch/log_ratio", "Mean log ρ of tokens kept", "nats",
           "mean of log ρ, ρ = π_trainer/π_sampler, over the tokens that the cap on ρ kept: after the mask, so "
           "large ratios are missing"),
    Metric("mismatch/abs", "|log π_sampler − log π_trainer|", "nats",
           "mean over the sampled tokens of the absolute difference of log-probabilities, before any cap or mask"),
    Metric("mismatch/abs_max", "Largest |log π_sampler − log π_trainer|", "nats",
           "largest absolute difference of log-probabilities at a sampled token"),
    Metric("mismatch/mult_error", "Multiplicative error of probabilities", "",
           "mean over the sampled tokens of exp |log π_sampler − log π_trainer|, before any cap or mask: 1 if equal"),
    Metric("mismatch/prob_diff", "|π_sampler − π_trainer|", "",
           "mean over the sampled tokens of the absolute difference of their probabilities"),
    Metric("mismatch/correlation", "Correlation of probabilities", "",
           "Pearson correlation over the sampled tokens of π_sampler and π_trainer: 1 if equal", "up"),
    Metric("mismatch/chi2_token", "χ² of tokens", "",
           "mean over tokens of ρ², less 1, before any cap or mask"),
    Metric("mismatch/chi2_sequence", "χ² of sequences", "",
           "mean over sequences of the squared product of ρ, less 1, before any cap or mask, with the log limited to "
           "±20"),
    Metric("importance/weight_min", "Smallest weight of the correction", "",
           "smallest importance weight of the correction; 0 where something was masked"),
    Metric("importance/weight_max", "Largest weight of the correction", "",
           "largest importance weight of the correction; at most the cap if logged after it"),
    Metric("importance/ess", "Effective sample size of capped weights", "share",
           "1/mean((w/mean w)²) of weights after the cap: usually more than that of raw weights, because large weights "
           "lower it most"),
    Metric("importance/masked_sequences", "Sequences dropped by the correction", "share",
           "share of sequences that the correction masks", "down"),
    Metric("importance/out_of_bounds", "Ratios out of bounds", "share",
           "share of ratios beyond the bounds of the correction, which caps or masks them as configured", "down"),
    Metric("weight_version", "Version of the weights", "versions", "versions that the trainer had published by then"),
)  # fmt: skip
"""Further metrics of how far the policy that sampled is from the one that trains, each with its own definition."""

_AGENTS = (
    Metric("agent/turns", "Turns", "turns",
           "mean number of turns that the policy took in a rollout: 1 for an answer without tools or an environment"),
    Metric("agent/turns_max", "Most turns", "turns", "most turns that the policy took in a rollout of the batch"),
    Metric("agent/calls", "Tool calls", "calls", "mean number of tool calls of a rollout"),
    Metric("agent/call_failures", "Tool calls that failed", "share",
           "share of tool calls that raised an error, whoever is at fault", "down"),
    Metric("agent/bad_calls", "Tool calls that were wrong", "share",
           "share of tool calls, or of actions, that the policy got wrong: an unknown tool, or an action that the "
           "environment does not take", "down"),
    Metric("agent/stop_environment", "Ended by the environment", "share",
           "share of rollouts that their environment ended"),
    Metric("agent/stop_turns", "Stopped at the turn limit", "share",
           "share of rollouts that a limit on turns or calls stopped", "down"),
    Metric("agent/errors", "Rollouts that failed", "share",
           "share of rollouts that ended in an error of a tool, an environment or the infrastructure", "down"),
    Metric("agent/rows", "Rows of a rollout", "rows", "mean number of rows of training that a rollout was"),
    Metric("agent/environment_tokens", "Tokens of the environment", "tokens",
           "mean number of tokens of a rollout that tools or environments wrote"),
    Metric("agent/seconds_tools", "Tools", "s", "time of a tool call", "down"),
)  # fmt: skip
"""Metrics of rollouts with turns, tools and environments."""

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "reward": ("reward", "score", "reward_after_kl"),
    "reward_std": ("reward_std", "reward_std_unclear", "reward_std_batch"),
    "entropy": ("entropy", "entropy_loss"),
    "kl": ("kl", "kl_sequence", "kl_loss", "kl_estimate", "kl_k1", "kl_penalty"),
    "kl_old": ("kl_old", "kl_old_k1"),
    "truncated": ("truncated", "at_limit"),
    "loss": ("loss", "policy_loss"),
    "clip": ("clip_fraction", "clip_high", "clip_low"),
    "mismatch": (
        "mismatch/k3", "mismatch/k1", "mismatch/abs", "mismatch/mult_error", "mismatch/k2", "mismatch/log_ratio",
        "mismatch/chi2_token", "mismatch/prob_diff", "mismatch/correlation",
    ),
    "importance": ("importance/ratio", "importance/weight"),
    "staleness": ("staleness/mean", "staleness/max"),
}  # fmt: skip
"""Metrics that may stand in for a quantity within one run, nearest first.

They have different definitions, so they must not be compared across runs or averaged with one another.
"""

METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_TABLE, *_CRITIC, *_ALLOCATION, *_MISMATCH, *_GEOMETRY)
}
"""Metrics of our own record by name, in the order of the record."""

LOGGED: Mapping[str, Metric] = {metric.name: metric for metric in (*_LOGGED, *_OFF_POLICY, *_AGENTS)}
"""Metrics that only other trainers log, each under a name of its own because its definition is its own."""


def metric(name: str) -> Metric:
    """The metric `name`; one that is not known here gets its name as title, and a definition that says so."""
    if name.startswith(("component/", "component_std/")):
        kind, _, quantity = name.partition("/")
        what = "mean" if kind == "component" else "standard deviation over the batch"
        return Metric(
            name,
            quantity if kind == "component" else f"{quantity}, spread",
            "",
            f"{what} of the reward component {quantity}, before weights",
        )
    metric = METRICS.get(name) or LOGGED.get(name)
    return metric or Metric(name, name, "", "not in the vocabulary; as recorded")


def variant(quantity: str, present: Container[str]) -> str | None:
    """The first metric of VARIANTS[quantity] that is present, by default the quantity itself; None if none is."""
    return next((name for name in VARIANTS.get(quantity, (quantity,)) if name in present), None)


SPREAD = ("reward_std",)
POLICY = ("kl", "kl_old", "entropy")
COMPLETIONS = ("length", "truncated")
UPDATE = ("grad_norm", "lr", "clip_low", "clip_high")
CRITIC = ("critic/explained_variance", "critic/explained_by_group", "critic/loss", "critic/grad_norm", "seconds_critic")

GEOMETRY = "geometry/"
"""Prefix of the metrics that probes within a training run record."""

COMPONENT = ("component/", "component_std/")
"""Prefixes of the metrics of single parts of the reward."""
