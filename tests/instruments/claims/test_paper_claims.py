"""The statements of the papers as `grposcope claims` derives them, against experiments/claims.md and wrong theory."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.instruments import claims
from grposcope.instruments.claims import answer, chosen, dynamics, ustatistic
from grposcope.instruments.claims.dynamics import _published_rule
from grposcope.instruments.claims.enumerated_policy import EnumeratedPolicy, leave_one_out
from grposcope.instruments.claims.foundations import _Episodes, _multi_turn
from grposcope.instruments.claims.ustatistic import (
    _advantage,
    _between_updates,
    _bias,
    _standardized_objective,
    _tables,
)
from grposcope.instruments.dynamics import refresh
from reference import ustat_policies

DOCUMENTED = {
    "class-means": ("[PG] the gradient of a binary outcome", "holds", "holds, exactly"),
    "rank-two": ("[PG] the gradient has effective rank", "holds in part", "holds for the stable rank only"),
    "zero-sum": ("[PG] … because advantages sum to zero", "does not hold", "does not hold"),
    "sparsity": ("[PG] sparsity intensifies", "holds in part", "seen for tokens and groups, not for parameters"),
    "baseline": ("[PG] the group mean is the right baseline", "does not hold", "does not hold"),
    "mse": ("[U] MSE =", "holds", "holds"),
    "oracle": ("[U] oracle property", "holds", "holds"),
    "group-size": ("[U] one best G for every budget", "holds", "holds"),
    "limit-law": ("[U] limit law of the gap", "holds", "holds in one world"),
    "oscillator": ("[D] a damped oscillator", "holds", "holds to the step in exact expectation"),
    "refresh-threshold": ("[D] a damped oscillator", "holds", "holds to the step in exact expectation"),
    "temperature": ("[D] noise falls as 1/G", "holds", "holds"),
    "invariance": ("[D] the mean curve does not depend on G", "holds in part", "holds for leave-one-out in a bandit"),
    "closed-form": ("… on three networks × two group sizes", "holds in part", "holds"),
    "rank-null": ("[PG] … so a rank of 2 shows two directions", "does not hold", "does not hold"),
    "multi-turn": ("[PG] with rewards per turn the total return", "does not hold", "does not hold"),
    "limit-scale": ("… with the covariance as printed", "does not hold", "does not hold"),
    "arcsin": ("[U] that optimum is of E 2 arcsin √V", "does not hold", "holds for G → ∞, not at a fixed G"),
    "finite-baseline": ("[U] leave-one-out beats no baseline", "does not hold", "does not hold at a finite G"),
    "shrunk-baseline": ("a baseline shrunk to 0", "holds", "holds on frozen gradients"),
    "standardized-error": ("… its error is tr Σ₁/G", "holds in part", "holds as a bound"),
    "batch-reuse": ("… the updates since a batch was drawn", "holds", "holds"),
    "k3-tokens": ("… a k3 penalty summed over tokens", "does not hold", "does not hold"),
    "published-rule": ("[D] κηK < 1 − μ", "holds", "holds: safe"),
}
"""Name -> the start of its row in experiments/claims.md, the verdict that is derived, and how the page words it."""

SLOW = (
    "one-credit",
    "class-means",
    "rank-two",
    "zero-sum",
    "sparsity",
    "baseline",
    "limit-law",
    "shrunk-baseline",
    "refresh-threshold",
    "invariance",
    "closed-form",
)


def quiet(_: str) -> None:
    """Say nothing of the progress."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_page_of_claims_says_the_same(name: str) -> None:
    start, _, worded = DOCUMENTED[name]
    rows = [line for line in (ROOT / "experiments/claims.md").read_text().splitlines() if line.startswith(f"| {start}")]
    assert len(rows) == 1
    verdict = re.sub(r"\*\*", "", rows[0].split(" | ")[1])
    assert verdict.startswith(worded)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(n for n in DOCUMENTED if n not in SLOW),
                                  *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])  # fmt: skip
def test_the_verdict_is_derived(name: str) -> None:
    (claim,) = chosen([name])
    assert claim.derive(quiet).verdict == DOCUMENTED.get(name, ("", "holds", ""))[1]


@pytest.mark.parametrize("group", [2, 4])
def test_the_list_of_outcomes_is_that_of_the_reference(group: int) -> None:
    policy = EnumeratedPolicy.random(3, 2, 3, 4, binary=False)
    twin = ustat_policies.SmallPolicy(policy.chances, policy.scores, policy.rewards)
    assert policy.error(group, leave_one_out) == pytest.approx(twin.mse(ustat_policies.leave_one_out, 1, group))
    truth = twin.moments()
    assert policy.parts() == pytest.approx((truth["prompt_variance"], truth["sigma1"], truth["delta"]))


def test_a_wrong_formula_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    right = EnumeratedPolicy.parts
    monkeypatch.setattr(EnumeratedPolicy, "parts", lambda self: (*right(self)[:2], 0.9 * right(self)[2]))
    assert ustatistic._mse(quiet).verdict == "does not hold"
    assert ustatistic._oracle(quiet).verdict == "does not hold"


def test_a_wrong_threshold_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "threshold", refresh.naive_threshold)
    monkeypatch.setattr(dynamics, "_first_unstable", lambda *_: 13.0)
    assert dynamics._threshold(quiet).verdict == "does not hold"


def test_wrong_theory_of_small_groups_and_lags_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold below the rule, a rank without advantages, and a bias that is not a function of the history."""
    monkeypatch.setattr("grposcope.instruments.claims.dynamics._constant_lag_radius", lambda *_: 1.0)
    assert _published_rule(quiet).verdict == "does not hold"
    monkeypatch.setattr(
        "grposcope.instruments.claims.ustatistic._weight", lambda success, group: 1 / math.sqrt(success * (1 - success))
    )
    assert _standardized_objective(quiet).verdict == "holds"
    monkeypatch.setattr(_Episodes, "variance", lambda *_: 1.0)
    build = _Episodes.__init__

    def with_future(self: _Episodes, count: int, seed: int) -> None:
        build(self, count, seed)
        self.value = self.value + self.rewards  # what this turn pays is no function of the history

    monkeypatch.setattr(_Episodes, "__init__", with_future)
    assert _multi_turn(quiet).verdict == "holds"


def test_a_bias_that_does_not_vanish_with_the_distance_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the ratio is no ratio; full weights have no bias, at any distance."""
    rng = np.random.default_rng(1)
    features, old, step, right = rng.normal(size=(4, 3, 4)), rng.normal(size=4), rng.normal(size=4), np.eye(9)[2]
    whole = _bias(features, old, step, right, lambda ratios: ratios.prod(1, keepdims=True) * np.ones((1, 2)))
    assert whole == 0.0
    assert _bias(features, old, step, right, np.ones_like) > 1e-6
    monkeypatch.setattr("grposcope.instruments.claims.ustatistic.RATIOS", {"twice": lambda ratios: 2 * ratios})
    assert _between_updates(quiet).verdict == "does not hold"


def test_full_weights_are_the_gradient_of_what_the_advantages_of_old_rollouts_pay() -> None:
    """Σ π(y) E[A | y], E[A | y] held fixed, by finite differences."""
    rng = np.random.default_rng(2)
    features, old, step, right = rng.normal(size=(4, 3, 4)), rng.normal(size=4), 0.3 * rng.normal(size=4), np.eye(9)[2]
    drawn, _ = _tables(features, old)
    paid = np.asarray(_advantage(float(drawn.prod(1) @ right), 4))[right.astype(int)]

    def value(theta: np.ndarray) -> float:
        return float(_tables(features, theta)[0].prod(1) @ paid)

    differences = [(value(old + step + 1e-6 * e) - value(old + step - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    now, scores = _tables(features, old + step)
    weighted = np.einsum("n,n,ntd->d", now.prod(1), paid, scores)
    assert weighted == pytest.approx(np.array(differences), abs=1e-8)


def test_how_a_statement_stands_in_its_paper_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "limit-scale", "arcsin", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["claims"]
    assert [(one["stated"], one["verdict"]) for one in found] == [("theorem", "does not hold")] * 2


def test_names_of_papers_and_statements_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in chosen(["u"])] == [one.name for one in ustatistic.CLAIMS]
    assert [one.name for one in chosen(["mse", "temperature"])] == ["mse", "temperature"]
    monkeypatch.setattr(claims, "MODULES", {"u": "ustatistic", "d": "dynamics"})  # which need no torch
    with pytest.raises(UserError, match=r"there is no statement 'foo'; choose among u, d, mse, oracle"):
        chosen(["foo"])


def test_criteria_are_listed_without_computing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "d", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["claims"]
    assert [one["name"] for one in listed] == [one.name for one in dynamics.CLAIMS]
    assert all(one["criterion"] for one in listed)


def test_a_page_shows_a_picture_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "mse", "group-size", "--html", str(tmp_path / "claims.html")]) == 0
    page = (tmp_path / "claims.html").read_text()
    assert "rollouts needed ÷ the minimum" in page
    assert "2 of 2 statements hold" in capsys.readouterr().out


@pytest.mark.slow
def test_points_keep_their_errors() -> None:
    (claim,) = chosen(["temperature"])
    found = claim.derive(quiet)
    assert found.drawing is not None
    (figure,) = answer.of([(claim, found)]).figures
    data = figure.data["points"]
    assert np.all(np.array(data["low"]) < np.array(data["y"]))
