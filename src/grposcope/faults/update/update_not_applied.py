"""There is a gradient and a learning rate, and the policy is exactly the one it started as.

What it is
    The optimiser's step is skipped, holds other parameters than those that the loss is taken of, or is undone: an
    optimiser made before the model was wrapped or moved, a loss scaler that skips every step, frozen weights beside
    trained ones, adapters that were loaded without is_trainable=True, weights loaded anew before each batch. Or the
    reference is renewed at every step, so that the KL says nothing.
How it shows
    None of the weights that a trainer compares before and after a step has changed, although they have a gradient. Or
    the KL to the start is exactly 0 in every row, while the gradient norm and the learning rate are not, and the reward
    stays where it was: any change of the weights would leave a KL of more than 0.
What it does to the gradient
    Nothing: it is taken, and thrown away.
What to do
    Compare a checksum of the weights before and after one step of the optimiser. If it changed, see whether the
    reference is a copy of its own. A higher learning rate does not help.
What decides
    A checksum of the weights before and after one step.
Sources
    TRL #6700, a frozen adapter: https://github.com/huggingface/trl/issues/6700
    TRL #3031, the same: https://github.com/huggingface/trl/issues/3031
    method of this project
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.not_finite import not_finite
from grposcope.core.run import Floats
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs import run_outcome
from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import LEAST, SHORT, Quantities

MOST = 0.5
"""Share of the rows that have a gradient, at least."""

FEW = 4
"""Decimals to which a small KL may be rounded to 0."""

RISES = 0.01
"""p-value of a rise of the reward from which weights must have changed."""


def _is_rounded(values: Floats) -> bool:
    """Whether gradient norms were printed to FEW decimals at most, as older consoles of verl do with every number."""
    scaled = values * 10**FEW
    return bool((np.abs(scaled - scaled.round()) < 1e-6 * np.maximum(scaled, 1)).all())


def _equal(quantities: Quantities) -> bool:
    """Whether most groups are known to have equal rewards, or rewards to be alike."""
    dead, spread = quantities.get("dead_fraction", LEAST), quantities.get("reward_std", LEAST)
    return (dead is not None and float(dead.values.mean()) > MOST) or (
        spread is not None and float(np.mean(spread.values > 0)) < MOST
    )


def _check(quantities: Quantities) -> Finding:
    """Weights that steps leave as they were, where they are compared; else what the KL says of them."""
    moved = quantities.column("weights_moved")
    if moved is None or len(moved) < SHORT:
        return _by_kl(quantities)
    rate = quantities.column("lr")
    idle = () if rate is None else rate.steps[rate.values == 0]
    still = (moved.values == 0) & ~np.isin(moved.steps, idle)
    first = 0 if still.all() else begins(still)
    count = int(still.sum()) if first is None else len(still) - first
    key = quantities.key(moved.name)
    evidence = (Sign(f"rows with {moved.name} of 0", float(count), column=moved.name),)
    if first is None:
        return fact(False, f"{key} is above 0 in {len(still) - count} of {len(still)} rows", evidence)
    where = f"all {count} {moved.rows}" if not first else f"the last {count} {moved.rows}"
    onset = int(moved.steps[first]) if first else None
    since = f", since step {onset:,}" if first else ""
    because = (
        f"{key} is 0 in {where}{since}: these weights have a gradient, and steps leave them bit for bit as they were"
    )
    brief = f"no step changes the weights{since}"
    return fact(True, because, evidence, onset, brief=brief, explains=("no learning", "low learning rate"))


def _by_kl(quantities: Quantities) -> Finding:
    """A KL of exactly 0 in every row beside a gradient and a learning rate, with no gain of the reward."""
    kl, norm = quantities.require("kl", LEAST), quantities.get("grad_norm", LEAST)
    if norm is None and (kl.values.any() or quantities.is_idle_kl(kl)):
        quantities.require("grad_norm", LEAST)
    rate, outcome = quantities.column("lr"), run_outcome.of_run(quantities.run)
    evidence = (Sign(f"largest {kl.name}", float(np.abs(kl.values).max()), column=kl.name),)
    if kl.values.any():
        return fact(False, "the KL is not 0 in every row", evidence)
    if norm is None and _equal(quantities):
        return fact(False, "groups have equal rewards, so that there is no gradient", evidence)
    if (norm is not None and np.mean(norm.values > 0) < MOST) or (rate is not None and not rate.values.any()):
        return fact(False, "there is hardly a gradient, or no learning rate", evidence)
    if norm is not None and _is_rounded(norm.values):
        return fact(False, "the log is printed to few decimals, so that a KL of 0 may be one that is small", evidence)
    reward = quantities.get("reward", LEAST)
    risen = reward is not None and reward.present.rise.p_up < RISES
    if outcome.direction == "up" or risen:
        return fact(False, "the reward rises, so that weights do change", evidence)
    key = quantities.key(kl.name)
    if quantities.is_idle_kl(kl):
        either = f"{key} is exactly 0 in all {len(kl)} rows: no step changes the policy, or it is not computed"
        return Finding("update not applied", "possible", "fact", either, evidence=evidence)
    exactly = f"{key} is exactly 0 in all {len(kl)} rows"
    changes = "no step changes the policy, or the reference changes with it"
    lacks = "is not finite" if "grad_norm" in not_finite(quantities.run.table) else "is not logged"
    because = f"{exactly}: {changes}; the gradient norm, which {lacks}, tells whether there is a gradient"
    if norm is not None:
        seen = f"although the gradient norm is above 0 in {int((norm.values > 0).sum())} of {len(norm)}"
        because = f"{exactly}, {seen}: {changes}"
    brief = f"{key} is exactly 0 in all {len(kl)} {kl.rows}: no step changes the policy"
    return fact(True, because, evidence, brief=brief, explains=("no learning", "low learning rate"))


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Adapters that a script loads frozen, and gives to the trainer as they are."""
    line = (config.script or {}).get("frozen adapters")
    if line is None:
        return
    because = (
        f"line {line} loads the adapter without is_trainable=True, so that PEFT freezes all of its parameters, and the "
        "base model's are frozen too: the optimiser has nothing to train, while loss, reward and gradient norm may be "
        "logged as ever"
    )
    remedy = (
        "load it with is_trainable=True, or merge it (merge_and_unload) and give the trainer a peft_config; "
        "model.print_trainable_parameters() says how many are trained"
    )
    yield fact(True, because, (Sign("is_trainable = False by default", where=f"line {line}"),), grade="failing",
               brief="the adapter is loaded frozen", remedy=remedy, explains=("no learning",))  # fmt: skip


FAULT = Fault(
    name="update not applied",
    rank=11.5,
    remedy="compare a checksum of the weights before and after one step of the optimiser: if it stays, see which "
    "parameters the optimiser holds and whether its steps are skipped; if it changes, see whether the reference is a "
    "copy of its own",
    effect="nothing is learned",
    beside="warning",
    log=LogTest(
        "update not applied",
        _check,
        needs=("kl", "grad_norm"),
        where_logged=True,
        statistic="share of the weights that a step changes; else the KL to the start beside the gradient norm, the "
        "learning rate and what became of the reward",
        threshold=f"a share of 0 in all rows, or in the last {SHORT} or more; or a KL of 0 in all of at least {LEAST} "
        f"rows, with a gradient in {MOST:g} of them, or norms not logged, and no gain: facts",
    ),
    settings=SettingsCheck(
        "update not applied",
        _settings,
        (),
        "adapters that a script loads without is_trainable=True",
        ("failing",),
        scripts=("trl",),
    ),
)
