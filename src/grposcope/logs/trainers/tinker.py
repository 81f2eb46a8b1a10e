"""Tinker: metrics.jsonl with keys such as reward/total, progress/done_frac and optim/lr.

Its log does not say how the metrics are defined, so its keys are taken in their usual meaning;
that of the KL of the sampler to the trainer, k1 and k2, stands in its cookbook.
"""

from __future__ import annotations

import re

from grposcope.logs.trainers.generic import USUAL
from grposcope.logs.trainers.trainer import Trainer

TINKER = Trainer(
    name="tinker",
    title="Tinker",
    recognises=lambda keys: "progress/done_frac" in keys,
    component=re.compile(r"reward/(?!mean$|std$)(?P<name>[^/]+)(?P<what>)"),
    keys={"mismatch/k1": ("optim/kl_sample_train_v1",), "mismatch/k2": ("optim/kl_sample_train_v2",)},
    usual_keys=USUAL,
)
"""Everything that is known of Tinker."""
