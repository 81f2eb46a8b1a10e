"""Kept weight by class of tokens, against loops over tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.instruments.offpolicy import kept
from grposcope.maths.corrections import named
from grposcope.maths.importance import Ratios


def class_of(title: str, t: int, length: int, advantage: float, probability: float, lag: float) -> str:
    """Where a token belongs, as the table's header says it."""
    return {
        "position": ("first third", "middle", "last third")[math.floor(3 * t / length)],
        "advantage": "below 0" if advantage < 0 else "above 0" if advantage > 0 else "0",
        "probability": "up to 0.1" if probability <= 0.1 else "between" if probability <= 0.9 else "above 0.9",
        "lag": f"{lag:g}",
    }[title]


def test_means_are_those_of_the_tokens_one_by_one() -> None:
    rng = np.random.default_rng(0)
    logs = [rng.normal(0, 0.7, n) for n in (1, 2, 3, 5, 9, 7)]
    sampler = [np.log(rng.choice([0.05, 0.5, 0.95], len(one))) for one in logs]
    advantages, lags = np.array([1.0, -1, 0, 2, -3, 1]), np.array([0.0, 1, 1, 3, 0, 3])
    ratios = Ratios.of(logs, advantages, sampler)
    for name in ("token_cap:1.5", "one_sided:0.2", "sequence_mask:1.2"):
        coefficients = named(name).coefficients(ratios)
        pieces = np.split(coefficients, ratios.starts[1:])
        for title, one in kept.classes(ratios, lags).items():
            due: dict[str, list[float]] = {label: [] for label in one.names}
            for i, piece in enumerate(pieces):
                for t, value in enumerate(piece):
                    label = class_of(title, t, len(piece), advantages[i], math.exp(sampler[i][t]), lags[i])
                    due[label].append(float(value))
            assert one.means(coefficients) == pytest.approx([np.mean(due[label]) for label in one.names])
    assert set(kept.classes(ratios, lags)) == {"position", "advantage", "probability", "lag"}


def test_what_is_not_known_makes_no_class() -> None:
    ratios = Ratios.of([np.zeros(3), np.zeros(2)])
    assert set(kept.classes(ratios, np.zeros(2))) == {"position"}
    short = kept.classes(Ratios.of([np.zeros(1)]))["position"]
    assert short.means(np.ones(1))[0] == 1
    assert math.isnan(short.means(np.ones(1))[2]), "a class without tokens has no mean"
