"""What public reports found of values that are no numbers and of limits of length: causes, true sentences, sound twins.

Numbers are made; the reports are named where their kind is tested.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from test_kinds_of_reports import Values, verl
from test_reported_kinds import NAN, Row, false_claims, log, present, rows

from grposcope.core.settings import Settings, SettingsAskedFor
from grposcope.instruments.lint.dialects import VERL
from grposcope.logs import read
from grposcope.signs.settings.in_force import compared


def test_a_loss_that_is_nan_beside_a_finite_gradient_costs_no_weights(tmp_path: Path) -> None:
    """As in SkyRL #1633: KL and loss are NaN in single rows, by a product with the mask."""

    def lost(k: int, row: Row) -> None:
        if k in (40, 77, 101):
            row |= {"loss": NAN, "kl": NAN}

    path = log(tmp_path / "a.jsonl", rows(0, lost))
    (found,) = present(path)
    assert (found.fault, found.grade) == ("non-finite", "warning")
    assert "weights and rate need no change: the gradient norm of the same rows is finite" in found.remedy
    assert false_claims(path) == []

    def norm(k: int, row: Row) -> None:
        lost(k, row)
        if k == 77:
            row["grad_norm"] = NAN

    (found,) = present(log(tmp_path / "b.jsonl", rows(0, norm)))
    assert "need no change" not in found.remedy


def test_an_infinite_kl_overflowed(tmp_path: Path) -> None:
    """As in TRL #3015: k3 takes the exponential of the distance to the reference; after it all is NaN."""

    def drift(k: int, row: Row, end: float) -> None:
        row["kl"] = 0.02 * float(np.exp(k / 12))
        if k >= 100:
            row |= {"kl": end if k == 100 else NAN, "loss": end if k == 100 else NAN, "grad_norm": NAN, "reward": 0.0,
                    "reward_std": 0.0, "frac_reward_zero_std": 1.0}  # fmt: skip

    path = log(tmp_path / "a.jsonl", rows(0, lambda k, row: drift(k, row, float("inf"))))
    found = present(path)[0]
    assert found.fault == "non-finite"
    assert (
        "the KL is infinite in the row that lost the update, and was 76.6 nats at most in the 20 rows" in found.remedy
    )
    assert false_claims(path) == []
    found = present(log(tmp_path / "b.jsonl", rows(0, lambda k, row: drift(k, row, NAN))))[0]
    assert (found.fault, "overflows" in found.remedy) == ("non-finite", False)


def test_a_reward_that_rises_as_fewer_are_cut_is_no_gaming(tmp_path: Path) -> None:
    """As in verl #5038: 60 % are cut at first, the held-out score at another limit falls; a twin's finish as before."""

    def shorter(k: int, rng: np.random.Generator, least: float, finished: float) -> Values:
        cut = max(0.6 - 0.005 * k, least) + 0.01 * rng.normal()
        row = {"response_length/clip_ratio": cut, "critic/score/mean": (1 - cut) * finished + 0.005 * rng.normal()}
        if k % 8 == 7:
            row["val-core/aime24/acc/mean@16"] = 0.69 - 0.0012 * k + 0.004 * rng.normal()
        return row

    path = verl(tmp_path / "a.log", 120, lambda k, rng: shorter(k, rng, 0.1, 0.8))
    (found,) = [finding for finding in present(path) if "held-out" in finding.because]
    assert (found.fault, found.grade) == ("held-out decline", "failing")
    said = re.search(r"cut completions went from (\d+)% to (\d+)%, which alone makes ([\d.]+) of reward", found.because)
    assert said is not None
    table = read(path).table
    cut, reward = table["at_limit"], table["reward"]
    first, last, paid = cut[:12].mean(), cut[-12:].mean(), reward[:12].mean()
    assert [int(said[1]), int(said[2])] == [round(100 * first), round(100 * last)]
    assert float(said[3]) == pytest.approx((first - last) * paid / (1 - first), rel=0.01)
    assert "raise the limit of length, to what the evaluation allows" in found.remedy
    gamed = verl(tmp_path / "b.log", 120, lambda k, rng: shorter(k, rng, 0.58, 0.4 + 0.004 * k))
    assert "reward hacking" in [finding.fault for finding in present(gamed)]


def test_giving_up_that_costs_less_than_trying_is_named(tmp_path: Path) -> None:
    """A cost for each question: questions fall to none and wins are lost. A twin whose cost does not go with them."""

    def gives_up(k: int, row: Row, of_calls: bool) -> None:
        calls = 8.0 * float(np.clip((110 - k) / 60, 0.02, 1)) + 0.05 * (k % 3)
        wins, cost = 0.7 * calls / 8, 0.04 * calls if of_calls else 0.2 + 0.01 * (k % 5)
        row |= {"tools/call_frequency": calls, "rewards/win/mean": wins, "rewards/cost/mean": -cost,
                "reward": wins - cost}  # fmt: skip

    path = log(tmp_path / "a.jsonl", rows(0, lambda k, row: gives_up(k, row, True)))
    found = present(path)[0]
    assert found.fault == "collapsed calls"
    assert "let giving up earn no more than trying: cost is less of a cost the less is tried" in found.remedy
    assert "while the reward fell" in found.because
    twin = present(log(tmp_path / "b.jsonl", rows(0, lambda k, row: gives_up(k, row, False))))
    (other,) = [finding for finding in twin if finding.fault == "collapsed calls"]
    assert "giving up" not in other.remedy


def test_a_kl_penalty_that_adds_to_the_reward_is_no_gaming(tmp_path: Path) -> None:
    """As in Search-R1 #21: retrieved tokens take the KL of the reward below 0, more and more, and the task is lost."""

    def adds(k: int, rng: np.random.Generator, sign: float) -> Values:
        task = 0.36 - 0.0015 * k + 0.005 * rng.normal()
        return {"critic/score/mean": task, "critic/rewards/mean": task + sign * 0.01 * k + (0.0 if sign > 0 else 0.5)}

    (found, *_) = present(verl(tmp_path / "a.log", 120, lambda k, rng: adds(k, rng, 1.0)))
    assert found.fault == "kl against its penalty"
    assert "at the end the penalty adds 1.0" in found.because
    assert found.remedy.startswith("look at the KL before the verifier")
    assert "kl against its penalty" not in [
        finding.fault for finding in present(verl(tmp_path / "b.log", 120, lambda k, rng: adds(k, rng, -1.0)))
    ]


def test_a_limit_of_each_turn_is_no_limit_of_a_rollout(tmp_path: Path) -> None:
    """Search-R1 limits a turn and what the search returns, and logs the length of both over all turns."""
    run = read(verl(tmp_path / "a.log", 40, lambda k, rng: {"response_length/max": 1500.0}))
    given = {"data.max_response_length": 500, "data.max_obs_length": 500}
    asked = [
        SettingsAskedFor(Settings(tmp_path / "run.sh", "a script", VERL, settings))
        for settings in (given, {"data.max_response_length": 500})
    ]
    assert [[one.key for one in compared(beside, run) if one.differs] for beside in asked] == [
        [], ["data.max_response_length"]
    ]  # fmt: skip
