"""Kept weight by class of tokens, against loops over tokens."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from grposcope.instruments.offpolicy import read
from grposcope.instruments.offpolicy.distance import classes
from grposcope.logs import rollout_columns, scopes
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
        for title, one in classes(ratios, lags).items():
            due: dict[str, list[float]] = {label: [] for label in one.names}
            for i, piece in enumerate(pieces):
                for t, value in enumerate(piece):
                    label = class_of(title, t, len(piece), advantages[i], math.exp(sampler[i][t]), lags[i])
                    due[label].append(float(value))
            assert one.means(coefficients) == pytest.approx([np.mean(due[label]) for label in one.names])
    assert set(classes(ratios, lags)) == {"position", "advantage", "probability", "lag"}


def test_what_is_not_known_makes_no_class() -> None:
    ratios = Ratios.of([np.zeros(3), np.zeros(2)])
    assert set(classes(ratios, np.zeros(2))) == {"position"}
    short = classes(Ratios.of([np.zeros(1)]))["position"]
    assert short.means(np.ones(1))[0] == 1
    assert math.isnan(short.means(np.ones(1))[2]), "a class without tokens has no mean"


def test_each_environment_is_a_class_and_the_rare_ones_one_together() -> None:
    rng = np.random.default_rng(1)
    names = [name for count, name in enumerate("hgfedcba", 1) for _ in range(count)]
    rng.shuffle(names)
    logs = [rng.normal(0, 0.7, int(n)) for n in rng.integers(1, 5, len(names))]
    ratios = Ratios.of(logs)
    found = classes(ratios, environments=names)["environment"]
    assert found.names == ("a", "b", "c", "d", "e", "f", "2 others")
    capped = [np.minimum(np.exp(one), 1.5) for one in logs]
    due = [np.concatenate([c for c, own in zip(capped, names, strict=True) if own in which]) for which in
           ("a", "b", "c", "d", "e", "f", "gh")]  # fmt: skip
    assert found.means(named("token_cap:1.5").coefficients(ratios)) == pytest.approx([one.mean() for one in due])
    assert classes(ratios, environments=names[:1] * len(names))["environment"].names == (names[0],)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"env": ["math", "code", "math"]}, ["math", "code", "math"]),
        ({"env": ["math"] * 3, "data_source": ["a", "b", "a"]}, ["a", "b", "a"]),
        ({"env_name": [["x", "x"], ["y", "y"], ["y", "y"]]}, ["x", "y", "y"]),
        ({"env": ["math", None, "code"]}, None),
        ({"env": [1, 2, 3]}, None),
    ],
)
def test_environments_of_a_file(tmp_path: Path, columns: dict[str, list[object]], expected: list[str] | None) -> None:
    rows = [
        {"logprobs": [-1.0, -0.5], "rollout_logprobs": [-1.1, -0.4], **{name: of[i] for name, of in columns.items()}}
        for i in range(3)
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read.read(path).environments == expected


def test_names_of_environments_are_those_of_logs() -> None:
    assert set(rollout_columns.NAMES["environment"]) == scopes.NAMES
