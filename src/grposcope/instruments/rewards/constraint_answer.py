"""What is said of the constraints of a run: whether they hold, and what their multipliers did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.answer import Answer, DrawnLater, Figure, Table, Word
from grposcope.core.run import Floats, Run
from grposcope.core.text import listed, number, visible
from grposcope.instruments.rewards import found, gradient_answer
from grposcope.maths.intervals import Z

PREFIX = "constraint/"

LATE = 0.2
"""Share of the steps, the last ones, over which a constraint is judged."""


@dataclass(frozen=True)
class _Held:
    """A constraint over the last LATE of a run: mean violation with its standard error, by the spread over batches or
    by the errors within them, whichever is larger; multiplier at the end, and at most; share of violated batches."""

    text: str
    violation: float
    se: float
    multiplier: float
    most: float
    violated: float

    @property
    def word(self) -> Word:
        """Whether the constraint holds, with its interval."""
        if not math.isfinite(self.se):
            return "cannot tell"
        if self.violation + Z * self.se <= 0:
            return "healthy"
        return "warning" if self.violation - Z * self.se > 0 else "cannot tell"


def _of_run(run: Run) -> tuple[_Held, ...]:
    """The constraints of a run; none where it has none."""
    texts = [name[len(PREFIX) : -len("/violation")] for name in run.table if _is(name)]
    return tuple(_held(run, text) for text in texts if np.isfinite(run.table[f"{PREFIX}{text}/violation"]).any())


def _is(name: str) -> bool:
    return name.startswith(PREFIX) and name.endswith("/violation")


def _held(run: Run, text: str) -> _Held:
    violation, se, cost, multiplier = (
        _column(run, text, part) for part in ("violation", "cost_se", "cost", "multiplier")
    )
    known = np.isfinite(violation)
    violation, se, cost, multiplier = violation[known], se[known], cost[known], multiplier[known]
    late = slice(-max(1, round(LATE * len(violation))), None)
    some = violation[late]
    scale = _scale(violation, cost)
    within = float(np.sqrt(np.nansum((se[late] * scale) ** 2)) / len(some))
    between = float(some.std(ddof=1) / math.sqrt(len(some))) if len(some) > 1 else math.nan
    error = max(within, between) if math.isfinite(between) else within or math.nan
    end = float(multiplier[-1])
    return _Held(text, float(some.mean()), error, end, float(np.nanmax(multiplier)), float((some > 0).mean()))


def _scale(violation: Floats, cost: Floats) -> float:
    """What a cost is multiplied by in the violation, from two rows that differ; 1 where none do."""
    spread = np.ptp(cost)
    return float(np.ptp(violation) / spread) if spread > 0 else 1.0


def _column(run: Run, text: str, part: str) -> Floats:
    none = np.full(run.steps, math.nan)
    return run.table.get(f"{PREFIX}{text}/{part}", none)


def section(runs: Sequence[Run]) -> Answer | None:
    """Whether the constraints of one run hold; None for several runs, and without constraints."""
    held = _of_run(runs[0]) if len(runs) == 1 else ()
    if not held:
        return None
    broken = [visible(one.text, 40) for one in held if one.word == "warning"]
    unsure = [visible(one.text, 40) for one in held if one.word == "cannot tell"]
    word: Word = "warning" if broken else "cannot tell" if unsure else "healthy"
    sentence = (
        f"{listed(broken)} {'does' if len(broken) == 1 else 'do'} not hold over the last fifth of the steps."
        if broken
        else f"Cannot tell whether {listed(unsure)} holds: the interval of the violation includes 0."
        if unsure
        else "All constraints hold over the last fifth of the steps."
    )
    rows = [
        (visible(one.text, 60), one.word, f"{number(one.violation)} ± {number(Z * one.se)}", f"{one.violated:.0%}",
         number(one.multiplier), number(one.most))
        for one in held
    ]  # fmt: skip
    table = Table(
        "Constraints", ("constraint", "over the last fifth", "violation", "batches", "multiplier", "at most"), rows,
        "Violation: how far a batch's mean is beyond the limit, as a share of the limit; above 0 where the constraint "
        "is "
        "violated; ± is half a 95% interval, for the training prompts. Batches: share of batches that violate the "
        "constraint.",
    )  # fmt: skip
    moved = None if len(runs[0].groups.components) > 1 else found.probed(runs[0])  # else with the rewards
    return Answer(
        "constraints",
        "Do the constraints hold?",
        word,
        sentence,
        text=gradient_answer.notes(moved),
        do="raise dual_rate, or start from a policy that is closer to the limit" if broken else "",
        tables=[table, *gradient_answer.tables(moved)],
        figures=DrawnLater(lambda: _figures(runs, held)),
        document={one.text: {**vars(one), "word": one.word} for one in held},
    )


def _figures(runs: Sequence[Run], results: Sequence[_Held]) -> Iterable[Figure]:
    from dataclasses import replace

    from grposcope.render.curves import curve

    for i, one in enumerate(results):
        for part in ("violation", "multiplier"):
            figure = curve(f"{PREFIX}{one.text}/{part}", runs)
            if figure is not None:
                yield replace(figure, name=f"constraint-{i}-{part}", title=f"{part} of {visible(one.text, 40)}")
