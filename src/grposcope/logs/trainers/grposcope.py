"""Single files of our own record, and logs whose metrics a reader made itself: the keys are our names.

The folder of a run is read by `runs/native/`.
"""

from __future__ import annotations

from grposcope.logs.trainers.trainer import Trainer

GRPOSCOPE = Trainer(
    name="grposcope",
    title="grposcope train",
    recognises=lambda keys: {"dead_fraction", "rollouts_trained"} <= keys,
    how_to_log={"evaluation": "evaluate every few steps (eval_every)"},
)
"""Everything that is known of logs in our own names."""
