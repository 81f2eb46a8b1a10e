"""Metrics that the trainer logs wrongly in its version, so that nothing should be concluded from them.

What it is
    A key of the log that is not what its name says: a maximum for a share, a mean over the wrong axis.
How it shows
    In an earlier run of the same trainer, by its version and by values that the right metric could not have.
What it does to the gradient
    Nothing: the record is wrong, not the training.
What to do
    Do not rely on it, or use a version that is mended; the readers of this package leave it out or say so.
What decides
    The metric computed by hand from the rollouts of one step.
Sources
    verl #7817, #6806: https://github.com/verl-project/verl/issues/7817
    TRL #5352: https://github.com/huggingface/trl/issues/5352
    grposcope.logs.defects"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known import Known
from grposcope.logs import defects


def settings(config: Settings, known: Known) -> Iterator[Finding]:
    """What the earlier run logged wrongly, and so will this one unless the trainer is of another version."""
    run = known.run
    if run is None or run.reading is None or run.meta.engine != config.dialect.name:
        yield cannot_tell(f"this needs the log of an earlier run of {config.dialect.title}", "earlier run")
        return
    for name in run.reading.defects:
        defect = defects.named(name, run.meta.engine)
        version = None if defect.fixed is None else ".".join(map(str, defect.fixed))
        fixed = "no version logs it correctly yet" if version is None else f"use {version} or later"
        yield fact(True, f"it {defect.what} ({defect.thread})", grade="note",
                   brief=f"{defect.keys[0]} is logged wrongly", remedy=f"do not rely on it; {fixed}")  # fmt: skip


FAULT = Fault(
    name="wrong metrics",
    rank=5.8,
    remedy="do not rely on it",
    source="verl #7817, #6806: https://github.com/verl-project/verl/issues/7817; TRL #5352: "
    "https://github.com/huggingface/trl/issues/5352; grposcope.logs.defects",
    settings=SettingsCheck(
        "wrong metrics",
        settings,
        ("trl", "verl"),
        "metrics that the trainer of an earlier run logs wrongly",
        ("note",),
    ),
)
