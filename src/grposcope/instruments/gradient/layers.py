"""Measurements of each parameter during the backward pass of a probe: Gram matrix, spectra, sampled entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import contraction, gram, spectrum, weightings
from grposcope.instruments.gradient.backward import AttachedModel
from grposcope.instruments.gradient.logits import TokenScores
from grposcope.instruments.gradient.probe_settings import ProbeSettings
from grposcope.instruments.gradient.score import Score
from grposcope.instruments.gradient.sparsity import EntrySample, LayerEntries
from grposcope.instruments.gradient.spectrum import Spectrum
from grposcope.instruments.gradient.weightings import Weighting
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.workers import ALONE, Rows, Workers

HELD = 128 * 2**20
"""Bytes of a layer's gradients, one per weighting, built at a time."""

TOKENS_EXACT = 4096
"""Largest side of the token matrix whose spectrum the exact tier takes in full."""


@dataclass(frozen=True)
class Layer:
    """One parameter.

    gram: inner products of the rollouts' scores (B, B). spectra: of its gradient matrix, by weighting; none for
    vectors and stacks of experts.
    """

    name: str
    kind: str
    shape: tuple[int, int]
    gram: NDArray[np.float64]
    spectra: dict[str, Spectrum]

    @property
    def depth(self) -> int | None:
        """Number of its block, None outside of blocks."""
        number = re.search(r"\.(\d+)\.", self.name)
        return int(number[1]) if number else None

    @property
    def role(self) -> str:
        """The layer's name within its block, such as q_proj."""
        return self.name.removesuffix(".weight").split(".")[-1]


Measurement = tuple[Layer, LayerEntries | None]
"""One parameter in one pass, with sampled entries of its gradient if the pass measured the main weighting."""


class LayerMeasurements:
    """Measures each parameter's scores and keeps the results in `layers`, `token_spectra`, `sample`, `rollout_grams`.

    `measure_…` change nothing, so that several threads may call them; `keep_…` take their results, in order.
    main: name of the weighting whose gradient's entries are sampled.
    """

    def __init__(
        self,
        rollouts: RolloutBatch,
        wanted: dict[str, Weighting],
        main: str,
        attached: AttachedModel,
        settings: ProbeSettings,
        progress: Callable[[str], None],
        workers: Workers = ALONE,
    ):
        self.workers = workers
        self.rollouts, self.wanted, self.main = rollouts, wanted, main
        self.settings, self.progress = settings, progress
        learning_rate = settings.learning_rate
        sizes = [p.numel() for p in attached.measured.values()]
        self.sample = EntrySample(sum(sizes), learning_rate)
        self.before = dict(zip(attached.measured, accumulate([0, *sizes]), strict=False))
        for name in attached.measured:  # of a large one, the rows that are measured here
            if rows := self._split(attached, name):
                self.before[name] += rows.mine.start * attached.shape(name)[1]
        self.weights = {} if learning_rate is None else self._sampled_weights(attached)
        self.proportional = weightings.proportional(wanted)
        self.combinations = {
            name: weighting.per_rollout
            for name, weighting in wanted.items()
            if weighting.per_rollout is not None and self.proportional[name][0] == name
        }
        self.layers: dict[str, Layer] = {}
        self.entries: dict[str, list[LayerEntries]] = {}
        self.weighted_grams: dict[str, NDArray[np.float64]] = {}
        self.token_spectra: dict[str, Spectrum] = {}
        self.token_scores: TokenScores | None = None

    def measure_scores(self, score: Score) -> Measurement:
        """Measure a parameter's per-rollout scores, from the pass with unit weights."""
        layer, entries = self._contract(score, self.combinations)
        spectra = layer.spectra
        every = {name: spectra[first].times(c) for name, (first, c) in self.proportional.items() if spectra}
        return replace(layer, spectra=every), entries

    def measure_weighted(self, score: Score, name: str) -> Measurement:
        """Measure a parameter in the pass with the weights of weighting `name`, whose scores are summed as they are."""
        return self._contract(score, {name: torch.ones(score.rollouts, dtype=torch.float64)})

    def keep_scores(self, measured: Measurement) -> None:
        """Keep a result of `measure_scores`."""
        layer, entries = measured
        sibling = self.layers.get(layer.name)  # of the other experts of a stack
        self.layers[layer.name] = layer if sibling is None else replace(layer, gram=sibling.gram + layer.gram)
        if entries is not None:
            self.entries.setdefault(layer.name, []).append(entries)
        if sibling is not None:
            return
        self.progress(f"layer {len(self.layers)}/{len(self.before)}: {layer.name}")

    def keep_weighted(self, measured: Measurement, name: str) -> None:
        """Keep a result of `measure_weighted`."""
        layer, entries = measured
        total = self.weighted_grams.get(name)
        self.weighted_grams[name] = layer.gram if total is None else total + layer.gram
        self.layers[layer.name].spectra.update(layer.spectra)
        if entries is not None:
            self.entries.setdefault(layer.name, []).append(entries)

    def finish(self) -> None:
        """Bring the results of all processes together, once every pass is done."""
        own = {name: (layer, self.entries.get(name, [])) for name, layer in self.layers.items()}
        self.layers = {}
        for name, parts in self.workers.merged(own).items():
            inner = np.sum([layer.gram for layer, _ in parts], axis=0)
            self.layers[name] = replace(parts[0][0], gram=inner) if len(parts) > 1 else parts[0][0]
            for entries in (use for _, every in parts for use in every):
                self.sample.add(entries)
        for name, weighted in self.weighted_grams.items():
            self.weighted_grams[name] = self.workers.sum(torch.from_numpy(weighted)).numpy()

    def keep_tokens(self, scores: Tensor, tokens: TokenScores) -> None:
        """Spectra of the token matrices, rows w (e_y − π), of the main weighting and the controls.

        scores: e_y − π (B, K, V) of this process's rollouts, as `AttachedModel.stream` gives them between its two
        passes; tokens: those of all rollouts.
        """
        self.token_scores = tokens
        flat, before = scores.flatten(0, 1), scores.shape[1] - self.rollouts.mask.shape[1] - 1
        rows = self.workers.rows(len(self.rollouts.mask), scores.shape[1])
        for name, weighting in self.wanted.items():
            if name == self.main or name in weightings.CONTROLS:
                weights = weighting.weights.where(self.rollouts.mask, 0.0)
                scale = torch.nn.functional.pad(weights, (before, 1)).flatten()
                norm = float(torch.linalg.vector_norm(weights * tokens.norms))
                self.token_spectra[name] = self._spectrum(flat, scale, norm, rows)

    def rollout_grams(self) -> dict[str, NDArray[np.float64]]:
        """Inner products (B, B) of the rows u_i s_i of every weighting, over all parameters."""
        total = np.sum([layer.gram for layer in self.layers.values()], axis=0)
        grams = dict(self.weighted_grams)
        for name, weighting in self.wanted.items():
            if weighting.per_rollout is not None:
                u = weighting.per_rollout.cpu().numpy()
                grams[name] = u[:, None] * total * u
        return grams

    def _contract(self, score: Score, combinations: dict[str, Tensor]) -> Measurement:
        """Gram matrix of a parameter's scores, and spectra of the gradients Σ u_i S_i for each u of `combinations`."""
        shape = score.shape if score.part is None else (score.part.total, score.shape[1])
        before = self.before[score.name]
        whole = shape
        if score.expert is not None:
            number, count = score.expert
            before, whole = before + number * shape[0] * shape[1], (count * shape[0], shape[1])
        if not combinations:
            inner = gram.gram(score)
            _check_finite(inner, score)
            return Layer(score.name, score.kind, whole, inner.cpu().numpy(), {}), None
        names, spectra = list(combinations), {}
        entries: LayerEntries | None = None
        step = max(1, HELD // (4 * shape[0] * shape[1]))
        for start in range(0, len(names), step):  # all at once, unless they would take too much memory
            few = names[start : start + step]
            weights = torch.stack([combinations[name] for name in few])
            main = few.index(self.main) if self.main in few else None
            gradients, products, norms = contraction.contract(score, weights, main, with_gram=start == 0)
            if products is not None:
                inner = products
                _check_finite(inner, score)
            for name, gradient in zip(few, gradients, strict=True):
                norm = None
                if name == self.main:
                    assert norms is not None
                    entries = self.sample.take(gradient, before, norms, self._weights_of(score, before))
                    norm = norms.norm if score.part is None else None
                if score.kind in ("linear", "embedding"):
                    spectra[name] = self._spectrum(gradient, frobenius=norm, rows=score.part)
        return Layer(score.name, score.kind, whole, inner.cpu().numpy(), spectra), entries

    def _spectrum(
        self, matrix: Tensor, scale: Tensor | None = None, frobenius: float | None = None, rows: Rows | None = None
    ) -> Spectrum:
        """Spectrum of a layer's gradient, or of the scores at the logits with rows multiplied by `scale`."""
        if self.settings.tier == "fast" or (
            scale is not None and min(int((scale != 0).sum()), matrix.shape[1]) > TOKENS_EXACT
        ):
            leading, seed = self.settings.leading, self.settings.seed
            return spectrum.leading(matrix, leading, seed=seed, scale=scale, frobenius=frobenius, rows=rows)
        return spectrum.exact(matrix, scale, rows)

    def _split(self, attached: AttachedModel, name: str) -> Rows | None:
        """How the rows of a parameter are shared; those of an expert or of a vector are not."""
        if attached.shape(name)[0] == 1 or attached.measured[name].dim() == 3:
            return None
        return self.workers.split(attached.shape(name), attached.entries)

    def _weights_of(self, score: Score, before: int) -> Tensor | None:
        """The sampled weights of a parameter, or those of one expert of a stack, whose entries come after `before`."""
        weights = self.weights.get(score.name)
        if weights is None or score.expert is None:
            return weights
        first, stride, size = self.before[score.name], self.sample.stride, score.shape[0] * score.shape[1]
        ahead, through = (-(-end // stride) - -(-first // stride) for end in (before, before + size))
        return weights[ahead:through]

    def _sampled_weights(self, attached: AttachedModel) -> dict[str, Tensor]:
        """The weights at the places where gradients are sampled, by parameter."""
        weights = {}
        for name in attached.measured:
            rows = self._split(attached, name)
            whole = attached.oriented(name, attached.weights(name))
            weights[name] = self.sample.sampled(whole if rows is None else whole[rows.mine], self.before[name])
        return weights


def _check_finite(products: Tensor, score: Score) -> None:
    """UserError that names the layer, where inner products of its scores are not finite."""
    if not bool(torch.isfinite(products).all()):
        score.check_finite()
        raise UserError(f"layer {score.name}: inner products of its gradients overflow; scale the loss down")
