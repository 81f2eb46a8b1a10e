"""One judge: what `diagnose` says of the rows so far at a scheduled look, `watch` and `advise` say too.

Logs: every log of the repository and of the tests' writers, and made-up runs of every kind that a person judges.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import fixture_logs
import numpy as np
import plain_runs
import pytest

from grposcope.core.run import Run
from grposcope.faults import catalogue, looks
from grposcope.faults.judge import LEVEL, diagnose
from grposcope.instruments import has
from grposcope.logs import read
from grposcope.signs.quantities import LEAST
from grposcope.watch.alarms import Alarms
from grposcope.watch.row_signs import AGAIN, REFERENCE, RUN, RowSigns

LONGEST = 110
"""Rows of a made-up run that are looked at."""

FEW, REST = list(plain_runs.KINDS)[::10], [name for k, name in enumerate(plain_runs.KINDS) if k % 10]
"""Kinds of made-up runs that are looked at always, and with the slow tests."""


def test_scheduled_looks() -> None:
    assert list(looks.scheduled(350)) == [10, 20, 30, 45, 70, 100, 150, 225, 338]
    assert [rows for rows in range(1, 351) if looks.passes(rows - 1, rows)] == list(looks.scheduled(350))
    assert looks.passes(29, 44)
    assert not looks.passes(30, 44)
    assert len([rows for rows in looks.scheduled(500) if rows >= LEAST]) == 7
    assert len([rows for rows in looks.scheduled(10_000) if rows >= LEAST]) == 15


@pytest.mark.slow
def test_levels_between_scheduled_looks_sum_to_one_more() -> None:
    """The bound that the module states: LEVEL at each scheduled look, and LEVEL for all other rows together."""
    rows = np.arange(LEAST, 200_000)
    spent = sum(looks.level_of_look(n, n) for n in rows.tolist())  # none is scheduled after n and up to n
    assert 0.99 * LEVEL < spent < LEVEL
    assert looks.level_of_look(0, 10) == looks.level_of_look(10, LEAST - 1) == 0
    assert looks.level_of_look(99, 100) == looks.level_of_look(80, 117) == LEVEL
    assert looks.level_of_look(100, 117) == pytest.approx(LEVEL * 30 / (117 * 118))


@cache
def _made(name: str, seed: int) -> Run:
    run = plain_runs.of_seed(name, seed).run
    return looks.first_rows(run, min(run.steps, LONGEST))


def _names(run: Run) -> dict[str, str]:
    """Faults that a diagnosis calls present and their grades, but for those that only say that nothing happens yet."""
    return {f.fault: str(f.grade) for f in diagnose(run) if f.present and f.fault not in catalogue.minor()}


def _looked_at(run: Run) -> Iterator[int]:
    """Rows at which a look is made: scheduled ones, and some between them."""
    yield from sorted({*looks.scheduled(run.steps), run.steps} | {rows for rows in (52, 80) if rows < run.steps})


def _agrees(run: Run) -> int:
    """Hold `Alarms` to `diagnose` on the same rows at every look; the number of faults that were named."""
    watched, compared = Alarms(), 0
    for rows in _looked_at(run):
        part = looks.first_rows(run, rows)
        new, said = watched.look(part), _names(part)
        assert {alarm.fault: alarm.grade for alarm in new}.items() <= said.items(), (run.meta.name, rows)
        assert {f.fault: str(f.grade) for f in watched.findings if f.fault in said and f.present} == said
        if rows in looks.scheduled(rows) and rows >= LEAST:
            raised = {alarm.fault for alarm in watched.raised}
            assert said.keys() <= raised, (run.meta.name, rows, said.keys() - raised)
            compared += len(said)
    return compared


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)])
def test_alarms_and_diagnosis_agree_on_made_up_runs(name: str) -> None:
    _agrees(_made(name, 0))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(10))
def test_alarms_and_diagnosis_agree_on_the_logs_of_the_tests(begin: int, tmp_path: Path) -> None:
    assert sum(_agrees(read(made.path)) for made in list(fixture_logs.logs(tmp_path))[begin::10]) > 1


@pytest.mark.slow
@pytest.mark.needs("autopilot")
def test_advice_names_what_is_failing_at_a_scheduled_look() -> None:
    from grposcope.instruments.autopilot import answer
    from grposcope.instruments.autopilot.alarm import FAULTS
    from grposcope.instruments.autopilot.answer import ALSO
    from grposcope.watch.advice import adviser

    as_well, told_of = {fault: FAULTS[monitor] for fault, monitor in ALSO.items()}, 0
    advise = adviser("advise")
    for name in [name for name, (fate, _) in plain_runs.KINDS.items() if fate == "failing"][::3]:
        run, watched = _made(name, 0), Alarms()
        failing: set[str] = set()
        for rows in looks.scheduled(run.steps):
            part = looks.first_rows(run, rows)
            watched.look(part)
            if rows >= LEAST:
                failing |= {fault for fault, grade in _names(part).items() if grade == "failing"}
            said = {one.finding.fault for one in advise(part, watched.raised)}
            untold = {fault for fault in failing - said if as_well.get(fault) not in said}
            assert not untold, (name, rows, untold)
        text = "\n".join(answer.of_run(run).paragraphs).lower()
        for fault in failing:
            assert fault in text, (name, fault)
            told_of += 1
    assert told_of >= 5


def test_decisions_of_an_autopilot_are_not_contradicted() -> None:
    """Where its bets speak, the diagnosis of the rows so far has something failing or a warning as well."""
    if not has("autopilot"):
        pytest.skip("no autopilot")
    from grposcope.instruments.autopilot.policy import AutopilotPolicy
    from grposcope.instruments.autopilot.replay import replay

    decided = 0
    for name in [*FEW, "numbers_left_out"]:
        run = _made(name, 0)
        for decision in replay(run, AutopilotPolicy(mode="advise")).decisions:
            part = looks.first_rows(run, int((run.table["step"] <= decision.step).sum()))
            assert {"failing", "warning"} & set(_names(part).values()), (name, decision.step, decision.fault)
            decided += 1
    assert decided > 2


def test_first_rows_are_those_of_a_log_that_was_cut(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "docs" / "example.jsonl"
    lines = path.read_text().splitlines()
    steps = [json.loads(line).get("step", -1) for line in lines]
    (tmp_path / "cut.jsonl").write_text("".join(f"{line}\n" for line, step in zip(lines, steps, strict=True)
                                                if step <= 120))  # fmt: skip
    cut, whole = read(tmp_path / "cut.jsonl"), read(path)
    part = looks.first_rows(whole, cut.steps)
    assert 50 < cut.steps < whole.steps
    assert [(f.fault, f.status, f.grade) for f in diagnose(part)] == [
        (f.fault, f.status, f.grade) for f in diagnose(cut)
    ]
    assert len(part.evaluations) == len(cut.evaluations) < len(whole.evaluations)


def test_a_gross_change_asks_for_looks() -> None:
    draw, signs = np.random.default_rng(0), RowSigns()
    asked = [row for row in range(1, 200) if signs.take({"step": row, "loss": draw.normal(), "reward": 1.0})]
    assert asked == []
    asked = [row for row in range(200, 260) if signs.take({"step": row, "loss": 30 + draw.normal(), "reward": 1.0})]
    assert asked == [200 + RUN - 1 + later for later in AGAIN]


def test_values_that_stop_changing_ask_for_looks() -> None:
    draw, signs = np.random.default_rng(0), RowSigns()
    rows = [{"reward": float(draw.normal())} for _ in range(REFERENCE)] + [{"reward": 0.0}] * 30
    assert next(k for k, row in enumerate(rows, 1) if signs.take(row)) == REFERENCE + RUN
    assert not any(RowSigns().take(replace_with_nan) for replace_with_nan in [{"reward": math.nan}] * 40)
