"""What is wrong with a run, since when, how sure that is, and what to do; whether it learned; and the parts of its
reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.finding import Finding, Status
from grposcope.core.finding import document as finding_document
from grposcope.core.metrics import COMPONENT
from grposcope.core.outline import outline
from grposcope.core.run import Run, labels
from grposcope.core.text import capitalised, number, plain, visible
from grposcope.faults import catalogue
from grposcope.faults.judge import LEVEL, diagnose_together
from grposcope.faults.record import metric_logged_wrongly
from grposcope.instruments.diagnosis import learning
from grposcope.instruments.diagnosis.verdict import Verdict, findings_of, present_faults, verdict
from grposcope.logs.trainers import how_to_log
from grposcope.signs import group_signal, heldout, ladder, levels

LIMIT = 600
"""Characters of a sentence or a cell."""

EVALUATED = 400
"""Evaluations in a table, at most."""

COMPONENTS = 6
"""Parts of the reward whose charts are shown at once; those of further ones are folded."""

MARKS: dict[Status, str] = {"present": "✗", "possible": "≈", "cannot tell": "?", "excluded": "✓"}

CONFIDENCE = (
    "Confidence is 1 − p, adjusted for the number of rules: at confidence 0.99, at most 1% of runs without any "
    "failure show a finding this strong."
)


BEHIND = "Numbers behind each flag"
"""Title of the table of what was measured."""


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The diagnosis, and whether the run learned: the reward, held-out scores, and the parts of the reward."""
    sections = (diagnosed(runs), learned(runs), _components(runs))
    return [section for section in sections if section is not None]


def diagnosed(runs: Sequence[Run]) -> Answer | None:
    """The diagnosis of one run with charts of what is flagged; of several, a verdict each."""
    from grposcope.instruments.diagnosis import figures

    if not any(run.steps for run in runs):
        return None
    each = [of_run(run, findings_of(run)) for run in runs]
    document = {name: section.document for name, section in zip(labels(runs), each, strict=True)}
    if len(runs) == 1:
        notes = [visible(line, LIMIT) for line in about(runs[0])[1:]]
        drawn = figures.of_findings(runs[0], findings_of(runs[0]))
        return replace(each[0], text=[*each[0].text, *notes], figures=drawn, document=document)
    rows = [(name, visible(section["verdict"], LIMIT)) for name, section in document.items()]
    return Answer("diagnosis", "Diagnosis", tables=[Table("", ("run", "verdict"), rows)], document=document)


def of_run(run: Run, findings: Sequence[Finding], level: float = LEVEL) -> Answer:
    """The diagnosis of a run from its findings, in the order in which `diagnose` returns them. level: of `diagnose`."""
    judged = verdict(run, findings)
    result, parts = of_verdict(judged), _of_parts(run, level)
    return replace(
        result,
        text=[
            *result.text,
            *(f"{visible(name, 40)}: {visible(component.line, LIMIT)}" for name, component in parts.items()),
        ],
        tables=[*_ladder(judged), *_tables(findings), *_how_to_log(run, findings)],
        missing=missing(findings),
        document=_document(run, findings, judged, level)
        | {"scopes": {name: {"verdict": component.line, "grade": component.word} for name, component in parts.items()}},
    )


def _of_parts(run: Run, level: float = LEVEL) -> dict[str, Verdict]:
    """The verdict on each environment or agent that the log has apart; the level holds for all of them together."""
    runs = list(run.scopes.values())
    return {
        name: verdict(one, findings)
        for name, one, findings in zip(run.scopes, runs, diagnose_together(runs, level), strict=True)
    }


def of_verdict(judged: Verdict) -> Answer:
    """A verdict in sentences."""
    because = f"because {judged.because}" if judged.because else ""
    clauses = (because, judged.outcome, *judged.remarks)
    text = [visible(capitalised(clause), LIMIT) + "." for clause in clauses if clause]
    return Answer("diagnosis", "Diagnosis", judged.word, capitalised(judged.line), "", visible(judged.do, LIMIT), text)


def about(run: Run) -> tuple[str, ...]:
    """What was read: the log, its trainer, the number of rows, and the notes of the reader."""
    return (
        f"{run.meta.source} · {run.meta.engine} · {run.steps:,} rows",
        *(f"Note: {note}." for note in run.meta.notes if note not in metric_logged_wrongly.sentences(run)),
    )


def missing(findings: Sequence[Finding]) -> list[str]:
    """The quantities that rules lack, in a sentence; none where nothing is lacking."""
    names = list(dict.fromkeys(name for finding in findings for name in finding.missing))
    return [f"Not logged: {', '.join(names)}."] if names else []


def _ladder(judged: Verdict) -> list[Table]:
    """The rungs of the ladder of a flat run, in order; none of another run."""
    rows = [
        (rung.question, rung.answer, visible(rung.because, LIMIT), visible(rung.do, LIMIT)) for rung in judged.ladder
    ]
    header = ("question", "answer", "what was seen", "what to do")
    text = "What has to hold before a policy can learn: the first that fails explains those behind it."
    return [Table(f"{capitalised(ladder.CHECKS)}, in order", header, rows, text)] if rows else []


def _how_to_log(run: Run, findings: Sequence[Finding]) -> list[Table]:
    """How to have the quantities logged that rules lack, folded; none where nothing is lacking."""
    names = dict.fromkeys(name for finding in findings for name in finding.missing)
    ways = [(name, how_to_log(name, run.meta.engine, run.config.get("logged"))) for name in names]
    return [Table("How to log what is missing", ("metric", "how"), ways, folded=True)] if ways else []


def _since(finding: Finding) -> str:
    """Since which step, with the interval where it is known; empty where it is not dated."""
    since = finding.since
    if since is None:
        return ""
    between = "" if since.low is None or since.high is None else f" ({since.low:,} to {since.high:,})"
    told = "" if since.told == "since" else f"{since.told} "
    return f"{told}{since.step:,}{between}"


def _tables(findings: Sequence[Finding]) -> list[Table]:
    """What is flagged, the evidence of it and what to do; and the other rules, folded."""
    flagged = [finding for finding in findings if finding.status == "present"]
    rest = [finding for finding in findings if finding.status != "present"]
    others = [
        (finding.fault, _status(finding), visible(finding.because, LIMIT) + _by_chance(finding)) for finding in rest
    ]
    tables = [Table("Rules that are not flagged", ("rule", "status", "what was seen"), others, folded=True)]
    if not flagged:
        return tables
    seen = [
        (finding.fault, _status(finding), _since(finding), _sure(finding),
         f"{finding.p:.2g}" if finding.p > 0 else "",
         visible(finding.because, LIMIT))
        for finding in flagged
    ]  # fmt: skip
    measured = [
        (finding.fault, visible(evidence.what, LIMIT), number(evidence.value),
         plain(f"{evidence.se:.2g}") if math.isfinite(evidence.se) and evidence.se > 0 else "", evidence.limit)
        for finding in flagged
        for evidence in finding.evidence
    ]  # fmt: skip
    advice = [(finding.fault, visible(finding.remedy, LIMIT)) for finding in flagged]
    header = ("rule", "status", "since step", "confidence", "p", "what was seen")
    return [
        Table("Flagged", header, seen, CONFIDENCE),
        *(
            [Table(BEHIND, ("rule", "measured", "value", "standard error", "limit"), measured, folded=True)]
            if measured
            else []
        ),
        *([Table("What to do", ("rule", "what to do"), advice)] if len(advice) > 1 else []),
        *tables,
    ]


def _sure(finding: Finding) -> str:
    if certain(finding):
        return "certain"
    return "above 0.999" if finding.confidence > 0.999 else f"{finding.confidence:.3f}"


def certain(finding: Finding) -> bool:
    """Whether a fault that is present is read off, or as sure as that."""
    return finding.basis == "fact" or finding.adjusted == 0


def _by_chance(finding: Finding) -> str:
    """What a sign in the direction of a fault that is not told lacks; empty where it points elsewhere or is a fact."""
    if finding.status == "cannot tell" or finding.adjusted <= 0.05 or not 0 < finding.p < 0.5:
        return ""
    if finding.p <= 0.05:
        return f"; not certain: p = {finding.p:.2g}, and {finding.adjusted:.2g} over all rules"
    return f"; no more than chance explains (p = {finding.p:.2g})"


def _status(finding: Finding) -> str:
    return f"{mark(finding)} {finding.grade or finding.status}"


def mark(finding: Finding) -> str:
    """The sign of a finding: that of its status, and a dot for a note, which is no problem."""
    return "·" if finding.grade == "note" else MARKS[finding.status]


def _document(run: Run, findings: Sequence[Finding], judged: Verdict, level: float) -> dict[str, Any]:
    """All of a diagnosis for programs."""
    tests = {
        test.fault: {"needs": test.needs, "statistic": test.statistic, "threshold": test.threshold}
        for test in catalogue.log_tests()
    }
    return {
        "verdict": judged.line,
        "because": judged.because,
        "do": judged.do,
        "outcome": judged.outcome,
        "remarks": list(judged.remarks),
        "grade": judged.word,
        "ladder": [rung.document() for rung in judged.ladder],
        "source": str(run.meta.source),
        "engine": run.meta.engine,
        "rows": run.steps,
        "level": level,
        "present": present_faults(findings),
        "findings": [finding_document(finding) for finding in findings],
        "groups": group_signal.document(run),
        "tests": tests,
        "notes": run.meta.notes,
    }


def learned(runs: Sequence[Run]) -> Answer | None:
    """Whether the run learned: reward, held-out scores with 95% intervals, and for one run every pass@k."""
    from grposcope.instruments.diagnosis import figures

    onsets = figures.of_scores(runs[0], findings_of(runs[0])) if len(runs) == 1 and runs[0].steps else {}
    drawn = [
        figures.reward(runs),
        *figures.accuracies(runs, onsets),
        figures.pass_at_k(runs) if len(runs) == 1 else None,
    ]
    shown = [figure for figure in drawn if figure is not None]
    if not shown:
        return None
    document = {
        label: {
            "reward": outline(run.table["reward"]) if "reward" in run.table else None,
            "heldout": learning.ends(run),
            "levels": None if (seen := levels.of_run(run)) is None else seen.document(),
        }
        for label, run in zip(labels(runs), runs, strict=True)
    }
    result = Answer("learning", "Did the policy learn?", figures=shown, tables=_evaluations(runs),
                   document=document)  # fmt: skip
    if len(runs) > 1 or not runs[0].steps:
        return result
    said = learning.of_run(runs[0])
    return replace(result, sentence=said.sentence, text=said.details)


def _evaluations(runs: Sequence[Run]) -> tuple[Table, ...]:
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        table = run.evaluations
        for i in range(len(table)):
            estimate = heldout.at(table, i)
            rows.append(
                (label, f"{table.step[i]:,}", table.metric[i], number(estimate.value), number(estimate.se),
                 f"{estimate.n:,}", estimate.flag)
            )  # fmt: skip
    if not rows:
        return ()
    shown, unlisted = rows[:EVALUATED], len(rows) - EVALUATED
    more = f" {unlisted:,} further rows are in evals.jsonl." if unlisted > 0 else ""
    header = ("run", "step", "metric", "value", "standard error", "problems", "note")
    return (Table("All held-out evaluations", header, shown, f"As recorded.{more}", folded=True),)


def _components(runs: Sequence[Run]) -> Answer | None:
    """Curves of the parts of the reward, means before spreads; the spreads, and all but the first parts, folded."""
    recorded = dict.fromkeys(name for run in runs for name in run.table)
    means, spreads = ([name for name in recorded if name.startswith(prefix)] for prefix in COMPONENT)
    groups = dict.fromkeys(means[COMPONENTS:], "further components") | dict.fromkeys(spreads, "spread of components")
    from grposcope.render.curves import of_metrics

    return of_metrics("components", "Which parts of the reward moved?", (*means, *spreads), groups)(runs)
