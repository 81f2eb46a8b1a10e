"""The probe: one backward pass over graded rollouts, and everything that can be derived from it.

    measured = probe(model, rollouts, recipes.GRPO)
    measured.ranks("grpo")["model.layers.3.mlp.up_proj.weight"]["stable"]

The pass with unit weights gives every rollout's score, layer by layer (`backward`). From these follow the
Gram matrix of all rollouts, the gradient of every weighting with one weight per rollout, its spectra, its
sparsity and the best baseline. A weighting that varies along rollouts takes a backward pass of its own.
Ctrl-C keeps the layers that are done: `complete` is then False.

Which tokens carry the gradient: weights, scores at the logits, and what cancels on shared prefixes.

The score of token t at the logits is e_y − π(·|x, y_<t), of norm ‖e_y − π‖. Two rollouts of a group that
have written the same text so far have the same context, and if they then write the same token, the
same score: their gradients add up as the sum of their weights, exactly. So over the nodes v of the
group's prefix tree (a context with the token written in it)

    gross = Σ_v Σ_{i through v} |w_{i,t}| n_v,     net = Σ_v |Σ_{i through v} w_{i,t}| n_v,     n_v = ‖e_y − π‖

and 1 − net/gross is the share that successes and failures undo in each other. With advantages that sum
to zero, tokens on which the whole group agrees cancel completely. Method of this project; no publication.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import (
    backward,
    group_rank,
    memory,
    spectrum,
    weightings,
)
from grposcope.instruments.gradient.backward import AttachedModel
from grposcope.instruments.gradient.baseline import BestBaseline
from grposcope.instruments.gradient.class_means import Array, ClassMeanShares
from grposcope.instruments.gradient.group_rank import LayerRanks
from grposcope.instruments.gradient.layers import Layer, LayerMeasurements, measures
from grposcope.instruments.gradient.logits import TokenScores
from grposcope.instruments.gradient.probe_settings import ProbeSettings, Tier
from grposcope.instruments.gradient.spectrum import Spectrum
from grposcope.instruments.gradient.weightings import Weighting
from grposcope.lab import batch_memory, policies
from grposcope.lab.credit import prefix
from grposcope.lab.objectives import Objective, advantages
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.workers import ALONE, Workers
from grposcope.maths import resampling


@dataclass(frozen=True)
class Probe:
    """Results of one probe.

    recipe: the weighting that sparsity, credit and class means are those of. comparison: its objective's.
    rewards, truncated: (P, G).
    rollout_grams: Gram matrix (B, B) of the rows u_i s_i, by weighting. token_spectra: of the rows
    w_{i,t} (e_y − π) at the logits, by weighting. mask (B, T): the tokens of `token_scores` and `credit`.
    parameters: sparsity measures of the recipe's gradient, each with its sampling error. error: relative error of
    the self-check. left_out: trainable parameters that were not measured, and their share. skipped: weightings that
    are zero everywhere, and why. complete: False where Ctrl-C ended the pass early.
    """

    recipe: str
    comparison: str
    tier: Tier
    rewards: NDArray[np.float64]
    truncated: NDArray[np.bool_]
    layers: tuple[Layer, ...]
    weightings: dict[str, Weighting]
    rollout_grams: dict[str, NDArray[np.float64]]
    token_spectra: dict[str, Spectrum]
    mask: Tensor
    token_scores: TokenScores
    credit: _TokenCredit
    parameters: dict[str, Estimate]
    error: float
    left_out: tuple[str, ...]
    share_left_out: float
    skipped: dict[str, str]
    complete: bool

    @property
    def gram(self) -> NDArray[np.float64]:
        """Inner products of the scores over all parameters, (B, B)."""
        return np.sum([layer.gram for layer in self.layers], axis=0)

    def ranks(self, weighting: str) -> dict[str, dict[str, float]]:
        """Layer name -> every rank of its gradient under this weighting."""
        return {layer.name: layer.spectra[weighting].ranks() for layer in self.layers if weighting in layer.spectra}

    def mean_ranks(self, weighting: str) -> dict[str, Estimate]:
        """Each rank averaged over layers; the standard error is the spread over layers, not over batches."""
        ranks = list(self.ranks(weighting).values())
        return {name: Estimate.mean([of_layer[name] for of_layer in ranks]) for name in spectrum.NAMES}

    def rollout_spectrum(self, weighting: str) -> Spectrum:
        """Singular values of the matrix with a row u_i s_i per rollout."""
        return spectrum.from_gram(torch.from_numpy(self.rollout_grams[weighting]))

    def baseline(self) -> tuple[BestBaseline, tuple[BestBaseline, ...]]:
        """The best baseline pooled over prompts, and the best baseline of each prompt."""
        return _pooled_baseline(self.rewards, self.gram)

    def class_means(self) -> ClassMeanShares:
        """Share of each live group's gradient that its class means hold; see `_class_shares`."""
        coefficients = self.weightings[self.recipe].per_rollout
        if coefficients is None:
            unknown = Estimate(math.nan, math.nan, 0, "weights vary within rollouts")
            return ClassMeanShares(unknown, unknown, unknown)
        return _class_shares(coefficients.cpu().numpy().reshape(self.rewards.shape), self.rewards, self.gram)

    @property
    def matrices(self) -> list[Layer]:
        """The layers with a gradient matrix: no vectors and no stacks of experts."""
        return [layer for layer in self.layers if layer.spectra]

    def group_ranks(self) -> LayerRanks:
        """Rank of the rows A_i ψ_i of every live group in each of `matrices`; see `group_rank`."""
        return group_rank.measure(self.rewards, [layer.gram for layer in self.matrices])

    def token_sparsity(self) -> dict[str, float]:
        """Sparsity measures of ‖e_y − π‖ over the tokens, before weighting."""
        return measures(self.token_scores.norms[self.mask])


def _verdict(gap: Estimate) -> str:
    """Whether b* − V, the estimate `gap`, differs from 0 at 1.96 standard errors, in words."""
    if not (math.isfinite(gap.value) and gap.se > 0):
        return f"cannot tell: {gap.flag or 'no standard error'}"
    if abs(gap.value) <= 1.96 * gap.se:
        return "the group mean does not differ measurably from the best constant baseline"
    side = "above" if gap.value > 0 else "below"
    return f"the best constant baseline lies {side} the group mean"


def _of_prompt(rewards: Array, gram: Array) -> BestBaseline:
    """The baseline of one prompt from its rewards (G,) and the inner products of its scores (G, G)."""
    size = len(rewards)
    if size < 4:
        return _unknown(size, f"{size} rollouts; at least 4 are needed")
    if np.ptp(rewards) == 0:
        return _unknown(size, "all rewards are equal")

    def jackknife(statistic: Callable[[Array, Array], float]) -> Estimate:
        norms = np.diag(gram)
        left_out = np.array([statistic(np.delete(rewards, i), np.delete(norms, i)) for i in range(size)])
        return Estimate(statistic(rewards, norms), resampling.standard_error(left_out), size)

    gap = jackknife(lambda r, k: _covariance(r, k) / float(k.mean()))
    optimal = jackknife(lambda r, k: float(r @ k) / float(k.sum()))
    rest = _variance_at_best(rewards, gram, gap)
    flag = "" if rest > 0 else "the estimated variance is not positive: too few rollouts"
    scale = float(np.diag(gram).mean()) / rest if rest > 0 else math.nan

    def excess(distance: Estimate) -> Estimate:
        """(b − b*)² E[k] over the variance left, from an estimate of b − b*."""
        error = 2 * abs(distance.value) * distance.se * scale
        return Estimate((distance.value**2 - distance.se**2) * scale, error, size, flag)

    mean = Estimate.mean(list(map(float, rewards)))
    wasted = excess(gap)
    saving = Estimate(wasted.value / (1 + wasted.value), wasted.se / (1 + wasted.value) ** 2, size, flag)
    return BestBaseline(mean, optimal, gap, wasted, excess(optimal), _verdict(gap), saving)


def _pooled_baseline(rewards: Array, gram: Array) -> tuple[BestBaseline, tuple[BestBaseline, ...]]:
    """The average over prompts, with standard errors over prompts, and the baseline of each prompt.

    rewards (P, G); gram (B, B) of all rollouts, prompt-major. Prompts weigh by E[k], as they do in the
    variance of a batch: the average is a ratio of sums, with jackknife errors over prompts. Give all prompts
    drawn, those with equal rewards too: an average over the others alone describes mixed groups only.
    """
    prompts, group = rewards.shape
    blocks = [gram[p * group : (p + 1) * group, p * group : (p + 1) * group] for p in range(prompts)]
    each = tuple(_of_prompt(r, k) for r, k in zip(rewards, blocks, strict=True))
    mixed = sum(math.isfinite(covariances.covariance.value) for covariances in each)
    if mixed < 2:
        reason = f"{mixed} of {prompts} groups have unequal rewards and at least 4 rollouts; 2 are needed"
        return _unknown(mixed, reason), each
    norms = np.array([np.diag(block).mean() for block in blocks])
    gaps = [_known_or(0.0, baseline.covariance) for baseline in each]
    bests = [_known_or(r[0], baseline.optimal) for r, baseline in zip(rewards, each, strict=True)]
    rest = np.array([_variance_at_best(r, k, gap) for r, k, gap in zip(rewards, blocks, gaps, strict=True)])
    # squares less their sampling variance, so that noise is not counted as excess
    square_gap, square_best = (np.array([e.value**2 - e.se**2 for e in kind]) for kind in (gaps, bests))
    gap = _ratio(np.array([e.value for e in gaps]) * norms, norms)
    return BestBaseline(
        mean=_ratio(rewards.mean(1) * norms, norms),
        optimal=_ratio(np.array([e.value for e in bests]) * norms, norms),
        covariance=gap,
        excess_mean=_ratio(square_gap * norms, rest),
        excess_none=_ratio(square_best * norms, rest),
        verdict=_verdict(gap),
        saving=_ratio(square_gap * norms, rest + square_gap * norms),
    ), each


def _variance_at_best(rewards: Array, gram: Array, gap: Estimate) -> float:
    """tr Var((r − b*) s) = E[(r − V)² k] − Cov²/E[k] − ‖g‖²; an estimate, which can fall below 0."""
    norms = np.diag(gram)
    excess = (gap.value**2 - gap.se**2) * float(norms.mean())
    return _centered_second_moment(rewards, norms) - excess - _squared_gradient(rewards, gram)


def _covariance(rewards: NDArray, norms: NDArray) -> float:
    """Unbiased sample covariance of rewards and squared score norms ‖s‖², (G,) each with G ≥ 2."""
    return float(((rewards - rewards.mean()) * (norms - norms.mean())).sum() / (len(rewards) - 1))


def _squared_gradient(rewards: NDArray, gram: NDArray) -> float:
    """Unbiased ‖g‖², g = E[r s], from rewards (G,) and gram (G, G) with G ≥ 3.

    It is the mean over pairs i ≠ j, each reward less the mean reward of all rollouts but these two.
    """
    size, total = len(rewards), rewards.sum()
    others = (total - rewards[:, None] - rewards[None]) / (size - 2)
    terms = (rewards[:, None] - others) * (rewards[None] - others) * gram
    return float((terms.sum() - np.diag(terms).sum()) / (size * (size - 1)))


def _centered_second_moment(rewards: NDArray, norms: NDArray) -> float:
    """Unbiased E[(r − V)² k] = E[r²k] − 2 V E[rk] + V² E[k] for k = ‖s‖², from rewards and norms (G,) with G ≥ 3.

    Each product of expectations is estimated from distinct rollouts.
    """
    n, r, k = len(rewards), rewards, norms
    pairs = r.sum() * (r * k).sum() - (r * r * k).sum()  # Σ_{i≠j} r_i r_j k_j
    # Σ over distinct i, j, l of r_i r_j k_l is the sum over all less the terms where two or three places agree
    triples = r.sum() ** 2 * k.sum() - 2 * pairs - (r * r).sum() * k.sum()
    return float((r * r * k).sum() / n - 2 * pairs / (n * (n - 1)) + triples / (n * (n - 1) * (n - 2)))


def _known_or(value: float, estimate: Estimate) -> Estimate:
    """The estimate, or the exact `value` that a prompt with equal rewards adds to an average."""
    return estimate if math.isfinite(estimate.value) else Estimate(float(value), 0.0, estimate.n)


def _ratio(over: Array, under: Array) -> Estimate:
    """Σ over / Σ under with its jackknife standard error over prompts."""
    n = len(over)
    left_out = (over.sum() - over) / (under.sum() - under)
    flag = "" if n >= 5 and under.sum() > 0 else f"only {n} prompts" if under.sum() > 0 else "variance not positive"
    return Estimate(float(over.sum() / under.sum()), resampling.standard_error(left_out), n, flag)


def _unknown(n: int, reason: str) -> BestBaseline:
    estimate = Estimate(math.nan, math.nan, n, reason)
    return BestBaseline(estimate, estimate, estimate, estimate, estimate, _verdict(estimate), estimate)


def _class_shares(coefficients: Array, rewards: Array, gram: Array) -> ClassMeanShares:
    """Share of each live group's squared gradient norm in the span of its class means, mean over groups.

    coefficients u and rewards (P, G); gram (B, B), prompt-major.
    """
    plain, reduced, distinct = [], [], []
    group = rewards.shape[1]
    for p, (r, u) in enumerate(zip(rewards, coefficients, strict=True)):
        if np.ptp(r) == 0 or not u.any():
            continue
        inner = gram[p * group : (p + 1) * group, p * group : (p + 1) * group]
        plain.append(_share_in_span(u, _two_means(r), inner))
        reduced.append(_share_in_span(u, _two_means(r) * _reduction(u, r), inner))
        distinct.append(_share_in_span(u, _means(r), inner))
    return ClassMeanShares(Estimate.mean(plain), Estimate.mean(reduced), Estimate.mean(distinct))


def _share_in_span(gradient: Array, basis: Array, gram: Array) -> float:
    """Share of ‖Σ u_i s_i‖² that lies in the span of the vectors Σ_i basis_{k,i} s_i; NaN for a zero gradient.

    gradient: u (G,). basis: (m, G). gram: (G, G).
    """
    total = float(gradient @ gram @ gradient)
    if not total > 0:
        return math.nan
    inner, along = basis @ gram @ basis.T, basis @ gram @ gradient
    projection = np.linalg.lstsq(inner, along, rcond=1e-12)[0]
    return min(float(along @ projection) / total, 1.0)


def _two_means(rewards: Array) -> Array:
    """Coefficients (2, G) of the mean scores of the rollouts above, and not above, the group's mean reward."""
    above = rewards > rewards.mean()
    return _means(above.astype(float))


def _means(labels: Array) -> Array:
    """Coefficients (m, G) of the class means, a class per distinct label, the largest label first."""
    rows = [(labels == value) / (labels == value).sum() for value in np.unique(labels)[::-1]]
    return np.array(rows)


def _reduction(coefficients: Array, rewards: Array) -> Array:
    """c_i up to a factor, from u_i = −c_i A_i and A_i ∝ r_i − r̄; 0 where A_i is 0, since there it does not matter."""
    centred = rewards - rewards.mean()
    return np.where(centred != 0, coefficients / np.where(centred != 0, centred, 1.0), 0.0)


def probe(
    model: Any,
    rollouts: RolloutBatch,
    recipe: Objective,
    *,
    progress: Callable[[str], None] = lambda _: None,
    foretold: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
    log_ratio: Tensor | None = None,
    **settings: Any,
) -> Probe:
    """Measure the gradients that these rollouts give.

    recipe: the gradient of most interest. progress: called with a line per layer. foretold: called before the pass with
    a line on the memory and the time that it will take, at the cost of a pass over one rollout. workers: processes that
    share the work, see `engines.distributed`; all call this with the same arguments, and get the same result.
    log_ratio (B, T): log π/π_old of each token, where the update of the recipe has a ratio; it enters the recipe's
    weights alone. settings: credit, temperature, tier, sweep, also, controls, extra, leading, learning_rate, seed and
    check, as `ProbeSettings` has them.

    UserError: G < 2 with a recipe that needs a group, no group with unequal rewards, a layer that is not
    finite, no layer that can be measured, not enough memory.
    """
    chosen = ProbeSettings(**settings)
    wanted, skipped = _weightings(rollouts, recipe, chosen, log_ratio)
    main = next(iter(wanted))
    attached = backward.attach(model, rollouts if chosen.check else None, chosen.temperature)
    here = policies.available_memory(rollouts.mask.device) / workers.neighbours
    everywhere = workers.gathered((memory_needed(attached, rollouts, workers, len(wanted)), here))
    needed, free = max(everywhere, key=lambda need: need[0] / need[1])  # all processes refuse, or none
    batch_memory.refuse_if_full("the probe", needed, free, REMEDY, backward.Refusal)
    if foretold is not None:
        seconds = seconds_needed(
            attached, rollouts, workers, sum(weighting.per_rollout is None for weighting in wanted.values())
        )
        foretold(batch_memory.foretold("the probe", needed, seconds))
    if attached.apart:
        progress(f"{len(attached.apart)} parameters, {attached.share_apart:.2%} of the weights, need separate passes")
    measurements = LayerMeasurements(rollouts, wanted, main, attached, chosen, progress, workers)
    complete = True
    try:
        attached.stream(
            rollouts,
            measurements.measure_scores,
            between=measurements.keep_tokens,
            keep=measurements.keep_scores,
            workers=workers,
        )
        for name, weighting in wanted.items():
            if weighting.per_rollout is None:
                progress(f"backward pass of {name}")
                measure = partial(measurements.measure_weighted, name=name)
                keep = partial(measurements.keep_weighted, name=name)
                attached.stream(rollouts, measure, weighting.weights, keep=keep, workers=workers)
    except KeyboardInterrupt:
        complete = False
        if not measurements.layers or workers.size > 1:
            raise
    measurements.finish()
    scores = measurements.token_scores
    assert scores is not None
    return Probe(
        recipe=main,
        comparison=recipe.comparison,
        tier=chosen.tier,
        rewards=rollouts.rewards.double().cpu().numpy(),
        truncated=rollouts.truncated.cpu().numpy().reshape(rollouts.rewards.shape),
        layers=tuple(measurements.layers.values()),
        weightings=wanted,
        rollout_grams=measurements.rollout_grams(),
        token_spectra=measurements.token_spectra,
        mask=rollouts.mask,
        token_scores=scores,
        credit=_token_credit(rollouts.tokens, rollouts.mask, wanted[main].weights, scores.norms, rollouts.groups[1]),
        parameters=measurements.sample.measures(),
        error=attached.error,
        left_out=attached.left_out,
        share_left_out=attached.share_left_out,
        skipped=skipped,
        complete=complete,
    )


def _weightings(
    rollouts: RolloutBatch,
    recipe: Objective,
    settings: ProbeSettings,
    log_ratio: Tensor | None,
) -> tuple[dict[str, Weighting], dict[str, str]]:
    """All weightings that are not zero everywhere, the recipe's first; and why others were skipped, by name."""
    credit, recipes = settings.credit, (recipe, *settings.also)
    asked = [weightings.of_recipe(recipe, rollouts, credit, log_ratio=log_ratio)]
    asked += [weightings.of_recipe(other, rollouts, credit) for other in settings.also]
    asked += [weightings.smaller_group(each, rollouts, size) for each in recipes for size in settings.sweep]
    asked += weightings.controls(recipe, rollouts, settings.seed) if settings.controls else []
    asked += settings.extra
    if asked[0].empty:
        prompts, group = rollouts.groups
        equal, value = int(advantages.dead(rollouts.rewards).sum()), float(rollouts.rewards.flatten()[0])
        raise UserError(
            f"cannot tell: {prompts} groups of {group} rollouts were drawn, and {equal} of them have equal rewards "
            f"(the first is {value:g}), so recipe {recipe.name} has no gradient; use more prompts, larger groups, an "
            "easier or harder task, or a model that solves some of it"
        )
    skipped = {
        weighting.name: "no weight: rewards are equal within every group" for weighting in asked if weighting.empty
    }
    return {weighting.name: weighting for weighting in asked if not weighting.empty}, skipped


def memory_needed(
    attached: AttachedModel, rollouts: RolloutBatch, workers: Workers = ALONE, weightings: int = 1
) -> float:
    """Bytes that a probe takes in each process above its loaded model, see `memory`."""
    return memory.needed(attached, rollouts, workers, weightings, check=not math.isnan(attached.error)).peak


REMEDY = "use fewer prompts, smaller groups or shorter completions, or recompute activations (checkpointing)"

MEASURED = 1.2
"""Time of a probe over that of the same passes over its rollouts one by one, of which nothing is measured.

`benchmarks/probe_memory.py` has what it was on other configurations than those it was found on.
"""


def seconds_needed(
    attached: AttachedModel, rollouts: RolloutBatch, workers: Workers = ALONE, further: int = 0
) -> float:
    """Seconds that a probe will take after its self-check, from a pass over the longest rollout, which this makes.

    further: weightings that take a pass of their own. Good to a factor of 1.5 or so: single rollouts are slower on a
    GPU and with several threads, and background threads help the pass.
    """
    longest = int(rollouts.lengths.argmax())
    began = time.perf_counter()
    scores = attached.stream(rollouts.rows(slice(longest, longest + 1)), lambda _: None)
    float(scores.logp.sum())  # waits for a GPU
    passed = time.perf_counter() - began
    return MEASURED * passed * len(rollouts.mask) / workers.size * (1 + further)


@dataclass(frozen=True)
class _TokenCredit:
    """The credit of each token, and shares over the batch.

    mass (B, T): |w| · ‖e_y − π‖. sharers (B, T): rollouts of the group, itself included, that wrote the
    same text up to and including this token. net (B, T): |Σ w over the sharers| · ‖e_y − π‖ / sharers.
    cancelled: 1 − Σ net / Σ mass. shared: share of the mass on tokens that at least two rollouts share;
    common: on tokens that the whole group shares, which is cancelled when advantages sum to zero.
    """

    mass: Tensor
    sharers: Tensor
    net: Tensor
    cancelled: float
    shared: float
    common: float


def _token_credit(tokens: Tensor, mask: Tensor, weights: Tensor, norms: Tensor, group: int) -> _TokenCredit:
    """Credit of the tokens of completions (B, T), prompt-major in groups of `group`.

    weights: w = ∂L/∂log π (B, T). norms: ‖e_y − π‖ (B, T).
    """
    weights, norms = weights.double().where(mask, 0.0), norms.double().where(mask, 0.0)
    node = prefix.nodes(tokens, group)
    count = torch.zeros(int(node.max()) + 1, dtype=torch.float64, device=tokens.device)
    total = torch.zeros_like(count)
    inside = node[mask]
    count.index_add_(0, inside, torch.ones_like(inside, dtype=torch.float64))
    total.index_add_(0, inside, weights[mask])
    sharers = torch.zeros_like(norms).masked_scatter(mask, count[inside])
    mass = weights.abs() * norms
    net = torch.zeros_like(norms).masked_scatter(mask, total[inside].abs() / count[inside]) * norms
    gross = float(mass.sum())

    def share(fraction: float) -> float:
        return fraction / gross if gross else math.nan

    return _TokenCredit(
        mass=mass,
        sharers=sharers.long(),
        net=net,
        cancelled=1 - share(float(net.sum())),
        shared=share(float(mass[sharers > 1].sum())),
        common=share(float(mass[sharers == group].sum())),
    )
