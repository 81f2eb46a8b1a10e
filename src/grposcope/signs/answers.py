"""Right answers on the rows of training: which column counts them, told by its name or by the setting `outcome`.

The reward is often a sum of what is meant and of what helps to learn it (format, length). Where a column counts right
answers, it says what became of the run before the sum does (`run_outcome`). A name counts answers if one of its words
says so (correct, accuracy, exact match, pass rate) and none that it is something else (format, tag, length, tool call).
"""

from __future__ import annotations

import re

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Run
from grposcope.core.text import listed, visible
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities

_RIGHT = re.compile(
    r"acc\w*|correct\w*|right|exact\w*|match\w*|answers?|solved?|success|outcome|verif\w*|math\w*|gsm8k"
)
"""Words in the names of components that pay for right answers."""

_BESIDE = re.compile(
    r"format\w*|int|integers?|numeric|tags?|json|xml|styles?|structure\w*|len|length|penal\w*|tokens?|tools?|calls?|pars\w*|valid\w*|err\w*"
    r"|fail\w*|retr\w*|costs?|counts?|num|time\w*|entropy|loss|std|min|max|wrong|incorrect\w*"
)
"""Words in the names of what is no right answer, whatever else the name says."""

_COUNTED = re.compile(
    r"(?:\w*_)?(?:accuracy|acc|correct|correctness|success_rate|solve_rate|solved|solved_rate|pass_rate|win_rate"
    r"|exact_match|pass@1)"
)
"""Last parts of the names of columns that are shares of right answers."""

_REWARD_MEAN = re.compile(r"_(reward|score)(_func|_fn)?[ _]mean$")
"""The end of the names of means of single reward functions, where a log has no folder for them."""

FORM_NAME = re.compile(r"format|xml|tag|think|struct|schema|json", re.I)
"""Names of components that pay for the form of a text."""

_JUDGED = re.compile(r"judged?|gold|oracle|human|verified|true")
"""Words in the names of what somebody else than the trained reward says of an answer."""

_FIRST = ("exact", "correct", "accuracy", "acc", "pass")
"""Words of the names that are taken first."""


def words(name: str) -> list[str]:
    """The words of a name, in lower case."""
    return [word for word in re.split(r"[/_\-. ]+", name.lower()) if word]


def pays_for_answers(component: str) -> bool:
    """Whether the name of a component says that it pays for right answers."""
    return any(_RIGHT.fullmatch(word) for word in words(component)) and not is_beside(component)


def counts_answers(column: str) -> bool:
    """Whether a column of a run is the share of right answers, by its name."""
    if column.startswith("component/"):
        return pays_for_answers(column.partition("/")[2])
    last = column.rpartition("/")[2].lower()
    if _REWARD_MEAN.search(last):
        return pays_for_answers(column)
    return bool(_COUNTED.fullmatch(last)) and not is_beside(column)


def rewards_of_parts(run: Run) -> list[str]:
    """The columns that are means of single reward functions."""
    return [name for name in run.table if name.startswith("component/") or _REWARD_MEAN.search(name.lower())]


def is_judged(column: str) -> bool:
    """Whether a column is what a judge other than the trained reward says of answers, by its name."""
    return any(_JUDGED.fullmatch(word) for word in words(column)) and not is_beside(column)


def is_beside(name: str) -> bool:
    """Whether a name says that something else is paid for than a right answer: its format, length or the like."""
    return any(_BESIDE.fullmatch(word) for word in words(name))


def of_run(quantities: Quantities) -> MetricSeries | None:
    """The column of right answers by which a run is judged; None where there is none, or it is the reward itself.

    UserError where the setting `outcome` names a column that the run lacks.
    """
    named = quantities.run.setting("outcome")
    if named is not None:
        return _named(quantities, str(named))
    counted = [name for name in quantities.run.table if counts_answers(name)]
    series = [
        series_of_name
        for name in counted
        if (series_of_name := quantities.column(name)) is not None and len(series_of_name) >= SHORT
    ]
    answers = [column for column in series if not _is_reward(quantities, column)]
    return min(answers, key=_rank, default=None)


def _rank(series: MetricSeries) -> tuple[int, bool]:
    """How soon a column of right answers is taken, 0 first; a share comes before what is no share."""
    said = words(series.name)
    first = next((i for i, word in enumerate(_FIRST) if any(answer.startswith(word) for answer in said)), len(_FIRST))
    return first, not is_share(series)


def is_share(series: MetricSeries) -> bool:
    """Whether all values are in [0, 1]."""
    return bool(series.values.min() >= 0 and series.values.max() <= 1)


def _is_reward(quantities: Quantities, series: MetricSeries) -> bool:
    """Whether a column is the reward, up to a factor."""
    table = quantities.run.table
    for name in VARIANTS["reward"]:
        if name in table:
            both = np.isfinite(table[name]) & np.isfinite(table[series.name])
            x, y = table[name][both], table[series.name][both]
            if len(x) > 1 and np.ptp(x) and np.ptp(y) and np.corrcoef(x, y)[0, 1] > 1 - 1e-6:
                return True
            if len(x) and np.array_equal(x, y):
                return True
    return False


def _named(quantities: Quantities, name: str) -> MetricSeries | None:
    """The column that the setting `outcome` names, by our name or the log's; None where it is an evaluation."""
    run = quantities.run
    if name in run.evaluations.metrics:
        return None
    counted_as = {
        **{run.keys.get(column, column): column for column in run.table},
        **{column: column for column in run.table},
    }
    column = counted_as.get(name) or counted_as.get(f"component/{name}")
    series = quantities.column(column) if column is not None else None
    if series is None:
        scores = [name for name in (*run.table, *run.evaluations.metrics) if counts_answers(name) or "reward" in name]
        likely = (
            f"; columns that may be meant: {listed([visible(score, 60) for score in scores[:6]])}" if scores else ""
        )
        raise UserError(f"outcome={visible(name, 60)}: {run.meta.source} has no such column{likely}")
    return series
