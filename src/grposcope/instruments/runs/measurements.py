"""The first things to know of a folder without a run: what its last probe, or its comparison of credit, measured."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.answer import HEADLINE, Answer, KeyNumber
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, number, visible
from grposcope.instruments import has


def there(run: Run) -> bool:
    """Whether the folder holds a probe or a comparison of credit that somebody here can read."""
    return _of_probe(run) is not None or _of_credit(run) is not None


def of_folder(run: Run) -> Answer:
    """What was measured last in a folder without steps, in which something is `there`."""
    gradient = _of_probe(run) or _of_credit(run)
    assert gradient is not None
    return gradient


def of_several(runs: Sequence[Run]) -> str:
    """Sentence about several folders in which something is `there`: the ranks of their last probes."""
    ranks = []
    if has("gradient"):
        from grposcope.instruments.gradient import probe_record

        records = zip(labels(runs), map(probe_record.of_run, runs), strict=True)
        ranks = [f"{number(probes[-1].rank('stable').value)} in {label}" for label, probes in records if probes]
    if len(ranks) < len(runs):
        return f"{len(runs)} measurements of models, without a run."
    return f"{len(runs)} probes, with stable ranks {listed(ranks)}."


def _of_probe(run: Run) -> Answer | None:
    """The headline of the last probe: what the gradient is made of, then the group size and the baseline to choose."""
    if has("gradient"):
        from grposcope.instruments.gradient import findings, probe_record

        if probes := probe_record.of_run(run):
            record = probes[-1]
            size, best = _group_size(run)
            details = [
                f"{findings.subject(record)}, {findings.solved(record)}.",
                *size,
                f"Baseline: {visible(record.baseline.verdict, 400)}.",
                *([] if record.complete else ["The probe was interrupted before its end."]),
            ]
            numbers = [*findings.numbers(record), *best]
            return Answer("headline", HEADLINE, sentence=findings.conclusion(record), text=details, numbers=numbers)
    return None


def _group_size(run: Run) -> tuple[list[str], list[KeyNumber]]:
    """What the last probe says of the group size, and the best one as a number; nothing where nobody can tell."""
    if has("gradient"):
        from grposcope.instruments.gradient import probe_record

        record = probe_record.of_run(run)[-1]
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
    if has("credit"):
        from grposcope.instruments.credit import findings, record

        if credits := record.of_run(run):
            last = credits[-1]
            sentence, text = findings.verdict(last).removesuffix("."), [*findings.offers(last), findings.about(last)]
            return Answer("headline", HEADLINE, sentence=sentence, text=text, numbers=findings.numbers(last))
    return None
