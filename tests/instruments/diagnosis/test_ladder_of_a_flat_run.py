"""What `diagnose` says of the ladder of a flat run: on its first screen, with -v, and in JSON."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import synthetic_series as made

from grposcope.core.finding import cannot_tell, fact
from grposcope.core.run import Run
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.command import MORE
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.render import terminal


def flat(**columns: np.ndarray) -> Run:
    table = made.healthy() | {"lr": np.full(120, 2e-6)}
    table["reward"] = np.full(120, 0.4) + 0.01 * made.ar1(np.random.default_rng(0), 120, 0.0)
    return made.run(table | columns)


SAID = "kl is 1.00e-5 nats in the last fifth of 120 steps at a learning rate of up to 2.00e-6"


def test_the_first_rung_that_fails_is_the_cause_on_the_first_screen() -> None:
    run, findings = flat(kl=np.full(120, 1e-5)), [cannot_tell("nothing", fault="starved")]
    judged = verdict(run, findings)
    assert judged.line == "cannot tell: reward 0.4 → 0.4 in 120 steps, no gain shown; kl is 1.00e-5: hardly moved"
    assert judged.because == f"{SAID}: the policy hardly moved"
    assert judged.remedy.startswith("compare the coefficient of the KL")
    shown = screen.text(run, judged, findings, answer.of_run(run, findings), MORE, 200)
    assert f"Because {SAID}: the policy hardly moved.\n" in shown
    assert "Checks of a run without a gain" not in shown


def test_where_no_rung_fails_a_line_names_those_that_hold_and_the_rest() -> None:
    run = flat()
    judged = verdict(run, [])
    shown = screen.text(run, judged, [], answer.of_run(run, []), MORE, 200)
    told = [line for line in shown.split("\n") if line.startswith("Checks")]
    assert told == [
        "Checks of a run without a gain: gradient, weights, learning rate, grader, room, groups and horizon pass; not "
        "answerable: sampler (-v says what to log)."
    ]


def test_a_failing_fault_leaves_the_ladder_to_the_table_and_a_warning_does_not() -> None:
    run = flat()
    bad = replace(fact(True, "it is broken", fault="kl blow-up"), grade="failing", remedy="mend it")
    assert not [clause for clause in verdict(run, [bad]).beside if "checks" in clause]
    beside = verdict(run, [replace(bad, grade="warning")]).beside
    assert [clause for clause in beside if clause.startswith("checks of a run without a gain: ")]
    assert len(verdict(run, [bad]).ladder) == 8


def test_all_rungs_stand_in_the_table_and_in_json_of_a_flat_run_alone() -> None:
    said = answer.of_run(flat(), [])
    table = terminal.text(said, 200, True).partition("Checks of a run without a gain, in order\n")[2].split("\n\n")[0]
    rungs = said.document["ladder"]
    assert [rung["name"] for rung in rungs][::7] == ["gradient", "horizon"]
    assert all(rung["question"].split("?")[0][:40] in table for rung in rungs)
    assert [rung["answer"] for rung in rungs].count("cannot tell") == 1
    risen = answer.of_run(made.run(made.healthy()), [])
    assert risen.document["ladder"] == []
    assert "Checks of a run without a gain" not in terminal.text(risen, 200, True)
