"""What one pass of C takes from a parameter, against its rollouts' matrices built in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from grposcope.instruments.gradient import probe
from grposcope.instruments.gradient.layers import EntryNorms, _contract
from grposcope.instruments.gradient.score import Score, Use
from grposcope.lab import cpu, policies
from grposcope.lab.cpu import contraction
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch

pytestmark = pytest.mark.skipif(contraction._library() is None, reason="needs a C compiler and AVX-512")

SHAPES = {"whole tiles": (16, 48), "parts": (131, 50), "one row": (1, 7), "several chunks": (300, 100)}


def score(rows: int, columns: int, count: int = 5, length: int = 9, lookups: bool = False) -> Score:
    random = torch.Generator().manual_seed(0)
    uses = [Use(*(torch.randn(count, length, size, generator=random) for size in (rows, columns)))]
    if lookups:
        ids = torch.randint(0, rows, (count, length + 2), generator=random)
        uses.append(Use(ids, torch.randn(count, length + 2, columns, generator=random), padding=min(2, rows - 1)))
    return Score("weight", "linear", (rows, columns), tuple(uses))


def contracted(
    given: Score, weights: Tensor, main: int | None = None, with_gram: bool = True, in_pieces: bool = False
) -> cpu.Contraction | None:
    dense, *looked = given.uses
    lookups = next((cpu.Lookups(use.rows, use.columns, use.padding) for use in looked), None)
    rows, columns = dense.rows, dense.columns
    return cpu.contract(rows, columns, lookups, weights, main, with_gram=with_gram, in_pieces=in_pieces)


def assert_right(given: Score, weights: Tensor, main: int | None = 1, in_pieces: bool = False) -> None:
    gradients, inner, pieces = contracted(given, weights, main)
    whole = Score(given.name, given.kind, given.shape, tuple(map(double, given.uses))).dense().flatten(1)
    expected = weights.double() @ whole
    torch.testing.assert_close(gradients.double().flatten(1), expected, atol=1e-4, rtol=1e-5)
    assert inner is not None
    torch.testing.assert_close(inner, whole @ whole.T, atol=1e-6 * float((whole @ whole.T).max()), rtol=0)
    if main is not None:
        assert pieces is not None
        norms, sizes = EntryNorms.together([EntryNorms(*one) for one in pieces.tolist()]), expected[main].abs()
        found = (norms.largest, norms.sum_abs, norms.sum_square)
        assert found == pytest.approx((float(sizes.max()), float(sizes.sum()), float(sizes.square().sum())), rel=1e-5)


def double(use: Use) -> Use:
    return Use(use.rows if use.lookup else use.rows.double(), use.columns.double(), use.padding)


@pytest.mark.parametrize("lookups", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_inner_products_and_norms(shape: str, lookups: bool) -> None:
    given = score(*SHAPES[shape], lookups=lookups)
    assert_right(given, torch.randn(3, 5, generator=torch.Generator().manual_seed(1)))


def test_what_is_not_a_number_shows_in_every_norm() -> None:
    given = score(40, 60)
    given.uses[0].rows[2, 1, 7] = torch.nan
    done = contracted(given, torch.ones(1, 5), 0, with_gram=False)
    assert done is not None
    assert done.gram is None
    assert done.norms is not None
    (norms,) = (EntryNorms(*one) for one in done.norms.tolist())
    assert all(map(math.isnan, (norms.largest, norms.sum_abs, norms.sum_square)))
    assert math.isnan(EntryNorms.together([EntryNorms(1.0, 1.0, 1.0), norms]).largest)


def test_factors_that_are_parts_of_others() -> None:
    given = score(40, 60)
    (use,) = given.uses
    cut = Score("weight", "linear", (17, 60), (Use(use.rows[..., 3:20], use.columns),))
    assert_right(cut, torch.ones(2, 5))


@pytest.mark.parametrize("lookups", [False, True])
def test_large_parameters_are_dealt_over_threads(lookups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "ROWS", 20)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_right(score(331, 50, lookups=lookups), torch.ones(2, 5), main=0, in_pieces=True)
    finally:
        torch.set_num_threads(threads)


def test_what_it_does_not_take() -> None:
    given = score(20, 30)
    (use,) = given.uses
    assert contracted(given, torch.ones(1, 5)) is not None
    assert contracted(Score("w", "linear", (20, 30), (double(use),)), torch.ones(1, 5)) is None
    assert contracted(score(20, 30, count=33), torch.ones(1, 33)) is None


def test_scores_of_other_uses_go_through_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "contract", lambda *_, **__: pytest.fail("went through the pass in C"))
    (use,) = score(20, 30).uses
    ids = Use(torch.randint(0, 20, (5, 9), generator=torch.Generator().manual_seed(1)), use.columns)
    others = [
        Score("w", "linear", (20, 30), (use, use)),
        Score("w", "vector", (1, 30), direct=torch.randn(5, 30, generator=torch.Generator().manual_seed(1))),
        Score("w", "embedding", (20, 30), (ids,)),
    ]
    for given in others:
        gradients, inner, norms = _contract(given, torch.ones(1, 5), 0, with_gram=True)
        whole = given.dense().flatten(1)
        torch.testing.assert_close(gradients.flatten(), whole.sum(0), atol=1e-4, rtol=1e-4)
        assert inner is not None
        torch.testing.assert_close(inner, (whole @ whole.T).double(), atol=1e-3, rtol=1e-4)
        assert norms is not None
        assert norms.norm == pytest.approx(float(whole.sum(0).norm()), rel=1e-5)


def test_a_probe_gives_the_numbers_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    policy = policies.load("tiny")
    mask = torch.arange(8) < torch.tensor([8, 3, 5, 8, 1, 7, 8, 6])[:, None]
    rollouts = RolloutBatch(
        prompt_ids=torch.randint(3, 90, (2, 6), generator=random).repeat_interleave(4, 0),
        prompt_mask=torch.ones(8, 6, dtype=torch.bool),
        tokens=torch.randint(3, 90, (8, 8), generator=random) * mask,
        mask=mask,
        logp=torch.zeros(8, 8),
        entropy=torch.zeros(8, 8),
        truncated=torch.zeros(8, dtype=torch.bool),
        rewards=torch.tensor([[0.0, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.float64),
    )
    here = probe.probe(policy.model, rollouts, recipes.GRPO, sweep=(2,))
    monkeypatch.setattr(cpu, "contract", lambda *_, **__: None)
    there = probe.probe(policy.model, rollouts, recipes.GRPO, sweep=(2,))
    np.testing.assert_allclose(here.gram, there.gram, atol=1e-5 * there.gram.max())
    for one, other in zip(here.layers, there.layers, strict=True):
        assert one.spectra.keys() == other.spectra.keys()
        for name, spectrum in one.spectra.items():
            np.testing.assert_allclose(spectrum.values, other.spectra[name].values, atol=1e-5 * spectrum.frobenius)
    for name, measured in here.parameters.items():
        assert measured.value == pytest.approx(there.parameters[name].value, rel=1e-4, abs=1e-6)
