"""The first things to know of a folder without a run: what its last probe, or its comparison of credit, measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grposcope.core.answer import HEADLINE, Answer, KeyNumber
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, number, visible
from grposcope.instruments import has

if TYPE_CHECKING:
    from grposcope.instruments.credit.record import CreditRecord
    from grposcope.instruments.gradient.probe_record import ProbeRecord


def last_probe(run: Run) -> ProbeRecord | None:
    """What was measured last of the gradient of a run; None where there is nothing, or nobody here can read it."""
    if has("gradient"):
        from grposcope.instruments.gradient import probe_record

        return next(reversed(probe_record.of_run(run)), None)
    return None


def last_credit(run: Run) -> CreditRecord | None:
    """What was measured last of the credit of a run; None where there is nothing, or nobody here can read it."""
    if has("credit"):
        from grposcope.instruments.credit import record

        return next(reversed(record.of_run(run)), None)
    return None


def of_folder(run: Run) -> Answer | None:
    """What was measured last, where a folder has no steps but a probe or a comparison of credit; else None."""
    return None if run.steps else _of_probe(run) or _of_credit(run)


def of_several(runs: Sequence[Run]) -> str:
    """Sentence about several folders without a run: the ranks of their last probes."""
    probes = {label: last_probe(run) for label, run in zip(labels(runs), runs, strict=True)}
    ranks = [f"{number(probe.rank('stable').value)} in {label}" for label, probe in probes.items() if probe is not None]
    if len(ranks) < len(runs):
        return f"{len(runs)} measurements of models, without a run."
    return f"{len(runs)} probes, with stable ranks {listed(ranks)}."


def _of_probe(run: Run) -> Answer | None:
    """The headline of the last probe: what the gradient is made of, then the group size and the baseline to choose."""
    record = last_probe(run)
    if record is not None and has("gradient"):
        from grposcope.instruments.gradient import findings

        size, best = _group_size(record)
        details = [
            f"{findings.subject(record)}, {findings.solved(record)}.",
            *size,
            f"Baseline: {visible(record.baseline.verdict, 400)}.",
            *([] if record.complete else ["The probe was interrupted before its end."]),
        ]
        numbers = [*findings.numbers(record), *best]
        return Answer("headline", HEADLINE, sentence=findings.conclusion(record), text=details, numbers=numbers)
    return None


def _group_size(record: ProbeRecord) -> tuple[list[str], list[KeyNumber]]:
    """What a probe says of the group size, and the best one as a number; nothing where nobody can tell."""
    if has("group_size"):
        from grposcope.instruments.group_size import size as group_size

        size = group_size.of_probe(record)
        if not isinstance(size, group_size.GroupSize):
            return [f"Group size: {size.sentence(record.group)}"], []
        trained = group_size.of_recipe(size, record.recipe or "rloo", record.comparison)
        first, second = group_size.sentences(size, trained, record.group)
        said = [f"Group size: {first}", *([second] if trained.differs else [])]
        return said, group_size.best_numbers(size, trained)
    return [], []


def _of_credit(run: Run) -> Answer | None:
    """The headline of the last comparison of credit: its verdict, and what was drawn."""
    record = last_credit(run)
    if record is not None and has("credit"):
        from grposcope.instruments.credit import answer

        sentence, text = answer.verdict(record).removesuffix("."), [*answer.offers(record), answer.about(record)]
        return Answer("headline", HEADLINE, sentence=sentence, text=text, numbers=answer.numbers(record))
    return None
