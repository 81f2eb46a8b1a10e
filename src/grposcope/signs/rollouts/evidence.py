"""What claims about a pipeline are tested from: rollouts as they were drawn, settings, a log, and scored tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Floats, Ints, Rollout, Rollouts, Text
from grposcope.core.run import Run
from grposcope.signs.rollouts.module_match import ModuleMatch
from grposcope.signs.rollouts.stated_loss import StatedLoss


class UnansweredError(UserError):
    """A grader that was asked has not answered within its time."""


Grader = Callable[[Sequence[Text], Sequence[Text]], Sequence[float]]
"""Prompts and completions to rewards: the reward function of the run."""


@dataclass(frozen=True)
class Stated:
    """What the settings say the pipeline does; None for what they do not say.

    group: rollouts per prompt, 0 where they change from step to step. baseline: "mean", "leave-one-out", "none" or
    "batch" (mean of all); scale: "group", "batch", "mean" (of the group's rewards), "each" (every function by itself,
    then the sum over the batch) or "none", with ddof and epsilon of the deviation. weights: of the reward functions, by
    name. limit: longest completion, in tokens. ends: token ids that end a completion. pad: the id of padding.
    masks_truncated: whether cut completions are left out of the loss. iterations: updates per batch of rollouts.
    accumulation: micro-batches per update. schedule: of the learning rate, such as "linear". kl: coefficient. warmup
    and updates: of the schedule, in optimiser steps. precision: number format of the sampler, of `numerics.FORMATS`.
    training: number format that the trainer computes in, "float32", "bfloat16" or "float16". loss: what is minimised.
    reference: "start" where the KL term is to the weights that the run began from. clip: largest norm of the gradient,
    0 for any. beta2, decay: of AdamW. data: prompts of an epoch, drawn in turn without replacement; prompts: of a
    batch; interval: optimiser steps on a batch.
    """

    group: int | None = None
    baseline: str | None = None
    scale: str | None = None
    ddof: int | None = None
    epsilon: float | None = None
    weights: Mapping[str, float] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    limit: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None
    masks_truncated: bool | None = None
    iterations: int | None = None
    accumulation: int | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    kl: float | None = None
    warmup: int | None = None
    updates: int | None = None
    precision: str | None = None
    training: str | None = None
    loss: StatedLoss | None = None
    reference: str | None = None
    clip: float | None = None
    beta2: float | None = None
    decay: float | None = None
    data: int | None = None
    prompts: int | None = None
    interval: int | None = None


@dataclass(frozen=True)
class OptimizerEvidence:
    """What the state of Adam says after optimiser step `step`.

    updates: how many steps it counts, NaN where it does not. second: Σ exp_avg_sq over all weights, NaN likewise.
    lr: of that step, NaN where it is not known. where: what it was read from, for messages. rate, decay: those that the
    step took, by the weights before and after it; scheduled: the rate that the scheduler had for it; NaN likewise.
    """

    step: int
    updates: float = math.nan
    second: float = math.nan
    lr: float = math.nan
    where: str = ""
    rate: float = math.nan
    decay: float = math.nan
    scheduled: float = math.nan


@dataclass(frozen=True)
class GradientEvidence:
    """The gradient of a step's stated loss, taken again at a checkpoint.

    step: of the optimiser. logged: norm before clipping as the run has it. policy, kl: squared norms of the gradients
    of the surrogate and of the KL term for β = 1; cross: their inner product. rollouts: in it. precision: number format
    that the trainer computed it in. rounding: norm that rounding of the reference's log-probabilities makes by itself
    where no advantage is left; 0 otherwise.
    """

    step: int
    logged: float
    policy: float
    kl: float
    cross: float
    rollouts: int
    checkpoint: str
    precision: str = "float32"
    rounding: float = 0.0

    def norm(self, times: float, kl: float) -> float:
        """‖times · ∇surrogate + kl · ∇KL‖."""
        return math.sqrt(max(times**2 * self.policy + 2 * times * kl * self.cross + kl**2 * self.kl, 0.0))


@dataclass(frozen=True)
class ScoredTokens:
    """Tokens of all rows under one checkpoint at the stated temperature, a list with an array (T,) per row.

    name: of the checkpoint. step: its optimiser step, None if it is not known. untrained: whether it is from before any
    training, so that no rollout can have been trained on in it. logp: log π(y_t). entropy: H_t in nats.
    variance: of log π under π at that place. rank: how many tokens are likelier than y_t, so 0 for the likeliest.
    above: the probability of those. vocabulary: number of tokens. Empty where they were not taken: log_powers
    (T, POWERS), log Σ_v π_v^β; outside_k (T, TOP_KS) and outside_p (T, TOP_PS), a lower bound of the probability
    outside of the k likeliest tokens and of a nucleus, exact where those kept are among the likeliest few hundred
    (`sampling_grids`). at_scale: of a checkpoint with adapters, `logp` where what they add is multiplied by a factor,
    by factor. NaN marks tokens that could not be scored.
    """

    name: str
    step: int | None
    logp: Sequence[Floats]
    entropy: Sequence[Floats]
    variance: Sequence[Floats]
    rank: Sequence[Ints]
    above: Sequence[Floats]
    vocabulary: int
    log_powers: Sequence[Floats] = ()
    outside_k: Sequence[Floats] = ()
    outside_p: Sequence[Floats] = ()
    untrained: bool = False
    at_scale: Mapping[float, Sequence[Floats]] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineEvidence:
    """All that is at hand of one pipeline.

    source: what the reader was given, for messages. rows: in the order in which they were drawn, dropped ones among
    them where they were kept. scored: by checkpoint, in the order of training. filtered: whether rollouts may have been
    left out before they were written, None if it is not known. notes: what the reader left out or assumed.
    whole: whether the rows of a step are all that it trained on, None if it is not known. arrived: the sampler's
    weights against the trainer's, by kind of module, where both were given. optimizer: its states, in the order of
    their steps. gradients: taken again at checkpoints. earlier: prompts of batches, by step, of which no rows are here.
    differences: settings that the caller states otherwise than the run, a clause each. live: what became of the claims
    while the run trained, by batch, as `row_file.read_claims` has it. used: what all this was read from, a clause each.
    named: whether the caller named the checkpoints as those that drew the rollouts, or they only lie beside them.
    """

    source: str
    engine: str = ""
    rows: tuple[Rollout, ...] = ()
    stated: Stated = field(default_factory=Stated)
    run: Run | None = None
    scored: tuple[ScoredTokens, ...] = ()
    grader: Grader | None = None
    filtered: bool | None = None
    notes: tuple[str, ...] = ()
    whole: bool | None = None
    arrived: tuple[ModuleMatch, ...] = ()
    optimizer: tuple[OptimizerEvidence, ...] = ()
    gradients: tuple[GradientEvidence, ...] = ()
    earlier: Mapping[int, frozenset[str]] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    live: tuple[Mapping[str, Any], ...] = ()
    used: tuple[str, ...] = ()
    named: bool = True

    @cached_property
    def steps(self) -> Mapping[int, tuple[int, ...]]:
        """Step -> the places of its rows, in order."""
        return Rollouts(self.rows).steps

    @cached_property
    def groups(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """Step and group -> the places of its rows; rows whose group is not known are left out."""
        return Rollouts(self.rows).groups
