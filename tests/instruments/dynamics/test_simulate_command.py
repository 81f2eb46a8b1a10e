"""`grposcope simulate`: what it prints, its JSON, and bad input in one line."""

from __future__ import annotations

import pytest
from asked import call, last_json

from grposcope.core.errors import UserError


def test_simulate_shows_the_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--momentum", "0.9", "--lr", "0.5", "--interval", "1,4,8", "--steps", "200") == 0
    found, text = last_json(capsys)
    assert [row["stable"] for row in found["rows"]] == [True, True, False]
    assert found["rows"][2]["swing"] > 20 * found["rows"][0]["swing"]
    assert "fixed point" in text


def test_simulate_sampled(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--group", "0,4,64", "--steps", "100", "--runs", "8", "--binary", "--lr", "0.2") == 0
    exact, small, large = last_json(capsys)[0]["rows"]
    assert exact["group"] == "exact"
    assert large["swing"] < small["swing"]
    assert large["end"]["se"] < small["end"]["se"]


def test_lists_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, value in (("--interval", "1.5"), ("--lr", "fast"), ("--group", "")):
        with pytest.raises(SystemExit):
            call("simulate", flag, value)
        assert f"{value!r} is not a comma-separated list of" in capsys.readouterr().err


def test_simulate_says_which_settings_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--steps", "20", "--interval", "1,2,3,4,5,6,7") == 0
    found, text = last_json(capsys)
    assert len(found["rows"]) == 7
    assert "the first 6 of 7 settings" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--arms", "1"), "--arms 1"),
        (("--kl", "0"), "--kl"),
        (("--momentum", "1"), "momentum"),
        (("--interval", "0"), "interval"),
        (("--group", "-1"), "--group"),
    ],
)
def test_bad_simulations(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call("simulate", *argv)
