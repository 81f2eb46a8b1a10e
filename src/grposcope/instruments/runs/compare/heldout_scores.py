"""How the held-out scores of runs compare with those of the first run, at their last evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grposcope.core.answer import Table
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.signs import heldout

DOUBT = {"none": ", no more than chance explains", "unknown": "; too little is known of the error to compare them"}
"""What is added where the difference is not beyond chance, or its error not known."""


def _last(run: Run, metric: str) -> tuple[int, Estimate] | None:
    """(step, score) of the last evaluation of a metric; None where the run has none."""
    evaluated = heldout.evaluations(run, metric)
    return evaluated[-1] if evaluated else None


def _in_common(runs: Sequence[Run]) -> list[str]:
    """The held-out scores that all runs have, those that are meant first."""
    others = [set(heldout.of_run(run)) for run in runs[1:]]
    return [metric for metric in heldout.of_run(runs[0]) if all(metric in metrics for metrics in others)]


def line(name: str, other: str, first: Run, second: Run) -> str:
    """How the score that is meant ended in a run and in the first, in a sentence; empty without one in common."""
    metric = next(iter(_in_common([first, second])), None)
    ends = [] if metric is None else [_last(first, metric), _last(second, metric)]
    if metric is None or None in ends:
        return ""
    (step, base), (own_step, own) = (end for end in ends if end is not None)
    shares = heldout.are_shares([base.value, own.value])
    shown = [heldout.with_interval(score, shares) for score in (own, base)]
    at = f"step {own_step:,}" if step == own_step else f"steps {own_step:,} and {step:,}"
    doubt = DOUBT.get(heldout.difference(base, own).verdict, "")
    return f"{name} against {other}: held-out {heldout.name(metric)} {shown[0]} against {shown[1]} at {at}{doubt}."


def table(names: Sequence[str], runs: Sequence[Run]) -> Table | None:
    """Last and best value of every score in common; None without one."""
    rows: list[tuple[str, ...]] = []
    for metric in _in_common(runs):
        every = [heldout.evaluations(run, metric) for run in runs]
        shares = heldout.are_shares(score.value for evaluated in every for _, score in evaluated)
        cells = []
        for evaluated in every:
            best_step, best = max(evaluated, key=lambda at: at[1].value)
            at_last = heldout.with_interval(evaluated[-1][1], shares)
            cells.append(f"{at_last}, best {heldout.shown(best.value, shares)} at step {best_step:,}")
        rows.append((heldout.name(metric), *cells))
    caption = "The last evaluation of each run, with its 95 % interval where it has one, and the best."
    return Table("Held-out scores", ("score", *names), rows, caption) if rows else None


def document(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Score -> step, value and standard error of the last evaluation of each run."""
    ends = {metric: [_last(run, metric) for run in runs] for metric in _in_common(runs)}
    return {
        metric: [{"step": at[0], "value": at[1].value, "se": at[1].se} for at in every if at is not None]
        for metric, every in ends.items()
    }
