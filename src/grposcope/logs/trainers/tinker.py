"""Tinker and its cookbook: metrics.jsonl with keys such as env/all/reward/total, progress/done_frac and optim/lr.

The cookbook says how `env/…`, `by_group/…` and the KL of the sampler to the trainer (k1, k2) are defined; other keys
are taken in their usual meaning. Tags of problems have the keys of `env/all` under their own names; evaluations
stand behind `test/`. `sampling_client/step_mean` is the step whose weights sampled.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from grposcope.logs.trainers.generic import USUAL
from grposcope.logs.trainers.trainer import Columns, Made, Scoped, Setting, Trainer

_TAG = re.compile(r"env/(?P<tag>(?!all/)[^/]+)/(?P<rest>.+)")


def _made(columns: Columns) -> dict[str, Made]:
    """The share of dead groups, the length of completions of one turn, and how stale the sampler's weights were."""
    found = {}
    mixed = columns.get("env/all/by_group/frac_mixed")
    if mixed is not None:
        found["dead_fraction"] = Made(1 - mixed, "1 − env/all/by_group/frac_mixed")
    tokens, turns = columns.get("env/all/ac_tokens_per_turn"), columns.get("env/all/turns_per_episode")
    if tokens is not None and turns is not None:
        formula = "env/all/ac_tokens_per_turn × env/all/turns_per_episode"
        found["length"] = Made(tokens * turns, formula)
    for metric, key in (("staleness/mean", "step_mean"), ("staleness/max", "step_min")):
        step, sampled = columns.get("step"), columns.get(f"sampling_client/{key}")
        if step is not None and sampled is not None:
            found[metric] = Made(np.asarray(step - sampled), f"step − sampling_client/{key}")
    return found


def _scoped(keys: Collection[str]) -> Scoped:
    """The keys of each tag of problems."""
    found: Scoped = {}
    for key in keys:
        if (match := _TAG.fullmatch(key)) and f"env/all/{match['rest']}" in keys:
            found.setdefault(match["tag"], {})[key] = f"env/all/{match['rest']}"
    return found


TINKER = Trainer(
    name="tinker",
    title="Tinker",
    recognises=lambda keys: bool(keys & {"progress/done_frac", "env/all/reward/total"}),
    component=re.compile(r"reward/(?!mean$|std$)(?P<name>[^/]+)(?P<what>)"),
    made=_made,
    scoped=_scoped,
    keys={
        "reward": ("env/all/reward/total",),
        "agent/turns": ("env/all/turns_per_episode",),
        "mismatch/k1": ("optim/kl_sample_train_v1",),
        "mismatch/k2": ("optim/kl_sample_train_v2",),
        "staleness/mean": ("async/staleness_mean",),
        "staleness/max": ("async/staleness_max",),
    },
    settings=(Setting("group_size", "group"),),
    usual_keys=USUAL,
)
"""Everything that is known of Tinker."""
