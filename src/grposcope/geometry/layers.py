"""What is kept of each layer while layers stream by: Gram matrix, spectra, a sample of the gradient's entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.errors import UserError
from grposcope.geometry import background, gram, spectrum, weightings
from grposcope.geometry.backward import Factors, TokenView
from grposcope.geometry.score import Score
from grposcope.geometry.sparsity import Part, Sample, Sizes
from grposcope.geometry.spectrum import Spectrum
from grposcope.geometry.weightings import Setting
from grposcope.records import Rollouts

Tier = Literal["fast", "exact"]

HELD = 128 * 2**20
"""Bytes of layer gradients, over the settings, built at a time."""

TOKENS_EXACT = 4096
"""Largest side of the token matrix whose spectrum the exact tier takes in full."""


@dataclass(frozen=True)
class Layer:
    """One parameter.

    depth: the number of its block, None outside of blocks. gram: inner products of the rollouts' scores
    (B, B). spectra: of its gradient matrix, by setting; none for vectors.
    """

    name: str
    kind: str
    shape: tuple[int, int]
    depth: int | None
    gram: NDArray[np.float64]
    spectra: dict[str, Spectrum] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """The layer's name within its block, such as q_proj."""
        return self.name.removesuffix(".weight").split(".")[-1]


@dataclass(frozen=True)
class Found:
    """What one pass says of one parameter; part: of the main setting's gradient, for its sparsity."""

    name: str
    kind: str
    shape: tuple[int, int]
    gram: Tensor
    spectra: dict[str, Spectrum]
    part: Part | None


class Passes:
    """What one probe looks at, and in `layers`, `token_spectra`, `sample` and `rollout_grams` what it found.

    `of_…` look at one parameter and change nothing, so that threads may look at several; `keep_…` take the results.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        wanted: dict[str, Setting],
        main: str,
        attached: Factors,
        tier: Tier,
        leading: int,
        learning_rate: float | None,
        seed: int,
        progress: Callable[[str], None],
    ):
        self.rollouts, self.wanted, self.main = rollouts, wanted, main
        self.tier, self.leading, self.seed, self.progress = tier, leading, seed, progress
        self.sample = Sample(sum(p.numel() for p in attached.measured.values()), learning_rate)
        sizes = [p.numel() for p in attached.measured.values()]
        self.before = dict(zip(attached.measured, accumulate([0, *sizes]), strict=False))
        self.alike = weightings.proportional(wanted)
        self.rows = {n: one.rows for n, one in wanted.items() if one.rows is not None and self.alike[n][0] == n}
        self.layers: dict[str, Layer] = {}
        self.weighted_grams: dict[str, Tensor] = {}
        self.token_spectra: dict[str, Spectrum] = {}
        self.view: TokenView | None = None

    def of_scores(self, score: Score) -> Found:
        """A parameter's per-rollout scores, from the pass with unit weights."""
        found = self._contract(score, self.rows)
        spectra = found.spectra
        return replace(found, spectra={n: spectra[first].times(c) for n, (first, c) in self.alike.items() if spectra})

    def of_weighted(self, score: Score, name: str) -> Found:
        """The same from the pass with the weights of setting `name`, whose scores are summed as they are."""
        return self._contract(score, {name: torch.ones(score.rollouts, dtype=torch.float64)})

    def keep_scores(self, found: Found) -> None:
        """Take what `of_scores` found."""
        number = re.search(r"\.(\d+)\.", found.name)
        depth = int(number[1]) if number else None
        gram = found.gram.cpu().numpy()
        self.layers[found.name] = Layer(found.name, found.kind, found.shape, depth, gram, found.spectra)
        if found.part is not None:
            self.sample.add(found.part)
        self.progress(f"layer {len(self.layers)}/{len(self.before)}: {found.name}")

    def keep_weighted(self, found: Found, name: str) -> None:
        """Take what `of_weighted` found of setting `name`."""
        total = self.weighted_grams.get(name)
        self.weighted_grams[name] = found.gram if total is None else total + found.gram
        self.layers[found.name].spectra.update(found.spectra)
        if found.part is not None:
            self.sample.add(found.part)

    def between(self, scores: Tensor, view: TokenView) -> None:
        """Token matrices, rows w (e_y − π), of the main setting and the controls, from e_y − π (B, K, V)."""
        self.view = view
        flat, missing = scores.flatten(0, 1), scores.shape[1] - self.rollouts.mask.shape[1] - 1
        for name, one in self.wanted.items():
            if name == self.main or name in weightings.CONTROLS:
                scale = torch.nn.functional.pad(one.weights.where(self.rollouts.mask, 0.0), (missing, 1)).flatten()
                norm = float(torch.linalg.vector_norm(one.weights.where(self.rollouts.mask, 0.0) * view.norms))
                self.token_spectra[name] = self._spectrum(flat, scale, norm)

    def rollout_grams(self) -> dict[str, NDArray[np.float64]]:
        """Inner products of the rows u_i s_i of every setting, over all parameters."""
        total = np.sum([layer.gram for layer in self.layers.values()], axis=0)
        found = {name: inner.cpu().numpy() for name, inner in self.weighted_grams.items()}
        for name, one in self.wanted.items():
            if one.rows is not None:
                u = one.rows.cpu().numpy()
                found[name] = u[:, None] * total * u
        return found

    def _contract(self, score: Score, rows: dict[str, Tensor]) -> Found:
        """Gram matrix of a parameter's scores, and the spectra of the gradients Σ u_i S_i."""
        if not rows:
            inner = gram.gram(score)
            _check_finite(inner, score)
            return Found(score.name, score.kind, score.shape, inner, {}, None)
        names, spectra = list(rows), {}
        part: Part | None = None
        step = max(1, HELD // (4 * score.shape[0] * score.shape[1]))
        for start in range(0, len(names), step):  # all at once, unless they would take too much memory
            few = names[start : start + step]
            weights = torch.stack([rows[name] for name in few])
            gradients, products, sizes = self._gradients(score, weights, few, with_gram=start == 0)
            if products is not None:
                inner = products
                _check_finite(inner, score)
            for name, gradient in zip(few, gradients, strict=True):
                norm = None
                if name == self.main:
                    assert sizes is not None
                    part, norm = self.sample.part(gradient, score.parameter, self.before[score.name], sizes), sizes.norm
                if score.kind != "vector":
                    spectra[name] = self._spectrum(gradient, frobenius=norm)
        return Found(score.name, score.kind, score.shape, inner, spectra, part)

    def _gradients(
        self, score: Score, weights: Tensor, names: list[str], *, with_gram: bool
    ) -> tuple[Tensor, Tensor | None, Sizes | None]:
        """Σ u_i S_i for each row u of weights, (k, R, C), products of the S_i if asked for, sizes of the main one.

        Of each piece of the S_i everything is taken while it is in the cache.
        """
        main = names.index(self.main) if self.main in names else None
        gradients = torch.empty(len(names), *score.shape, dtype=score.dtype, device=score.parameter.device)
        weights = weights.to(gradients)

        def look(piece: slice) -> tuple[Tensor | None, Sizes | None]:
            block, place = score.piece(piece), gradients[:, piece]
            torch.mm(weights, block.flatten(1), out=place.flatten(1))
            return gram.of_block(block) if with_gram else None, None if main is None else Sizes.of(place[main])

        products, sizes = zip(*background.spread(look, score.pieces(), gradients.device), strict=True)
        inner = torch.stack(products).sum(0) if with_gram else None
        return gradients, inner, None if main is None else Sizes.together(sizes)

    def _spectrum(self, matrix: Tensor, scale: Tensor | None = None, frobenius: float | None = None) -> Spectrum:
        """Of a layer's gradient, or of scaled rows of scores at the logits."""
        if self.tier == "fast" or (scale is not None and min(int((scale != 0).sum()), matrix.shape[1]) > TOKENS_EXACT):
            return spectrum.leading(matrix, self.leading, seed=self.seed, scale=scale, frobenius=frobenius)
        return spectrum.exact(matrix if scale is None else spectrum.scaled(matrix, scale))


def _check_finite(products: Tensor, score: Score) -> None:
    """UserError that names the layer, where inner products of its scores are not finite."""
    if not bool(torch.isfinite(products).all()):
        score.check_finite()
        raise UserError(f"layer {score.name}: inner products of its gradients overflow; scale the loss down")
