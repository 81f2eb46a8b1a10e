"""Each failure put into a healthy run is found under its name, and the healthy run has none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import synthetic_series as made
from places import ROOT
from synthetic_series import Columns, U, flagged

from grposcope.faults import catalogue, pages
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs.trainers import how_to_log


def test_healthy_has_no_flag_and_says_so() -> None:
    run = made.run(made.healthy(), np.linspace(0.3, 0.6, 12))
    findings = diagnose(run)
    assert not [f.fault for f in findings if f.status == "present"]
    assert str(verdict(run, findings)).startswith("healthy: held-out accuracy 30% → 59% in 120 steps")
    assert {f.fault for f in findings if f.status == "cannot tell"} == {
        "cancelling components", "never paid", "sampler mismatch",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [1, 5, 9])
def test_what_is_logged_on_too_few_rows_is_counted_and_never_called_not_logged(rows: int) -> None:
    """Every rule that cannot tell says how many rows there are of something, and how many it takes."""
    table = {name: values[:rows] for name, values in made.healthy().items()}
    parts = {f"{kind}/{name}": np.linspace(0, 1, rows) for kind in ("component", "component_std") for name in "ab"}
    table["mismatch/k3"] = np.full(rows, 1e-4)
    findings = {f.fault: f for f in diagnose(made.run({**table, **parts}, np.array([0.3, 0.4])))}
    untold = [f for f in findings.values() if f.status == "cannot tell"]
    assert len(untold) >= 15
    have = f"only {rows} row{'s' * (rows != 1)} of .* logged; at least"
    for finding in untold:
        assert re.search(rf"{have} (10|30) are needed$", finding.because), (finding.fault, finding.because)
        assert not finding.missing, finding.fault
    apart = {**table, "clip_low": table["clip_fraction"], "clip_high": table["clip_fraction"]}
    del apart["clip_fraction"]
    (clip,) = [f for f in diagnose(made.run(apart)) if f.fault == "clip saturation"]
    assert re.search(rf"{have} 10 are needed$", clip.because)
    bare = diagnose(made.run({"reward": table["reward"]}))
    assert {"loss", "entropy", "length", "clip_fraction"} <= {name for f in bare for name in f.missing}


def spikes(t: Columns) -> None:
    t["grad_norm"][[50, 70, 90]] *= 12
    t["clip_fraction"][:] = 0.0


def infinite(t: Columns) -> None:
    t["loss"][60] = math.inf


def zero(t: Columns) -> None:
    t["grad_norm"][:] = 0.0
    t["loss"][:] = 0.0
    t["dead_fraction"][:] = 1.0
    t["reward"][:] = 0.0


CASES: dict[str, Callable[[Columns], object]] = {
    "entropy collapse": lambda t: t.update(entropy=t["entropy"] * np.exp(-4 * U)),
    "entropy explosion": lambda t: t.update(entropy=t["entropy"] * np.exp(3 * U)),
    "kl blow-up": lambda t: t.update(kl=t["kl"] * np.exp(8 * np.maximum(U - 0.5, 0) / 0.5)),
    "length": lambda t: t.update(truncated=np.clip(t["truncated"] + 0.8 * U, 0, 1)),
    "saturated": lambda t: t.update(
        reward=0.97 + 0.1 * (t["reward"] - 0.5) * (1 - U), dead_fraction=np.clip(t["dead_fraction"] + 0.88, 0, 1)
    ),
    "starved": zero,
    "zero loss": zero,
    "gradient spikes": spikes,
    "gradient explosion": lambda t: t.update(grad_norm=t["grad_norm"] * np.exp(4 * U)),
    "non-finite": infinite,
    "clip saturation": lambda t: t.update(clip_fraction=t["clip_fraction"] + 0.5),
    "reward decline": lambda t: t.update(reward=t["reward"] - 0.9 * U),
    "no learning": lambda t: t.update(reward=0.4 + 0.2 * (t["reward"] - 0.3 - 0.4 * U)),
    "oscillation": lambda t: t.update(reward=t["reward"] + 0.15 * np.sin(2 * np.pi * 6 * U)),
    "growing oscillation": lambda t: t.update(
        reward=t["reward"] + 0.25 * np.exp(3 * (U - 1)) * np.sin(2 * np.pi * 6 * U)
    ),
}


@pytest.mark.parametrize("mode", CASES)
def test_a_failure_is_found_under_its_name(mode: str) -> None:
    table = made.healthy()
    CASES[mode](table)
    assert mode in flagged(table)


@pytest.mark.parametrize("mode", ["kl blow-up", "entropy collapse", "clip saturation", "gradient explosion"])
def test_levels_short_of_the_limit_are_not_flagged(mode: str) -> None:
    """Half of what is needed, however sure."""
    table = made.healthy()
    table |= {
        "kl": np.linspace(0.1, 0.45, 120), "entropy": np.linspace(0.8, 0.2, 120),
        "clip_fraction": np.full(120, 0.25), "grad_norm": np.geomspace(0.5, 2.0, 120),
    }  # fmt: skip
    assert mode not in flagged(table)


def test_levels_are_told_of_short_runs() -> None:
    """Twenty rows are too few to judge changes, but not where the run is."""
    table = {name: column[:20] for name, column in made.healthy().items()}
    table["truncated"] = np.full(20, 0.9)
    findings = diagnose(made.run(table))
    assert [f.fault for f in findings if f.status == "present"] == ["length"]
    assert next(f for f in findings if f.fault == "reward decline").status == "cannot tell"


def test_what_is_proved_is_not_counted_among_the_tests() -> None:
    """Holm's factor is the number of rules that can err."""
    table = made.healthy()
    table["reward"] = table["reward"] + 0.05 * np.sin(2 * np.pi * 6 * U)
    findings = diagnose(made.run(table, np.linspace(0.3, 0.6, 12)))
    tested = [f for f in findings if not math.isnan(f.p)]
    least = min(tested, key=lambda f: f.p)
    assert 0 < least.p < 1 / len(tested)
    assert least.adjusted == pytest.approx(least.p * len(tested))


def test_missing_metrics_are_named_with_a_way_to_log_them() -> None:
    findings = diagnose(made.run({"reward": made.healthy()["reward"]}))
    untold = [f for f in findings if f.status == "cannot tell"]
    assert {"entropy collapse", "kl blow-up", "length", "gradient spikes"} <= {f.fault for f in untold}
    assert all("TRL: " in how_to_log(name) for f in untold for name in f.missing)


def test_short_runs_cannot_be_told() -> None:
    run = made.run({name: column[:12] for name, column in made.healthy().items()})
    assert str(verdict(run, diagnose(run))) == "cannot tell: reward 0.31 → 0.31 in 12 steps, too short to judge"


def test_every_fault_has_its_words() -> None:
    for name, fault in catalogue.faults().items():
        assert fault.name == name
        assert pages.page(fault).source
        assert fault.remedy
        assert fault.log is None or (fault.log.statistic and fault.log.threshold)
    assert catalogue.minor() == {"no learning", "zero loss"}


def test_every_fault_is_documented() -> None:
    page = (ROOT / "docs" / "faults.md").read_text("utf-8")
    assert [name for name in catalogue.faults() if f"\n### {name}\n" not in page] == []


def test_ok_means_clearly_inside() -> None:
    """Dead groups at 84 % where the limit is 85 %, and at 40 %."""
    table = made.healthy()
    noise = 0.02 * made.ar1(np.random.default_rng(5), 120, 0.3)
    for share, status in ((0.84, "possible"), (0.4, "excluded")):
        table["dead_fraction"] = np.clip(share + noise, 0, 1)
        run = made.run(table)
        findings = diagnose(run)
        assert next(f for f in findings if f.fault == "starved").status == status
        said = "; ".join(verdict(run, findings).clauses)
        assert ("near the limit: starved, 84% of groups" in said) == (share > 0.8)
