"""The findings of a run in one line."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.diagnosis.findings import Finding
from grposcope.diagnosis.quantities import View
from grposcope.runs.run import Run
from grposcope.timeseries.change import EARLY, LATE

MINOR = ("no learning", "zero loss")
"""Modes that say that nothing happens rather than that something goes wrong."""


def sentence(run: Run, findings: Sequence[Finding]) -> str:
    """The best first line: what is wrong, since when, why, and what to do; or healthy; or cannot tell."""
    flagged = [f for f in findings if f.status == "flagged"]
    if flagged:
        first = flagged[0]
        kind = "not learning" if first.mode in MINOR else "failing"
        since = "" if first.onset is None else f", since step {first.onset:,}"
        text = f"{kind}: {first.mode}{since}, because {first.because}; do: {first.advice}"
        return text if len(flagged) == 1 else f"{text} (and {len(flagged) - 1} more)"
    if (view := View(run)).get("reward") is None:
        return f"cannot tell: {view.lacks('reward')}"
    untold = [f.mode for f in findings if f.status == "cannot tell"]
    return _progress(run) + (f"; cannot tell: {', '.join(untold)}" if untold else "")


def _progress(run: Run) -> str:
    """healthy if the reward rose; otherwise that no failure was found."""
    view = View(run)
    reward = view.get("reward")
    if reward is None:
        return f"cannot tell: {view.lacks('reward')}"
    early, late = reward.curve.level(EARLY), reward.curve.level(LATE)
    rise = reward.curve.change()
    ends = f"reward went from {early.value:.3g} to {late.value:.3g} over {run.steps:,} rows"
    if rise.p_up < 0.05:
        return f"healthy: {ends}, more than noise explains"
    return f"no failure found: {ends}, no more than noise explains"
