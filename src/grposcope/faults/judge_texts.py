"""Exploits that the texts of a run show, beside the findings of its log, so that a verdict can name what is gamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run, once
from grposcope.faults import judge
from grposcope.faults.judge_rollouts import prove
from grposcope.signs import checkpoints, run_outcome
from grposcope.signs.rollouts.claims import texts
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import sample


def with_texts(run: Run, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of a log with the exploits that are present in its rollouts, in the order of what to look at first.

    A run whose log says nothing of its rollouts, or that has too few, keeps its findings.
    """
    shown = of_run(run)
    return judge.in_order([*findings, *shown]) if shown else tuple(findings)


@once
def of_run(run: Run) -> tuple[Finding, ...]:
    """The exploits that are present in the texts of a run."""
    rows = sample.recorded(run)
    if not any(row.completion is not None for row in rows):
        return ()
    evidence = PipelineEvidence(str(run.meta.source), run.meta.engine, tuple(rows), run=run)
    found = prove(evidence, (texts.PROOF,))[texts.PROOF]
    return tuple(replace(own, remedy=_dated(run, own)) for own in found if own.present)


def of_rows(rows: Sequence[Rollout], level: float, draws: int, words: int) -> tuple[Finding, ...]:
    """The exploits that are present in rollouts, at a level; draws, words: as in `signs.texts.reading.read`."""
    proof = replace(texts.PROOF, check=partial(texts.shown, level=level, draws=draws, words=words))
    found = prove(PipelineEvidence("", "", tuple(rows)), (proof,), level)[proof]
    return tuple(own for own in found if own.present)


def _dated(run: Run, own: Finding) -> str:
    """The remedy of an exploit, with the checkpoint that it sends back to; the reward does not show an exploit."""
    back = checkpoints.back(run, run_outcome.of_run(run), own.since, gamed=True)
    return checkpoints.advised(own.remedy, back, own.since)
