"""What is kept of each layer while layers stream by: Gram matrix, spectra, a sample of the gradient's entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.geometry import gram, settings, spectrum
from grposcope.geometry.factors import Factors, TokenView
from grposcope.geometry.scores import Score
from grposcope.geometry.settings import Setting
from grposcope.geometry.sparsity import Sample
from grposcope.geometry.spectrum import Spectrum
from grposcope.records import Rollouts

Tier = Literal["fast", "exact"]

HELD = 256 * 2**20
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


class Passes:
    """The visitor of one probe; `layers`, `token_spectra`, `sample` and `rollout_grams` hold what it found."""

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
        self.sample = Sample(sum(p.numel() for p in attached.measured.values()), learning_rate, seed)
        self.count = len(attached.measured)
        self.alike = settings.proportional(wanted)
        self.rows = {n: one.rows for n, one in wanted.items() if one.rows is not None and self.alike[n][0] == n}
        self.layers: dict[str, Layer] = {}
        self.weighted_grams: dict[str, Tensor] = {}
        self.token_spectra: dict[str, Spectrum] = {}
        self.view: TokenView | None = None

    def scores(self, score: Score) -> None:
        """A parameter's per-rollout scores, from the pass with unit weights."""
        inner, found = self._contract(score, self.rows)
        spectra = {name: found[first].times(factor) for name, (first, factor) in self.alike.items() if found}
        number = re.search(r"\.(\d+)\.", score.name)
        depth = int(number[1]) if number else None
        self.layers[score.name] = Layer(score.name, score.kind, score.shape, depth, inner.cpu().numpy(), spectra)
        self.progress(f"layer {len(self.layers)}/{self.count}: {score.name}")

    def weighted(self, score: Score, name: str) -> None:
        """The same from the pass with the weights of setting `name`, whose scores are summed as they are."""
        inner, spectra = self._contract(score, {name: torch.ones(score.rollouts, dtype=torch.float64)})
        before = self.weighted_grams.get(name)
        self.weighted_grams[name] = inner if before is None else before + inner
        self.layers[score.name].spectra.update(spectra)

    def between(self, scores: Tensor, view: TokenView) -> None:
        """Token matrices, rows w (e_y − π), of the main setting and the controls, from e_y − π (B, K, V)."""
        self.view = view
        flat, missing = scores.flatten(0, 1), scores.shape[1] - self.rollouts.mask.shape[1] - 1
        for name, one in self.wanted.items():
            if name == self.main or name in settings.CONTROLS:
                scale = torch.nn.functional.pad(one.weights.where(self.rollouts.mask, 0.0), (missing, 1)).flatten()
                self.token_spectra[name] = self._spectrum(flat, scale)

    def rollout_grams(self) -> dict[str, NDArray[np.float64]]:
        """Inner products of the rows u_i s_i of every setting, over all parameters."""
        total = np.sum([layer.gram for layer in self.layers.values()], axis=0)
        found = {name: inner.cpu().numpy() for name, inner in self.weighted_grams.items()}
        for name, one in self.wanted.items():
            if one.rows is not None:
                u = one.rows.cpu().numpy()
                found[name] = u[:, None] * total * u
        return found

    def _contract(self, score: Score, rows: dict[str, Tensor]) -> tuple[Tensor, dict[str, Spectrum]]:
        """Gram matrix of a parameter's scores, and the spectra of the gradients Σ u_i S_i."""
        if not rows:
            return gram.gram(score), {}
        names, spectra = list(rows), {}
        inner: Tensor | None = None
        step = max(1, HELD // (4 * score.shape[0] * score.shape[1]))
        for start in range(0, len(names), step):  # all at once, unless they would take too much memory
            few = names[start : start + step]
            weights = torch.stack([rows[name] for name in few])
            gradients: Tensor | None = None
            for piece, block in score.blocks():
                if start == 0:
                    part = gram.of_block(block)
                    inner = part if inner is None else inner + part
                if gradients is None:
                    gradients = block.new_empty(len(few), *score.shape)
                gradients[:, piece] = (weights.to(block) @ block.flatten(1)).reshape(len(few), *block.shape[1:])
            assert gradients is not None
            for name, gradient in zip(few, gradients, strict=True):
                if score.kind != "vector":
                    spectra[name] = self._spectrum(gradient)
                if name == self.main:
                    self.sample.add(gradient, score.parameter)
        assert inner is not None
        return inner, spectra

    def _spectrum(self, matrix: Tensor, scale: Tensor | None = None) -> Spectrum:
        """Of a layer's gradient, or of scaled rows of scores at the logits."""
        if self.tier == "fast" or (scale is not None and min(int((scale != 0).sum()), matrix.shape[1]) > TOKENS_EXACT):
            return spectrum.leading(matrix, self.leading, seed=self.seed, scale=scale)
        return spectrum.exact(matrix if scale is None else spectrum.scaled(matrix, scale))
