"""What the means of the parts of a reward say where nothing else of them is logged: which rose while which fell."""

from __future__ import annotations

from grposcope.core.answer import Answer, Table
from grposcope.core.run import Run
from grposcope.core.text import apart, listed, visible
from grposcope.instruments.rewards import INSTRUMENT
from grposcope.maths.timeseries.change import FIRST, LATE
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

SURE = 0.01
"""p-value, times the number of parts, below which a part rose or fell since the first rows."""


def of_run(run: Run) -> Answer | None:
    """Which parts rose and which fell; None for a run with fewer than two parts of LEAST rows."""
    parts = {name: series for name, series in Quantities(run).components().items() if len(series) >= LEAST}
    if len(parts) < 2:
        return None
    moves = {name: series.change(FIRST, LATE) for name, series in parts.items()}
    rose = [_went(name, parts[name]) for name, test in moves.items() if test.p_up * len(parts) < SURE]
    fell = [_went(name, parts[name]) for name, test in moves.items() if test.p_down * len(parts) < SURE]
    traded = bool(rose and fell)
    what = f"{listed(fell)} fell while {listed(rose)} rose" if traded else "no part fell while another rose"
    rows = [(visible(name), *apart(*_levels(series))) for name, series in parts.items()]
    return Answer(
        INSTRUMENT.name,
        INSTRUMENT.question,
        word="warning" if traded else "told",
        sentence=f"{what[:1].upper()}{what[1:]}.",
        do="read completions that the rising part pays, and see whether they still do what the falling one is for"
        if traded
        else "",
        text=["Only means of the parts are logged, so the log does not show what each weighs in the advantage."],
        tables=[Table("Means of the parts", ("reward", "first rows", "last fifth"), rows, "")],
        document={"parts": {name: list(_levels(series)) for name, series in parts.items()}, "traded": traded},
    )


def _levels(series: MetricSeries) -> tuple[float, float]:
    """The means over the first rows and over the last."""
    return series.level(FIRST).value, series.level(LATE).value


def _went(name: str, series: MetricSeries) -> str:
    return f"{visible(name, 40)} ({' → '.join(apart(*_levels(series)))})"
