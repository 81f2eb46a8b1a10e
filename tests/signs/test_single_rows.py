"""What happened in one row alone is said of that row, with its step, and never as since when."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.core.run import Run
from grposcope.instruments.diagnosis import answer, diagnose, screen
from grposcope.instruments.diagnosis.command import MORE
from grposcope.instruments.diagnosis.verdict import Verdict, verdict
from grposcope.logs import read

ROWS, ROW = 80, 50


def _log(folder: Path, rises: bool, **single: float) -> Path:
    """A log of ROWS rows, of which that of step ROW + 1 has these values."""
    rng = np.random.default_rng(11)
    rows = [
        {
            "step": i + 1, "reward": 0.3 + 0.4 * rises * i / ROWS + 0.03 * rng.normal(),
            "reward_std": 0.3 + 0.01 * rng.normal(), "kl": 0.02 + 0.002 * rng.random(),
            "entropy": 0.5 + 0.02 * rng.normal(), "completions/mean_length": 500 + 20 * rng.normal(),
            "completions/clipped_ratio": 0.02 + 0.005 * rng.random(), "grad_norm": 0.3 + 0.03 * rng.normal(),
            "frac_reward_zero_std": 0.2 + 0.03 * rng.normal(), "loss": 0.01 * rng.normal(),
        }
        for i in range(ROWS)
    ]  # fmt: skip
    rows[ROW] |= {key.replace("__", "/"): value for key, value in single.items()}
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _judged(path: Path) -> tuple[Run, Verdict, list[str | None]]:
    """A run, its verdict, and since when its faults are said to be."""
    run = read(path)
    findings = diagnose(run)
    since = [None if f.since is None else str(f.since) for f in findings if f.present and f.grade != "note"]
    return run, verdict(run, findings), since


@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize(
    ("single", "said"),
    [
        ({"grad_norm": 5e4}, "in one row alone: grad_norm 50,000 at step 51"),
        ({"entropy": 0.001}, "in one row alone: entropy 0.001 at step 51"),
        ({"completions__clipped_ratio": 1.0}, "in one row alone: all completions were cut at step 51"),
        (
            {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "completions__mean_length": 9.0},
            "in one row alone: all groups had equal rewards at step 51 and completions/mean_length 9 at step 51",
        ),
    ],
)
def test_what_is_far_off_in_one_row_is_said_with_its_step(
    tmp_path: Path, rises: bool, single: dict[str, float], said: str
) -> None:
    path = _log(tmp_path, rises, **single)
    _, judged, since = _judged(path)
    assert said in judged.remarks
    assert judged.word == ("healthy" if rises else "cannot tell")
    assert since == []


@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize(
    ("single", "first"),
    [
        ({"reward": np.nan}, "warning: reward is not finite at step 51; reward 0.3"),
        ({"loss": np.nan, "grad_norm": np.nan}, "warning: grad_norm is not finite at step 51; reward 0.3"),
        ({"kl": 3400.0}, "warning: kl 3,400 at step 51; reward 0.3"),
    ],
)
def test_one_row_without_a_number_or_with_an_exploded_kl_is_a_warning_at_its_step(
    tmp_path: Path, rises: bool, single: dict[str, float], first: str
) -> None:
    path = _log(tmp_path, rises, **single)
    _, judged, since = _judged(path)
    assert judged.line.startswith(first)
    assert since == ["at step 51"]
    assert not any("in one row alone" in remark for remark in judged.remarks)


def test_a_row_logged_twice_is_named(tmp_path: Path) -> None:
    path = _log(tmp_path, True)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[: ROW + 1], *lines[ROW:]]) + "\n")
    run, judged, _ = _judged(path)
    assert any("(step 51)" in note for note in run.meta.notes)
    assert judged.word == "healthy"


def test_nothing_is_said_of_two_rows_or_of_the_first(tmp_path: Path) -> None:
    path = _log(tmp_path, True, grad_norm=5e4)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[20]["grad_norm"], rows[2]["entropy"] = 4e4, 1e-3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not any("in one row alone" in remark for remark in _judged(path)[1].remarks)


NAMES = {
    "reward": "reward", "reward_std": "reward_std", "kl": "kl", "entropy": "entropy", "grad_norm": "grad_norm",
    "length": "completions/mean_length", "truncated": "completions/clipped_ratio", "loss": "loss",
    "dead_fraction": "frac_reward_zero_std",
}  # fmt: skip


@pytest.mark.parametrize(
    "single", [{"grad_norm": 5e4, "frac_reward_zero_std": 1.0, "reward_std": 0.0}, {"loss": np.nan}]
)
def test_every_claim_about_a_single_row_is_true_of_the_file(tmp_path: Path, single: dict[str, float]) -> None:
    path = _log(tmp_path, True, **single)
    run, judged, _ = _judged(path)
    findings = diagnose(run)
    shown = screen.text(run, judged, findings, answer.of_run(run, findings), MORE, 2000).replace(str(path), "LOG")
    raw = read_raw(path, "step", NAMES, shares=("completions/clipped_ratio", "frac_reward_zero_std"))
    assert untrue(shown, raw) == []
    changed = shown.replace("step 51", "step 52")
    assert changed != shown
    assert untrue(changed, raw)
