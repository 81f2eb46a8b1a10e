"""What is said of the claims: one Answer, for terminal, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.instruments.verify import coverage, stated
from grposcope.instruments.verify.claim import ClaimResult, ClaimTest
from grposcope.instruments.verify.evidence import PipelineEvidence

NO_ROLLOUTS = (
    "To test more: write the rollouts down and give their folder. TRL does with log_completions=True, verl with "
    "trainer.rollout_data_dir, and GRPOscope's own record has them."
)

SHOWN = 3
"""Reasons why nothing can be told that are shown in full; the others are counted."""


def of(evidence: PipelineEvidence, results: Sequence[ClaimResult]) -> Answer:
    """The answer of all claims: what is broken first, then what holds, then what to log."""
    broken = [one for one in results if one.status == "broken"]
    holds = [one for one in results if one.status == "holds"]
    shown = [*broken, *holds, *filter(coverage.tested_in_part, results)]
    return Answer(
        name="verify",
        question="Does this pipeline do what it says?",
        word="failing" if broken else "healthy" if holds else "cannot tell",
        sentence=_sentence(results, len(evidence.rows)),
        tables=(_table(shown),) if shown else (),
        text=[*_differences(evidence), *map(_fault, broken)],
        missing=_missing(results) if evidence.rows else (NO_ROLLOUTS,),
        document={
            "source": evidence.source,
            "engine": evidence.engine,
            "rollouts": len(evidence.rows),
            "checkpoints": [one.name for one in evidence.scored],
            "stated": stated.said(evidence.stated),
            "differences": list(evidence.differences),
            "tested live": len(evidence.live),
            "claims": [_document(one) for one in results],
            "notes": list(evidence.notes),
        },
    )


def _sentence(results: Sequence[ClaimResult], rollouts: int) -> str:
    """What is broken, then how many claims hold, were tested in part and could not be tested."""
    broken = [one for one in results if one.status == "broken"]
    holds = sum(one.status == "holds" for one in results)
    in_part = sum(map(coverage.tested_in_part, results))
    untested = len(results) - len(broken) - holds - in_part
    if not rollouts and not broken and not holds:
        return f"Cannot tell: there are no rollouts, and {in_part} of {len(results)} claims can be tested without them."
    counts = [f"{holds} {'claim holds' if holds == 1 else 'claims hold'}"] if holds or not broken else []
    counts += [f"{in_part} {'was' if in_part == 1 else 'were'} tested in part"] if in_part else []
    counts += [f"{untested} could not be tested"] if untested else []
    of = f"on {rollouts:,} rollout{'' if rollouts == 1 else 's'}"
    if broken:
        names = "; ".join(f"“{one.claim.title}”" for one in broken)
        return f"Broken: {names}. Of the other claims {', '.join(counts)}, {of}." if counts else f"Broken: {names}."
    if holds:
        return f"Nothing that could be tested is broken: {', '.join(counts)}, {of}."
    if in_part:
        return f"Cannot tell: no claim could be tested in full, {', '.join(counts[1:])}, {of}."
    return f"Cannot tell: none of the {len(results)} claims could be tested, {of}."


def _differences(evidence: PipelineEvidence) -> list[str]:
    """Settings that were stated otherwise than the run says of itself: one paragraph, or none."""
    if not evidence.differences:
        return []
    return [
        f"The claims were tested against what was stated, not what the run says: {'; '.join(evidence.differences)}."
    ]


def _fault(result: ClaimResult) -> str:
    """What is broken: evidence, since when, what it does, what to do."""
    first, *others = result.told
    since = "" if first.since is None else f" Since step {first.since}."
    further = f" Also: {', '.join(one.fault for one in others)}." if others else ""
    effect = f" {first.effect}" if first.effect else ""
    return f"{_capital(first.fault)}: {first.evidence.rstrip('.')}.{since}{effect} What to do: {first.remedy}{further}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _table(results: Sequence[ClaimResult]) -> Table:
    return Table("Claims", ("claim", "status", "what was seen"), [[one.claim.title, one.status, _shown(one)]
                                                                  for one in results])  # fmt: skip


def _shown(result: ClaimResult) -> str:
    """What was seen of a claim; of one that was tested in part, also why the rest was not."""
    if result.status == "broken":
        return ", ".join(one.fault for one in result.told)
    if coverage.tested_in_part(result):
        return f"In part: {_held(result)} Not tested: {result.untested[0]}"
    return _held(result)


def _held(result: ClaimResult) -> str:
    held = [one.held for one in result.told if one.held]
    shown = " ".join(held[:2])
    more = len(held) - 2
    return shown if more <= 0 else f"{shown} {more} more test{'s' * (more > 1)} found no fault."


def _missing(results: Sequence[ClaimResult]) -> tuple[str, ...]:
    """To test more: one paragraph, a reason of each claim that could not be tested at all, then the count of others."""
    whole = [one for one in results if not one.told]
    reasons = list(dict.fromkeys(reason for one in whole for reason in one.untested[:1]))
    every = list(dict.fromkeys(reason for one in results for reason in one.untested))
    shown = (reasons or every)[:SHOWN]
    if not shown:
        return ()
    more = len(every) - len(shown)
    end = f" The JSON document has {more} more reason{'' if more == 1 else 's'}." if more else ""
    return (f"To test more: {' '.join(shown)}{end}",)


def _document(result: ClaimResult) -> dict[str, Any]:
    return {
        "claim": result.claim.name,
        "title": result.claim.title,
        "status": result.status,
        "tests": [_test(test, result.status == "broken") for test in result.told],
        "untested": list(result.untested),
    }


def _test(test: ClaimTest, broken: bool) -> dict[str, Any]:
    exact = test.p != test.p
    said = {"since": test.since, "evidence": test.evidence, "effect": test.effect, "remedy": test.remedy}
    return {"fault": test.fault, "p": None if exact else test.p, **(said if broken else {"held": test.held})}
