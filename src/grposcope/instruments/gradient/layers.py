"""Measurements of each parameter during the backward pass of a probe: Gram matrix, spectra, sampled entries.

Gradients, Gram matrix and norms of one parameter, taken together from the S_i (B, R, C) that `score` has as factors.

One pass of `cpu` gives all three where it takes the factors; in torch they are taken from each piece of the S_i while
it is in the cache. Both agree to round-off.

Sparsity of a gradient over tokens and over parameters.

Of non-negative numbers x_1 … x_n (sizes of tokens' scores, of gradient entries):

    gini      Σ_i Σ_j |x_i − x_j| / (2 n² mean)      0 all equal, → 1 one holds all
    hoyer     (√n − ‖x‖₁/‖x‖₂) / (√n − 1)            0 all equal, 1 one holds all (Hoyer 2004)
    top_q     share of Σx² in the largest q %
    below_τ   share of entries smaller than τ · max

Updates: a weight kept in bfloat16 moves only when the step exceeds half the distance to the next representable
number. Every measure is NaN for empty and for all-zero input.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import gram, spectrum, weightings
from grposcope.instruments.gradient.backward import AttachedModel
from grposcope.instruments.gradient.logits import TokenScores
from grposcope.instruments.gradient.probe_settings import ProbeSettings
from grposcope.instruments.gradient.score import Score
from grposcope.instruments.gradient.spectrum import Spectrum
from grposcope.instruments.gradient.weightings import Weighting
from grposcope.lab import cpu
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.workers import ALONE, Rows, Workers

SAMPLE = 2**20
"""Gradient entries, over all layers, from which the parameter-level measures are taken."""
PARTS = 11
"""Interleaved parts of a sample, for its standard errors; prime, for the reason given in `_stride`."""
TOPS = (1, 5, 20)
BELOW = (0.1, 0.01, 0.001)


def _hoyer(sizes: Tensor) -> float:
    """Hoyer's sparsity of non-negative numbers; NaN for fewer than two."""
    x = sizes.double().flatten()
    norm = float(torch.linalg.vector_norm(x))
    if len(x) < 2 or not norm > 0:
        return math.nan
    return (math.sqrt(len(x)) - float(x.abs().sum()) / norm) / (math.sqrt(len(x)) - 1)


def measures(sizes: Tensor) -> dict[str, float]:
    """Every measure of the absolute values of `sizes`, by name."""
    x = _ordered(sizes.abs())
    return _measures(x, float(x[-1]) if len(x) else math.nan)


def _measures(ordered: Tensor, largest: float) -> dict[str, float]:
    """Every measure of sizes in increasing order; `largest` is the maximum of all sizes of which these are a sample."""
    values = {"gini": _gini(ordered), "hoyer": _hoyer(ordered), **{f"top_{q}": _top_share(ordered, q) for q in TOPS}}
    for t in BELOW:
        bound = ordered.new_tensor(t * largest)
        values[f"below_{t}"] = int(torch.searchsorted(ordered, bound)) / len(ordered) if largest > 0 else math.nan
    return values


def _ordered(sizes: Tensor) -> Tensor:
    """The numbers in increasing order, float64; sorted by NumPy on a CPU, which is several times as fast."""
    flat = sizes.flatten()
    return (torch.from_numpy(np.sort(flat.numpy())) if flat.device.type == "cpu" else flat.sort().values).double()


def _gini(ordered: Tensor) -> float:
    """Gini index of non-negative numbers in increasing order."""
    n, total = len(ordered), float(ordered.sum())
    if n == 0 or not total > 0:
        return math.nan
    rank = torch.arange(1, n + 1, dtype=torch.float64, device=ordered.device)
    return float(((2 * rank - n - 1) * ordered).sum() / (n * total))


def _top_share(ordered: Tensor, percent: float) -> float:
    """Share of Σx² held by the largest `percent` % of the numbers, at least one of them."""
    energy = ordered.square()
    total = float(energy.sum())
    if not total > 0:
        return math.nan
    return float(energy[-max(1, math.ceil(percent / 100 * len(energy) - 1e-9)) :].sum()) / total


def _moved_in_bfloat16(weights: Tensor, step: Tensor) -> float:
    """Share of weights kept in bfloat16 that θ − step would change."""
    rounded = weights.to(torch.bfloat16)
    moved = (rounded.float() - step.float()).to(torch.bfloat16)
    return float((moved != rounded).double().mean())


@dataclass(frozen=True)
class EntryNorms:
    """Norms of a gradient's entries: largest absolute value, sum of absolute values, sum of squares."""

    largest: float
    sum_abs: float
    sum_square: float

    @classmethod
    def of(cls, rows: Tensor) -> EntryNorms:
        """Norms of entries (n, C); each row is summed in its own precision, the rows in float64."""
        sizes = rows.abs()
        squares = torch.linalg.vector_norm(rows, dim=1).double().square()
        return cls(float(sizes.amax()), float(sizes.sum(1).double().sum()), float(squares.sum()))

    @classmethod
    def together(cls, pieces: Sequence[EntryNorms]) -> EntryNorms:
        """Norms of a gradient from those of its pieces."""
        largest = float(np.max([piece.largest for piece in pieces]))  # NaN if one is
        return cls(largest, math.fsum(p.sum_abs for p in pieces), math.fsum(p.sum_square for p in pieces))

    @property
    def norm(self) -> float:
        """Euclidean norm."""
        return math.sqrt(self.sum_square)


@dataclass(frozen=True)
class _LayerEntries:
    """Every n-th entry of a layer's gradient, the number of all its entries, and their norms.

    weights: the layer's weights at the same places, needed with a learning rate only.
    """

    gradient: Tensor
    weights: Tensor | None
    entries: int
    norms: EntryNorms


class _EntrySample:
    """Parameter-level sparsity of one gradient, from every n-th of its entries, layer by layer.

    total: the number of entries of all layers. learning_rate: adds the share of weights kept in bfloat16 that one
    step would change, of plain gradient descent (`visible_sgd`) and of Adam's first step (`visible_adam`, of size
    the learning rate wherever the gradient is not 0).
    """

    def __init__(self, total: int, learning_rate: float | None = None):
        self.stride, self.learning_rate = _stride(total), learning_rate
        self.layers: list[_LayerEntries] = []

    def sampled(self, layer: Tensor, before: int) -> Tensor:
        """Every n-th entry of a layer, or of some rows of it; `before` entries precede these."""
        return layer.reshape(-1)[-before % self.stride :: self.stride].clone()

    def take(self, gradient: Tensor, before: int, norms: EntryNorms, weights: Tensor | None = None) -> _LayerEntries:
        """The sampled entries of one layer, or of some rows of it; `weights` are those that `sampled` gave."""
        return _LayerEntries(self.sampled(gradient, before), weights, gradient.numel(), norms)

    def add(self, layer: _LayerEntries) -> None:
        """Append a layer. Results are the same to the last bit only if layers come in the same order."""
        self.layers.append(layer)

    def measures(self) -> dict[str, Estimate]:
        """Every measure by name, with its sampling error over interleaved parts; `hoyer` is exact."""
        if not self.layers:
            return {}
        norms = EntryNorms.together([layer.norms for layer in self.layers])
        if not norms.sum_square > 0:
            return {}
        entries = sum(layer.entries for layer in self.layers)
        gradient = torch.cat([layer.gradient for layer in self.layers])
        kept = [layer.weights.to(gradient) for layer in self.layers if layer.weights is not None]
        weights = torch.cat(kept) if kept else None
        whole = self._of(gradient, weights, norms.largest)
        errors = dict.fromkeys(whole, 0.0)
        if len(gradient) < entries:
            parts = [slice(p, None, PARTS) for p in range(PARTS)]
            split = [self._of(gradient[p], None if weights is None else weights[p], norms.largest) for p in parts]
            errors = {name: Estimate.mean([half[name] for half in split]).se for name in whole}
        root = math.sqrt(entries)
        whole["hoyer"] = (root - norms.sum_abs / norms.norm) / (root - 1) if root > 1 else math.nan
        errors["hoyer"] = 0.0
        return {name: Estimate(value, errors[name], len(gradient)) for name, value in whole.items()}

    def _of(self, gradient: Tensor, weights: Tensor | None, largest: float) -> dict[str, float]:
        """Every measure of a sample of entries."""
        values = _measures(_ordered(gradient.abs()), largest)
        if self.learning_rate is not None and weights is not None:
            values["visible_sgd"] = _moved_in_bfloat16(weights, self.learning_rate * gradient)
            values["visible_adam"] = _moved_in_bfloat16(weights, self.learning_rate * gradient.sign())
        return values


def _stride(total: int) -> int:
    """Distance between sampled entries: about total / SAMPLE, and prime, so that every column of a layer is met."""
    stride = max(1, total // SAMPLE)
    while any(stride % divisor == 0 for divisor in range(2, math.isqrt(stride) + 1)):
        stride += 1
    return stride


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


Measurement = tuple[Layer, _LayerEntries | None]
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
        self.sample = _EntrySample(sum(sizes), learning_rate)
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
        self.entries: dict[str, list[_LayerEntries]] = {}
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
        entries: _LayerEntries | None = None
        step = max(1, HELD // (4 * shape[0] * shape[1]))
        for start in range(0, len(names), step):  # all at once, unless they would take too much memory
            few = names[start : start + step]
            weights = torch.stack([combinations[name] for name in few])
            main = few.index(self.main) if self.main in few else None
            gradients, products, norms = _contract(score, weights, main, with_gram=start == 0)
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


Contracted = tuple[Tensor, Tensor | None, EntryNorms | None]


def _contract(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted:
    """Σ u_i S_i (K, R, C) for each row u of weights (K, B), the Gram matrix (B, B) if asked for, norms of the main one.

    main: which of the gradients that is.
    """
    if score.kind == "experts" and gram.ghost_is_cheaper(score):
        return _without_rollouts(score, weights, main, with_gram=with_gram)
    fast = _in_one_pass(score, weights, main, with_gram=with_gram)
    return _in_torch(score, weights, main, with_gram=with_gram) if fast is None else fast


def _in_torch(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted:
    """`_contract` from pieces of the S_i, of any score."""
    gradients = torch.empty(len(weights), *score.shape, dtype=score.dtype, device=score.device)
    weights = weights.to(gradients)
    pieces, count = score.pieces(), score.rollouts
    # Made beforehand: a small array that each piece left behind would keep the next from taking its memory.
    products = torch.empty(len(pieces) if with_gram else 0, count, count, dtype=torch.float64, device=score.device)

    def work(number: int) -> EntryNorms | None:
        block, piece = score.piece(pieces[number]), gradients[:, pieces[number]]
        torch.mm(weights, block.flatten(1), out=piece.flatten(1))
        if with_gram:
            products[number] = gram.of_block(block)
        return None if main is None else EntryNorms.of(piece[main])

    norms = [one for one in cpu.map_pieces(work, range(len(pieces)), gradients.device) if one is not None]
    return gradients, products.sum(0) if with_gram else None, EntryNorms.together(norms) if norms else None


def _without_rollouts(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted:
    """`_contract` without the S_i: an expert sees few tokens of each rollout."""
    gradients = torch.zeros(len(weights), *score.shape, dtype=score.dtype, device=score.device)
    for use in score.uses:
        rows = use.rows.flatten(0, 1).mT
        for gradient, u in zip(gradients, weights.to(gradients), strict=True):
            gradient.addmm_(rows, (u[:, None, None] * use.columns).flatten(0, 1))
    norms = None if main is None else EntryNorms.of(gradients[main])
    return gradients, gram.ghost(score) if with_gram else None, norms


def _in_one_pass(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted | None:
    """`_contract` by `cpu`; None where it does not take the score, which has one dense use and at most one look-up."""
    dense, looked = ([use for use in score.uses if use.lookup == lookup] for lookup in (False, True))
    if len(dense) != 1 or len(looked) > 1:
        return None
    lookups = next((cpu.Lookups(use.rows, use.columns, use.padding) for use in looked), None)
    done = cpu.contract(
        dense[0].rows, dense[0].columns, lookups, weights, main, with_gram=with_gram, in_pieces=score.large
    )
    if done is None:
        return None
    norms = None if done.norms is None else EntryNorms.together([EntryNorms(*row) for row in done.norms.tolist()])
    return done.gradients, done.gram, norms
