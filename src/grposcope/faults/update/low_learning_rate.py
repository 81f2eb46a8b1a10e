"""The learning rate is so low that the policy hardly moves.

Asked as
    Nothing happens: reward and KL stay where they are
What it is
    A rate for all weights given to adapters, which take about ten times as much; or a warm-up that lasts for most of
    the run, or a schedule that ended.
How it shows
    There is a gradient, and after many steps the KL to the start is next to 0 while the reward is flat. Or the rate is
    below a hundredth of its largest for a third of the rows, up to the end, which no usual schedule does.
What it does to the gradient
    Nothing: the step is small whatever the gradient is, because Adam's step is about the rate.
What to do
    Raise the rate: 1e-6 is usual for all weights, 1e-5 for adapters; shorten the warm-up.
What decides
    Fifty steps at ten times the rate: the KL grows by a hundred.
Sources
    TRL #2872: https://github.com/huggingface/trl/issues/2872
    X-R1 #66: https://github.com/dhcode-cpp/X-R1/issues/66
    NeMo-RL, megatron_policy_worker: https://github.com/NVIDIA-NeMo/RL
    mlx-lm-lora 3.1.2, train.py: https://github.com/Goekdeniz-Guelmez/mlx-lm-lora
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries.change import LATE
from grposcope.signs import run_outcome
from grposcope.signs.dead_groups import DEAD
from grposcope.signs.ladder import adapters
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.settings.names import EVERY, key_of
from grposcope.signs.settings.recipe import has_adapters
from grposcope.signs.thresholds import FULL_RATE, LORA_RATE, MANY_STEPS, UNMOVED

_ENDED, _REST = 0.01, 0.3
"""Share of the largest rate below which a rate is spent, and share of the rows, up to the end, that no schedule over
the whole run spends there: a cosine spends 0.06, a straight line 0.01."""

REMEDY = "raise the learning rate: 1e-6 is usual for all weights, 1e-5 for adapters; shorten the warm-up"


def _check(quantities: Quantities) -> Finding:
    """A KL next to 0 after MANY_STEPS steps that had a gradient, beside a reward that did not rise; at a usual learning
    rate the rate need not be the cause."""
    if (spent := _spent(quantities)) is not None:
        return spent
    kl, norm = quantities.require_computed_kl(), quantities.require("grad_norm", LEAST)
    late = kl.level(LATE).value
    evidence = [
        Sign(f"{kl.name}, last {1 - LATE[0]:.0%}", late, limit=f"hardly moved below {UNMOVED:g}", column=kl.name)
    ]
    outcome, dead = run_outcome.of_run(quantities.run), quantities.dead_fraction
    if kl.steps[-1] - kl.steps[0] < MANY_STEPS - 1:
        return fact(
            False, f"fewer than {MANY_STEPS} steps are too few to say that the policy hardly moves", tuple(evidence)
        )
    moves = kl.values.max() > 20 * UNMOVED or not 0 < late < UNMOVED
    if moves or kl.name in ("kl_k1", "kl_penalty") or outcome.rose or outcome.state != "level":
        return fact(False, "the policy moves, or the reward rises", tuple(evidence))
    if not norm.values.any() or (dead is not None and dead.values.mean() > DEAD):
        return fact(False, "there is hardly a gradient, whatever the learning rate is", tuple(evidence))
    rate = quantities.column("lr")
    if rate is not None and _usual(float(rate.values.max()), adapters(quantities.run)):
        reached = number(float(rate.values.max()))
        return cannot_tell(
            f"{quantities.key(kl.name)} is {late:.1e} nats, and the learning rate reaches {reached}, which is no low "
            f"one unless adapters are trained: a KL penalty that outweighs the reward holds a policy as well, as does "
            "an optimiser without the parameters that are trained"
        )
    steps = int(kl.steps[-1] - kl.steps[0]) + 1
    because = f"{quantities.key(kl.name)} is {late:.1e} nats after {steps:,} steps that had a gradient"
    if rate is not None:
        top = float(rate.values.max())
        rising = top == rate.values[-1] > 1.5 * rate.values[len(rate) // 2]
        evidence.append(Sign("largest learning rate", top, column=rate.name))
        because += f": the learning rate is {number(top)} at most" + (" and still warming up" if rising else "")
    return fact(True, because, tuple(evidence), brief=f"{quantities.key(kl.name)} is {late:.1e}: hardly moved")


def _spent(quantities: Quantities) -> Finding | None:
    """That the rate is above 0 and below _ENDED of its largest on the last rows, _REST of all; else None."""
    rate = quantities.column("lr")
    if rate is None or len(rate) < LEAST or not rate.values[-1] > 0:
        return None
    top = float(rate.values.max())
    above = np.flatnonzero(rate.values > _ENDED * top)
    count = len(rate) - 1 - int(above[-1])
    if count < _REST * len(rate):
        return None
    step, last = int(rate.steps[above[-1] + 1]), float(rate.values[above[-1] + 1 :].max())
    because = (
        f"the learning rate is {number(last)} at most on the last {count} of {len(rate)} rows, since step {step:,}, "
        f"and was {number(top)} at most before: as where a schedule steps at every update of the optimiser and was "
        "made for the number of batches"
    )
    remedy = "give the schedule as many steps as the optimiser takes in the whole run, or take a constant rate"
    evidence = (Sign("rows with a rate that is spent", float(count), column=rate.name),)
    return fact(True, because, evidence, step, brief=f"the learning rate is spent since step {step:,}", remedy=remedy,
                grades=run_outcome.although_it_learned(quantities.run))  # fmt: skip


def _usual(rate: float, lora: bool | None) -> bool:
    """Whether a largest learning rate is no low one: a usual one, of adapters where these are said to be trained."""
    return rate >= 10 * (LORA_RATE if lora else FULL_RATE)


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A learning rate for all weights that adapters are given."""
    yield from _never_warm(config)
    yield from _ends_early(config)
    key = key_of(config, "lr")
    rate = config.number(key)
    if rate is None or not 0 < rate <= LORA_RATE or not has_adapters(config):
        return
    yield fact(
        True,
        f"{rate:g} is a rate for all weights, and adapters (LoRA) are trained, whose usual rate is 1e-5 or more",
        config.signs(key),
        grade="warning",
        explains=("no learning", "update not applied"),
        brief="a rate for all weights given to adapters",
        remedy="start with 1e-5 for adapters",
    )


def _never_warm(config: Settings) -> Iterator[Finding]:
    """A warm-up as long as the run, so that its learning rate is never reached; prime-rl refuses most such."""
    warmup, steps = key_of(config, "warmup"), key_of(config, "steps")
    rising, whole = config.number(warmup), config.number(steps)
    if not (rising and whole and whole > 0) or rising < whole or not (config.says(warmup) and config.says(steps)):
        return
    yield fact(
        True,
        f"the warm-up takes {rising:g} steps, and the run has {whole:g}: the learning rate rises to its end"
        + ("" if rising == whole else f" and reaches {whole / rising:.2g} of what is set"),
        config.signs(warmup, steps),
        grade="warning",
        explains=("no learning", "update not applied"),
        brief="the warm-up is as long as the run",
        remedy=f"set {warmup} to a tenth of {steps} or less",
    )


_HALF, _SPENT = 0.5, 0.1
"""Share of the run by whose end a schedule has ended early, and share of the rate that is left then up to which the
rest of the run hardly trains."""


def _ends_early(config: Settings) -> Iterator[Finding]:
    """A schedule that has brought the rate to its end by _HALF of the run or earlier."""
    if config.partial or config.dialect.name not in _SCHEDULES:
        return
    ends, whole, left, keys = _SCHEDULES[config.dialect.name](config)
    if not (ends and whole and left is not None) or ends > _HALF * whole or left > _SPENT:
        return
    yield fact(
        True,
        f"the schedule ends after {ends:g} steps, and the run has {whole:g}: from then on the learning rate is "
        f"{f'{left:.2g} of what is set' if left else '0'}",
        config.signs(*keys),
        grade="warning",
        explains=("no learning", "update not applied"),
        brief="the schedule ends long before the run",
        remedy=f"set {keys[0]} to the steps of the run",
    )


_Schedule = tuple[float | None, float | None, float | None, tuple[str, ...]]
"""Steps after which a schedule has ended, steps of the run, share of the rate that is left then, and the keys."""


def _of_megatron(config: Settings) -> _Schedule:
    """NeMo-RL with Megatron, whose schedule goes on once a step of GRPO, whatever the batch."""
    place = "policy.megatron_cfg."
    keys = (f"{place}scheduler.lr_decay_iters", "grpo.max_num_steps")
    if not config.on(f"{place}enabled") or config.get(f"{place}scheduler.lr_decay_style") not in ("linear", "cosine"):
        return None, None, None, keys
    rate, least = config.number(f"{place}optimizer.lr"), config.number(f"{place}optimizer.min_lr")
    left = least / rate if rate and least is not None else None
    return config.number(keys[0]), config.number(keys[1]), left, keys


def _of_mlx_lm_lora(config: Settings) -> _Schedule:
    """mlx-lm-lora's cosine, whose arguments are the first rate, its steps and the last rate, after a warm-up."""
    keys, given = ("lr_schedule.arguments", "iters"), config.get("lr_schedule.arguments")
    numbers = [own for own in given if isinstance(own, int | float)] if isinstance(given, list) else []
    if config.get("lr_schedule.name") != "cosine_decay" or len(numbers) < 2 or not numbers[0]:
        return None, None, None, keys
    whole = (config.whole("iters") or 0) // (config.whole("gradient_accumulation_steps") or 1)
    left = numbers[2] / numbers[0] if len(numbers) > 2 else 0.0
    return numbers[1] + (config.number("lr_schedule.warmup") or 0), whole, left, keys


_SCHEDULES: Mapping[str, Callable[[Settings], _Schedule]] = {
    "nemo-rl": _of_megatron,
    "mlx-lm-lora": _of_mlx_lm_lora,
}
"""Trainer -> what its settings say of a schedule."""


FAULT = Fault(
    name="low learning rate",
    rank=245,
    remedy=REMEDY,
    effect="the steps are too small to change what is sampled",
    instead="warning",
    log=LogTest(
        "low learning rate",
        _check,
        needs=("kl", "grad_norm"),
        statistic="late KL to the start, beside the gradient, dead groups and what became of the reward",
        threshold=f"< {UNMOVED:g} nats after {MANY_STEPS} steps with a gradient, with no rise of the reward",
    ),
    settings=SettingsCheck(
        "low learning rate",
        _settings,
        EVERY[:-1],
        "a learning rate for all weights that adapters are given, that the warm-up never reaches, or that ends early",
        ("warning",),
    ),
)
