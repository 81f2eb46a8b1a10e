"""Every number, step, count and name on the first screen of `diagnose` is true of the raw file.

The log is read again by plain Python (`raw_log`), and each claim is recomputed from it (`true_sentences`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

import causes
import fixture_logs
import made_logs
import numpy as np
import plain_runs
import pytest
from made_logs import Made
from raw_log import read_raw
from true_sentences import CONSTANTS, untrue

from grposcope.core.errors import UserError
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, first_line, screen
from grposcope.instruments.diagnosis.command import MORE
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

KINDS = [*plain_runs.KINDS]

REFUSED = ("without_reward",)
"""Kinds of logs that may be refused, since they have no reward."""


def first_screen(path: Path) -> str:
    """What `diagnose` prints of a log, on lines as long as they are."""
    run = read(path)
    findings = diagnose(run)
    judged = verdict(run, findings)
    text = screen.text(run, judged, findings, answer.of_run(run, findings), MORE, 2000)
    return text.replace(str(path), "LOG")


def counts_are_right(shown: str, path: Path) -> bool:
    """Whether the numbers of rules on a screen are those of the findings."""
    findings = diagnose(read(path))
    of = {status: sum(finding.status == status for finding in findings)
          for status in ("excluded", "possible", "cannot tell")}  # fmt: skip
    near = f", {of['possible']} near the limit" if of["possible"] else ""
    said = f"Of {len(findings)} rules, {of['excluded']} found nothing{near}, {of['cannot tell']} cannot tell."
    return said in shown.split("\n")


def false_claims(logs: Iterable[Made]) -> list[str]:
    """What is not true on the screens of these logs, and first lines that are too long."""
    wrong, count = [], 0
    for made in logs:
        try:
            shown = first_screen(made.path)
        except UserError as error:
            wrong += [] if made.name.startswith(REFUSED) else [f"{made.name}: {error}"]
            continue
        count += 1
        head = shown.partition("\n")[0]
        wrong += [f"{made.name}: {claim}" for claim in untrue(shown, made.raw)]
        wrong += [f"{made.name}: {len(head)} characters: {head}"] * (len(head) > first_line.MOST)
    assert count
    return wrong


def of_seeds(folder: Path, seeds: Iterable[int]) -> Iterable[Made]:
    """A made-up log of each seed, of every kind in turn."""
    for seed in seeds:
        (folder / str(seed)).mkdir()
        yield made_logs.made(folder / str(seed), KINDS[seed % len(KINDS)], seed)


def test_screens_of_fixtures_are_true(tmp_path: Path) -> None:
    """Every log of the repository, and one of each cause of mismatch."""
    logs = [made for made in fixture_logs.logs(tmp_path) if " " not in made.name or "trl" in made.name]
    assert len(logs) > 15
    assert false_claims(logs) == []


@pytest.mark.parametrize("k", range(len(causes.CASES)))
def test_screens_of_causes_are_true(tmp_path: Path, k: int) -> None:
    """Every run that is made for a cause, with the defect and without."""
    case = causes.CASES[k]
    for name, columns in (("faulty", case.faulty()), ("twin", case.twin())):
        (tmp_path / name).mkdir()
        assert false_claims([made_logs.of_columns(tmp_path / name, f"{case.fault}, {name}", columns)]) == []


@pytest.mark.slow
def test_screens_of_made_up_logs_are_true(tmp_path: Path) -> None:
    assert false_claims(of_seeds(tmp_path, range(1, 300, 43))) == []


@pytest.mark.parametrize("kl", [0.0, 0.01])
def test_the_screen_of_a_flat_run_is_true_whether_or_not_a_kl_is_computed(tmp_path: Path, kl: float) -> None:
    """A KL of exactly 0 in every row, dead groups at a reward that is not low, and a share of right answers beside."""
    rng = np.random.default_rng(3)
    columns = {
        "reward": 1.8 + 0.05 * rng.standard_normal(120), "kl": np.full(120, kl) * rng.uniform(0.9, 1.1, 120),
        "grad_norm": rng.uniform(0.05, 0.1, 120), "dead_fraction": rng.choice([0.5, 0.625, 0.75], 120),
        "lr": np.full(120, 1e-6), "reward_std": rng.uniform(0.2, 0.4, 120),
    }  # fmt: skip
    assert false_claims([made_logs.of_columns(tmp_path, f"flat, kl {kl}", columns)]) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_screens_of_300_made_up_logs_are_true(tmp_path: Path, first: int) -> None:
    assert false_claims(of_seeds(tmp_path, range(first, first + 50))) == []


@pytest.mark.slow
def test_screens_of_all_fixtures_are_true(tmp_path: Path) -> None:
    assert false_claims(fixture_logs.logs(tmp_path)) == []


def test_a_number_that_is_changed_is_found(tmp_path: Path) -> None:
    """Each number of a screen that is no constant and no date, made larger by a third and more."""
    for made in (next(iter(fixture_logs.logs(tmp_path))), made_logs.made(tmp_path, "reward_gone", 11)):
        shown = first_screen(made.path)
        assert counts_are_right(shown, made.path)
        fixed = [match.span() for pattern, _ in CONSTANTS for match in re.finditer(pattern, shown, re.M)]
        numbers = [match for match in re.finditer(r"(?<!step )(?<![\w.@,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w@])", shown)
                   if not any(low <= match.start() < high for low, high in fixed)]  # fmt: skip
        missed = []
        for match in numbers:
            value = float(match.group().replace(",", ""))
            other = f"{value * 1.3 + 3:.0f}" if value >= 1 or value == 0 else f"{value * 1.3 + 0.02:.3f}"
            changed = shown[: match.start()] + other + shown[match.end() :]
            if not untrue(changed, made.raw):
                missed.append(shown[max(match.start() - 30, 0) : match.end() + 20])
        assert len(numbers) >= 9
        assert missed == []


FIRST_ROWS: dict[str, dict[str, float]] = {
    "no gradient": {"grad_norm": 0.0, "kl": 0.0},
    "no gradient in a batch": {"grad_norm": 0.0, "kl": 0.0, "frac_reward_zero_std": math.nan},
    "cut": {"completions/clipped_ratio": 1.0, "completions/min_length": 256.0, "completions/mean_length": 256.0},
    "nearly cut": {"completions/clipped_ratio": 0.956},
    "dead": {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "grad_norm": 0.0, "reward": 0.0},
    "paid": {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "grad_norm": 0.0, "reward": 4.0},
    "nothing paid": {"frac_reward_zero_std": math.nan, "reward_std": math.nan, "grad_norm": 0.0, "reward": 0.0},
}


@pytest.mark.parametrize("kind", FIRST_ROWS)
def test_screens_of_first_rows_are_true(tmp_path: Path, kind: str) -> None:
    names = {"loss": "loss", "grad_norm": "grad_norm", "reward": "reward", "reward_std": "reward_std", "kl": "kl",
             "dead_fraction": "frac_reward_zero_std", "length": "completions/mean_length",
             "truncated": "completions/clipped_ratio", "length_min": "completions/min_length",
             "length_max": "completions/max_length"}  # fmt: skip
    usual = {"loss": 0.01, "grad_norm": 0.7, "reward": 0.4, "reward_std": 0.2, "kl": 0.001, "frac_reward_zero_std": 0.5,
             "completions/mean_length": 120.0, "completions/clipped_ratio": 0.1, "completions/min_length": 20.0,
             "completions/max_length": 256.0}  # fmt: skip
    for rows in (1, 3, 6):
        row = {key: value for key, value in (usual | FIRST_ROWS[kind]).items() if not math.isnan(value)}
        path = tmp_path / f"{rows}.jsonl"
        path.write_text("".join(json.dumps({**row, "step": k + 1}) + "\n" for k in range(rows)))
        assert false_claims([Made(kind, path, read_raw(path, "step", names))]) == []
