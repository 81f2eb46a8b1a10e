"""verifiers: the trainer of its package verifiers-rl, in trainer_state.json, W&B or what transformers prints.

`mismatch_kl` is the k3 estimate between trainer and sampler and `importance_ratio` the mean ratio, both over all
trained tokens. Each of `reward/NAME` is one function of the rubric. `reward/std` is over all rollouts with ddof 0,
so it keeps its name. prime-rl, which trains on environments of verifiers, has a reader of its own; the rollouts that
both write are read by `traces`.
"""

from __future__ import annotations

import re

from grposcope.logs.trainers import traces
from grposcope.logs.trainers.trainer import Trainer

VERIFIERS = Trainer(
    name="verifiers",
    title="verifiers",
    recognises=lambda keys: (
        bool(keys & {"tokens/masked_fraction", "wall_clock/generate_s", "advantage/absmean"})
        or {"tokens/completion", "mismatch_kl"} <= keys
    ),
    keys={
        "reward": ("reward",),
        "entropy": ("entropy",),
        "length": ("tokens/completion",),
        "loss": ("loss",),
        "grad_norm": ("grad_norm",),
        "lr": ("learning_rate",),
        "epoch": ("epoch",),
        "mismatch/k3": ("mismatch_kl",),
        "importance/ratio": ("importance_ratio", "importance_sampling"),
    },
    component=re.compile(r"reward/(?!std$)(?P<name>[^/]+)(?P<what>)"),
    windowed=True,
    leaves_files_of="trl",
    logs=(traces.KIND,),
    how_to_log={
        "reward": "always logged; give the training log itself",
        "entropy": "entropy, always logged",
        "length": "tokens/completion, always logged",
        "grad_norm": "grad_norm, logged where the optimiser step runs",
        "lr": "learning_rate, always logged",
        "loss": "loss, always logged",
        "mismatch": "mismatch_kl, always logged",
    },
)
"""Everything that is known of verifiers."""
