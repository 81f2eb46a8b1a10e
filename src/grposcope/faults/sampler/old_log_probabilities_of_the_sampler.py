"""The ratio of the first update is not 1: its old log-probabilities are those of another engine.

Asked as
    ppo_kl is 0.2 although there is one update a batch
What it is
    The sampler's log-probabilities stand in the denominator of the ratio, where the trainer's own belong: verl's
    algorithm.rollout_correction.bypass_mode, a trainer that does not compute them again. Kernels, precision, experts
    of a mixture and temperature differ between the two engines.
How it shows
    The KL to the policy before the update is large from the first row on, where nothing has been learned; no update of
    the usual rate leads as far. Often it grows with the length of the completions.
What it does to the gradient
    Every ratio is wrong by what the engines differ, so that tokens are clipped and weighted by noise.
What to do
    Compute the old log-probabilities with the trainer, or correct for the sampler beside it.
What decides
    One step with old log-probabilities of the trainer: the KL of a first update is then 0.
Sources
    verl, rollout correction: https://verl.readthedocs.io/en/latest/algo/rollout_corr.html
    ISEEKYAN/Megatron-LM #76: https://github.com/ISEEKYAN/Megatron-LM/pull/76
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import apart, number
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.quantities import LEAST, Quantities

FIRST, FAR = 5, 0.1
"""First rows in all of which the KL of an update is beyond FAR nats per token, of the first of the run."""

SMALL = 1e-5
"""Learning rate up to which no update leads as far."""

WITH_LENGTH = 0.8
"""Correlation with the mean length from which on it is said."""

BYPASS = "algorithm.rollout_correction.bypass_mode"
REMEDY = (
    f"compute the old log-probabilities with the trainer (verl: {BYPASS}=False), or keep the sampler's and weight "
    "tokens by the ratio of the two engines, cut off"
)


def _check(quantities: Quantities) -> Finding:
    """A KL of the update beyond FAR in each of the first FIRST rows, at a usual rate."""
    kl = quantities.require("kl_old", LEAST)
    rate = quantities.column("lr")
    if rate is None or kl.steps[0] > 1 or quantities.run.window > 1:
        return cannot_tell("whether the first row is of the first step, and its rate, are not known", "lr")
    first = np.abs(kl.values[:FIRST])
    key = quantities.key(kl.name)
    if first.min() < FAR or rate.values[:FIRST].max() > SMALL:
        return fact(False, f"{key} is {number(float(np.median(first)))} nats in the first {FIRST} rows")
    because = (
        f"{key} is {number(float(kl.values[0]))} nats per token in the first row and at least {number(first.min())} in "
        f"the first {FIRST}, at a learning rate of {rate.values[:FIRST].max():.2g}: an update of that rate makes a "
        "thousandth of it or so, so that the old log-probabilities are not the trainer's own, unless a batch is "
        "trained on a hundred times"
    )
    length = quantities.get("length", LEAST)
    if length is not None and len(length) == len(kl) and np.ptp(length.values) and np.ptp(kl.values):
        together = float(np.corrcoef(length.values, kl.values)[0, 1])
        went = " → ".join(apart(kl.level(EARLY).value, kl.level(LATE).value))
        if together > WITH_LENGTH:
            because += f"; it goes with the mean length ({went}, correlation {together:.2f}), as what engines differ by"
    evidence = (Sign(f"{kl.name}, least of the first {FIRST} rows", float(first.min()), column=kl.name),)
    return fact(True, because, evidence, brief=f"{key} is {number(float(kl.values[0]))} nats in the first row")


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The sampler's log-probabilities as old ones."""
    key = "use_rollout_logprobs" if config.dialect.name == "slime" else BYPASS
    if config.on(key):
        yield fact(
            True,
            f"{key} takes the sampler's log-probabilities as the old ones: what the two engines differ by, which "
            "grows with the length of completions, is in every ratio",
            config.signs(key),
            grade="note",
            brief="old log-probabilities of the sampler",
            remedy=f"set {key} to False where the two engines differ much (a mixture of experts, long completions)",
        )


FAULT = Fault(
    name="old log-probabilities of the sampler",
    rank=8.1,
    remedy=REMEDY,
    beside="warning",
    instead="warning",
    log=LogTest(
        "old log-probabilities of the sampler",
        _check,
        needs=("kl_old", "lr"),
        statistic="KL to the policy before the update in the first rows",
        threshold=f"above {FAR:g} nats in each of the first {FIRST}, at a rate of {SMALL:g} at most",
        where_logged=True,
    ),
    settings=SettingsCheck(
        "old log-probabilities of the sampler", _settings, ("verl", "slime"),
        "the sampler's log-probabilities as old ones", ("note",),
    ),
)  # fmt: skip
