"""Which clip range derivatives come from, against derivatives of the surrogate by brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.signs.rollouts.claims import gradient
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated
from grposcope.signs.rollouts.stated_loss import StatedLoss

Surrogate = Callable[[float, float], float]
KL = 0.05


def clipped(low: float, high: float) -> Surrogate:
    return lambda ratio, credit: min(ratio * credit, min(max(ratio, 1 - low), 1 + high) * credit)


def evidence(surrogate: Surrogate, later: bool = True, times: float = 1.0, stated: StatedLoss | None = None,
             spread: float = 0.3) -> PipelineEvidence:  # fmt: skip
    """A batch whose derivatives are those of the surrogate and a k3 term, by finite differences.

    later: those of a second update, beside a first at ratio 1.
    """
    random, rows = np.random.default_rng(3), []
    for i in range(24):
        size = int(random.integers(4, 9))
        old, credit = -3 * random.random(size), float(random.normal())
        reference = old + random.normal(0, 0.3, size)

        def loss(logp: np.ndarray, old: np.ndarray, credit: float, reference: np.ndarray) -> np.ndarray:
            q = reference - logp
            values = [surrogate(ratio, credit) for ratio in np.exp(logp - old)]
            return times * (-np.array(values) + KL * (np.exp(q) - 1 - q)) / len(logp) / 24

        def slope(logp: np.ndarray, *given: object) -> np.ndarray:
            return (loss(logp + 1e-6, *given) - loss(logp - 1e-6, *given)) / 2e-6  # type: ignore[arg-type]

        given = old, credit, reference
        now = old + random.normal(0, spread, size)
        row = Rollout(f"row {i}", 1, str(i // 4), completion_ids=np.arange(size), mask=np.ones(size, bool), old=old,
                      advantages=np.array([credit]), reference=reference, current=now,
                      loss_weights=slope(now, *given))  # fmt: skip
        if later:
            at_1 = times * (-credit + KL * (1 - np.exp(reference - old))) / size / 24
            row = replace(
                row, current=old, loss_weights=at_1, last=row.current, last_weights=row.loss_weights, last_step=2
            )
        rows.append(row)
    said = Stated(loss=stated or StatedLoss(), kl=KL, accumulation=4, iterations=2)
    return PipelineEvidence("made", rows=tuple(rows), stated=said)


def found(given: PipelineEvidence) -> Finding:
    return next(finding for finding in gradient.PROOF.check(given) if finding.fault != "non-finite")


@pytest.mark.parametrize("later", [False, True])
def test_the_stated_range_holds(later: bool) -> None:
    one = found(evidence(clipped(0.2, 0.2), later))
    assert one.status == "excluded"
    tokens = sum(len(row.current) for row in evidence(clipped(0.2, 0.2)).rows if row.current is not None)
    assert f"at {2 * tokens if later else tokens:,} tokens" in one.because
    sides = StatedLoss(low=0.1, high=0.3)
    assert found(evidence(clipped(0.1, 0.3), later, stated=sides)).status == "excluded"


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("low", "high", "said", "unsaid"),
    [(0.2, 0.4, "above a limit", "below"), (0.05, 0.2, "below a limit", "above"),
     (1e9, 1e9, "do not clip ratios up to", "exchanged")],
)  # fmt: skip
def test_another_range_is_named_with_its_side(low: float, high: float, said: str, unsaid: str, later: bool) -> None:
    one = found(evidence(clipped(low, high), later))
    assert (one.fault, one.status, one.onset) == ("wrong clip range", "present", 2 if later else 1)
    assert said in one.because
    assert unsaid not in one.because


def test_exchanged_sides_and_a_clip_without_the_min() -> None:
    stated = StatedLoss(low=0.1, high=0.4)
    assert "the two sides are exchanged" in found(evidence(clipped(0.4, 0.1), stated=stated)).because
    both = found(evidence(lambda ratio, credit: min(max(ratio, 0.8), 1.2) * credit))
    assert both.fault == "wrong clip range"
    assert "whatever the sign of the advantage" in both.because


def test_a_ratio_that_is_always_1() -> None:
    one = found(evidence(lambda ratio, credit: credit * np.log(ratio)))
    assert (one.fault, one.onset) == ("ratio always 1", 2)


def test_a_factor_is_no_missing_kl_term() -> None:
    """All derivatives × 1/4 fit exactly as a factor, whatever the ratios."""
    one = found(evidence(clipped(0.2, 0.2), times=0.25))
    assert one.fault == "scaled by a factor"
    assert "0.25 times as large" in one.because


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["loss_weights", "current", "old", "last", "last_weights"])
def test_numbers_of_trained_tokens_that_are_none(column: str, value: float) -> None:
    sound = evidence(clipped(0.2, 0.2))
    row = sound.rows[3]
    values = getattr(row, column).copy()
    values[2] = value
    bad = replace(sound, rows=(*sound.rows[:3], replace(row, **{column: values}), *sound.rows[4:]))
    first = next(iter(gradient.PROOF.check(bad)))
    assert (first.fault, first.status) == ("non-finite", "present")
    assert "row 3" in first.because
    untrained = np.ones(len(values), bool)
    untrained[2] = False
    masked = replace(sound, rows=(*sound.rows[:3], replace(bad.rows[3], mask=untrained), *sound.rows[4:]))
    assert next(iter(gradient.PROOF.check(masked))).status == "excluded"


def test_a_list_that_was_not_recorded_is_no_number_that_is_none() -> None:
    sound = evidence(clipped(0.2, 0.2))
    row = replace(sound.rows[0], sampler=np.array([-1.0, np.nan]), mask=None)
    assert next(iter(gradient.PROOF.check(replace(sound, rows=(row, *sound.rows[1:]))))).status == "excluded"
    none = replace(sound.rows[0], current=np.full(9, np.nan), loss_weights=np.full(9, np.nan))
    assert next(iter(gradient.PROOF.check(replace(sound, rows=(none, *sound.rows[1:]))))).status == "excluded"
    zero = replace(row, sampler=np.array([-1.0, -np.inf]))
    assert next(iter(gradient.PROOF.check(replace(sound, rows=(zero, *sound.rows[1:]))))).status == "present"
