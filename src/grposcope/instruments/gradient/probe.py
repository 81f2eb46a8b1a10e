"""The probe: one backward pass over graded rollouts, and everything that can be derived from it.

    measured = probe(model, rollouts, recipes.GRPO)
    measured.ranks("grpo")["model.layers.3.mlp.up_proj.weight"]["stable"]

The pass with unit weights gives every rollout's score, layer by layer (`backward`). From these follow the
Gram matrix of all rollouts, the gradient of every weighting with one weight per rollout, its spectra, its
sparsity and the best baseline. A weighting that varies along rollouts takes a backward pass of its own.
Ctrl-C keeps the layers that are done: `complete` is then False.
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
    baseline,
    class_means,
    group_rank,
    memory,
    sparsity,
    spectrum,
    token_credit,
    weightings,
)
from grposcope.instruments.gradient.backward import AttachedModel
from grposcope.instruments.gradient.baseline import BestBaseline
from grposcope.instruments.gradient.class_means import ClassMeanShares
from grposcope.instruments.gradient.group_rank import LayerRanks
from grposcope.instruments.gradient.layers import Layer, LayerMeasurements
from grposcope.instruments.gradient.logits import TokenScores
from grposcope.instruments.gradient.probe_settings import ProbeSettings, Tier
from grposcope.instruments.gradient.spectrum import Spectrum
from grposcope.instruments.gradient.weightings import Weighting
from grposcope.lab import batch_memory, policies
from grposcope.lab.objectives import Objective, advantages
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.workers import ALONE, Workers


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
    credit: token_credit.TokenCredit
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
        return baseline.pooled(self.rewards, self.gram)

    def class_means(self) -> ClassMeanShares:
        """Share of each live group's gradient that its class means hold; see `class_means.shares`."""
        coefficients = self.weightings[self.recipe].per_rollout
        if coefficients is None:
            unknown = Estimate(math.nan, math.nan, 0, "weights vary within rollouts")
            return ClassMeanShares(unknown, unknown, unknown)
        return class_means.shares(coefficients.cpu().numpy().reshape(self.rewards.shape), self.rewards, self.gram)

    @property
    def matrices(self) -> list[Layer]:
        """The layers with a gradient matrix: no vectors and no stacks of experts."""
        return [layer for layer in self.layers if layer.spectra]

    def group_ranks(self) -> LayerRanks:
        """Rank of the rows A_i ψ_i of every live group in each of `matrices`; see `group_rank`."""
        return group_rank.measure(self.rewards, [layer.gram for layer in self.matrices])

    def token_sparsity(self) -> dict[str, float]:
        """Sparsity measures of ‖e_y − π‖ over the tokens, before weighting."""
        return sparsity.measures(self.token_scores.norms[self.mask])


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
        credit=token_credit.measure(
            rollouts.tokens, rollouts.mask, wanted[main].weights, scores.norms, rollouts.groups[1]
        ),
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
