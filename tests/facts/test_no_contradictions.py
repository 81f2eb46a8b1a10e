"""Commands that speak of one run agree on its verdict, forecast, phases and plateau."""

from __future__ import annotations

from pathlib import Path

import pytest

import synthetic
from grposcope import runs
from grposcope.diagnosis import diagnose
from grposcope.facts import forecast_summary, headline, learning
from grposcope.facts.diagnosis import verdict
from grposcope.facts.overview import of_run
from grposcope.runs import Run
from grposcope.runs.hints import LAST, Hints

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "runs"
LOGS = sorted(path for path in DATA.glob("*/*") if path.suffix in (".log", ".json", ".jsonl", ".ipynb", ".wandb"))


def check(run: Run) -> None:
    """No two statements about the run contradict each other."""
    judged = verdict(run, diagnose(run))
    assert headline.of_run(run).sentence == judged.conclusion
    assert of_run(run).verdict == judged
    learned = learning.training_reward(run)
    summary = forecast_summary.of_run(run)
    slopes = [phase.name for phase in summary.phases]
    if learned.verdict == "up":
        assert slopes != ["flat"], (learned.clause, summary.phase_clauses)
        assert "falling" not in judged.conclusion
    if learned.verdict == "down":
        assert judged.word != "healthy", (learned.clause, str(judged))
    if not summary.plateau.flag and summary.plateau_step <= summary.ahead.steps[-1]:
        apart = abs(summary.plateau.value - summary.ahead.mean[-1])
        half = (summary.ahead.high[-1] - summary.ahead.low[-1]) / 2
        assert apart <= half, (summary.sentence, summary.plateau_sentence)
    if summary.ahead.verdict in ("rising", "falling") and slopes[-1] in ("plateau", "flat"):
        assert summary.plateau.flag, (summary.sentence, summary.phase_clauses, summary.plateau_sentence)


@pytest.mark.skipif(not LOGS, reason=f"no real logs at {DATA}")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem.rpartition("__")[2])
def test_of_a_real_log(path: Path) -> None:
    check(runs.read(path, Hints(run=LAST)))


@pytest.mark.parametrize("seed", range(3))
def test_of_a_record(seed: int, tmp_path: Path) -> None:
    check(runs.read(synthetic.make(tmp_path / "run", steps=150, seed=seed)))
