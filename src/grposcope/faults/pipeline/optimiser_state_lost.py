"""The optimiser begins without its moments.

What it is
    A restart without the optimiser's state, or an optimiser that is created anew during the run.
How it shows
    Adam's count of updates falls or its second moments shrink faster than β₂ allows; the norm of the gradient jumps
    at a restart.
What it does to the gradient
    The first steps after it are too large: without second moments each is about the learning rate in every
    coordinate.
What to do
    Save and restore the optimiser's state, and create the optimiser once.
What decides
    The optimiser's state in two checkpoints, or a run with verify_every.
Sources
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import resume

_LEFT_OUT: Mapping[str, tuple[tuple[str, bool], ...]] = {
    "trl": (("save_only_model", True),),
    "ms-swift": (("save_only_model", True), ("resume_only_model", True)),
    "prime-rl": (("trainer.ckpt.skip_optimizer", True), ("ckpt.skip_optimizer", True)),
    "nemo-rl": (("checkpointing.save_optimizer", False),),
    "slime": (("no_save_optim", True), ("no_load_optim", True)),
    "openrlhf": (("ckpt.disable_ds", True),),
}
"""Trainer -> its switches that leave the state of the optimiser out, and the value at which they do."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Checkpoints without the state of the optimiser, or a resume that does not read it."""
    key = next((key for key, value in _LEFT_OUT[config.dialect.name] if config.get(key) is value), "")
    if key:
        yield fact(
            True,
            f"{key} leaves the state of the optimiser out: a run that resumes begins without Adam's moments, so that "
            "each of its first steps is about the learning rate in every coordinate",
            config.signs(key),
            grade="note",
            brief="a resume would begin with a fresh optimiser",
            remedy=f"leave {key} out where the run may be resumed, or warm the learning rate up again",
        )


FAULT = Fault(
    name="optimiser state lost",
    rank=8.8,
    remedy="restore the optimiser's state with the checkpoint, and create the optimiser only once",
    beside="warning",
    rollouts=(resume.PROOF,),
    settings=SettingsCheck(
        "optimiser state lost",
        _settings,
        tuple(_LEFT_OUT),
        "checkpoints without the state of the optimiser",
        ("note",),
        "settings of the trainers, August 2026",
    ),
)
