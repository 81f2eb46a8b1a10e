"""Surrogates on a grid of ratios and credits: values, slopes, and which tokens are held still."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.objectives.surrogates import Cispo, Clip, Reinforce, Surrogate
from reference import losses

# Every pair of a ratio and a credit, off the kinks
RATIO, CREDIT = (
    grid.reshape(1, -1)
    for grid in torch.meshgrid(
        torch.tensor([0.05, 0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 1.27, 1.29, 2.9, 3.1, 6.0], dtype=torch.float64),
        torch.tensor([-2.0, -0.5, 0.5, 2.0], dtype=torch.float64),
        indexing="ij",
    )
)
PAIRS = list(zip(RATIO[0].tolist(), CREDIT[0].tolist(), strict=True))
CLIPS = [Clip(), Clip(low=0.2, high=0.28), Clip(low=0.4, high=0.1), Clip(bound=3.0)]


def slopes(surrogate: Surrogate) -> list[float]:
    """∂ surrogate / ∂ log π, with log π = log ρ."""
    logp = RATIO.log().requires_grad_()
    return torch.autograd.grad(surrogate(logp.exp(), logp, CREDIT).sum(), logp)[0][0].tolist()


def values(surrogate: Surrogate) -> list[float]:
    return surrogate(RATIO, RATIO.log(), CREDIT)[0].tolist()


def test_reinforce_is_the_weighted_policy_gradient() -> None:
    expected = [ratio * a for ratio, a in PAIRS]
    assert values(Reinforce()) == pytest.approx(expected, rel=1e-12)
    assert slopes(Reinforce()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("clip", CLIPS, ids=str)
def test_clip_against_its_definition(clip: Clip) -> None:
    def value(ratio: float, a: float) -> float:
        single = losses.clipped(ratio, a, clip.low, clip.high)
        return max(single, clip.bound * a) if clip.bound and a < 0 else single

    assert values(clip) == pytest.approx([value(*pair) for pair in PAIRS], rel=1e-12)


@pytest.mark.parametrize("clip", CLIPS, ids=str)
def test_clip_slopes(clip: Clip) -> None:
    """ρA, but 0 where the ratio has already gone as far as its credit pushes it, or past the bound."""

    def slope(ratio: float, a: float) -> float:
        if a > 0:
            return ratio * a if ratio < 1 + clip.high else 0.0
        inside = ratio > 1 - clip.low and (clip.bound is None or ratio < clip.bound)
        return ratio * a if inside else 0.0

    assert slopes(clip) == pytest.approx([slope(*pair) for pair in PAIRS], rel=1e-12)


@pytest.mark.parametrize("clip", CLIPS, ids=str)
def test_held_tokens_are_those_without_slope(clip: Clip) -> None:
    low, high = clip.held(RATIO, CREDIT)
    assert (low | high)[0].tolist() == [slope == 0 for slope in slopes(clip)]
    assert not (low & (RATIO > 1)).any()
    assert not (high & (RATIO < 1)).any()
    assert low.any()
    assert high.any()


def test_reinforce_holds_nothing() -> None:
    assert not torch.stack(Reinforce().held(RATIO, CREDIT)).any()


@pytest.mark.parametrize("cispo", [Cispo(), Cispo(low=0.3, high=0.5)], ids=str)
def test_cispo_clips_the_weight_and_drops_no_token(cispo: Cispo) -> None:
    weights = [min(max(ratio, 1 - cispo.low), 1 + cispo.high) for ratio, _ in PAIRS]
    expected = [w * a for w, (_, a) in zip(weights, PAIRS, strict=True)]
    assert slopes(cispo) == pytest.approx(expected, rel=1e-12)
    assert 0.0 not in slopes(cispo)
    logs: Tensor = RATIO.log()[0]
    assert values(cispo) == pytest.approx([e * x for e, x in zip(expected, logs.tolist(), strict=True)], rel=1e-12)


def test_cispo_holds_the_weights_out_of_range() -> None:
    low, high = Cispo(low=0.3, high=0.5).held(RATIO, CREDIT)
    assert low[0].tolist() == [ratio < 0.7 for ratio, _ in PAIRS]
    assert high[0].tolist() == [ratio > 1.5 for ratio, _ in PAIRS]
    assert not Cispo().held(RATIO, CREDIT)[0].any()  # free below


@pytest.mark.parametrize("wrong", [{"low": -0.1}, {"high": -0.1}, {"bound": 1.2}, {"bound": 0.5}])
def test_impossible_clips_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Clip(**wrong)
