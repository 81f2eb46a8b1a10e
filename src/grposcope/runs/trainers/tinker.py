"""Tinker: metrics.jsonl with keys such as reward/total, progress/done_frac and optim/lr.

Its log does not say how the metrics are defined, so its keys are taken in their usual meaning.
"""

from __future__ import annotations

import re

from grposcope.runs.trainers.generic import USUAL
from grposcope.runs.trainers.trainer import Trainer

TINKER = Trainer(
    name="tinker",
    title="Tinker",
    recognises=lambda keys: "progress/done_frac" in keys,
    component=re.compile(r"reward/(?!mean$|std$)(?P<name>[^/]+)(?P<what>)"),
    usual_keys=USUAL,
)
"""Everything that is known of Tinker."""
