"""What is said of the claims: one Answer, for terminal, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.answer import Answer, Table
from grposcope.core.finding import Finding, document
from grposcope.faults.judge_rollouts import Claims, claim_status, in_part, reasons
from grposcope.signs.rollouts import adversarial, pipeline_settings
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import was_tested

NO_ROLLOUTS = (
    "To test more: write the rollouts down and give their folder. TRL does with log_completions=True, verl with "
    "trainer.rollout_data_dir, and GRPOscope's own record has them."
)

SHOWN = 3
"""Reasons why nothing can be told that are shown in full; the others are counted."""


def of(evidence: PipelineEvidence, claims: Claims) -> Answer:
    """The answer of all claims: what is broken first, then what holds, then what to log."""
    broken = [proof for proof in claims if claim_status(claims[proof]) == "broken"]
    holds = [proof for proof in claims if claim_status(claims[proof]) == "holds"]
    shown = [*broken, *holds, *(proof for proof in claims if in_part(claims[proof]))]
    return Answer(
        name="verify",
        question="Does this pipeline do what it says?",
        word="failing" if broken else "healthy" if holds else "cannot tell",
        sentence=_sentence(claims, len(evidence.rows)),
        tables=[*([_table({proof: claims[proof] for proof in shown})] if shown else []), *_paid(evidence)],
        text=[*_differences(evidence), *(_fault(claims[proof]) for proof in broken), *_used(evidence)],
        missing=_missing(claims) if evidence.rows else (NO_ROLLOUTS,),
        document={
            "source": evidence.source,
            "engine": evidence.engine,
            "rollouts": len(evidence.rows),
            "checkpoints": [scored.name for scored in evidence.scored],
            "stated": pipeline_settings.said(evidence.stated),
            "used": list(evidence.used),
            "differences": list(evidence.differences),
            "tested live": len(evidence.live),
            "claims": [
                {"claim": proof.name, "title": proof.claim, "status": claim_status(findings),
                 "findings": [document(finding) for finding in findings]}
                for proof, findings in claims.items()
            ],
            "notes": list(evidence.notes),
        },
    )  # fmt: skip


def _sentence(claims: Claims, rollouts: int) -> str:
    """What is broken, then how many claims hold, were tested in part and could not be tested."""
    broken = [proof for proof in claims if claim_status(claims[proof]) == "broken"]
    holds = sum(claim_status(findings) == "holds" for findings in claims.values())
    partly = sum(map(in_part, claims.values()))
    untested = len(claims) - len(broken) - holds - partly
    if not rollouts and not broken and not holds:
        return f"Cannot tell: there are no rollouts, and {partly} of {len(claims)} claims can be tested without them."
    counts = [f"{holds} {'claim holds' if holds == 1 else 'claims hold'}"] if holds or not broken else []
    counts += [f"{partly} {'was' if partly == 1 else 'were'} tested in part"] if partly else []
    counts += [f"{untested} could not be tested"] if untested else []
    of = f"on {rollouts:,} rollout{'' if rollouts == 1 else 's'}"
    if broken:
        names = "; ".join(f"“{proof.claim}”" for proof in broken)
        return f"Broken: {names}. Of the other claims {', '.join(counts)}, {of}." if counts else f"Broken: {names}."
    if holds:
        return f"Nothing that could be tested is broken: {', '.join(counts)}, {of}."
    if partly:
        return f"Cannot tell: no claim could be tested in full, {', '.join(counts[1:])}, {of}."
    return f"Cannot tell: none of the {len(claims)} claims could be tested, {of}."


def _used(evidence: PipelineEvidence) -> list[str]:
    """What was read: one paragraph, or none."""
    return [f"Used: {'; '.join(evidence.used)}."] if evidence.used else []


def _differences(evidence: PipelineEvidence) -> list[str]:
    """Settings that were stated otherwise than the run says of itself: one paragraph, or none."""
    if not evidence.differences:
        return []
    return [
        f"The claims were tested against what was stated, not what the run says: {'; '.join(evidence.differences)}."
    ]


def _fault(findings: Sequence[Finding]) -> str:
    """What is broken: evidence, since when, what it does, what to do."""
    first, *others = [finding for finding in findings if finding.present]
    since = "" if first.since is None else f" Since step {first.onset}."
    further = f" Also: {', '.join(map(_named, others))}." if others else ""
    effect = f" {_capital(first.effect.rstrip('.'))}." if first.effect else ""
    because, remedy = first.because.rstrip("."), _capital(first.remedy.rstrip("."))
    return f"{_capital(first.fault)}: {because}.{since}{effect} What to do: {remedy}.{further}"


def _named(finding: Finding) -> str:
    """A fault, with what it is in a few words where that says more."""
    return f"{finding.fault} ({finding.brief})" if finding.brief not in ("", finding.fault) else finding.fault


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _paid(evidence: PipelineEvidence) -> list[Table]:
    """What the grader at hand pays for answers that deserve nothing, or the same: one table, or none."""
    if evidence.grader is None:
        return []
    kinds = adversarial.asked(evidence.grader, evidence.rows)
    rows = [
        [kind.kind, f"{kind.mean:.3g}", f"{kind.like_best:,} of {kind.prompts:,}"] for kind in kinds if kind.prompts
    ]
    return [Table("What the grader pays", ("answer to a prompt", "mean reward", "paid at least as the best"), rows)]\
        if rows else []  # fmt: skip


def _table(claims: Claims) -> Table:
    rows = [[proof.claim, claim_status(findings), _shown(findings)] for proof, findings in claims.items()]
    return Table("Claims", ("claim", "status", "what was seen"), rows)


def _shown(findings: Sequence[Finding]) -> str:
    """What was seen of a claim; of one that was tested in part, also why the rest was not."""
    if claim_status(findings) == "broken":
        return ", ".join(_named(finding) for finding in findings if finding.present)
    if not in_part(findings):
        return _held(findings)
    seen = _held(findings)
    near = [f"Possible, not shown: {finding.because.rstrip('.')}." for finding in findings
            if finding.status == "possible"]  # fmt: skip
    untested = [f"Not tested: {reason}" for reason in reasons(findings)[:1]]
    return " ".join([*near, *([f"In part: {seen}"] if seen else []), *untested])


def _held(findings: Sequence[Finding]) -> str:
    excluded = [finding.because for finding in findings if finding.status == "excluded" and finding.because]
    shown = " ".join(excluded[:2])
    more = len(excluded) - 2
    return shown if more <= 0 else f"{shown} {more} more test{'s' * (more > 1)} found no fault."


def _missing(claims: Claims) -> tuple[str, ...]:
    """To test more: one paragraph, a reason of each claim that could not be tested at all, then the count of others."""
    whole = [findings for findings in claims.values() if not any(map(was_tested, findings))]
    first = list(dict.fromkeys(reason for findings in whole for reason in reasons(findings)[:1]))
    every = list(dict.fromkeys(reason for findings in claims.values() for reason in reasons(findings)))
    shown = (first or every)[:SHOWN]
    if not shown:
        return ()
    more = len(every) - len(shown)
    end = f" The JSON document has {more} more reason{'' if more == 1 else 's'}." if more else ""
    return (f"To test more: {' '.join(shown)}{end}",)
