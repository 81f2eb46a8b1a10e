"""First, best and last level are one number each, whoever says them: headline, sentence, tile, table, JSON, `runs`,
`compare` and `watch`."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import synthetic_series as series

from grposcope.core.run import Evaluations, Run
from grposcope.core.text import number, percent
from grposcope.instruments.diagnosis import answer as diagnosis_answer
from grposcope.instruments.diagnosis import diagnose, learning
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.instruments.runs import overview
from grposcope.instruments.runs.command_runs import _line_of_run
from grposcope.instruments.runs.compare import answer as compare
from grposcope.signs import levels, run_outcome
from grposcope.watch import wording

N = 100
U = np.arange(N) / N


def evaluated(course: np.ndarray, problems: int, seed: int) -> Run:
    """A run whose reward rises, and whose held-out score takes this course (E,), on so many problems each time."""
    rng = np.random.default_rng(seed)
    run = series.run({"reward": 1.2 + 0.6 * U + 0.05 * rng.normal(size=N)})
    steps = np.linspace(N / len(course), N, len(course)).astype(int)
    share = rng.binomial(problems, course) / problems
    error = np.sqrt(np.maximum(share * (1 - share), 1e-9) / problems)
    rows = [
        (int(step), "accuracy", float(p), float(se), problems, "")
        for step, p, se in zip(steps, share, error, strict=True)
    ]
    return Run(run.meta, run.config, run.table, run.groups, Evaluations.of_rows(rows))


COURSES = {
    "rises": np.linspace(0.2, 0.7, 12),
    "falls": np.linspace(0.6, 0.3, 12),
    "peaks": 0.3 + 0.4 * np.sin(np.linspace(0.2, 2.8, 15)),
    "few": np.array([0.52, 0.31]),
}


def _compared(run: Run) -> object:
    """What `compare` says of a run beside itself, as JSON."""
    return compare.of_runs([run, run], ["a", "b"]).document


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("course", COURSES)
def test_the_last_level_of_a_held_out_score_is_one_number(course: str, seed: int) -> None:
    run = evaluated(COURSES[course], 400, seed)
    values = run.evaluations.of("accuracy").value
    mean = float(values[-max(round(0.2 * len(values)), 1) :].mean())
    seen = levels.of_heldout(run)
    assert seen is not None
    assert seen.first.value == values[0]
    assert seen.last.value == pytest.approx(mean)
    outcome = run_outcome.of_run(run)
    assert (outcome.end, outcome.heldout) == (seen.last, True)
    judged = verdict(run, diagnose(run))
    told = percent(mean, 0)
    assert f"→ {told}" in judged.line
    assert told in judged.outcome
    assert learning.ends(run)["last"]["value"] == seen.last.value  # type: ignore[index]
    tile = overview._numbers(run)[0]
    assert (tile.value, tile.shown) == (seen.last, percent(mean, 1))
    assert percent(mean, 1) in overview._table([run, run]).rows[0][5]
    line = _line_of_run(run)
    assert line.heldout == seen.last
    assert line.shown_heldout.startswith(percent(mean, 1))
    said = diagnosis_answer.learned([run])
    assert said is not None
    document = next(iter(said.document.values()))
    assert document["levels"]["last"]["value"] == seen.last.value
    assert judged.line in wording.verdict_alert(judged, diagnose(run), "run").title
    assert judged.line in json.dumps(_compared(run), ensure_ascii=False)


@pytest.mark.parametrize("slope", [0.6, -0.6])
def test_the_levels_of_a_reward_are_one_number_each(slope: float) -> None:
    reward = 1.5 + slope * U + 0.05 * np.random.default_rng(1).normal(size=N)
    run = series.run({"reward": reward})
    seen = levels.of_run(run)
    assert seen is not None
    assert seen.last.value == pytest.approx(reward[-20:].mean())
    assert seen.first.value == pytest.approx(reward[:15].mean())
    judged, shown = verdict(run, diagnose(run)), number(seen.last.value)
    assert _line_of_run(run).reward == seen.last
    assert shown in judged.outcome
    last = re.search(r"→ ([\d.]+)", judged.line)
    assert last is not None
    assert float(last[1]) == pytest.approx(seen.last.value, rel=0.05)
