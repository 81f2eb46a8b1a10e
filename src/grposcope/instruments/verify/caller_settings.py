"""Settings that the caller states against those of the run itself: the first count, and each difference is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from grposcope.signs.rollouts import pipeline_settings as settings
from grposcope.signs.rollouts import stated_loss
from grposcope.signs.rollouts.evidence import Stated
from grposcope.signs.rollouts.stated_loss import StatedLoss
from grposcope.signs.settings.in_force import same, written

LOSS_NAMES: Mapping[str, str] = {
    "low": "epsilon", "high": "epsilon_high", "bound": "delta", "reduction": "loss_type", "entropy": "entropy_coef",
    "ratio": "importance_sampling_level", "surrogate": "loss_type",
}  # fmt: skip
"""Field of StatedLoss -> the setting that says it."""


@dataclass(frozen=True)
class StatedByCaller:
    """What the caller states, in a trainer's words.

    values: setting -> value. defaults: of the trainer, which count only where neither `values` nor the run say
    anything. engine: whose words they are, empty for those of the run. origin: setting -> where it was stated, such as
    the name of a file; "what was stated" for others.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    engine: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)


def of_both(
    own: Stated, asked: StatedByCaller, engine: str, functions: Sequence[str]
) -> tuple[Stated, tuple[str, ...]]:
    """What counts, and a clause for each setting that is not the run's own.

    own: what the run says of itself. engine: whose words `asked` has if it does not say so. functions: names of the
    reward functions. UserError for a value that a setting cannot have.
    """
    engine, values = asked.engine or engine, settings.flat(asked.values)
    first = settings.named(settings.of_settings(values, engine), functions)
    last = settings.named(settings.of_settings(settings.flat(asked.defaults), engine), functions)
    own = settings.named(own, functions)
    if engine == "grposcope":
        first = _as_others_count(first)
    first = replace(first, loss=_loss(own.loss, first.loss, values))
    if own.loss is not None and set(values) & set(stated_loss.NAMES) and first.loss is None:
        own, last = replace(own, loss=None), replace(last, loss=None)  # a loss is stated for which there are no words
    return _over(_over(last, own), first), _differences(own, first, asked, values)


def _as_others_count(stated: Stated) -> Stated:
    """Warm-up and updates in the words of our loop, as `stated.own_schedule` has them, where they are stated."""
    counted = settings.own_schedule(stated)
    return replace(counted, warmup=None if stated.warmup is None else counted.warmup)


def _loss(own: StatedLoss | None, asked: StatedLoss | None, values: Mapping[str, Any]) -> StatedLoss | None:
    """The loss that is asked for; where only parts of it are, these in the run's own."""
    parts = {name: values[key] for name, key in LOSS_NAMES.items() if key in values and name != "surrogate"}
    if asked is not None or own is None or not parts:
        return asked
    if set(values) & set(stated_loss.NAMES) - {"epsilon", "epsilon_high", "delta", "entropy_coef"}:
        return None
    low = float(parts.get("low", own.low))
    high = parts.get("high", low if "low" in parts else own.high)
    return replace(own, low=low, high=float(high), bound=float(parts.get("bound", own.bound)),
                   entropy=float(parts.get("entropy", own.entropy)))  # fmt: skip


def _over(below: Stated, above: Stated) -> Stated:
    """The second, and the first where the second says nothing."""
    return replace(below, **{name: getattr(above, name) for name in settings.said(above)})


def _differences(own: Stated, asked: Stated, by: StatedByCaller, values: Mapping[str, Any]) -> tuple[str, ...]:
    """ "beta is 0.04 in train.py and 0 in the run's own settings", for each setting that both state."""
    told = []
    for name in settings.said(asked):
        ours, theirs = getattr(own, name), getattr(asked, name)
        if name not in settings.said(own) or same(ours, theirs):
            continue
        if isinstance(ours, StatedLoss) and isinstance(theirs, StatedLoss):
            parts = [field.name for field in fields(StatedLoss) if field.name in LOSS_NAMES]
            told += [_clause(LOSS_NAMES[field], getattr(theirs, field), getattr(ours, field), by) for field in parts
                     if not same(getattr(ours, field), getattr(theirs, field))]  # fmt: skip
        else:
            key = next((key for key in settings.ALIASES.get(name, ()) if key in values), name)
            told.append(_clause(key, theirs, ours, by))
    return tuple(dict.fromkeys(told))


def _clause(key: str, asked: Any, own: Any, by: StatedByCaller) -> str:
    where = by.origin.get(key) or next(iter(set(by.origin.values())), "what was stated")
    return f"{key} is {_shown(asked)} in {where} and {_shown(own)} in the run's own settings"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    return written(value)
