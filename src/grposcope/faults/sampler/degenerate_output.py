"""From one step to the next every completion runs to the token limit, and nothing is paid any more.

Asked as
    The model answers only "!!!!!!"
What it is
    The sampler draws one token over and over, or noise: its weights were damaged by a transfer, by another precision or
    by an update that was not finite; or its engine fails. A policy that learns to write more does so over many updates.
How it shows
    The share of cut completions goes from few to all within two rows and stays there, and the reward goes to one number
    in the same rows. Or the KL to the start is many times what it was from one step on, and the reward and another
    metric of the rollouts are at other levels from the same step on. Or the entropy is that of noise from the first row
    on, and nothing is paid; or above that of language, with most completions cut.
What it does to the gradient
    All rewards are equal, so that there is none.
What to do
    Read one completion of that step. If the trainer's own weights write sense, mend what is sent to the sampler;
    otherwise go back to the checkpoint before. A longer limit does not help.
What decides
    One prompt, greedily, from the checkpoint of that step in another engine (transformers): sense, or the same text.
Sources
    ms-swift #3372: https://github.com/modelscope/ms-swift/issues/3372
    ms-swift #7017, weights that an engine discarded as it slept: https://github.com/modelscope/ms-swift/pull/7017
    verl #5211, noise from the first step on: https://github.com/verl-project/verl/issues/5211
    Unsloth #1888, float16 on a V100: https://github.com/unslothai/unsloth/issues/1888
    ms-swift #8233: https://github.com/modelscope/ms-swift/issues/8233
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.text import listed, number
from grposcope.maths.timeseries.onset import at_once
from grposcope.signs.moves_alone import distance
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities

FEW, ALL = 0.5, 0.99
"""Share of cut completions in the row before, at most, and in every row after."""

FAR, TIMES = 0.3, 5.0
"""Nats per token to the start from which on, and times those before, at which a jump of the KL is another policy."""

OTHERS = ("entropy", "length", "truncated", "reward_std")
"""Metrics of the rollouts, one of which has to jump too."""

OF_A_POLICY = ("kl blow-up", "entropy explosion", "entropy collapse", "gradient explosion", "answers shorten")
"""Faults that another policy shows at once."""

BETWEEN = (
    "find out what happened between that step and the one before: a restart or resume, a transfer of weights (adapters "
    "merged twice, or left out), an update whose gradient exploded; read a completion of that step, and go back to the "
    "checkpoint before it"
)
"""What to do where the policy is another from one step to the next."""

NOISE = 5.0
"""Nats of entropy per token from which text is near noise: language has 2 at most, an even draw ln V, 11 or so."""

LOADED = (
    "read the first completion: if it is no language, sampler or trainer does not have the model's weights: a "
    "checkpoint or adapters that were not loaded, a dummy load format, a first transfer that failed. Compare the "
    "greedy text of the engine with that of transformers for one prompt; no longer limit and no other reward helps"
)
"""What to do where text is noise from the first step on."""

UNLIKE, MOST_CUT, UNPAID = 2.5, 0.8, 0.01
"""Nats of entropy per token above language, share of cut completions and mean reward of every row in which what is
drawn is no answer."""

READ_FIRST = (
    "read the first completion beside its prompt as the model gets it: words that lead nowhere are a base model under "
    "a chat template that it was not trained with, or without an end token that it knows (use its own form, or "
    "fine-tune on examples first), or a temperature above 1; if it is no language, sampler or trainer does not have "
    "the model's weights. No easier prompts, longer limit or other reward helps"
)
"""What to do where text is no answer from the first step on."""

WITHIN = 2
"""Rows within which it happens."""

START, BROKEN = 0.02, 3.0
"""Nats to the start in the first row at most, and in every later one at least, where one update damaged the weights."""

EARLIEST, USUAL = 2, 1e-5
"""Rows after the first within which all are cut, and the largest learning rate at which no update leads there."""

PRECISION = (
    "look at the weights after the first update, whether all are finite, and at one completion of the second step: "
    "float16 overflows at 65,504 (train in bfloat16, or in float32 on a card without it, such as a V100); if they are "
    "finite, at the copy that draws (adapters, merged or quantised weights, kernels). No checkpoint of this run is "
    "sound"
)
"""What to do where the first update damaged them."""

FOLLOWS = (
    "length", "constant reward", "starved", "dead after a fall", "never paid", "empty steps", "zero loss",
    "reward decline", "saturated", "unseen truncation",
)  # fmt: skip
"""Faults that follow from text that ends nowhere."""


def _noise(quantities: Quantities) -> Finding | None:
    """That what is drawn is near noise in every row, and nothing is paid; else None."""
    entropy, reward = quantities.get("entropy", SHORT), quantities.get("reward", SHORT)
    if entropy is None or reward is None:
        return None
    if reward.values.any() or entropy.values.min() < NOISE:
        return _gibberish(quantities, entropy, reward)
    lowest = number(float(entropy.values.min()))
    because = (
        f"{quantities.key(entropy.name)} is {lowest} nats per token or more in every row from the first on, where "
        "language has 2 at most, and nothing is ever paid: what is drawn is near noise"
    )
    evidence = (Sign(f"smallest {entropy.name}", float(entropy.values.min()), column=entropy.name),)
    return fact(True, because, evidence, explains=FOLLOWS, remedy=LOADED,
                brief=f"{quantities.key(entropy.name)} is {lowest} nats or more from the first row on")  # fmt: skip


def _gibberish(quantities: Quantities, entropy: MetricSeries, reward: MetricSeries) -> Finding | None:
    """That text is more even than language in every row, most of it is cut, and hardly any is paid; else None."""
    cut = quantities.get("truncated", SHORT)
    if cut is None or cut.values.min() < MOST_CUT or cut.values.max() > 1 or entropy.values.min() < UNLIKE:
        return None
    if not 0 <= float(np.abs(reward.values).max()) <= UNPAID:
        return None
    lowest, least = number(float(entropy.values.min())), f"{cut.values.min():.0%}"
    because = (
        f"{quantities.key(entropy.name)} is {lowest} nats per token or more in every row from the first on, where "
        f"language has 2 at most, {least} of completions or more are cut in every row, and the mean reward is never "
        f"above {number(float(reward.values.max()))}: what is drawn is no answer from the first step on"
    )
    evidence = (Sign(f"smallest {entropy.name}", float(entropy.values.min()), limit=f"counts from {UNLIKE:g}",
                     column=entropy.name),)  # fmt: skip
    return fact(True, because, evidence, explains=(*FOLLOWS, "no learning"), remedy=READ_FIRST,
                brief=f"{quantities.key(entropy.name)} is {lowest} nats or more from the first row on")  # fmt: skip


def _replaced(quantities: Quantities) -> Finding | None:
    """That KL, reward and another metric are at other levels from one step on, as no update makes; else None."""
    kl, reward = distance(quantities), quantities.get("reward", LEAST)
    if kl is None or reward is None:
        return None
    step, lost = _since_step(kl, 1), _since_step(reward, -1)
    if step is None or lost is None or abs(step - lost) > 1:
        return None
    before, after = (float(np.median(kl.values[rows])) for rows in (kl.steps < step, kl.steps >= step))
    if after < max(TIMES * before, FAR):
        return None
    others = [other for name in OTHERS if (other := quantities.get(name, LEAST)) is not None]
    too = [
        quantities.key(other.name) for other in others if (at := _since_step(other)) is not None and abs(at - step) <= 1
    ]
    if not too:
        return None
    went = quantities.went(kl.name, before, after)
    because = (
        f"{went} nats per token at step {step:,}, and the reward and {listed(too)} are at other levels from that step "
        "on, which no update of the usual size makes: another policy draws the rollouts, or the weights were damaged"
    )
    evidence = (Sign(f"{kl.name}, median from step {step:,} on", after, column=kl.name),)
    return fact(
        True, because, evidence, step, explains=(*FOLLOWS, *OF_A_POLICY), remedy=BETWEEN,
        brief=f"{went} at step {step:,}, with the reward",
    )  # fmt: skip


def _at_the_first_update(quantities: Quantities) -> Finding | None:
    """That KL and text were lost with the first update, at a rate that leads nowhere near; else None."""
    kl, cut, rate = quantities.get("kl", LEAST), quantities.get("truncated", LEAST), quantities.column("lr")
    if kl is None or cut is None or rate is None or quantities.run.window > 1 or len(cut) != len(kl):
        return None
    few, fast = cut.values[0] <= FEW and kl.values[0] <= START, rate.values[: EARLIEST + 1].max() > USUAL
    if not few or fast or kl.values[1:].min() < BROKEN or cut.values[EARLIEST:].min() < ALL:
        return None
    key, step, rates = quantities.key(kl.name), int(kl.steps[1]), rate.values[: EARLIEST + 1]
    because = (
        f"{key} is {number(float(kl.values[1]))} nats per token at step {step:,} and never below "
        f"{number(float(kl.values[1:].min()))} after the first row, at a learning rate of {rates.max():.2g}, and every "
        "completion is cut from then on: Adam moves no weight by much more than its rate, so that such an update does "
        "not lead there; it was not finite, or another policy draws"
    )
    evidence = (Sign(f"smallest {kl.name} after the first row", float(kl.values[1:].min()), column=kl.name),)
    return fact(
        True, because, evidence, explains=(*FOLLOWS, *OF_A_POLICY, "high learning rate", "sampler mismatch"),
        remedy=PRECISION, brief=f"{key} is {number(float(kl.values[1]))} nats after the first update",
    )  # fmt: skip


def _since_step(series: MetricSeries, direction: int = 0) -> int | None:
    """The step from which a metric is at another level, all at once; None where it is not so."""
    row = at_once(series.values, direction)
    return None if row is None else int(series.steps[row])


def _check(quantities: Quantities) -> Finding:
    """Cut completions that go from few to all within WITHIN rows, up to the end, with a reward that is then one."""
    if (seen := _noise(quantities) or _at_the_first_update(quantities) or _replaced(quantities)) is not None:
        return seen
    cut, reward = quantities.require("truncated", LEAST), quantities.require("reward", LEAST)
    whole = int(np.argmin(np.append(cut.values[::-1] >= ALL, False)))
    first = len(cut) - whole
    if whole < SHORT or not first > 0 or cut.values[max(first - WITHIN, 0) : first].min() > FEW:
        return fact(False, "completions do not all run to the limit from one step to the next")
    step = int(cut.steps[first])
    after = reward.values[reward.steps >= cut.steps[min(first + WITHIN, len(cut) - 1)]]
    before = reward.values[reward.steps < cut.steps[first]]
    if not len(after) or np.ptp(after) > 0 or not len(before) or after[0] >= before.mean():
        return fact(False, "all completions run to the limit, and rewards still differ")
    share = float(cut.values[:first].mean())
    because = (
        f"completions at the token limit go from {share:.0%} to all at step {step:,} and the reward to {after[0]:g} "
        "with them, which no learning does in one step: the text has degenerated, as when the sampler repeats one token"
    )
    evidence = (
        Sign("cut completions before", share, column=cut.name),
        Sign("rows up to the end with all cut", float(whole), column=cut.name),
    )
    return fact(
        True, because, evidence, step, explains=FOLLOWS, brief=f"all completions run to the limit from step {step:,} on"
    )


FAULT = Fault(
    name="degenerate output",
    rank=15,
    remedy="read a completion of that step: if the sampler repeats one token or writes gibberish, compare its weights "
    "with the trainer's after one update (an engine at sleep level 2 discards them, and needs all of them again after "
    "it wakes, not the adapters alone), and go back to the checkpoint before the onset",
    effect="nothing can be learned",
    beside="failing",
    log=LogTest(
        "degenerate output",
        _check,
        needs=("truncated", "reward"),
        statistic="rows from few cut completions to all of them; the reward after them; or the KL, the reward and one "
        "more at other levels from one step on; entropy in every row",
        threshold=f"below {FEW:g} to {ALL:g} within {WITHIN} rows, up to the end, with one reward; KL above {FAR:g} "
        f"and {TIMES:g} × what it was; entropy of {NOISE:g} nats or more in every row, without reward, "
        f"or of {UNLIKE:g} with {MOST_CUT:g} cut and a reward of {UNPAID:g} at most; KL of "
        f"{BROKEN:g} nats or more in every row but the first, all cut after {EARLIEST} rows, at a rate of {USUAL:g} at "
        "most",
    ),
)
