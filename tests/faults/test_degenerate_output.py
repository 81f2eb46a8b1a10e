"""A policy that is another from one step to the next, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

N, AT = 160, 101


def log(path: Path, seed: int, *, kl: float = 1.9, reward: float = 0.02, length: float = 480.0, rows: int = 1) -> Path:
    """A log whose KL, reward and length go to other levels behind AT rows, within so many rows."""
    rng = np.random.default_rng(seed)
    share = np.clip((np.arange(N) - AT + 1) / rows, 0, 1)

    def course(before: float, after: float, noise: float) -> np.ndarray:
        return before + (after - before) * share + noise * rng.normal(size=N)

    columns = {
        "loss": course(0, 0, 0.01), "grad_norm": course(0.4, 0.4, 0.05), "reward": course(0.7, reward, 0.02),
        "reward_std": np.abs(course(0.3, 0.3, 0.02)), "kl": np.abs(course(0.02, kl, 0.004)),
        "completions/mean_length": course(210.0, length, 8.0),
    }  # fmt: skip
    table = [{"step": k + 1, **{name: float(values[k]) for name, values in columns.items()}} for k in range(N)]
    (path / f"{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    return path / f"{seed}.jsonl"


def blamed(path: Path) -> int | None:
    """The step from which it is blamed, if it is."""
    found = [one for one in diagnose(read(path)) if one.present and one.fault == "degenerate output"]
    return None if not found or found[0].since is None else found[0].since.step


def test_another_policy_from_one_step_on(tmp_path: Path) -> None:
    assert [blamed(log(tmp_path, seed)) for seed in range(5)] == [AT + 1] * 5


@pytest.mark.parametrize(
    "course",
    [{"rows": 8}, {"kl": 0.02}, {"reward": 0.7}, {"length": 210.0}],
    ids=["over eight rows", "the policy stays", "the reward stays", "nothing else jumps"],
)
def test_what_else_jumps(tmp_path: Path, course: dict[str, float]) -> None:
    """A collapse over several updates; other prompts from one step on; a reference that is replaced."""
    assert [blamed(log(tmp_path, seed, **course)) for seed in range(5)] == [None] * 5


def test_the_screen_is_true(tmp_path: Path) -> None:
    run = read(path := log(tmp_path, 1))
    findings = diagnose(run)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    names = {"kl": "kl", "reward": "reward", "length": "completions/mean_length", "reward_std": "reward_std",
             "grad_norm": "grad_norm", "loss": "loss"}  # fmt: skip
    claims = [
        claim for claim in untrue(shown, read_raw(path, "step", names)) if "other levels" in claim or "median" in claim
    ]
    assert claims == []
    assert "which no update of the usual size makes" in shown
