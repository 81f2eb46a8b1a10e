"""The probe: one backward pass over graded rollouts, and everything that can be read off it.

    found = probe(model, rollouts, recipes.GRPO)
    found.ranks("grpo")["model.layers.3.mlp.up_proj.weight"]["stable"]

The pass with unit weights gives every rollout's score, layer by layer (`factors`). From these follow the
Gram matrix of all rollouts, the gradient of every setting with one weight per rollout, its spectra, its
sparsity and the best baseline. A setting whose weights vary along rollouts takes a pass of its own.
Ctrl-C keeps the layers that are done: `complete` is then False.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.errors import UserError
from grposcope.geometry import background, baseline, class_means, memory, sparsity, spectrum, token_credit, weightings
from grposcope.geometry import backward as factors
from grposcope.geometry.backward import Factors, TokenView
from grposcope.geometry.layers import HELD, Layer, Passes, Tier
from grposcope.geometry.spectrum import Spectrum
from grposcope.geometry.weightings import Credit, Setting
from grposcope.objectives import Objective, advantages
from grposcope.records import Estimate, Rollouts


@dataclass(frozen=True)
class Probe:
    """What one probe found.

    recipe: the setting that sparsity, credit and the two-class structure are those of. gram (B, B): of the
    whole parameter vector. rollout_grams: Gram matrix of the rows u_i s_i of each setting. token_spectra:
    of the rows w_{i,t} (e_y − π) at the logits. parameters: sparsity measures of the recipe's gradient,
    each with its standard error over parts of the sample. error: relative error of the self-check.
    left_out: trainable parameters that were not measured, and their share. skipped: settings without any
    weight, and why. complete: False where Ctrl-C ended the pass early.
    """

    recipe: str
    tier: Tier
    rewards: NDArray[np.float64]
    truncated: NDArray[np.bool_]
    layers: tuple[Layer, ...]
    settings: dict[str, Setting]
    rollout_grams: dict[str, NDArray[np.float64]]
    token_spectra: dict[str, Spectrum]
    mask: Tensor
    view: TokenView
    credit: token_credit.Credit
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

    def ranks(self, setting: str) -> dict[str, dict[str, float]]:
        """Every rank of every layer's gradient in this setting."""
        return {layer.name: layer.spectra[setting].ranks() for layer in self.layers if setting in layer.spectra}

    def mean_ranks(self, setting: str) -> dict[str, Estimate]:
        """Each rank averaged over layers; the standard error is the spread over layers, not over batches."""
        found = list(self.ranks(setting).values())
        return {name: Estimate.mean([one[name] for one in found]) for name in spectrum.NAMES}

    def rollout_spectrum(self, setting: str) -> Spectrum:
        """Singular values of the matrix with rows u_i s_i, all rollouts."""
        return spectrum.from_gram(torch.from_numpy(self.rollout_grams[setting]))

    def baseline(self) -> tuple[baseline.Baseline, tuple[baseline.Baseline, ...]]:
        """The best baseline pooled over prompts, and that of each prompt."""
        return baseline.pooled(self.rewards, self.gram)

    def two_classes(self) -> dict[str, Estimate]:
        """How much of each live group's gradient its class means hold, for plain and reduced scores, over groups.

        `plain`: s̄ are means of s_i; `reduced`: of c_i s_i, the scores as the recipe's reduction weighs them;
        `distinct`: plain, with a class per distinct reward.
        """
        rows = self.settings[self.recipe].rows
        if rows is None:
            nothing = Estimate(math.nan, math.nan, 0, "weights vary along the rollouts")
            return dict.fromkeys(("plain", "reduced", "distinct"), nothing)
        found: dict[str, list[float]] = {"plain": [], "reduced": [], "distinct": []}
        group, whole = self.rewards.shape[1], self.gram
        coefficients = rows.cpu().numpy().reshape(self.rewards.shape)
        for p, (r, u) in enumerate(zip(self.rewards, coefficients, strict=True)):
            if np.ptp(r) == 0 or not u.any():
                continue
            inner = whole[p * group : (p + 1) * group, p * group : (p + 1) * group]
            found["plain"].append(class_means.share_in_span(u, class_means.sides(r), inner))
            found["distinct"].append(class_means.share_in_span(u, class_means.means(r), inner))
            scale = _reduction_of(u, r)
            found["reduced"].append(class_means.share_in_span(u, class_means.sides(r) * scale, inner))
        return {name: Estimate.mean(values) for name, values in found.items()}

    def token_sparsity(self) -> dict[str, float]:
        """How unevenly ‖e_y − π‖ is spread over the tokens, before weighting."""
        return sparsity.measures(self.view.norms[self.mask])


def _reduction_of(coefficients: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """c_i up to a factor, from u_i = −c_i A_i and A_i ∝ r_i − r̄; where A_i is 0 it does not matter."""
    centred = rewards - rewards.mean()
    return np.where(centred != 0, coefficients / np.where(centred != 0, centred, 1.0), 0.0)


def probe(
    model: Any,
    rollouts: Rollouts,
    recipe: Objective,
    *,
    credit: Credit = "outcome",
    temperature: float = 1.0,
    tier: Tier = "fast",
    sweep: Sequence[int] = (),
    also: Sequence[Objective] = (),
    controls: bool = False,
    extra: Sequence[Setting] = (),
    leading: int = 16,
    learning_rate: float | None = None,
    seed: int = 0,
    check: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Probe:
    """Measure the gradients that these rollouts give.

    recipe, credit: the gradient of most interest. sweep: group sizes, each the first rollouts of every
    group; also: further recipes, at every group size of the sweep; controls, extra: further settings.
    temperature: the one the rollouts were drawn at. tier "fast" takes the `leading` singular values and
    bounds the rest, "exact" takes all. learning_rate: for the share of weights a step would change.
    check: compare with autograd on a few tokens first, which also foretells the memory needed.

    UserError: G < 2 with a recipe that needs a group, no group with unequal rewards, a layer that is not
    finite, no layer that can be measured, not enough memory.
    """
    wanted, skipped = _settings(rollouts, recipe, credit, sweep, also, controls, extra, seed)
    main = next(iter(wanted))
    attached = factors.attach(model, rollouts if check else None, temperature)
    _check_memory(attached, rollouts)
    work = Passes(rollouts, wanted, main, attached, tier, leading, learning_rate, seed, progress)
    complete = True
    try:
        attached.stream(rollouts, work.of_scores, between=work.between, keep=work.keep_scores)
        for name, one in wanted.items():
            if one.rows is None:
                progress(f"backward pass of {name}")
                look, keep = partial(work.of_weighted, name=name), partial(work.keep_weighted, name=name)
                attached.stream(rollouts, look, one.weights, keep=keep)
    except KeyboardInterrupt:
        complete = False
        if not work.layers:
            raise
    view = work.view
    assert view is not None
    return Probe(
        recipe=main,
        tier=tier,
        rewards=rollouts.rewards.double().cpu().numpy(),
        truncated=rollouts.truncated.cpu().numpy().reshape(rollouts.rewards.shape),
        layers=tuple(work.layers.values()),
        settings=wanted,
        rollout_grams=work.rollout_grams(),
        token_spectra=work.token_spectra,
        mask=rollouts.mask,
        view=view,
        credit=token_credit.credit(
            rollouts.tokens, rollouts.mask, wanted[main].weights, view.norms, rollouts.groups[1]
        ),
        parameters=work.sample.measures(),
        error=attached.error,
        left_out=attached.left_out,
        share_left_out=attached.share_left_out,
        skipped=skipped,
        complete=complete,
    )


def _settings(
    rollouts: Rollouts,
    recipe: Objective,
    credit: Credit,
    sweep: Sequence[int],
    also: Sequence[Objective],
    controls: bool,
    extra: Sequence[Setting],
    seed: int,
) -> tuple[dict[str, Setting], dict[str, str]]:
    """All settings with some weight, the recipe's own first, and why others were skipped."""
    asked = [weightings.of_recipe(recipe, rollouts, credit)]
    asked += [weightings.of_recipe(other, rollouts, credit) for other in also]
    asked += [weightings.smaller_group(one, rollouts, size) for one in (recipe, *also) for size in sweep]
    asked += weightings.controls(recipe, rollouts, seed) if controls else []
    asked += extra
    skipped = {one.name: "no weight: rewards are equal within every group" for one in asked if one.empty}
    found = {one.name: one for one in asked if not one.empty}
    if asked[0].empty:
        prompts, group = rollouts.groups
        equal, value = int(advantages.dead(rollouts.rewards).sum()), float(rollouts.rewards.flatten()[0])
        raise UserError(
            f"cannot tell: {prompts} groups of {group} rollouts were drawn, and {equal} of them have equal rewards "
            f"(the first is {value:g}), so recipe {recipe.name} has no gradient; use more "
            "--prompts or a larger --group, an easier or harder --task, or a model that solves some of it"
        )
    return found, skipped


def _check_memory(attached: Factors, rollouts: Rollouts) -> None:
    """Estimate the peak before the pass: what is kept for the backward pass, logits, factors and layer gradients."""
    rows, width = rollouts.tokens.shape
    vocabulary = getattr(attached.model.config, "vocab_size", 0)
    long = rollouts.prompt_mask.sum(-1).max().item() + width
    device = rollouts.mask.device
    sides = max((sum(p.shape) for p in attached.measured.values() if p.numel() < background.LARGE), default=0)
    factor = 4 * rows * long * sides * background.held(device)
    needed = attached.bytes_per_token * rows * long + 4 * (rows + 3) * width * vocabulary + factor + 2 * HELD
    memory.check(float(needed), device)
