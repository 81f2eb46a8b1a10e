"""The diagnosis on one screen of a terminal: verdict, advice, evidence of what is flagged, and what is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from grposcope.core.answer import Answer
from grposcope.core.finding import Finding, Sign
from grposcope.core.run import Run
from grposcope.core.text import capitalised, listed, number, plain, visible
from grposcope.faults.judge import facts
from grposcope.faults.judge_texts import undecided
from grposcope.instruments.diagnosis import answer
from grposcope.instruments.diagnosis.verdict import MAYBE, NEAR, PAST, Verdict, conclusion
from grposcope.render import terminal

MOST = 20
"""Lines of the screen."""


def text(run: Run, judged: Verdict, findings: Sequence[Finding], answer_: Answer, more: str, width: int) -> str:
    """The screen, in lines of at most `width`.

    found: the answer that `answer.of_run` makes of the findings. more: where the rest is, as of `terminal.screen`.
    """
    because = f"Because {judged.because}." if judged.because else ""
    outcome = f"{capitalised(judged.outcome)}." if judged.outcome else ""
    told = judged.outcome.lower() in answer_.sentence.lower()
    told = told or judged.because.replace("the reward", "training reward") == judged.outcome
    head = [answer_.sentence, f"What to do: {answer_.do}." if answer_.do else "", because, "" if told else outcome]
    notes_of_rules = (f"{capitalised(remark)}." for remark in judged.remarks[: len(judged.notes)])
    said = [plain(text) for text in (because, outcome, *notes_of_rules)]
    about, *notes = answer.about(run)
    near = [plain(f"{capitalised(remark)}.") for remark in judged.remarks if remark.startswith((NEAR, PAST, MAYBE))]
    others = [[visible(line, answer.LIMIT)] for line in (*answer_.text, *notes) if plain(line) not in (*said, *near)]
    tail = [*answer.missing(findings), _counted(findings), about]
    shown = _evidence(findings, judged, run.keys)
    middle = [shown[:1], [[visible(line, answer.LIMIT)] for line in near], shown[1:], others]
    return terminal.screen([line for line in head if line], middle, tail, more, width, MOST)


def _evidence(findings: Sequence[Finding], judged: Verdict, keys: Mapping[str, str]) -> list[list[str]]:
    """What is flagged, a block each: the mode, its onset and reason, those that are the same fact, what was measured.

    The reason that the verdict has given is not said again. keys: column -> the log's own key, which is what is named.
    """
    blocks = []
    for finding, same in facts(findings):
        named = conclusion(str(finding.grade), finding.fault, finding.since)
        told = "" if finding.because == judged.because else f": {finding.because}"
        costs = f"; {finding.effect}" if finding.grade == "note" and finding.effect else ""
        besides = f"; so also {listed([finding.fault for finding in same])}" if same else ""
        measured = "; ".join(_measured(sign, keys) for sign in finding.evidence)
        line = f"{answer.mark(finding)} {named}{told}{costs} ({certainty(finding)}){besides}"
        blocks.append([line, *([f"    {measured}"] if measured else [])])
    return blocks


def certainty(finding: Finding) -> str:
    """How sure a flagged mode is: "certain" where the record proves it, else its confidence."""
    if answer.certain(finding):
        return "certain"
    return "confidence\u00a0" + ("above\u00a00.999" if finding.confidence > 0.999 else f"{finding.confidence:.3f}")


def _measured(sign: Sign, keys: Mapping[str, str]) -> str:
    """What was measured, under the log's own key, with its error and its limit; of a setting that is no number its name
    and value alone."""
    what = sign.what
    if math.isnan(sign.value) and not sign.column:
        return plain(what)
    if sign.column in keys:
        what = re.sub(rf"(?<![\w/]){re.escape(sign.column)}(?![\w/])", lambda _: keys[sign.column], what, count=1)
    error = f"\u00a0±\u00a0{sign.se:.2g}" if math.isfinite(sign.se) and sign.se > 0 else ""
    return plain(f"{what}:\u00a0{number(sign.value)}{error}" + (f" ({sign.limit})" if sign.limit else ""))


def _counted(findings: Sequence[Finding]) -> str:
    """How many rules found nothing, and how many could not tell."""
    findings = [finding for finding in findings if not undecided(finding)]
    of = {
        status: sum(finding.status == status for finding in findings)
        for status in ("excluded", "possible", "cannot tell")
    }
    near = f", {of['possible']} near the limit" if of["possible"] else ""
    return f"Of {len(findings)} rules, {of['excluded']} found nothing{near}, {of['cannot tell']} cannot tell."
