"""What is said of the claims: one Answer, for terminal, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grposcope.core.answer import Answer, Table, Word
from grposcope.instruments.verify import stated
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
    tested = [one for one in results if one.status != "cannot tell"]
    shown = [*broken, *(one for one in results if one.status == "holds")]
    return Answer(
        name="verify",
        question="Does this pipeline do what it says?",
        word=_word(len(broken), len(tested)),
        sentence=_sentence(broken, len(tested), len(results), len(evidence.rows)),
        tables=(_table(shown),) if shown else (),
        text=[_fault(one) for one in broken],
        missing=_missing(results) if evidence.rows else (NO_ROLLOUTS,),
        document={
            "source": evidence.source,
            "engine": evidence.engine,
            "rollouts": len(evidence.rows),
            "checkpoints": [one.name for one in evidence.scored],
            "stated": stated.said(evidence.stated),
            "claims": [_document(one) for one in results],
            "notes": list(evidence.notes),
        },
    )


def _word(broken: int, tested: int) -> Word:
    if broken:
        return "failing"
    return "healthy" if tested else "cannot tell"


def _sentence(broken: Sequence[ClaimResult], tested: int, count: int, rollouts: int) -> str:
    of = f"{rollouts:,} rollout{'' if rollouts == 1 else 's'}"
    if not rollouts and not broken:
        return f"Cannot tell: there are no rollouts, and {tested} of {count} claims can be tested without them."
    if broken:
        names = "; ".join(f"“{one.claim.title}”" for one in broken)
        return f"Broken: {names}. {tested} of {count} claims could be tested, on {of}."
    if not tested:
        return f"Cannot tell: none of the {count} claims could be tested, on {of}."
    return f"Nothing is broken: {tested} of {count} claims could be tested, on {of}."


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
    if result.status == "broken":
        return ", ".join(one.fault for one in result.told)
    held = [one.held for one in result.told if one.held]
    shown = " ".join(held[:2])
    more = len(held) - 2
    return shown if more <= 0 else f"{shown} {more} more test{'s' * (more > 1)} found no fault."


def _missing(results: Sequence[ClaimResult]) -> tuple[str, ...]:
    """To test more: one paragraph, a reason of each claim that could not be tested at all, then the count of others."""
    whole = [one for one in results if one.status == "cannot tell" and one.untested]
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
