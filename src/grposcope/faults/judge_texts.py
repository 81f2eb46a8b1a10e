"""Exploits that the texts of a run show, beside the findings of its log, so that a verdict can name what is gamed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from grposcope.core.finding import GRADES, Finding, Grade
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run, once
from grposcope.faults.judge_rollouts import prove
from grposcope.signs import checkpoints, run_outcome
from grposcope.signs.rollouts.claims import texts
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import exploits, sample
from grposcope.signs.texts.reading import TextReading


@once
def of_run(run: Run) -> tuple[Finding, ...]:
    """The exploits that the texts of a run show, or may show."""
    rows = sample.recorded(run)
    if not any(row.completion is not None for row in rows):
        return ()
    evidence = PipelineEvidence(str(run.meta.source), run.meta.engine, tuple(rows), run=run)
    found = prove(evidence, (texts.PROOF,))[texts.PROOF]
    return tuple(replace(own, remedy=_dated(run, own)) for own in found if own.present or _no_form(own))


def _no_form(own: Finding) -> bool:
    """Whether an exploit that is possible spread, and is of a kind that no task asks of its answers."""
    return own.status == "possible" and own.since is not None and own.fault in exploits.OF_KIND.values()


def undecided(finding: Finding) -> bool:
    """Whether a finding is of a habit that may be an exploit, which has no p-value, and not of a limit."""
    return finding.status == "possible" and finding.fault in exploits.FAULTS and math.isnan(finding.p)


def grade_of(reading: TextReading, rows: Sequence[Rollout], run: Run | None) -> Grade | None:
    """The worst grade of the exploits of a reading that are present, as the verdict on its run gives it; None without.

    run: where these rollouts are from; None where no run can be read there, so that its outcome is not known.
    """
    found = [texts.finding(own) for own in exploits.exploits(reading)]
    proof = replace(texts.PROOF, check=lambda evidence: iter(found))
    weighed = prove(PipelineEvidence("", "", tuple(rows), run=run), (proof,))[proof]
    grades = [own.grade for own in weighed if own.present and own.grade is not None]
    return min(grades, key=GRADES.index) if grades else None


def of_rows(rows: Sequence[Rollout], level: float, draws: int, words: int) -> tuple[Finding, ...]:
    """The exploits that are present in rollouts, at a level; draws, words: as in `signs.texts.reading.read`."""
    proof = replace(texts.PROOF, check=partial(texts.shown, level=level, draws=draws, words=words))
    found = prove(PipelineEvidence("", "", tuple(rows)), (proof,), level)[proof]
    return tuple(own for own in found if own.present)


def _dated(run: Run, own: Finding) -> str:
    """The remedy of an exploit, with the checkpoint that it sends back to; the reward does not show an exploit."""
    back = checkpoints.back(run, run_outcome.of_run(run), own.since, gamed=True)
    return checkpoints.advised(own.remedy, back, own.since)
