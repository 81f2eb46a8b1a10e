"""Section on what is wrong with the run, since when, how sure that is, what to do, and the metrics that show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from grposcope.diagnosis import Finding
from grposcope.diagnosis.rules import RULES
from grposcope.facts.diagnosis import describe, findings_of, flagged_modes, verdict
from grposcope.formatting import visible
from grposcope.report.charts.curves import marked
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.metrics import VARIANTS, variant
from grposcope.runs.run import Run, labels

LIMIT = 600
"""Characters of a cell."""

DRAWN = 6
"""Charts at most."""

Findings = Sequence[Finding]


def section(runs: Sequence[Run]) -> Section | None:
    """Diagnosis of one run: its verdict, a line per rule, and charts of what is flagged; of several: a verdict each."""
    if not any(run.steps for run in runs):
        return None
    return section_of(runs, [findings_of(run) for run in runs])


def section_of(runs: Sequence[Run], findings: Sequence[Findings], folded: bool = True) -> Section:
    """Section from findings that were computed before. folded: show unflagged rules on request only."""
    names = labels(runs)
    judged = [verdict(run, of_run) for run, of_run in zip(runs, findings, strict=True)]
    verdicts = [visible(str(one), LIMIT) for one in judged]
    numbers = {
        name: {
            "verdict": said, "grade": one.word, "flagged": flagged_modes(of_run),
            "findings": [asdict(finding) for finding in of_run],
        }
        for name, said, one, of_run in zip(names, verdicts, judged, findings, strict=True)
    }  # fmt: skip
    if len(runs) > 1:
        rows = list(zip(names, verdicts, strict=True))
        return Section("diagnosis", "Diagnosis", tables=[PageTable("", ("run", "verdict"), rows)], numbers=numbers)
    return Section(
        "diagnosis", "Diagnosis", text=[verdicts[0]], figures=_figures(runs[0], findings[0]),
        tables=_tables(runs[0], findings[0], folded), numbers=numbers,
    )  # fmt: skip


def _tables(run: Run, findings: Findings, folded: bool) -> list[PageTable]:
    """One table of all rules; or one of the flagged rules, and a folded one of the rest."""
    if not folded:
        return [_table("Rules", run, findings)]
    flagged = [finding for finding in findings if finding.status == "flagged"]
    rest = [finding for finding in findings if finding.status != "flagged"]
    top = [_table("Flagged", run, flagged)] if flagged else []
    return [*top, _table("Rules that are not flagged", run, rest, folded=True)]


def _table(title: str, run: Run, findings: Findings, folded: bool = False) -> PageTable:
    """A row per rule."""
    rows = []
    for finding in (describe(finding, run.meta.engine) for finding in findings):
        to_log = [f"to tell, log {name}: {how}" for name, how in finding.to_log.items()]
        rows.append((
            finding.mode,
            finding.grade or finding.status,
            "" if finding.onset is None else f"{finding.onset:,}",
            f"{finding.confidence:.3f}" if math.isfinite(finding.confidence) else "",
            visible("; ".join([finding.because, *finding.evidence]), LIMIT),
            visible(finding.advice or "; ".join(to_log), LIMIT),
        ))  # fmt: skip
    header = ("rule", "status", "since step", "confidence", "evidence", "what to do")
    return PageTable(
        title, header, rows,
        "Confidence is 1 − p, adjusted for the number of rules: at most a share 1 − confidence of the runs without any "
        "failure shows a finding as strong. Evidence: value ± standard error.", folded,
    )  # fmt: skip


def _figures(run: Run, findings: Findings) -> list[Figure]:
    """A chart per metric that shows what is flagged, with the onset of each mode marked."""
    onsets: dict[str, dict[str, int | None]] = {}
    for finding in findings:
        if finding.status == "flagged":
            for name in evident(finding, run.table):
                onsets.setdefault(name, {})[finding.mode] = finding.onset
    drawn = [marked(run, name, modes) for name, modes in list(onsets.items())[:DRAWN]]
    return [figure for figure in drawn if figure is not None]


def evident(finding: Finding, table: Mapping[str, Any]) -> list[str]:
    """The columns that show a finding: those that its evidence was measured on, and the others that its rule needs."""
    measured = [evidence.column for evidence in finding.evidence if evidence.column in table]
    needed = [variant(quantity, table) for quantity in RULES[finding.mode].needs]
    related = {other for name in measured for names in VARIANTS.values() if name in names for other in names}
    return list(dict.fromkeys([*measured, *(name for name in needed if name is not None and name not in related)]))
