"""Geometry of the gradient every few steps while training, from the batch in use.

A batch is measured while it is fresh, so that the gradient is the one of the coming update (without KL term and
entropy bonus). A probe draws no random number of the run and changes neither weights nor gradients: the run stays
the same bit for bit.
"""

from __future__ import annotations

import math
import time

from grposcope.errors import UserError
from grposcope.geometry import per_step as geometry
from grposcope.training.config import TrainConfig
from grposcope.training.rollouts import Batch
from grposcope.training.setup import Setup

CHECKED = 10
"""One probe in CHECKED, beginning with the first, compares its gradient with autograd's."""


def due(config: TrainConfig, step: int) -> bool:
    """Whether a batch is fresh at `step` and used at one of the steps 1, 1 + K, 1 + 2K, … (K = `probe_every`)."""
    every, fresh = config.probe_every, (step - 1) % config.interval == 0
    return bool(every) and fresh and (1 - step) % every < config.interval


def measure(step: int, setup: Setup, batch: Batch, lr: float) -> tuple[dict[str, float], str]:
    """The metrics `geometry/…` and `seconds_probe` of a fresh batch; and the reason where they are all NaN, else ""."""
    began, why, config = time.perf_counter(), "", setup.config
    try:
        metrics = geometry.step_metrics(
            setup.policy.model,
            batch.rollouts,
            setup.objective,
            prompts=config.probe_prompts,
            temperature=config.temperature,
            seed=config.seed,
            credit=config.credit,
            learning_rate=lr,
            check=(step - 1) // config.probe_every % CHECKED == 0,
        )
    except UserError as error:
        metrics, why = dict.fromkeys(geometry.NAMES, math.nan), str(error)
    return metrics | {"seconds_probe": time.perf_counter() - began}, why
