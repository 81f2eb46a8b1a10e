"""The sampler's log-probabilities beside the trainer's, with what may go wrong on the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grposcope.core.rollouts import Rollout
from grposcope.signs.rollouts import alignment
from grposcope.signs.rollouts.claims import first_update
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated

Change = Callable[[np.ndarray], np.ndarray]
CHANGES: dict[str, tuple[str, Change]] = {
    "before": (alignment.MISALIGNED, lambda values: np.append(values[1:], -1.0)),
    "after": (alignment.MISALIGNED, lambda values: np.insert(values[:-1], 0, -1.0)),
    "base 2": (alignment.BASE, lambda values: values / np.log(2)),
    "base 10": (alignment.BASE, lambda values: values / np.log(10)),
    "probabilities": (alignment.BASE, np.exp),
    "opposite sign": (alignment.BASE, lambda values: -values),
}


def rows(change: Change, rounding: float = 0.0, version: float = 0.0) -> list[Rollout]:
    random, made = np.random.default_rng(2), []
    for i in range(32):
        own = -random.exponential(1.0, int(random.integers(4, 12)))
        noisy = own + random.normal(0, rounding, len(own))
        made.append(Rollout(f"row {i}", 1, str(i // 4), sampler=change(noisy), old=own, current=own, version=version))
    return made


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("rounding", [0.0, 0.01])
def test_what_went_wrong_is_named(name: str, rounding: float) -> None:
    fault, change = CHANGES[name]
    found = next(iter(first_update.PROOF.check(PipelineEvidence("made", rows=tuple(rows(change, rounding))))))
    assert (found.fault, found.status) == (fault, "present")
    assert name in found.because
    sound = next(iter(first_update.PROOF.check(PipelineEvidence("made", rows=tuple(rows(np.copy, rounding))))))
    assert sound.status == "excluded"


def test_what_explains_nothing_is_not_read_into_it() -> None:
    random = np.random.default_rng(3)
    other = rows(lambda values: -random.exponential(1.0, len(values)))
    assert alignment.reading(alignment.paired(other)) is None
    found = next(iter(first_update.PROOF.check(PipelineEvidence("made", rows=tuple(other)))))
    assert (found.fault, found.status) == ("inputs differ", "possible")
    heated = PipelineEvidence("made", rows=tuple(other), stated=Stated(temperature=0.7))
    assert all(finding.fault != "inputs differ" for finding in first_update.PROOF.check(heated))
    even = [Rollout(f"row {i}", 1, sampler=np.full(8, -3.0), old=np.full(8, -3.0 * np.log(2))) for i in range(9)]
    assert alignment.reading(alignment.paired(even)) is None  # one number fits many readings
    assert alignment.reading(alignment.paired(rows(lambda values: values / np.log(2))[:1])) is None  # too few


def test_rollouts_of_earlier_weights_are_not_compared() -> None:
    assert not alignment.paired(rows(np.exp, version=-3.0))
