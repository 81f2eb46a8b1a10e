"""Weights kept in bfloat16, to which most steps of the learning rate are rounded away.

What it is
    The trained weights themselves, not only the computation, are bfloat16, which has 8 significant bits.
How it shows
    The reward moves less than the learning rate would have it; of the weights that have a gradient a step leaves most
    bit for bit what they were.
What it does to the gradient
    The gradient is right; the step is lost where it is below half the distance to the next number of bfloat16, about
    1/256 of the weight.
What to do
    Keep float32 weights, and compute in bfloat16.
What decides
    The share of weights that an update changed.
Sources
    AReaL #1634: https://github.com/areal-project/AReaL/pull/1634"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Grade, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import percent
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.quantities import SHORT, Quantities
from grposcope.signs.settings.names import key_of
from grposcope.signs.settings.recipe import has_adapters
from grposcope.signs.settings.verl import ACTOR

COARSE = 2.0**-8
"""Half the distance between neighbouring numbers of bfloat16, as a share of the number."""

USUAL = 5e-3
"""A size that most weights of a language model, about 0.02, are above."""

TINY = 1e-3
"""A size that about one weight in twenty-five is below, so that nearly all steps are rounded away."""


FEW = 0.25
"""Share of the weights with a gradient, below which a step changes few: in float32 one changes nearly all."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Weights in bfloat16 beside a learning rate that moves only small ones; steps of Adam are about the rate."""
    key = _half_precision(config)
    rate = config.number(key_of(config, "lr"))
    if not key or rate is None or has_adapters(config):
        return
    size = rate / COARSE
    if size < USUAL:
        because = f"weights are kept in bfloat16: a step of {rate:g} changes only weights smaller than {size:.2g}"
        grade: Grade = "warning" if size < TINY else "note"
        yield fact(True, because, config.signs(key), grade=grade, brief="most steps are rounded away",
                   explains=("no learning", "update not applied"),
                   remedy="keep float32 weights, and compute in bfloat16")  # fmt: skip


def _check(quantities: Quantities) -> Finding:
    """The late share of the weights with a gradient that a step changes, of steps that change any."""
    moved = quantities.column("weights_moved")
    if moved is None or len(moved) < SHORT:
        return cannot_tell("the log does not say which share of the weights a step changes")
    late = moved.values[level.rows(len(moved), LATE)]
    share = float(np.median(late[late > 0])) if (late > 0).any() else 1.0
    evidence = (Sign("late share of weights that move", share, limit=f"few below {FEW:g}", column=moved.name),)
    said = f"a step changes {percent(share)} of the weights that have a gradient"
    if share >= FEW:
        return fact(False, said, evidence)
    because = f"{said}, by the median of the late steps: for the others it is below the precision they are kept in"
    return fact(True, because, evidence, brief=f"{said}; the rest are rounded back")


_OF_PRIME_RL = ("trainer.model.optimization_dtype", "model.optimization_dtype")
"""Where prime-rl has the precision of the weights that are trained."""


def _half_precision(config: Settings) -> str:
    """The key that says that weights are kept in bfloat16; empty where nothing does."""
    if config.dialect.name == "verl":
        key = ACTOR + "fsdp_config.model_dtype"
        return key if config.get(key) in ("bf16", "bfloat16") else ""
    if config.dialect.name == "prime-rl":
        return next((key for key in _OF_PRIME_RL if config.get(key) == "bfloat16"), "")
    for key in ("model_init_kwargs.dtype", "model_init_kwargs.torch_dtype", "dtype", "torch_dtype"):
        if config.given.get(key) in ("bfloat16", "torch.bfloat16"):
            return key
    inner = config.given.get("model_init_kwargs")
    half = isinstance(inner, dict) and "bfloat16" in (inner.get("dtype"), inner.get("torch_dtype"))
    return "model_init_kwargs" if half else ""


FAULT = Fault(
    name="coarse weights",
    rank=5.7,
    remedy="keep float32 weights, and compute in bfloat16",
    effect="most of each step is lost",
    log=LogTest(
        "coarse weights",
        _check,
        needs=(),
        where_logged=True,
        statistic="late share of the weights with a gradient that a step changes, of steps that change any",
        threshold=f"{FEW:g}, a fact",
    ),
    settings=SettingsCheck(
        "coarse weights",
        _settings,
        ("trl", "verl", "prime-rl"),
        "bfloat16 weights, in which most steps are rounded away",
        ("warning", "note"),
    ),
)
