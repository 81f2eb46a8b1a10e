"""Several rewards in one advantage: what each way of combining them multiplies a component's reward by.

With component rewards r_ij of rollout i, weights λ_j, and mean r̄_gj and deviation σ_gj (ddof 1) within group g:

    sum_then_normalize      S = Σ_j λ_j r_j          A = (S − S̄_g) / (σ_g(S) + ε), or / (σ_batch(S) + ε), or undivided
    normalize_then_sum      T = Σ_j λ_j Z_j          A = (T − T̄) / (σ_batch(T) + ε)
    gdpo_tokens             the same with mean and deviation of T over the tokens of the batch
    standardized_components A = Σ_j λ_j Z_j          with Z_ij = (r_ij − r̄_gj) / (σ_gj + ε)

Each is A_i = Σ_j c_gj (r_ij − r̄_gj) − shift, with coefficients c_gj that all rollouts of a group share. The first is
GRPO of a weighted sum, where c_gj σ_gj = λ_j σ_gj/σ_g(S): the weight that a standardized component has in truth.
The second is GDPO (arXiv:2601.05242) as TRL has it, where `scale_rewards` then has no say; the third GDPO as verl
has it. Both divide all λ_j by the batch's deviation. Over completions the groups still sum to 0; over tokens they do
not, since long completions count more often. The fourth is the form of arXiv:2602.05863.

A reward of NaN is that of a function that did not judge this rollout. As in TRL, it is in no mean or deviation of its
component and adds 0, in sum_then_normalize to the sum, so that there it counts as a reward of 0. A rollout
without any reward has the advantage 0. A component that is constant within a group adds 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Method = Literal["sum_then_normalize", "normalize_then_sum", "gdpo_tokens", "standardized_components"]
Scale = Literal["group", "batch", "none"]

EPS_TOKENS = 1e-8
"""What verl adds to the variance over tokens before it takes the root; its ε within groups is 1e-6."""

METHODS: tuple[Method, ...] = get_args(Method)
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Aggregation:
    """A way of combining rewards. scale: what sum_then_normalize divides by; eps: ε; ddof: of every deviation.

    weights: of the rewards, where it stands for itself, as in an objective.
    """

    method: Method = "sum_then_normalize"
    scale: Scale = "group"
    eps: float = 1e-4
    ddof: int = 1
    weights: tuple[float, ...] = ()

    @property
    def over_batch(self) -> bool:
        """Whether all weights are divided by a deviation of the whole batch."""
        summed = self.method == "sum_then_normalize"
        return self.scale == "batch" if summed else self.method != "standardized_components"


@dataclass(frozen=True)
class Components:
    """Rewards of N rollouts by K functions, in M groups.

    names (K,); rewards (N, K), NaN where a function did not judge; group (N,): indices of groups, 0 … M − 1; batch
    (M,): the batch, or step, of each group, 0 … S − 1; lengths (N,): tokens of the completions, None where not known.
    """

    names: tuple[str, ...]
    rewards: Floats
    group: Ints
    batch: Ints
    lengths: Floats | None = None

    @staticmethod
    def of_groups(names: Sequence[str], rewards: Floats, lengths: Floats | None = None) -> Components:
        """One batch of groups of one size: rewards (P, G, K)."""
        prompts, group, _ = rewards.shape
        flat = rewards.reshape(prompts * group, -1)
        return Components(tuple(names), flat, np.arange(prompts).repeat(group), np.zeros(prompts, np.int64), lengths)


@dataclass(frozen=True)
class Combined:
    """What the rewards became.

    advantages (N,); contributions (N, K): c_gj (r_ij − r̄_gj), whose sum over j less `shift` (N,) is the advantage;
    coefficients (M, K): c_gj; deviations (M, K): σ_gj; rescaling (S,): what all weights of a batch were multiplied by.
    """

    advantages: Floats
    contributions: Floats
    shift: Floats
    coefficients: Floats
    deviations: Floats
    rescaling: Floats

    @property
    def effective(self) -> Floats:
        """Weight c_gj σ_gj of each standardized component in each group, (M, K)."""
        return self.coefficients * self.deviations


def combine(components: Components, weights: Sequence[float] | Floats, how: Aggregation) -> Combined:
    """The advantages and what they are made of; UserError for weights that do not fit, or lengths that are lacking."""
    scale = checked_weights(weights, components.names)
    batches = int(components.batch.max(initial=-1)) + 1
    absent = np.isnan(components.rewards)
    out: NDArray[np.bool_] = np.asarray(absent.all(1))
    summed = how.method == "sum_then_normalize"
    logged = np.broadcast_to(~out[:, None], absent.shape) if summed else ~absent
    filled = np.where(absent, 0.0, components.rewards)
    centred, deviations = _centred(filled, logged, components, how.ddof)
    shift, rescaling = np.zeros(len(filled)), np.ones(batches)
    if not summed:
        coefficients = np.divide(scale, deviations + how.eps, out=np.zeros_like(deviations), where=deviations > 0)
    elif how.scale == "group":
        whole = _centred((filled * scale).sum(1, keepdims=True), ~out[:, None], components, how.ddof)[1]
        coefficients = scale / np.where(whole > 0, whole + how.eps, 1.0)
    else:
        coefficients = np.broadcast_to(scale, deviations.shape)
    if how.over_batch:
        total = (filled * scale).sum(1) if summed else (centred * coefficients[components.group]).sum(1)
        means, spreads = _over_batches(total, out, components, how, batches)
        rescaling = 1 / (spreads + how.eps) if how.method != "gdpo_tokens" else 1 / np.sqrt(spreads**2 + EPS_TOKENS)
        coefficients = coefficients * rescaling[components.batch][:, None]
        if not summed:
            shift = np.where(out, 0.0, (means * rescaling)[components.batch[components.group]])
    contributions = centred * coefficients[components.group]
    return Combined(contributions.sum(1) - shift, contributions, shift, coefficients, deviations, rescaling)


def checked_weights(weights: Sequence[float] | Floats, names: Sequence[str]) -> Floats:
    """The weights (K,) of the components; UserError where they do not fit, are not finite, or are all 0."""
    scale = np.asarray(weights, np.float64)
    if scale.shape != (len(names),):
        raise UserError(f"{scale.size} weights for {len(names)} rewards ({', '.join(names)}); give one for each")
    if not np.isfinite(scale).all():
        raise UserError(f"the weights of the rewards ({', '.join(f'{w:g}' for w in scale)}) must be finite numbers")
    if not scale.any():
        raise UserError("all weights of the rewards are 0, so that nothing is trained on; give one that is not")
    return scale


def sums(values: Floats, where: Ints, count: int) -> Floats:
    """Sums (count, …) of values (N, …) by their places (N,)."""
    out = np.zeros((count, *values.shape[1:]))
    np.add.at(out, where, values)
    return out


def _centred(rewards: Floats, logged: NDArray[np.bool_], components: Components, ddof: int) -> tuple[Floats, Floats]:
    """r − r̄ within groups (N, K), exactly 0 where all are equal, and σ (M, K), 0 where there are too few."""
    group, groups = components.group, len(components.batch)
    count = sums(logged.astype(np.float64), group, groups)
    mean = sums(np.where(logged, rewards, 0.0), group, groups) / np.maximum(count, 1)
    high, low = np.full((groups, rewards.shape[1]), -np.inf), np.full((groups, rewards.shape[1]), np.inf)
    np.maximum.at(high, group, np.where(logged, rewards, -np.inf))
    np.minimum.at(low, group, np.where(logged, rewards, np.inf))
    live = (high > low)[group] & logged
    centred = np.where(live, rewards - mean[group], 0.0)
    return centred, np.sqrt(sums(centred**2, group, groups) / np.maximum(count - ddof, 1))


def _over_batches(
    total: Floats, out: NDArray[np.bool_], components: Components, how: Aggregation, batches: int
) -> tuple[Floats, Floats]:
    """Mean and deviation (S,) of the total (N,) over completions, or over tokens, of each batch."""
    times = (~out).astype(np.float64)
    if how.method == "gdpo_tokens":
        if components.lengths is None:
            raise UserError("GDPO over tokens needs the lengths of the completions, which the rollouts do not have")
        times = times * components.lengths
    batch = components.batch[components.group]
    count = sums(times, batch, batches)
    means = sums(times * total, batch, batches) / np.maximum(count, 1)
    squares = sums(times * (total - means[batch]) ** 2, batch, batches)
    return means, np.sqrt(squares / np.maximum(count - how.ddof, 1))
