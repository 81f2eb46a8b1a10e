"""Constraints: what their text means, what a batch says of them, and the multipliers' recursion."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.maths.constraints import Dual, _Measured, _parse, measure, parse_all

VALUES = np.array([[1.0, 5.0, 9.0, 9.0], [2.0, 2.0, 2.0, math.nan]])
KNOWN = VALUES[~np.isnan(VALUES)]


@pytest.mark.parametrize(
    ("text", "violated_by"),
    [
        ("x<=4", KNOWN.mean() / 4 - 1),
        ("x >= 5", (5 - KNOWN.mean()) / 5),
        ("x<=0", KNOWN.mean()),
        ("share(x>5)<=0.1", ((KNOWN > 5).mean() - 0.1) / 0.1),
        ("share(x>=5)>=0.5", ((KNOWN < 5).mean() - 0.5) / 0.5),
        ("share(x<3) <= 0.5", ((KNOWN < 3).mean() - 0.5) / 0.5),
        ("q90(x)<=8", ((KNOWN > 8).mean() - 0.1) / 0.1),
        ("q10(x)>=1.5", ((KNOWN < 1.5).mean() - 0.1) / 0.1),
    ],
)
def test_what_a_text_means(text: str, violated_by: float) -> None:
    one = _parse(text)
    assert one.name == "x"
    found = measure(one, VALUES)
    assert found.violation == pytest.approx(violated_by)
    assert not found.flat
    assert found.se > 0


def test_names_may_have_spaces_and_signs_of_html() -> None:
    assert _parse("my <b>reward</b> 2>=0.5").name == "my <b>reward</b> 2"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["length"], "cannot be read; write NAME<=X"),
        (["length<=many"], "'many' is not a finite number"),
        (["length<=nan"], "'nan' is not a finite number"),
        (["share(length>3)<=2"], "a share lies between 0 and 1"),
        (["q0(length)<=2"], "a quantile lies between"),
        (["median(length)<=2"], "cannot be read"),
        (["length<=5", "length>=9"], "length<=5 and length>=9 cannot both hold"),
        (["length>=9", "length<=5"], "cannot both hold"),
        (["length<=5", "length<=9"], "say the same"),
    ],
)
def test_what_cannot_be(texts: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_all(texts)


def test_a_band_is_no_contradiction() -> None:
    assert len(parse_all(["length<=9", "length>=5"])) == 2


def test_a_cost_that_is_the_same_in_every_group_is_flat() -> None:
    assert measure(_parse("x<=1"), np.array([[2.0, 2.0], [3.0, 3.0]])).flat
    assert measure(_parse("share(x>1)<=0.5"), VALUES + 5).flat


def test_the_error_is_that_of_a_mean_over_groups() -> None:
    """By the jackknife: of groups of one size the standard error of the mean of their means."""
    values = np.random.default_rng(0).random((20, 6)) + np.random.default_rng(1).random((20, 1))
    means = values.mean(1)
    assert measure(_parse("x<=1"), values).se == pytest.approx(means.std(ddof=1) / math.sqrt(20))


def path(rate: float, damping: float, steps: int = 400, lag: float = 0.1) -> np.ndarray:
    """The violation of a policy that answers the multiplier with a lag: v' = lag (0.5 − m − v)."""
    dual, v, out = Dual([_parse("x<=1")], rate, damping), 0.5, []
    for _ in range(steps):
        v += lag * (0.5 - dual.multipliers[0] - v)
        dual.learn([_Measured(1 + v, 0.0, v, False)])
        out.append(v)
    return np.array(out)


def test_dual_ascent_ends_where_the_constraint_holds_and_damping_takes_out_the_swing() -> None:
    """The closed loop has the characteristic polynomial z² − (2 − lag) z + 1 − lag + lag·η: a period of its angle."""
    plain, damped = path(0.5, 0.0), path(0.5, 4.0)
    assert abs(plain[-1]) < 1e-3
    assert abs(damped[-1]) < 1e-3
    assert plain.min() < -0.08
    assert damped.min() > 0.25 * plain.min()
    roots = np.roots([1, -(2 - 0.1), 1 - 0.1 + 0.1 * 0.5])
    period = 2 * np.pi / abs(np.angle(roots[0]))
    crossings = np.flatnonzero(np.diff(np.sign(plain)))[1:3]
    assert 2 * (crossings[1] - crossings[0]) == pytest.approx(period, rel=0.15)


def test_multipliers_stay_at_0_while_a_constraint_holds_and_are_kept_by_checkpoints() -> None:
    dual = Dual(parse_all(["x<=1", "y>=1"]), 0.1, 0.5)
    dual.learn([_Measured(0, 0, -0.5, False), _Measured(0, 0, 0.5, False)])
    assert dual.multipliers == [0.0, pytest.approx(0.05 + 0.25)]
    again = Dual(dual.constraints, 0.1, 0.5)
    again.restore(dual.state())
    for one in (dual, again):
        one.learn([_Measured(0, 0, 1.0, False), _Measured(0, 0, -0.1, False)])
    assert again.state() == dual.state()
    with pytest.raises(ValueError, match="other constraints"):
        Dual(dual.constraints[:1], 0.1).restore(dual.state())
