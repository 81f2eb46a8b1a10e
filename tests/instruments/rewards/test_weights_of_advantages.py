"""Weights of rewards that no setting states are those that the advantages of the rollouts follow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reward_rows

from grposcope.core.run import Floats
from grposcope.instruments.rewards import RewardSettings, source
from grposcope.instruments.rewards.source import RewardRollouts
from grposcope.logs import read

WEIGHTS = {"right": 1.0, "form": 0.2, "short": 0.0}
ONES = dict.fromkeys(WEIGHTS, 1.0)


def standardized(values: Floats) -> Floats:
    """Values (P, G) standardized in their groups."""
    made: Floats = (values - values.mean(1, keepdims=True)) / (values.std(1, ddof=1, keepdims=True) + 1e-4)
    return made


def whitened(values: Floats) -> Floats:
    """Values (P, G) standardized over all."""
    made: Floats = (values - values.mean()) / (values.std(ddof=1) + 1e-4)
    return made


def said(place: Path, weights: str = "") -> RewardRollouts:
    """What is read of the rewards at a place."""
    rollouts = source.of_run(read(place), RewardSettings(weights))
    assert rollouts is not None
    return rollouts


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The file of these rows, a line each."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def written(path: Path, how: str, total: bool) -> Path:
    """A file of rollouts that were trained with WEIGHTS: with a logged plain sum in place of what trained, or without.

    how: "sum" of what is standardized, or "each" standardized by itself.
    """
    drawn, rows = reward_rows.drawn(6, 8), []
    for step in range(6):
        if how == "sum":
            values = standardized(np.sum([WEIGHTS[name] * own[step] for name, own in drawn.items()], 0))
        else:
            values = whitened(np.sum([WEIGHTS[name] * standardized(own[step]) for name, own in drawn.items()], 0))
        for p, i in np.ndindex(values.shape):
            rewards = {name: float(own[step, p, i]) for name, own in drawn.items()}
            row = {"step": step + 1, "group": f"p{p}", "rewards": rewards, "advantage": float(values[p, i])}
            rows.append({**row, "reward": sum(rewards.values())} if total else row)
    return lines(path, rows)


def test_weights_are_those_of_the_advantages(tmp_path: Path) -> None:
    """TRL's completions, whose advantages no plain sum gives; sums of 1 each are found as well."""
    drawn = reward_rows.drawn(6, 8)
    uneven = said(reward_rows.trl(tmp_path / "uneven", drawn, WEIGHTS))
    assert uneven.known
    assert uneven.weights == pytest.approx([1, 0.2, 0], abs=1e-4)
    assert uneven.how.method == "sum_then_normalize"
    assert "they were read off the advantages: the advantages of 384 rollouts are (r − group mean)" in uneven.notes[0]
    assert "with r = 1 × right + 0.2 × form" in uneven.notes[0]
    even = said(reward_rows.trl(tmp_path / "even", drawn, ONES))
    assert even.weights == pytest.approx([1, 1, 1], abs=1e-4)


@pytest.mark.parametrize("how", ["sum", "each"])
def test_the_way_of_combining_is_that_of_the_advantages(tmp_path: Path, how: str) -> None:
    rollouts = said(written(tmp_path / "rollouts.jsonl", how, total=False))
    assert rollouts.weights == pytest.approx([1, 0.2, 0], abs=1e-3)
    assert rollouts.how.method == ("sum_then_normalize" if how == "sum" else "normalize_then_sum")
    assert not any("assumed" in note for note in rollouts.notes)


def test_a_logged_total_that_did_not_train_is_no_source_of_weights(tmp_path: Path) -> None:
    """Nor are weights that were given kept without a word."""
    place = written(tmp_path / "rollouts.jsonl", "sum", total=True)
    rollouts = said(place)
    assert rollouts.weights == pytest.approx([1, 0.2, 0], abs=1e-4)
    assert "the total is 1 × right, 1 × form and 1 × short; but the advantages of 384" in rollouts.notes[0]
    asked = said(place, "1,1,1")
    assert asked.weights.tolist() == [1, 1, 1]
    assert asked.notes[-1].startswith("These weights are not those of the advantages: ")
    assert not any("not those" in note for note in said(place, "5,1,0").notes)


def test_what_explains_no_advantage_is_assumed_and_said(tmp_path: Path) -> None:
    """Advantages of noise, and none at all."""
    drawn = reward_rows.drawn(6, 8)
    noise = np.random.default_rng(1)
    rows = [
        {"step": at[0] + 1, "group": f"p{at[1]}", "rewards": {name: float(own[at]) for name, own in drawn.items()},
         "advantage": float(noise.normal())}
        for at in np.ndindex(drawn["right"].shape)
    ]  # fmt: skip
    rollouts = said(lines(tmp_path / "noise.jsonl", rows))
    assert not rollouts.known
    assert "each is taken as 1" in rollouts.notes[1]
    assert rollouts.notes[2].startswith("No recipe and no weights that were tried give the advantages of 384 rollouts")
    silent = said(reward_rows.jsonl(tmp_path / "without.jsonl", drawn))
    assert not any("advantages" in note for note in silent.notes)
