"""Every number on the screens of terms of the loss that come into force, and of weights that do not move."""

from __future__ import annotations

from pathlib import Path

import made_logs
import numpy as np
import pytest
from test_faults_that_begin_later import Columns, base
from true_sentences import untrue

from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read


def _sign_turned() -> Columns:
    table = base(120)
    table["loss"] = np.where(np.arange(120) < 45, 0.1, -0.1) * table["kl"]
    return table


def _bonus() -> Columns:
    table, grows = base(120), np.clip((np.arange(120) - 30) / 90, 0, 1)
    table["entropy"] *= 1 + 1.5 * grows
    table["reward"] -= 0.2 * grows
    table["loss"][30:] = -0.3 * table["entropy"][30:]
    return table


def _drawn_back() -> Columns:
    table = base(120)
    table["kl"] *= np.where(np.arange(120) < 45, 7.0, 3.0)
    table["loss"][45:] = 20 * table["kl"][45:]
    return table


CASES: dict[str, tuple[str, Columns]] = {
    "sign turned": ("kl against its penalty", _sign_turned()),
    "bonus": ("entropy explosion", _bonus()),
    "drawn back": ("kl penalty outweighs the reward", _drawn_back()),
    "lost from a step on": ("update not applied", {**base(120), "weights_moved": np.r_[np.ones(80), np.zeros(40)]}),
    "lost from the start": ("update not applied", {**base(120), "weights_moved": np.zeros(120)}),
    "rounded away": ("coarse weights", {**base(120), "weights_moved": np.full(120, 0.02)}),
    "a sum": ("accumulation not scaled", {**base(120), "grad_norm": 1500 * base(120)["grad_norm"]}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_number_is_that_of_the_log(tmp_path: Path, name: str) -> None:
    fault, table = CASES[name]
    made = made_logs.of_columns(tmp_path, name, {key: value for key, value in table.items() if key != "step"})
    run = read(made.path)
    findings = diagnose(run)
    assert fault in {finding.fault for finding in findings if finding.present}
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    assert untrue(shown.replace(str(made.path), "LOG"), made.raw) == []
