"""The rule of sampler mismatch: what it flags in the logs of every engine, under which cause, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import mismatch_logs as logs
import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import U

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.faults import catalogue
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read
from grposcope.signs import sampler_mismatch as off_policy

SAID = {
    "floor": "from the first step", "truncated": "always has the same sign", "staleness": "grows with the staleness",
    "jump": "jumped at step", "frozen": "never receives new weights", "unexplained": "nothing in the log explains it",
}  # fmt: skip
"""Cause -> words of the reason that no other cause has."""

OF_SAMPLER = [name for name, fault in catalogue.faults().items() if fault.log is off_policy.TEST]
"""The faults that the test of mismatch tells apart."""

SEEDS = range(20)


def mismatch(run: Run) -> Finding:
    (found,) = [f for f in diagnose(run) if f.fault in OF_SAMPLER]
    return found


def of_columns(**columns: object) -> Finding:
    """The finding for a healthy run with these columns beside its own."""
    extra = {name.replace("__", "/"): np.broadcast_to(values, len(U)).copy() for name, values in columns.items()}
    return mismatch(made.run({**made.healthy(), **extra}))


def drawn(tmp_path: Path, engine: str, seed: int, cause: str | None) -> Run:
    rng = np.random.default_rng(seed)
    course = logs.COURSES[cause](rng) if cause is not None else logs.healthy(rng)
    run = read(logs.write(tmp_path / "log.jsonl", engine, course, rng))
    assert run.meta.engine == engine
    return run


def visible(engine: str, cause: str) -> str:
    """The cause as the log of an engine can show it: a truncated sampler is a floor where too little is logged."""
    return "floor" if cause == "truncated" and not logs.ENGINES[engine].sides else cause


QUICK = (("trl", "floor"), ("trl", "staleness"))
"""Engines and causes whose logs the default tests look at; all are looked at in CI."""

CASES = [
    pytest.param(name, cause, marks=() if (name, cause) in QUICK else pytest.mark.slow)
    for name, e in logs.ENGINES.items() for cause in logs.COURSES if e.lag or cause != "staleness"
]  # fmt: skip
"""Engines and causes; where no staleness is logged it cannot be named."""


@pytest.mark.parametrize(("engine", "cause"), CASES)
def test_the_cause_is_named_in_nine_of_ten_logs(tmp_path: Path, engine: str, cause: str) -> None:
    found = [mismatch(drawn(tmp_path, engine, seed, cause)) for seed in SEEDS]
    flagged = [one for one in found if one.status == "present" and one.grade == "warning"]
    words = SAID[visible(engine, cause)]
    assert sum(words in one.because for one in flagged) >= 0.9 * len(found)
    others = {said for said in SAID.values() if said not in (words, SAID["floor"])}
    assert sum(any(other in one.because for other in others) for one in flagged) <= 0.1 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("engine", logs.ENGINES)
def test_healthy_logs_are_not_flagged(tmp_path: Path, engine: str) -> None:
    flagged = [mismatch(drawn(tmp_path, engine, seed, None)).status == "present" for seed in SEEDS]
    assert sum(flagged) <= 0.05 * len(flagged)


def test_a_kl_that_grew_700_fold_is_a_warning_in_the_key_of_the_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kl = 2e-4 * 700 ** np.linspace(0, 1.15, logs.ROWS).clip(0, 1)
    course = logs.Course(kl, np.ones(logs.ROWS), kl, np.zeros(logs.ROWS), np.full(logs.ROWS, 1e-6))
    run = read(logs.write(tmp_path / "log.jsonl", "verl", course, rng))
    first = str(verdict(run, diagnose(run)))
    assert first.startswith("warning: ")
    assert "rollout_corr/k" in first
    since = mismatch(run).since
    assert since is not None
    assert since.first <= int(np.argmax(kl > 2e-4 * 700**0.1)) + 1 <= since.last  # a tenth of the way, in logarithms


@pytest.mark.parametrize(("level", "status"), [(0.31, "present"), (0.9, "cannot tell")])
def test_a_mean_weight_of_031_is_a_warning_and_one_near_1_proves_nothing(level: float, status: str) -> None:
    """TRL's mean ratio is logged after the mask: it shows what is lost, and never that nothing is."""
    found = of_columns(importance__weight=level + 0.01 * made.ar1(np.random.default_rng(1), len(U), 0.3))
    assert found.status == status
    assert found.grade == ("warning" if status == "present" else None)
    assert ("hides large ratios" in found.because) == (status == "cannot tell")
    if status == "present":
        assert found.brief.startswith("importance/weight 0.31")
        assert found.onset is None  # it was there from the first step


@pytest.mark.parametrize(("column", "inside", "beyond"), [
    ("mismatch/k1", 0.08, 0.12), ("mismatch/k1", -0.08, -0.12), ("mismatch/k3", 0.008, 0.012),
    ("mismatch/abs", 0.08, 0.271), ("mismatch/mult_error", 1.03, 1.06), ("mismatch/chi2_token", 0.8, 1.2),
    ("mismatch/log_ratio", -0.08, -0.12), ("mismatch/k2", 0.008, 0.012), ("importance/ratio", 0.6, 0.4),
    ("importance/ratio", 1.8, 2.2), ("importance/ess", 0.4, 0.2), ("importance/masked", 0.4, 0.6),
    ("importance/masked_sequences", 0.4, 0.6),
])  # fmt: skip
def test_every_column_has_its_own_limit(column: str, inside: float, beyond: float) -> None:
    for level, found in ((inside, False), (beyond, True)):
        noise = 1 + 0.01 * made.ar1(np.random.default_rng(2), len(U), 0.3)
        values = 1 + (level - 1) * noise if column == "mismatch/mult_error" else level * noise
        finding = of_columns(**{column.replace("/", "__"): values})
        assert (finding.status == "present") == found, (column, level)
        if found:
            assert finding.evidence[0].column == column


def test_growth_that_stays_far_below_its_limit_is_left_alone() -> None:
    assert of_columns(mismatch__k3=1e-6 * 500**U).status == "excluded"
    assert of_columns(mismatch__k3=1e-5 * 500**U).status == "present"


def test_what_capped_weights_cannot_show_is_said() -> None:
    assert "raw weights are worse" in of_columns(importance__ess=0.2).because
    assert "hides large ratios" in of_columns(importance__ess=0.9).because


def test_nothing_logged_is_said_and_changes_no_verdict() -> None:
    run = made.run(made.healthy())
    found = mismatch(run)
    assert (found.status, found.because, found.missing) == ("cannot tell", "no mismatch is logged", ("mismatch",))
    others = tuple(one for one in diagnose(run) if one is not found)
    assert str(verdict(run, others)) == str(verdict(run, diagnose(run)))


@pytest.mark.parametrize(("jump", "precedes"), [(40, True), (100, False)])
def test_mismatch_stands_before_a_fall_that_it_precedes_only(jump: int, precedes: bool) -> None:
    table = made.healthy()
    table["reward"] = np.where(U < 0.6, 0.3 + 0.5 * U, 0.1) + 0.01 * made.ar1(np.random.default_rng(3), len(U), 0.3)
    table["mismatch/k3"] = np.where(np.arange(len(U)) < jump, 1e-4, 0.05)
    modes = [f.fault for f in diagnose(made.run(table)) if f.status == "present"]
    of_sampler = next(mode for mode in modes if mode in OF_SAMPLER)
    assert (modes.index(of_sampler) < modes.index("reward decline")) == precedes
    assert mismatch(made.run(table)).onset == jump + 1
