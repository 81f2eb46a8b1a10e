"""The diagnosis on one screen of a terminal: verdict, advice, evidence of what is flagged, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grposcope.core.answer import Answer
from grposcope.core.finding import Finding, Sign
from grposcope.core.run import Run
from grposcope.core.text import capitalised, number, plain, visible
from grposcope.instruments.diagnosis import answer
from grposcope.instruments.diagnosis.verdict import NEAR, Verdict, conclusion
from grposcope.render import terminal

MOST = 20
"""Lines of the screen."""


def text(run: Run, judged: Verdict, findings: Sequence[Finding], found: Answer, more: str, width: int) -> str:
    """The screen, in lines of at most `width`.

    found: the answer that `answer.of_run` makes of the findings. more: where the rest is, as of `terminal.screen`.
    """
    because = f"Because {judged.because}." if judged.because else ""
    outcome = f"{capitalised(judged.outcome)}." if judged.outcome else ""
    told = judged.outcome.lower() in found.sentence.lower()
    head = [found.sentence, f"What to do: {found.do}." if found.do else "", because, "" if told else outcome]
    said = (because, outcome, *(f"{capitalised(remark)}." for remark in judged.remarks[: len(judged.notes)]))
    about, *notes = answer.about(run)
    near = [f"{capitalised(remark)}." for remark in judged.remarks if remark.startswith(NEAR)]
    others = [[visible(line, answer.LIMIT)] for line in (*found.text, *notes) if line not in (*said, *near)]
    tail = [*answer.missing(findings), counted(findings), about]
    shown = evidence(findings, judged)
    middle = [shown[:1], [[visible(line, answer.LIMIT)] for line in near], shown[1:], others]
    return terminal.screen([part for part in head if part], middle, tail, more, width, MOST)


def evidence(findings: Sequence[Finding], judged: Verdict) -> list[list[str]]:
    """What is flagged, a block each: the mode with its onset and reason, then what was measured.

    The reason that the verdict has given is not said again.
    """
    blocks = []
    for finding in findings:
        if finding.status == "present":
            named = conclusion(str(finding.grade), finding.fault, finding.since)
            told = "" if finding.because == judged.because else f": {finding.because}"
            costs = f"; {finding.effect}" if finding.grade == "note" and finding.effect else ""
            measured = "; ".join(map(_measured, finding.evidence))
            line = f"{answer.mark(finding)} {named}{told}{costs} ({certainty(finding)})"
            blocks.append([line, *([f"    {measured}"] if measured else [])])
    return blocks


def certainty(finding: Finding) -> str:
    """How sure a flagged mode is: "certain" where the record proves it, else its confidence."""
    if answer.certain(finding):
        return "certain"
    return "confidence\u00a0" + ("above\u00a00.999" if finding.confidence > 0.999 else f"{finding.confidence:.3f}")


def _measured(one: Sign) -> str:
    error = f"\u00a0±\u00a0{one.se:.2g}" if math.isfinite(one.se) and one.se > 0 else ""
    return plain(f"{one.what}:\u00a0{number(one.value)}{error}" + (f" ({one.limit})" if one.limit else ""))


def counted(findings: Sequence[Finding]) -> str:
    """How many rules found nothing, and how many could not tell."""
    of = {status: sum(one.status == status for one in findings) for status in ("excluded", "possible", "cannot tell")}
    near = f", {of['possible']} near the limit" if of["possible"] else ""
    return f"Of {len(findings)} rules, {of['excluded']} found nothing{near}, {of['cannot tell']} cannot tell."
