"""The ladder of a flat run, rung by rung, and what is said of it on the first screen.

A rung is a question about a flat run, its answer, and what says so. Those of the reward: can the grader pay, are groups
mixed, and is the run long enough for a gain to be seen. Those of the update: is there a gradient, do the weights move,
do they draw the rollouts, is the rate high enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import apart, listed, number, percent
from grposcope.core.text import brief as short
from grposcope.logs.columns import flat
from grposcope.logs.trainers import TRAINERS, how_to_log
from grposcope.maths.dead_groups import chance
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import answers, run_outcome
from grposcope.signs.dead_groups import HALF
from grposcope.signs.heldout import are_shares
from grposcope.signs.mismatch import FOLLOWS, GREW, straight
from grposcope.signs.moves_alone import distance, moves_alone
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import LEAST, NO_SPREAD, SHORT, MetricSeries, Quantities
from grposcope.signs.settings.recipe import has_adapters
from grposcope.signs.thresholds import (
    CERTAIN,
    DETECTED,
    FULL_RATE,
    LORA_RATE,
    MANY_STEPS,
    MOST_ZERO,
    OTHERS,
    RISES,
    UNMOVED,
)

GRADER = ("grader", "Can the grader pay?")
MIXED = ("groups", "Are groups mixed, at this size and success rate?")
ROOM = ("room", "Do answers end before the token limit?")
HORIZON = ("horizon", "Is the run long enough to see a gain of a tenth of the range, as most runs that learn have?")

SHARE = ("dead_fraction", "the share of groups with equal rewards")

CUT = ("truncated", "the share of completions cut at the token limit")

CROWDED = 0.15
"""Share of completions cut at the token limit from which a flat run may be flat for it."""

LIMIT = (
    "raise the token limit to two or three times a finished answer, or drop cut completions from the loss (overlong "
    "filtering); compare the reward of those that end with that of all"
)
"""What to do where many completions are cut."""

BY_HAND = "run the reward function by hand on a right answer, as the prompt's template makes the model write it"
"""What decides whether a grader can pay."""


def _grader(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether any rollout was paid more than another, and any answer was right."""
    if cause := _blamed(findings, ("never paid", "constant reward")):
        return _of_fault(*GRADER, cause)
    right = answers.of_run(quantities)
    if right is not None and not right.values.any():
        because = f"{quantities.key(right.name)} is 0 in all {len(right)} rows"
        return Rung(*GRADER, "no", because, because, BY_HAND)
    spread = quantities.get("reward_std", 1)
    if spread is not None and (spread.values > NO_SPREAD).any():
        rows = int((spread.values > NO_SPREAD).sum())
        return Rung(*GRADER, "yes", f"rewards differ in {rows} of {len(spread)} rows ({quantities.key(spread.name)})")
    reward = quantities.get("reward", 1)
    if reward is None:
        return Rung(*GRADER, "cannot tell", "no reward is logged", do=BY_HAND)
    least, key = float(reward.values.min()), quantities.key(reward.name)
    above = int((reward.values > least).sum())
    if above:
        because = f"{key} is above its least value, {number(least)}, in {above} of {len(reward)} rows"
        return Rung(*GRADER, "yes", because)
    same = f"the reward is exactly {least:.6g} in all {len(reward)} rows"
    return Rung(*GRADER, "no", same, same, BY_HAND)


def _room(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether fewer than CROWDED of the completions are cut at the token limit, where an answer is not seen."""
    if cause := _blamed(findings, ("length", "unseen truncation")):
        return _of_fault(*ROOM, cause)
    if _present(findings, "end not recognised"):
        because = "completions that ended are counted as cut, so that the log does not say how many are"
        return Rung(*ROOM, "cannot tell", because, do="give the trainer every end token of the model")
    cut = quantities.get("truncated", SHORT)
    if cut is None or cut.values.max() > 1:
        because = (
            quantities.absence("truncated", SHORT)
            if cut is None
            else "the share of cut completions that is logged exceeds 1"
        )
        return Rung(*ROOM, "cannot tell", because, do=_to_log(*CUT, quantities.run))
    late = cut.level(LATE).value
    said = f"{percent(late)} of completions are cut at the token limit in the last fifth"
    if late < CROWDED:
        return Rung(*ROOM, "yes", said)
    return Rung(*ROOM, "no", f"{said}, where no answer can be paid", f"{percent(late)} of completions are cut", LIMIT)


def _groups(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether half of the groups or more have different rewards: as logged, else by p^G + (1 − p)^G."""
    if cause := _blamed(findings, ("starved", "saturated", "dead after a fall", "empty steps")):
        return _of_fault(*MIXED, cause)
    dead, p, size = quantities.dead_fraction, _success_rate(quantities), quantities.group_size
    formula = f"; p^G + (1 − p)^G is {percent(chance(p, size))} at p = {short(p)} and G = {size}" if p and size else ""
    do = f"use prompts of medium difficulty or larger groups: {_try(p)}"
    if dead is not None and not quantities.dead_fraction_is_bound and dead.values.max() <= 1:
        late = dead.level(LATE).value
        said = f"{percent(late)} of groups have equal rewards in the last fifth"
        if late > HALF:
            return Rung(*MIXED, "no", said + formula, f"{percent(late)} of groups have equal rewards", do)
        return Rung(*MIXED, "yes", said + formula)
    if p is not None and size is not None and size > 1:
        least = chance(p, size)
        said = f"at least {percent(least)} of groups of {size} have equal rewards at a success rate of {short(p)}"
        if least > HALF:
            return Rung(*MIXED, "no", f"{said}, by p^G + (1 − p)^G", said, do)
        return Rung(
            *MIXED,
            "cannot tell",
            f"{said}, by p^G + (1 − p)^G; prompts that differ have more",
            do=_to_log(*SHARE, quantities.run),
        )
    lacks = "no share of dead groups is logged"
    facts = [f"a success rate of {short(p)}"] if p is not None else []
    facts += [f"groups of {size}"] if size else []
    beside = f", only {' and '.join(facts)}" if facts else ""
    return Rung(*MIXED, "cannot tell", lacks + beside, do=f"{_to_log(*SHARE, quantities.run)}; or {_try(p)}")


def _horizon(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether a gain of a tenth of the range would have been seen, by the standard error of the change."""
    outcome = run_outcome.of_run(quantities.run)
    error = outcome.change.se
    steps = run_outcome.steps(quantities.run)
    if steps < SHORT:
        return Rung(*HORIZON, "cannot tell", f"{steps:,} steps are too few to say", do="train longer")
    if not outcome.known or not math.isfinite(error):
        because = outcome.missing or "the change of the outcome has no standard error"
        return Rung(*HORIZON, "cannot tell", because, do="log the reward of every step")
    if not error:
        return Rung(
            *HORIZON, "yes", f"the outcome is the same in every row of {steps:,} steps, so nothing hides in noise"
        )
    seen = DETECTED * error
    change = f"{outcome.end.value - outcome.start.value:+.2g} ± {error:.2g}"
    said = f"a gain below {short(seen)} would hardly have been seen in {steps:,} steps (the change is {change})"
    whole = _range_of(outcome, quantities)
    if whole is None:
        return Rung(*HORIZON, "cannot tell", f"{said}, and the range of the reward is not known",
                    do="log the least and the largest reward of each step")  # fmt: skip
    if seen > OTHERS * whole:
        do = "train longer, with more rollouts per step, or evaluate on held-out problems"
        return Rung(*HORIZON, "no", said, f"a gain below {short(seen)} would hardly be seen", do)
    return Rung(*HORIZON, "yes", said)


def _range_of(outcome: Outcome, quantities: Quantities) -> float | None:
    """The range of the metric of an outcome: 1 for shares, of a reward what the log shows; None where not known."""
    if outcome.heldout or outcome.by_answers:
        shares = are_shares([outcome.start.value, outcome.best.value, outcome.end.value])
        return 1.0 if shares else None
    return quantities.reward_margin(1.0)


def _success_rate(quantities: Quantities) -> float | None:
    """The late share of rollouts that succeed: of right answers, or of rewards that are 0 or 1; None if not known."""
    right = answers.of_run(quantities)
    series: MetricSeries | None = right if right is not None and answers.is_share(right) else None
    if series is None and quantities.binary_rewards:
        series = quantities.get("reward", SHORT)
    return None if series is None else float(min(max(series.level(LATE).value, 0.0), 1.0))


def _try(p: float | None) -> str:
    """The commands that say which groups would be mixed, with the success rate of the log filled in."""
    rate = "the success rate" if p is None else f"a success rate of {p:.2g}"
    return f"grposcope lint on the settings, given {rate}; grposcope plan, where rollouts are logged"


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


def _gradient(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the gradient norm is above 0 in most rows; without one, whether the KL shows that weights moved."""
    if cause := _blamed(findings, NO_GRADIENT):
        return _of_fault(*GRADIENT, cause)
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
        do=_to_log("grad_norm", "the gradient norm", quantities.run),
    )


def _weights(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the KL to the start shows that the policy moved; without one, whether steps change weights, or ratios
    were clipped."""
    if cause := _blamed(findings, ("low learning rate", "update not applied")):
        return _of_fault(*WEIGHTS, cause)
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
    return Rung(*WEIGHTS, "cannot tell", because, do=_to_log("kl", "the KL to the start", quantities.run))


def _sampler(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the policy that samples is the one that trains, by the mismatch and by the faults that it shows."""
    if cause := _blamed(findings, NOT_DRAWN):
        return _of_fault(*SAMPLER, cause)
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
        how = _to_log("mismatch", "the mismatch of sampler and trainer", quantities.run)
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


def _learning_rate(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether the largest learning rate is one for adapters, or for all weights, whichever are trained."""
    if cause := _blamed(findings, ("zero learning rate",)):
        return _of_fault(*RATE, cause)
    rate = _largest_rate(quantities)
    if rate is None:
        do = f"{_to_log('lr', 'the learning rate', quantities.run)}; or give the file of the settings beside the log"
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


Answered = Literal["yes", "no", "cannot tell"]
"""Whether a rung holds."""


@dataclass(frozen=True)
class Rung:
    """One rung.

    name: a noun or two; question: the whole of it. because: what was seen, as a clause with numbers. brief: the same in
    the few words that a first line has room for, of a rung that fails. do: what to do where it fails; where it cannot
    be told, the key to log or the command to run.
    """

    name: str
    question: str
    answer: Answered
    because: str
    brief: str = ""
    do: str = ""

    def document(self) -> dict[str, Any]:
        """The rung as JSON has it."""
        return asdict(self)


def _blamed(findings: Sequence[Finding], faults: Sequence[str]) -> Finding | None:
    """The first of these faults that is failing or a warning; None where none is."""
    bad = [finding for finding in findings if finding.present and finding.grade != "note"]
    return next((finding for name in faults for finding in bad if finding.fault == name), None)


def _present(findings: Sequence[Finding], fault: str) -> bool:
    """Whether a fault is there, however bad it is."""
    return any(finding.present and finding.fault == fault for finding in findings)


def _of_fault(name: str, question: str, finding: Finding) -> Rung:
    """A rung that fails because a fault says so."""
    return Rung(name, question, "no", finding.because, finding.brief or finding.fault, finding.remedy)


def _to_log(quantity: str, noun: str, run: Run) -> str:
    """What to log for a rung to be answered, and how the trainer of the run does, where that is known."""
    trainer = TRAINERS.get(run.meta.engine)
    logged = trainer is not None and quantity in trainer.how_to_log
    how = how_to_log(quantity, run.meta.engine, run.config.get("logged")) if logged else ""
    return f"log {noun}" + (f" ({how})" if how else "")


RUNGS = (
    _gradient,
    _weights,
    _sampler,
    _learning_rate,
    _grader,
    _room,
    _groups,
    _horizon,
)
"""The questions in order: what fails explains those behind it."""

CHECKS = "checks of a run without a gain"
"""What the ladder is called in what is printed."""


def _is_flat(outcome: Outcome) -> bool:
    """Whether neither a gain nor a fall was shown, so that the ladder is asked."""
    return outcome.state in ("level", "undecided")


def of_run(run: Run, findings: Sequence[Finding]) -> tuple[Rung, ...]:
    """The rungs of a flat run with the findings of its judge; none of another run, or of one without rows."""
    if not run.steps or not _is_flat(run_outcome.of_run(run)):
        return ()
    quantities = Quantities(run)
    return tuple(rung(quantities, findings) for rung in RUNGS)


def first_failing(rungs: Sequence[Rung]) -> Rung | None:
    """The first rung that fails, which is the cause of a flat run as far as the ladder can tell."""
    return next((rung for rung in rungs if rung.answer == "no"), None)


def first_to_see(rungs: Sequence[Rung], failing: Rung) -> str:
    """What to do about the first rung that fails: before a longer run, whether weights move where a KL of 0 leaves that
    open."""
    opened = any(rung.do == CHECK_WEIGHTS for rung in rungs)
    return f"{CHECK_WEIGHTS}; where they differ, {failing.do}" if opened and failing is rungs[-1] else failing.do


def clause(rungs: Sequence[Rung]) -> str:
    """What a first screen says of a ladder, as a clause: the first rung that fails, else which hold and which cannot be
    told; empty without rungs."""
    if not rungs:
        return ""
    if failing := first_failing(rungs):
        return f"{CHECKS}, the first that fails ({failing.name}): {failing.because}"
    hold = [rung.name for rung in rungs if rung.answer == "yes"]
    untold = [rung.name for rung in rungs if rung.answer == "cannot tell"]
    holds = f"{listed(hold)} {'passes' if len(hold) == 1 else 'pass'}" if hold else "none is shown to pass"
    rest = f"; not answerable: {', '.join(untold)} (-v says what to log)" if untold else ""
    return f"{CHECKS}: {holds}{rest}"
