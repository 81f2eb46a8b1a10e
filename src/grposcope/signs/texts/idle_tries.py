"""Completions that try nothing and have a reward of their own for it, above that of a try that fails.

Nothing is tried by a completion that is empty, by a short one that says that it cannot answer, and by one that calls no
tool where most call some. What these are paid is a default where nearly all of them are paid alike, and less than the
best; a try has failed where its reward is in the lower half of what tries get.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.rollouts import Bools, Floats, Rollout
from grposcope.core.text import brief, span
from grposcope.maths.intervals import Z
from grposcope.signs.texts.exploits import NOTHING
from grposcope.signs.texts.sample import is_readable, written

FEW = 20
"""Completions of either kind below which nothing is said."""

ALIKE, SHARE = 0.05, 0.95
"""Share of the range of rewards up to which two are one, and share of the idle ones that have one."""

SURE = 3.0
"""Standard errors by which the default has to be above the failed tries."""

_SHORT = 160  # characters
_ABSTAINS = re.compile(
    r"\b(?:i\s+(?:do\s+not|don[’']t)\s+know|i(?:\s+am|[’']m)\s+not\s+(?:sure|able)|no\s+answer|unknown|skip(?:ped)?"
    r"|(?:can(?:not|[’']t)|could\s+not|unable\s+to)\s+(?:be\s+)?(?:answer|determine|solve|tell|help|do))",
    re.IGNORECASE,
)

_REMEDY = (
    "give what tries nothing the least reward, or a failed try no less: as it is, a policy that often fails earns more "
    "by stopping to try"
)


def paid_more(rows: Sequence[Rollout]) -> Finding | None:
    """That completions which try nothing are paid more than tries that fail, with the means of both; None where it is
    not so, or where either are fewer than FEW."""
    readable = [row for row in rows if is_readable(row) and math.isfinite(row.reward) and not row.dropped]
    reward = np.array([row.reward for row in readable])
    texts = [written(row.completion).strip() if row.completion is not None else "" for row in readable]
    calls = np.array([row.calls or 0 for row in readable])
    empty = np.array([not text for text in texts], bool) & (calls == 0)
    abstains = np.array([len(text) <= _SHORT and _ABSTAINS.search(text) is not None for text in texts], bool)
    kinds = {
        "are empty": empty,
        "say that they cannot answer": abstains,
        "call no tool": (calls == 0) & bool(len(calls) and 2 * (calls > 0).sum() > len(calls)),
    }  # fmt: skip
    made = (_of_kind(said, idle, readable, reward) for said, idle in kinds.items())
    return next((own for own in made if own is not None), None)


def _of_kind(said: str, idle: Bools, rows: Sequence[Rollout], reward: Floats) -> Finding | None:
    """The finding of one kind of completion that tries nothing."""
    if idle.sum() < FEW or (~idle).sum() < FEW:
        return None
    low, best = float(reward[~idle].min()), float(reward[~idle].max())
    width = max(best, float(reward[idle].max())) - min(low, float(reward[idle].min()))
    default = float(np.median(reward[idle]))
    failed = ~idle & (reward <= (low + best) / 2)
    alike = (np.abs(reward[idle] - default) <= ALIKE * width).mean() >= SHARE
    if not alike or failed.sum() < FEW or (low < best and default >= best - ALIKE * width):
        return None
    groups = np.unique([f"{row.step} {row.group}" for row in rows], return_inverse=True)[1]
    (paid, paid_error), (fails, fails_error) = (_mean(reward[own], groups[own]) for own in (idle, failed))
    if paid - fails <= max(SURE * math.hypot(paid_error, fails_error), ALIKE * width):
        return None
    counts = f"{int(idle.sum()):,}", f"{int(failed.sum()):,}"
    because = (
        f"the {counts[0]} completions that {said} are paid {_shown(paid, paid_error)}, the {counts[1]} others in the "
        f"lower half of the rewards {_shown(fails, fails_error)}"
    )
    signs = (
        Sign(f"reward of completions that {said}", paid, paid_error),
        Sign("of others in the lower half", fails, fails_error),
    )
    return fact(
        True, because, signs, fault=NOTHING, brief="doing nothing is paid more than a failed try", remedy=_REMEDY,
        effect="a policy that often fails earns more by trying nothing", grades=("note", "warning"),
    )  # fmt: skip


def _mean(values: Floats, groups: np.ndarray) -> tuple[float, float]:
    """The mean of values (N,) and its standard error with groups (N,) as units."""
    mean = float(values.mean())
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], values - mean)
    return mean, math.sqrt(float(sums @ sums) * len(sums) / max(len(sums) - 1, 1)) / len(values)


def _shown(mean: float, error: float) -> str:
    """A mean with its interval; that of rewards that are all alike has none."""
    if error <= 1e-9 * max(abs(mean), 1.0):
        return f"{brief(mean)} each"
    return f"{brief(mean)} on average (95% interval over groups {span(mean - Z * error, mean + Z * error, brief)})"
