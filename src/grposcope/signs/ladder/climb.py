"""The ladder of a flat run, rung by rung, and what is said of it on the first screen."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import listed
from grposcope.signs import run_outcome
from grposcope.signs.ladder import of_reward, of_update
from grposcope.signs.ladder.rung import Rung
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import Quantities

RUNGS = (
    of_update.gradient,
    of_update.weights,
    of_update.sampler,
    of_update.learning_rate,
    of_reward.grader,
    of_reward.room,
    of_reward.groups,
    of_reward.horizon,
)
"""The questions in order: what fails explains those behind it."""

CHECKS = "checks of a run without a gain"
"""What the ladder is called in what is printed."""


def _is_flat(outcome: Outcome) -> bool:
    """Whether neither a gain nor a fall was shown, so that the ladder is asked."""
    return outcome.state in ("level", "undecided")


def of_run(run: Run, findings: Sequence[Finding]) -> tuple[Rung, ...]:
    """The rungs of a flat run with the findings of its judge; none of another run, or of one without rows."""
    if not run.steps or not _is_flat(run_outcome.of_run(run)):
        return ()
    quantities = Quantities(run)
    return tuple(rung(quantities, findings) for rung in RUNGS)


def first_failing(rungs: Sequence[Rung]) -> Rung | None:
    """The first rung that fails, which is the cause of a flat run as far as the ladder can tell."""
    return next((rung for rung in rungs if rung.answer == "no"), None)


def first_to_see(rungs: Sequence[Rung], failing: Rung) -> str:
    """What to do about the first rung that fails: before a longer run, whether weights move where a KL of 0 leaves that
    open."""
    opened = any(rung.do == of_update.CHECK_WEIGHTS for rung in rungs)
    if not opened or failing is not rungs[-1]:
        return failing.do
    return f"{of_update.CHECK_WEIGHTS}; where they differ, {failing.do}"


def clause(rungs: Sequence[Rung]) -> str:
    """What a first screen says of a ladder, as a clause: the first rung that fails, else which hold and which cannot be
    told; empty without rungs."""
    if not rungs:
        return ""
    if failing := first_failing(rungs):
        return f"{CHECKS}, the first that fails ({failing.name}): {failing.because}"
    hold = [rung.name for rung in rungs if rung.answer == "yes"]
    untold = [rung.name for rung in rungs if rung.answer == "cannot tell"]
    holds = f"{listed(hold)} {'passes' if len(hold) == 1 else 'pass'}" if hold else "none is shown to pass"
    rest = f"; not answerable: {', '.join(untold)} (-v says what to log)" if untold else ""
    return f"{CHECKS}: {holds}{rest}"
