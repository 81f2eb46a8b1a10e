"""Facts of first rows that are too few for a test: said of the rows at hand, never where one contradicts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.logs import read

LIVE = {"loss": 0.0, "grad_norm": 0.7, "reward": 0.4, "reward_std": 0.2, "frac_reward_zero_std": 0.5, "kl": 0.001,
        "completions/mean_length": 120.0, "completions/clipped_ratio": 0.1, "completions/min_length": 20.0,
        "completions/max_length": 256.0}  # fmt: skip
CUT = {"completions/mean_length": 256.0, "completions/min_length": 256.0, "completions/clipped_ratio": 1.0}
DEAD = {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "grad_norm": 0.0}


def present(path: Path, changes: dict[str, Any], rows: int, odd: dict[str, Any] | None = None) -> dict[str, str]:
    """Fault -> why, of those present in a log of so many rows; the last has the values `odd`."""
    table = [{**LIVE, **changes, "step": k + 1} for k in range(rows)]
    table[-1] |= odd or {}
    (path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    return {finding.fault: finding.because for finding in findings_of(read(path / "log.jsonl")) if finding.present}


@pytest.mark.parametrize("rows", [2, 4, 9, 12, 29])
def test_no_gradient_although_groups_differ(tmp_path: Path, rows: int) -> None:
    found = present(tmp_path, {"grad_norm": 0.0, "kl": 0.0}, rows)
    assert f"grad_norm is 0 in all {rows} steps" in found["lost gradient"]
    assert "50% of groups have different rewards" in found["lost gradient"]


@pytest.mark.parametrize(
    ("changes", "rows", "odd"),
    [
        ({"grad_norm": 0.0, "kl": 0.0}, 1, {}),
        ({"grad_norm": 0.0, "kl": 0.0}, 4, {"grad_norm": 1e-9}),
        ({"grad_norm": 0.0, "kl": 0.0}, 4, {"kl": 1e-6}),
        ({**DEAD, "kl": 0.0}, 4, {}),
    ],
    ids=["one row", "a gradient", "a policy that moves", "dead groups"],
)
def test_a_gradient_of_0_that_is_not_lost(
    tmp_path: Path, changes: dict[str, Any], rows: int, odd: dict[str, Any]
) -> None:
    assert "lost gradient" not in present(tmp_path, changes, rows, odd)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_every_completion_is_cut(tmp_path: Path, rows: int) -> None:
    because = present(tmp_path, CUT, rows)["length"]
    assert because.startswith("every completion is cut at the token limit in ")
    assert because.endswith("after 256 tokens")


def test_nearly_every_completion_is_cut(tmp_path: Path) -> None:
    """The share that is told holds in every row."""
    assert present(tmp_path, CUT, 4, {"completions/clipped_ratio": 0.975})["length"].startswith("at least 97% of ")
    assert "length" not in present(tmp_path, CUT, 4, {"completions/clipped_ratio": 0.85})


def test_ends_that_are_counted_as_cut_are_no_cut_ones(tmp_path: Path) -> None:
    assert "length" not in present(tmp_path, {"completions/clipped_ratio": 1.0}, 4)


def test_every_group_is_dead(tmp_path: Path) -> None:
    because = present(tmp_path, {**DEAD, "reward": 0.0}, 5)["starved"]
    assert because == "rewards within every group are equal in all 5 steps, each of 0"
    assert not present(tmp_path, {**DEAD, "reward": 0.0}, 4)
    assert not present(tmp_path, {**DEAD, "reward": 0.0}, 5, {"frac_reward_zero_std": 0.75, "reward_std": 0.1})
    assert "constant reward" in present(tmp_path, {**DEAD, "reward": 4.0}, 5)


def test_a_first_line_says_the_fact_and_the_remedy(tmp_path: Path) -> None:
    present(tmp_path, {"grad_norm": 0.0, "kl": 0.0}, 4)
    told = verdict(run := read(tmp_path / "log.jsonl"), findings_of(run))
    assert told.line.startswith("warning: grad_norm is 0 in all 4 steps, although 50% of groups have different rewards")
    assert "after one backward pass list the trainable parameters" in told.do


def test_healthy_first_rows_have_no_fault(tmp_path: Path) -> None:
    for rows in (1, 2, 5, 9):
        assert not present(tmp_path, {}, rows)
