"""Reward functions of TRL under a guard: what fails, hangs or gives nothing, and what the run sees of it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeCallback, guarded
from grposcope.logs import read

PROMPTS, COMPLETIONS = ["p", "p", "p", "q", "q", "q"], ["a", "bb", "c", "dd", "ee", "f"]


def lengths(completions: list[str], answer: list[int], **_: Any) -> list[float | None]:
    """Fails on bb, gives nothing for f."""
    if "bb" in completions:
        raise KeyError("bb")
    return [None if text == "f" else len(text) + weight for text, weight in zip(completions, answer, strict=True)]


def called(function: Any, **more: Any) -> Any:
    return function(prompts=PROMPTS, completions=COMPLETIONS, answer=[0, 0, 4, 0, 1, 0], **more)


def test_zero_and_drop_leave_the_others_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shares: dict[str, float] = {}
    assert called(guarded(lengths, errors="zero"), log_metric=shares.__setitem__) == [1, 0, 5, 2, 3, None]
    assert shares == {"reward_error_share": 1 / 6}
    assert called(guarded(lengths, errors="drop")) == [1, 3, 5, 2, 3, None]  # the mean of the others of p
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "grposcope: 1 of 6 rewards failed; rollout 1, prompt 'p', completion 'bb': raised KeyError"
    )


def test_fail_names_the_rollout() -> None:
    with pytest.raises(
        UserError, match=r"reward function lengths raised KeyError: 'bb' in .*\(rollout 1, prompt 'p', comp"
    ):
        called(guarded(lengths))
    with pytest.raises(UserError, match=r"is nan for rollout 0, prompt 'p'.*return a finite number or None"):
        called(guarded(lambda completions, **_: [math.nan, *[1.0] * 5]))


def test_one_that_hangs_is_named() -> None:
    def slow(completions: list[str], **_: Any) -> list[float]:
        for text in completions:
            time.sleep(30 * (text == "dd"))
        return [1.0] * len(completions)

    with pytest.raises(UserError, match=r"slow took longer than 0.4 s \(rollout 3, prompt 'q', completion 'dd': took"):
        called(guarded(slow, seconds=0.4))
    assert called(guarded(slow, seconds=0.4, errors="zero")) == [1, 1, 1, 0, 1, 1]


def test_what_works_goes_through_unchanged() -> None:
    def reward(completions: list[str], **_: Any) -> list[float | None]:
        return [None, 1, 2, 3, 4, 5]

    for errors in ("fail", "zero", "drop"):
        shares: dict[str, float] = {}
        made = guarded(reward, errors=errors)
        assert called(made, log_metric=shares.__setitem__) == [None, 1, 2, 3, 4, 5]
        assert made.__name__ == "reward"
        assert shares.get("reward_error_share", 0) == 0


def test_what_cannot_be_guarded_is_refused() -> None:
    async def later(**_: Any) -> list[float]:
        return []

    for function in (later, "model/name"):
        with pytest.raises(UserError, match="only plain functions can be guarded"):
            guarded(function)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="errors 'skip' is unknown; use one of fail, zero, drop"):
        guarded(lengths, errors="skip")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_run_goes_on_and_counts(tmp_path: Path) -> None:
    pytest.importorskip("trl")

    def fragile(completions: list[str], **_: Any) -> list[float]:
        if any("a" in text for text in completions):
            raise ValueError("a")
        return [float(len(text)) for text in completions]

    tiny_trl.trainer(tmp_path, [GRPOscopeCallback()], guarded(fragile, errors="zero"), max_steps=4).train()
    run = read(tmp_path / "grposcope")
    assert run.table["step"].tolist() == [1, 2, 3, 4]
    assert (run.table["reward_error_share"] > 0).any()
    assert (run.table["reward_error_share"] < 1).all()
    assert "component/fragile" in run.table
