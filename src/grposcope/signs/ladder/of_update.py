"""The rungs of the update: is there a gradient, do the weights move, do they draw the rollouts, is the rate high
enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import apart, number, percent
from grposcope.logs.columns import flat
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.ladder.rung import Rung, blamed, of_fault, to_log
from grposcope.signs.mismatch import FOLLOWS, GREW, straight
from grposcope.signs.moves_alone import distance, moves_alone
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.settings.recipe import has_adapters
from grposcope.signs.thresholds import CERTAIN, FULL_RATE, LORA_RATE, MANY_STEPS, MOST_ZERO, RISES, UNMOVED

GRADIENT = ("gradient", "Is there a gradient?")
WEIGHTS = ("weights", "Do the weights move?")
SAMPLER = ("sampler", "Do the moved weights draw the rollouts?")
RATE = ("learning rate", "Is the learning rate one for what is trained, LoRA or all weights?")

NO_GRADIENT = ("lost gradient", "no token trained on", "zero loss")
NOT_DRAWN = ("weights never arrived", "wrong weights at the sampler", "weights lost at a restart", "stale sampler",
             "growing lag")  # fmt: skip
"""Faults by which a rung fails."""

CHECK_WEIGHTS = (
    "compare the weights of two checkpoints, or train ten steps with a KL coefficient of 1e-6, so that it is computed"
)
"""What decides where a KL may not be computed."""

_NOT_THE_RATE = (
    "compare the coefficient of the KL with 0.001 to 0.04, which is usual: one of 1 or more holds the policy, whatever "
    "the learning rate is; give adapters (LoRA) 1e-5; and check that the optimiser has the parameters that are trained"
)
"""What to do about a policy that hardly moves at a learning rate that is usual for all weights."""

CHECK_SAMPLER = (
    "check that new weights, or adapters, reach the sampler: compare its greedy samples with the trainer's after some "
    "steps, or log its log-probabilities and run grposcope verify on them"
)

OF_VERL = (
    "of verl's adapters with vLLM's sleep level 2 this is reported without layered_summon (verl #3516): set "
    "actor_rollout_ref.rollout.layered_summon=True, or send merged weights"
)
"""What to do on top where verl trains adapters."""

OF_ADAPTERS = ("lora_rank", "lora_r", "lora.rank", "use_peft", "use_lora", "lora")
"""Ends of the keys by which a recorded configuration says whether adapters are trained."""


def gradient(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the gradient norm is above 0 in most rows; without one, whether the KL shows that weights moved."""
    if cause := blamed(findings, NO_GRADIENT):
        return of_fault(*GRADIENT, cause)
    norm = quantities.get("grad_norm", 1)
    if norm is None:
        return _gradient_unseen(quantities)
    zeros, rows, key = int((norm.values == 0).sum()), len(norm), quantities.key(norm.name)
    if zeros > MOST_ZERO * rows:
        because = f"{key} is 0 in {zeros} of {rows} rows"
        do = "look for dead groups, an empty mask and frozen parameters, in this order"
        return Rung(*GRADIENT, "no", because, because, do)
    because = f"{key} is {number(float(np.median(norm.values)))} in the median row and 0 in {zeros} of {rows}"
    return Rung(*GRADIENT, "yes", because)


def _gradient_unseen(quantities: Quantities) -> Rung:
    """The rung where no gradient norm is logged."""
    kl = distance(quantities)
    if kl is not None and kl.level(LATE).value > max(UNMOVED, 2 * kl.level(EARLY).value):
        went = quantities.went(kl.name, kl.level(EARLY).value, kl.level(LATE).value)
        return Rung(*GRADIENT, "yes", f"no gradient norm is logged, but the policy moved ({went} nats)")
    loss = quantities.get("loss", 1)
    beside = ""
    if loss is not None:
        size = number(float(np.median(np.abs(loss.values))))
        beside = f"; the loss ({size} in the median row) says nothing, since it is 0 by construction"
    return Rung(
        *GRADIENT,
        "cannot tell",
        f"no gradient norm is logged{beside}",
        do=to_log("grad_norm", "the gradient norm", quantities.run),
    )


def weights(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the KL to the start shows that the policy moved; without one, whether steps change weights, or ratios
    were clipped."""
    if cause := blamed(findings, ("low learning rate", "update not applied")):
        return of_fault(*WEIGHTS, cause)
    kl, compared = distance(quantities), quantities.get("weights_moved", SHORT)
    if (kl is None or quantities.is_idle_kl(kl)) and compared is not None and np.median(compared.values) > 0:
        share = percent(float(np.median(compared.values)))
        return Rung(*WEIGHTS, "yes", f"the median step changes {share} of the weights that have a gradient")
    if kl is not None and quantities.is_idle_kl(kl):
        because = f"{quantities.key(kl.name)} is exactly 0 in every row: it is not computed, or no weight moves"
        return Rung(*WEIGHTS, "cannot tell", because, do=CHECK_WEIGHTS)
    if kl is not None:
        key, late = quantities.key(kl.name), kl.level(LATE).value
        steps = int(kl.steps[-1] - kl.steps[0]) + 1
        said = f"{key} is {number(late)} nats in the last fifth of {steps:,} steps"
        if late >= UNMOVED:
            return Rung(*WEIGHTS, "yes", said)
        if steps >= MANY_STEPS:
            brief = f"{key} is {number(late)}: hardly moved"
            do = "raise the learning rate, and check that the optimiser has the parameters that are trained"
            if (rate := _largest_rate(quantities)) is not None and rate >= 10 * FULL_RATE:
                said, do = f"{said} at a learning rate of up to {number(rate)}", _NOT_THE_RATE
            return Rung(*WEIGHTS, "no", f"{said}: the policy hardly moved", brief, do)
        return Rung(*WEIGHTS, "cannot tell", f"{said}, which is too few to say", do=f"train for {MANY_STEPS} steps")
    clip = quantities.get("clip", SHORT)
    if clip is not None and clip.values.any():
        rows = int((clip.values > 0).sum())
        return Rung(*WEIGHTS, "yes", f"{quantities.key(clip.name)} is above 0 in {rows} of {len(clip)} rows")
    if rose := _what_rose(quantities):
        return Rung(*WEIGHTS, "yes", f"{rose}, beyond noise: what is sampled is no longer what the start drew")
    none = "" if clip is None else ", and nothing is clipped, as with one update per batch"
    because = f"no KL to the start is logged{none}"
    return Rung(*WEIGHTS, "cannot tell", because, do=to_log("kl", "the KL to the start", quantities.run))


def sampler(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the policy that samples is the one that trains, by the mismatch and by the faults that it shows."""
    if cause := blamed(findings, NOT_DRAWN):
        return of_fault(*SAMPLER, cause)
    mismatch, lora = quantities.get("mismatch", SHORT), bool(adapters(quantities.run))
    if mismatch is None and (moved := moves_alone(quantities, lora)):
        return Rung(
            *SAMPLER,
            "no",
            f"{moved}: so it is when the new {'adapters' if lora else 'weights'} do not reach the sampler",
            "the policy moves, what is sampled does not",
            f"{CHECK_SAMPLER}; {OF_VERL}" if lora and quantities.run.meta.engine == "verl" else CHECK_SAMPLER,
        )
    if mismatch is None and (rose := _what_rose(quantities)):
        return Rung(*SAMPLER, "yes", f"no mismatch is logged, but {rose}, beyond noise, as where new weights draw")
    if mismatch is None:
        how = to_log("mismatch", "the mismatch of sampler and trainer", quantities.run)
        do = f"{how}; or run grposcope verify on rollouts with log-probabilities"
        if lora:
            do = f"{CHECK_SAMPLER}; or {how}"
        because = "no mismatch of sampler and trainer is logged"
        if quantities.logged("mismatch"):
            because = f"the mismatch of sampler and trainer is logged on fewer than {SHORT} rows"
        return Rung(*SAMPLER, "cannot tell", because, do=do)
    went = quantities.went(mismatch.name, mismatch.level(EARLY).value, mismatch.level(LATE).value)
    if _grows(mismatch):
        because = f"{went}, although below its limit: so it grows where new weights, or adapters, never arrive"
        return Rung(*SAMPLER, "no", because, f"the mismatch grows from the first step ({went})", CHECK_SAMPLER)
    return Rung(*SAMPLER, "yes", f"{went}, which does not grow as weights that never arrive would make it")


def _what_rose(quantities: Quantities) -> str:
    """Which of the training reward and its parts certainly rose, with its levels, as a clause; empty where none did.

    It is higher by the noise of its rows, and wandering does not explain it either.
    """
    reward = quantities.get("reward")
    series = [*([] if reward is None else [reward]), *quantities.components().values()]
    for part in series:
        rise = part.present.rise.p_up if len(part) >= LEAST else 1.0
        if rise * len(series) < CERTAIN and part.curve.change().p_up * len(series) < RISES:
            early, late = part.level(EARLY).value, part.level(LATE).value
            return f"{quantities.key(part.name)} rose from {' to '.join(apart(early, late))}"
    return ""


def _grows(mismatch: MetricSeries) -> bool:
    """Whether the late mismatch is GREW × the early one or more, beyond noise and on the way of a slow rise."""
    sizes = MetricSeries(mismatch.name, mismatch.steps, np.abs(mismatch.values))
    slope, explained = straight(sizes.steps, sizes.values)
    return slope > 0 and explained > FOLLOWS and sizes.change(EARLY, LATE, ratio=GREW).p_up < RISES


def learning_rate(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the largest learning rate is one for adapters, or for all weights, whichever are trained."""
    if cause := blamed(findings, ("zero learning rate",)):
        return of_fault(*RATE, cause)
    rate = _largest_rate(quantities)
    if rate is None:
        do = f"{to_log('lr', 'the learning rate', quantities.run)}; or give the file of the settings beside the log"
        return Rung(*RATE, "cannot tell", "no learning rate is logged", do=do)
    said, lora = f"the largest learning rate is {number(rate)}", adapters(quantities.run)
    if rate <= (LORA_RATE if lora else FULL_RATE):
        what = "adapters (LoRA), which take 1e-5 or more" if lora else "all weights, which take 1e-6 or so"
        brief = f"a learning rate of {number(rate)} for {'adapters' if lora else 'all weights'}"
        do = "raise the learning rate to 1e-5" if lora else "raise the learning rate to 1e-6"
        return Rung(*RATE, "no", f"{said}, too little for {what}", brief, do)
    if lora is None and rate <= LORA_RATE:
        because = f"{said}; all weights take 1e-6, adapters (LoRA) 1e-5, and which are trained is not recorded"
        return Rung(*RATE, "cannot tell", because, do="give the file of the settings beside the log")
    trained = {True: ", as adapters take", False: ", as all weights take", None: ", enough for either"}[lora]
    return Rung(*RATE, "yes", said + trained)


def adapters(run: Run) -> bool | None:
    """Whether adapters are trained, by the settings that were asked for or those that the trainer recorded."""
    if run.asked is not None and (asked := has_adapters(run.asked.settings)) is not None:
        return asked
    logged = run.config.get("logged")
    if not isinstance(logged, Mapping):
        return None
    values = [value for key, value in flat(logged).items() if str(key).replace("/", ".").endswith(OF_ADAPTERS)]
    return any(_is_set(value) for value in values) if values else None


def _is_set(value: object) -> bool:
    """Whether a setting is on, or a number above 0."""
    return value is True or (isinstance(value, int | float) and value > 0) or str(value).lower() == "true"


def _largest_rate(quantities: Quantities) -> float | None:
    """The largest learning rate of the rows, else that of the settings."""
    series, setting = quantities.column("lr"), quantities.run.setting("lr")
    if series is not None:
        return float(series.values.max())
    return float(setting) if isinstance(setting, int | float) else None
