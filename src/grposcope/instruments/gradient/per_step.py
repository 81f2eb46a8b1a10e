"""Geometry while training: a cheap probe of the current batch, as a flat row of numbers for the record of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from grposcope.core.run import Floats
from grposcope.instruments.gradient import weightings
from grposcope.instruments.gradient.probe import Probe, probe
from grposcope.instruments.gradient.probe_settings import ProbeSettings
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch, rows_of_groups
from grposcope.lab.workers import ALONE, Workers
from grposcope.maths import dead_groups

NAMES = tuple(
    f"geometry/{name}"
    for name in (
        "prompts", "dead", "dead_predicted",
        "layer_stable", "layer_participation", "layer_entropy_sq",
        "rollout_stable", "rollout_participation", "rollout_entropy_sq",
        "token_gini", "token_hoyer", "token_top_1", "token_top_5", "token_top_20",
        "parameter_gini", "parameter_hoyer", "parameter_top_1",
        "parameter_below_0.1", "parameter_below_0.01", "parameter_below_0.001",
        "parameter_visible_sgd", "parameter_visible_adam",
        "group_rank", "group_rank_of_two", "group_rank_null", "group_top_1", "reward_deviation",
        "baseline_gap", "baseline_gap_se", "baseline_saves", "cancelled", "score_norm", "self_check",
    )
)  # fmt: skip
"""Names of the numbers of `step_metrics`; `core.metrics` defines each."""

OF_OWN_ROLLOUTS = ("geometry/baseline_gap", "geometry/baseline_gap_se", "geometry/baseline_saves")
"""Those that have a meaning for rollouts of the current weights alone."""


def step_metrics(
    model: Any,
    rollouts: RolloutBatch,
    recipe: Objective,
    prompts: int = 4,
    workers: Workers = ALONE,
    own: bool = True,
    log_ratio: Tensor | None = None,
    keep: Callable[[Probe, Tensor], None] = lambda measured, rows: None,
    **settings: Any,
) -> dict[str, float]:
    """The numbers NAMES of one batch, NaN where nothing can be said.

    Dead groups and their prediction are those of the whole batch; everything else is measured on the first `prompts`
    prompts with a gradient, or on fewer if the batch has fewer. workers: processes that share the probe. own: whether
    the current weights drew the rollouts; where they did not, the best baseline is not told. log_ratio (B, T): log
    π/π_old of each token, where the update has a ratio. keep: called with the probe, if there is one, and the rollouts
    of the batch that it is of. settings: fields of `ProbeSettings`; without its check a probe takes a sixth less time.
    UserError as from `probe`, but a batch without any gradient is no error; KeyboardInterrupt after Ctrl-C.
    """
    credit = ProbeSettings(**settings).credit
    weights = weightings.of_recipe(recipe, rollouts, credit, log_ratio=log_ratio).weights
    live = weights.reshape(len(rollouts.rewards), -1).any(-1).nonzero()[:prompts, 0]
    rows = rows_of_groups(live, rollouts.groups[1])
    measured = None
    if len(live):
        few = rollouts.take(live)
        measured = probe(
            model, few, recipe, workers=workers, log_ratio=None if log_ratio is None else log_ratio[rows],
            **{"leading": 8, **settings, "credit": credit[rows] if isinstance(credit, Tensor) else credit},
        )  # fmt: skip
        if not measured.complete:
            raise KeyboardInterrupt
        keep(measured, rows)
    named_metrics = metrics(rollouts.rewards.cpu().numpy(), measured, len(live))
    return named_metrics if own else named_metrics | dict.fromkeys(OF_OWN_ROLLOUTS, math.nan)


def metrics(rewards: Floats, measured: Probe | None, live: int) -> dict[str, float]:
    """The numbers NAMES: rewards (P, G) are those of the batch, and `live` of the prompts probed have a gradient."""
    values = {"dead": dead_groups.share(rewards).value, "dead_predicted": dead_groups.chance_if_alike(rewards)}
    values["prompts"] = float(live)
    if measured is not None:
        values |= _flat(measured)
    return {name: values.get(name.removeprefix("geometry/"), math.nan) for name in NAMES}


def _flat(measured: Probe) -> dict[str, float]:
    """A probe's numbers by name, NAMES among them."""
    best, ranks = measured.baseline()[0], measured.group_ranks().summary()
    gap = best.covariance
    parts = {
        "layer": {name: estimate.value for name, estimate in measured.mean_ranks(measured.recipe).items()},
        "rollout": measured.rollout_spectrum(measured.recipe).ranks(),
        "token": measured.token_sparsity(),
        "parameter": {name: estimate.value for name, estimate in measured.parameters.items()},
        "baseline": {"gap": gap.value, "gap_se": gap.se, "saves": best.saving.value},
        "group": {
            "rank": ranks.rank.value,
            "rank_of_two": ranks.rank_of_two.value,
            "rank_null": ranks.null.value,
            "top_1": ranks.top.value,
        },
        "reward": {"deviation": ranks.deviation.value},
        "score": {"norm": math.sqrt(float(np.diag(measured.gram).mean()))},
    }
    named = {f"{block}_{name}": value for block, values in parts.items() for name, value in values.items()}
    return named | {"cancelled": measured.credit.cancelled, "self_check": measured.error}
