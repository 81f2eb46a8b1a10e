"""The probes of a run, pooled: which of them say something together, and whether what they say drifts.

A training measures few prompts at a time, too few to tell a group size by; all its probes together may. Their prompts
are pooled (`maths.moments.from_grams`), so the answer is a mean over the steps that were probed. Where the gradient
changes over them, the later half is pooled alone: it is what the next steps are like. Prompts count as independent;
where a small task repeats them between probes, intervals are somewhat too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.instruments.gradient import probe_record
from grposcope.instruments.gradient.probe_record import ProbeGram, ProbeRecord
from grposcope.maths import moments

FEWEST = 4
"""Probes from which on a drift over the run can be told."""

SURE = 3.0
"""Standard errors by which the halves differ where the gradient drifts."""


@dataclass(frozen=True)
class _ProbePool:
    """Probes of a run that are read together, in the order of steps.

    files: their Gram matrices. steps: where they were taken. left_out: further probes that kept a Gram matrix. drift:
    the mean squared gradient estimate of the earlier and the later half where these differ beyond chance, else None.
    """

    files: tuple[ProbeGram, ...]
    steps: tuple[int, ...]
    left_out: int = 0
    drift: tuple[Estimate, Estimate] | None = None

    @property
    def sentence(self) -> str:
        """What was pooled, in words; empty for one probe."""
        if len(self.files) < 2:
            return ""
        which = f"The {len(self.files)} probes of steps {self.steps[0]:,} to {self.steps[-1]:,}"
        if self.drift is None:
            rest = f"; {self.left_out} probes of a different kind are left out" if self.left_out else ""
            return f"{which} are pooled: their gradients differ no more than chance explains{rest}."
        before, after = (f"{half.value:.3g} ± {half.se:.2g}" for half in self.drift)
        return (
            f"{which}, the later half, are pooled, because over all probes the squared gradient went from {before} to "
            f"{after}."
        )


def of_run(run: Run, last: ProbeRecord, layers: bool = False) -> _ProbePool:
    """The probes of a run that are like most of them, with `last` among them; `last` alone where the others differ.

    layers: also the Gram matrices of the layers, which are read of `last` alone. UserError for a broken file.
    """
    alone = last.read_gram(layers=layers)
    if layers or run.folder is None or probe_record.recognises(run.folder):
        return _ProbePool((alone,), (last.step or 0,))
    kept = [record for record in probe_record.of_run(run) if record.gram_bytes() and record.step is not None]
    alike = [record for record in kept if _kind(record) == _kind(last)]
    if len(alike) < 2:
        return _ProbePool((alone,), (last.step or 0,), max(len(kept) - 1, 0))
    files, steps = [], []
    for record in alike:
        files.append(record.read_gram())
        steps.append(int(record.step or 0))
    return of_files(files, steps, len(kept) - len(alike))


def of_files(files: Sequence[ProbeGram], steps: Sequence[int], left_out: int = 0) -> _ProbePool:
    """Probes of these steps, in order, of which the later half alone counts where the gradient changed over them."""
    drift = _drifting(files)
    half = 0 if drift is None else len(files) // 2
    return _ProbePool(tuple(files[half:]), tuple(steps[half:]), left_out, drift)


def _kind(record: ProbeRecord) -> tuple[object, ...]:
    """What probes must have in common: group size, recipe, whose rollouts."""
    return record.group, record.recipe, record.comparison, record.source is None


def _drifting(files: Sequence[ProbeGram]) -> tuple[Estimate, Estimate] | None:
    """The mean of E⟨h, h⟩ per prompt over the earlier and over the later half of probes where they differ, or None."""
    if len(files) < FEWEST:
        return None
    half = len(files) // 2
    before, after = (_squares(part) for part in (files[:half], files[half:]))
    reach = SURE * math.hypot(before.se, after.se)
    return (before, after) if math.isfinite(reach) and abs(after.value - before.value) > reach else None


def _squares(files: Sequence[ProbeGram]) -> Estimate:
    """Mean over the prompts of these probes of E⟨h, h⟩; NaN where no probe can be read."""
    values: list[float] = []
    for file in files:
        try:
            found = moments.from_gram(file.gram, file.rewards, replicates=1)
        except UserError:
            continue
        values += np.asarray(found.per_prompt.both)[np.isfinite(found.per_prompt.both)].tolist()
    return Estimate.mean(values)
