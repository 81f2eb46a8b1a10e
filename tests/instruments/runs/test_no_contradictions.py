"""Commands that speak of one run agree on its verdict, forecast, phases and plateau."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from places import ROOT

from grposcope import logs as runs
from grposcope.core.text import capitalised
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.instruments.dynamics import forecast_summary
from grposcope.instruments.runs import overview
from grposcope.instruments.runs.command_runs import _line_of_run
from grposcope.logs import Run
from grposcope.logs.hints import LAST, Hints
from grposcope.signs import run_outcome
from grposcope.signs.quantities import Quantities

DATA = ROOT.parent / "shared" / "data" / "runs"
LOGS = sorted(path for path in DATA.glob("*/*") if path.suffix in (".log", ".json", ".jsonl", ".ipynb", ".wandb"))


def check(run: Run) -> None:
    """No two statements about the run contradict each other."""
    judged = verdict(run, diagnose(run))
    assert overview.of_run(run).sentence == capitalised(judged.line)
    assert _line_of_run(run).verdict == judged
    learned = run_outcome.of_reward(Quantities(run))
    summary = forecast_summary.of_run(run)
    if learned.direction == "down":
        assert judged.word != "healthy", (learned, str(judged))
    if not summary.plateau.flag and summary.plateau_step <= summary.ahead.steps[-1]:
        apart = abs(summary.plateau.value - summary.ahead.mean[-1])
        half = (summary.ahead.high[-1] - summary.ahead.low[-1]) / 2
        assert apart <= half, (summary.plateau, summary.ahead.mean[-1])


@pytest.mark.slow
@pytest.mark.skipif(not LOGS, reason=f"no real logs at {DATA}")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem.rpartition("__")[2])
def test_of_a_real_log(path: Path) -> None:
    check(runs.read(path, Hints(run=LAST)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_of_a_record(seed: int, tmp_path: Path) -> None:
    check(runs.read(synthetic.make(tmp_path / "run", steps=150, seed=seed)))
