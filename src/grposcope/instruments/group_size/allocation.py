"""Where rollouts were spent: whose gradient that is, and live groups against the share that was promised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.core.outline import outline
from grposcope.core.run import Run, labels
from grposcope.core.text import percent
from grposcope.lab.allocation import chosen
from grposcope.render.curves import curve

METRICS = ("allocation/live", "allocation/live_promised", "allocation/effective_prompts")


def section(runs: Sequence[Run]) -> Answer | None:
    """Live share and what was promised, and effective prompts; None where no run says any of it."""
    figures = [figure for name in METRICS if (figure := curve(name, runs)) is not None]
    if not figures:
        return None
    named = dict(zip(labels(runs), runs, strict=True))
    first, *others = [_said(label if len(runs) > 1 else "", run) for label, run in named.items()]
    numbers = {
        label: {name: outline(run.table[name]) for name in METRICS if name in run.table} for label, run in named.items()
    }
    return Answer(
        "allocation", "Where were rollouts spent?", "told", first, text=others, figures=figures, document=numbers
    )


def _said(label: str, run: Run) -> str:
    """What the allocator of a run does to the objective, and how its promise was kept."""
    asked = str(run.setting("allocate") or "uniform")
    text = f"{label}: " if label else ""
    try:
        text += f"Allocated by {asked}: {chosen(asked).allocator.objective}."
    except UserError:  # of an earlier version
        text += f"Allocated by {asked}."
    live, promised = (run.table.get(f"allocation/{name}") for name in ("live", "live_promised"))
    if live is not None and promised is not None:
        both = np.isfinite(live) & np.isfinite(promised)
        if both.sum() > 1:
            gap, seen, said = (live - promised)[both], float(live[both].mean()), float(promised[both].mean())
            error = 1.96 * float(gap.std(ddof=1)) / np.sqrt(len(gap))
            text += (
                f" Of the groups drawn, {percent(seen)} were live; the forecast was {percent(said)} (difference "
                f"{percent(float(gap.mean()), 1)} ± {percent(error, 1)})."
            )
    return text
