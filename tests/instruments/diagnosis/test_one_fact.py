"""One fact is one line of the screen, and a cause stands before what follows from it, whatever their grades."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import synthetic_series as made
from made_logs import made as log_of
from test_truth import first_screen

from grposcope.core.finding import Finding, at
from grposcope.faults import judge
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis.verdict import verdict


def test_a_reward_that_is_gone_for_good_is_one_line(tmp_path: Path) -> None:
    """Constant, dead groups, no gradient and a decline are one fact, and are counted as one problem."""
    shown = first_screen(log_of(tmp_path, "constant_from", 2).path)
    crosses = [line for line in shown.split("\n") if line.startswith("✗")]
    assert len(crosses) == 1
    assert crosses[0].endswith("; so also dead after a fall, empty steps and reward decline")
    assert "more problem" not in shown


def test_a_cause_stands_before_a_graver_effect() -> None:
    cause = Finding("sampler mismatch", "present", since=at(40), grade="warning", explains=("reward decline",))
    effect = Finding("reward decline", "present", since=at(60), grade="failing")
    other = Finding("gradient spikes", "present", since=at(60), grade="warning")
    assert judge.in_order([effect, other, cause]) == (cause, effect, other)
    before = Finding("reward decline", "present", since=at(20), grade="failing")
    assert judge.in_order([cause, before]) == (before, cause)


def test_a_mismatch_that_grows_before_the_reward_falls_heads_the_screen() -> None:
    rng, t = np.random.default_rng(3), np.arange(160)
    table = made.healthy(3, 160)
    table["reward"] = 0.6 - 0.5 * np.clip((t - 90) / 40, 0, 1) + 0.02 * rng.normal(size=160)
    table["mismatch/abs"] = 0.007 * 50 ** np.clip((t - 40) / 60, 0, 1) * np.exp(0.1 * rng.normal(size=160))
    run = made.run(table)
    judged = verdict(run, diagnose(run))
    assert judged.word == "failing"
    assert "mismatch" in judged.fault
    assert "learning rate" not in judged.remedy
