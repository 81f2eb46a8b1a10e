"""Entropy collapse and entropy explosion: the late entropy of the policy against the early one."""

from __future__ import annotations

import math
from functools import partial

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Grade, Interval, Status, at, cannot_tell, measured
from grposcope.core.text import number
from grposcope.maths.timeseries.change import EARLY, FIRST, LATE
from grposcope.maths.timeseries.noise import harmonic_mean
from grposcope.signs import onset, run_outcome
from grposcope.signs.mismatch import straight
from grposcope.signs.parts_of_the_loss import changed_multiple, loss_as_multiple
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities
from grposcope.signs.tests import early_level, late_level

COLLAPSED = 0.2
"""Entropy below this share of its early mean has collapsed."""

SPENT = 0.05
"""Entropy below this share of its early mean is spent: worth a warning however much was learned."""

ZERO = 0.05
"""Nats below which a collapsed entropy is next to zero, a warning unless a held-out score shows that the run gained."""

_FALLEN = 1.25
"""Entropy of the first row over the early mean from which the fall lies in the early rows, whose mean is no start."""

NEAR = 1.25
"""Entropy below this multiple of the limit is near it."""

EXPLODED = 3.0
"""Entropy above this multiple of its early mean has exploded."""


BONUS = 0.05
"""Coefficient of an entropy bonus from which it outweighs rewards: recipes in use have 0 to 0.01."""

STEADY = 0.9
"""Share of the variance of the log of the entropy that one line explains, of an entropy that rises in every step."""

SHOWN = 0.01
"""p-value below which the entropy has exploded, whatever the loss is made of."""

FOLLOWS = (
    "kl blow-up", "gradient explosion", "reward decline", "held-out decline", "length", "starved", "gibberish",
)  # fmt: skip
"""Faults that follow where a bonus, or another term of every step, drives the policy away."""

_UNCLIPPED = (
    "add an entropy bonus or KL, or lower the learning rate; no token is clipped, so that a higher upper clip would "
    "change nothing"
)
"""What to do about a collapsed entropy where no token is clipped."""

LESS_BONUS = "lower the entropy bonus to 0.01 or less, or leave it out"
"""What to do where it is the bonus that raises the entropy."""


def _check(quantities: Quantities) -> Finding:
    """Late geometric mean below COLLAPSED × or above EXPLODED × the early one."""
    entropy = quantities.require("entropy", SHORT)
    if entropy.logs is None:
        because = "the entropy is not positive, so it belongs to a continuous policy or is a term of the loss"
        return cannot_tell(because, "entropy")
    early, late = entropy.geometric_mean(EARLY), entropy.geometric_mean(LATE)
    fell = {part: entropy.logs.change(part, LATE, minus=math.log(COLLAPSED)).p_down for part in (EARLY, FIRST)}
    low = harmonic_mean([*fell.values()])
    if fell[FIRST] < fell[EARLY]:
        early = entropy.geometric_mean(FIRST)
    high = entropy.logs.change(EARLY, LATE, minus=math.log(EXPLODED)).p_up
    limit = f"collapsed below {COLLAPSED:g} × early"
    evidence = (early_level(entropy.name, *early), late_level(entropy.name, *late, limit))
    at_first = float(entropy.values[0])
    start, place = (at_first, f" in the first of {len(entropy)} {entropy.rows}") if at_first > _FALLEN * early[0] else (
        early[0], "")  # fmt: skip
    because = f"the entropy went from {start:.3g}{place} to {late[0]:.3g} nats"
    brief = quantities.went(entropy.name, start, late[0])
    if high >= SHOWN and (bonus := _bonus(quantities)) is not None:
        p = entropy.logs.change(EARLY, LATE).p_up
        clause, since = bonus
        why = f"{clause}; {because}, and the reward does not rise"
        falls = run_outcome.of_run(quantities.run).direction == "down"
        grades: tuple[Grade, Grade] | None = ("note", "failing" if falls else "warning")
        evidence = (evidence[0], late_level(entropy.name, *late, ""))
        return measured(p, why, evidence, "entropy explosion", brief=brief, grades=grades, remedy=LESS_BONUS,
                        since=since, explains=FOLLOWS)  # fmt: skip
    if high < low:
        evidence = (evidence[0], late_level(entropy.name, *late, f"exploded above {EXPLODED:g} × early"))
        gains = run_outcome.of_run(quantities.run).direction == "up"
        return measured(
            min(1.0, 2 * high), because, evidence, "entropy explosion", brief=brief,
            grades=("warning", "warning") if gains else None,
            begins=partial(onset.since, entropy.logs, 1), explains=FOLLOWS if _at_one_rate(entropy.logs) else (),
        )  # fmt: skip
    p = min(1.0, 2 * low)
    near: Status = "possible" if late[0] < NEAR * COLLAPSED * early[0] else "excluded"
    spent = late[0] < SPENT * early[0] or (late[0] < ZERO and not run_outcome.of_run(quantities.run).by_heldout)
    grades = ("warning", "failing") if spent else None
    past = late[0] < COLLAPSED * early[0]
    begins = partial(onset.since, entropy.logs, -1)
    return measured(p, because, evidence, status=near, grades=grades, brief=brief, begins=begins, past=past,
                    remedy=_UNCLIPPED if _is_unclipped(quantities) else "")  # fmt: skip


def _is_unclipped(quantities: Quantities) -> bool:
    """Whether the log has clip fractions, and no token is ever clipped, so that another clip range changes nothing."""
    columns = [quantities.column(name) for name in ("clip_high", "clip_fraction")]
    logged = [column for column in columns if column is not None]
    return bool(logged) and not any(column.values.any() for column in logged)


def _at_one_rate(logs: MetricSeries) -> bool:
    """Whether a logarithm rises along one line over the whole run, as where the same force acts in every step."""
    half = len(logs) // 2
    slopes = [straight(logs.steps[span], logs.values[span])[0] for span in (slice(0, half), slice(half, None))]
    return straight(logs.steps, logs.values)[1] > STEADY and min(slopes) > 0.5 * max(slopes) > 0


def _bonus(quantities: Quantities) -> tuple[str, Interval | None] | None:
    """That the loss is mostly an entropy bonus of BONUS or more beside a reward that does not rise, as a clause, and
    since when, where it was none before; None where it is not."""
    if run_outcome.of_run(quantities.run).direction == "up":
        return None
    changed = changed_multiple(quantities, "entropy", BONUS, sign=-1)
    if changed is not None:
        step, coefficient = changed
        said = f"{quantities.key('loss')} is {number(coefficient)} × {quantities.key('entropy')} since step {step:,}"
        return f"{said}, so that the bonus is nearly all of it", at(step)
    always = loss_as_multiple(quantities, "entropy")
    if always is None or -always.coefficient < BONUS:
        return None
    loss, of = quantities.key(always.loss), quantities.key(always.of)
    said = f"{loss} is {number(always.coefficient)} × {of} in {always.rows} rows"
    return f"{said}, so that the bonus is nearly all of it", None


TEST = LogTest(
    "entropy collapse",
    _check,
    needs=("entropy",),
    statistic="mean log entropy, late − early − log ρ",
    threshold=f"late < {COLLAPSED:g} × early (collapse) or > {EXPLODED:g} × early (explosion)",
    limit=True,
)
