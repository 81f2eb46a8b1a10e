"""What the page takes from probes: the last one of each run, their course over steps, and single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grposcope.facts.learning import Z
from grposcope.formatting import number, percent, visible
from grposcope.records import Estimate
from grposcope.runs import probe as probes
from grposcope.runs.run import Probed, Run, labels


def latest(runs: Sequence[Run]) -> list[tuple[str, Run, Probed]]:
    """The label, the run and its last probe, of each run that has one."""
    return [(label, run, run.probes[-1]) for label, run in zip(labels(runs), runs, strict=True) if run.probes]


def by_step(run: Run) -> dict[int, Probed]:
    """The probes of a run that name a step, in its order."""
    return {at: probe for probe in run.probes if (at := probes.step(probe)) is not None}


def subject(probe: Probed) -> str:
    """What was probed, in words."""
    content, at = probe.content, probes.step(probe)
    model, task = (visible(str(content.get(name, "?")), 80) for name in ("model", "task"))
    after = "" if at is None else f" after step {at:,}"
    return f"{model} on {task}{after}, {content.get('prompts', '?')} prompts × {content.get('group', '?')} rollouts"


def solved(probe: Probed) -> str:
    """The share of rollouts that were solved, or the mean reward where rewards are not 0 and 1."""
    mean = estimate(probe.content, "solved").value
    binary = math.isfinite(estimate(probe.content, "groups", "dead_if_alike").value)
    return f"{percent(mean)} of rollouts solved" if binary else f"mean reward {number(mean)}"


def at(content: Mapping[str, Any], *path: str) -> Any:
    """What stands at this place of probe.json; None where it is absent."""
    found: Any = content
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def estimate(content: Mapping[str, Any], *path: str) -> Estimate:
    """The number at this place of probe.json, NaN with a flag where it is absent. A bare number has no error."""
    found = at(content, *path)
    if isinstance(found, Mapping) and {"value", "se", "n", "flag"} <= found.keys():
        return Estimate(*(found[name] for name in ("value", "se", "n", "flag")))
    if isinstance(found, int | float):
        return Estimate(float(found), math.nan, 0)
    return Estimate(math.nan, math.nan, 0, "not measured")


def rank(probe: Probed, definition: str, setting: str = "") -> Estimate:
    """A rank of the layers' gradients, mean over layers; of the probe's own recipe unless a setting is named."""
    return estimate(probe.content, "settings", setting or str(probe.content.get("recipe")), "layer", definition)


def ranged(value: Estimate, form: Callable[[float], str] = number) -> str:
    """A number with its 95% interval in brackets; with the reason where nothing can be said."""
    if not math.isfinite(value.value):
        return f"cannot tell ({value.flag or 'not finite'})"
    if not math.isfinite(value.se):
        return form(value.value)
    low, high = value.interval(Z)
    return f"{form(value.value)} ({form(low)} to {form(high)})"
