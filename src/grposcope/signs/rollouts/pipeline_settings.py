"""What the settings of a run say of its pipeline, in whosever words; what they do not say stays None.

The deviation that divides advantages has ddof 1 in TRL, verl, OpenRLHF and in our own loop. What is added to it is
1e-4 in TRL and in our recipes and 1e-6 in verl.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.logs.trainers import TRAINERS
from grposcope.signs.rollouts import stated_loss
from grposcope.signs.rollouts.evidence import Stated

SCALES = {"group": "group", "batch": "batch", "none": "none", "true": "group", "false": "none", "mean": "mean"}
"""Words of settings for what advantages are divided by -> ours."""


@dataclass(frozen=True)
class _Shape:
    """Baseline and scale of an advantage, with the constants of its deviation."""

    baseline: str
    scale: str
    ddof: int | None = None
    epsilon: float | None = None


OWN = {
    "none": _Shape("none", "none"),
    "centered": _Shape("mean", "none"),
    "leave_one_out": _Shape("leave-one-out", "none"),
    "standardized": _Shape("mean", "group", 1, 1e-4),
    "batch_standardized": _Shape("mean", "batch", 1, 1e-4),
    "mean_normalized": _Shape("mean", "mean", None, 1e-6),
    "whitened": _Shape("batch", "batch", 1, 1e-4),
}
"""Advantage of our own loop -> its shape."""


def comparison(advantage: str) -> dict[str, Any]:
    """Fields of Stated that say what an advantage of ours compares; none for one that is not in OWN."""
    shape = OWN.get(advantage)
    return {} if shape is None else {key: value for key, value in vars(shape).items() if value is not None}


VERL = {
    "grpo": _Shape("mean", "group", 1, 1e-6),
    "rloo": _Shape("leave-one-out", "none"),
    "grpo_passk": _Shape("second", "group", 1, 1e-6),
    "reinforce_plus_plus": _Shape("batch", "batch", 1, 1e-8),
}
"""`algorithm.adv_estimator` of verl -> its shape."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "group": ("group",), "temperature": ("temperature",), "top_k": ("top_k",), "top_p": ("top_p",),
    "limit": ("limit", "max_tokens"), "masks_truncated": ("masks_truncated",), "iterations": ("iterations", "interval"),
    "accumulation": ("accumulation",), "learning_rate": ("lr",), "schedule": ("schedule",), "kl": ("kl",),
    "warmup": ("warmup",), "updates": ("steps",), "ddof": ("ddof",), "epsilon": ("eps",), "baseline": ("baseline",),
    "scale": ("scale",), "pad": ("pad",), "clip": ("clip_grad",), "beta2": ("beta2",),
}  # fmt: skip
"""Field of Stated -> our names of the setting, the preferred one first."""


def _keys(names: Sequence[str]) -> tuple[str, ...]:
    """Our names, then the keys under which trainers have these settings (`logs.trainers`)."""
    return (*names, *dict.fromkeys(
        setting.key for trainer in TRAINERS.values() for setting in trainer.settings
        if setting.name in names and setting.key not in names
    ))  # fmt: skip


ALIASES = {name: _keys(names) for name, names in FIELDS.items()}
"""Field of Stated -> keys that say it, "." between levels, the preferred one first."""

NAMES = frozenset(
    {key for keys in ALIASES.values() for key in keys} | set(stated_loss.NAMES)
    | {"scale_rewards", "algorithm.adv_estimator", "advantage", "algorithm.norm_adv_by_std_in_grpo", "ends", "weights",
       "multi_objective_aggregation", "objective.advantage", "reward_weights", "eos_token_id", "precision"}
)  # fmt: skip
"""Every name of a setting that is read here."""

_WHOLE = ("group", "top_k", "limit", "iterations", "accumulation", "ddof", "pad", "warmup", "updates")
_REAL = ("temperature", "top_p", "learning_rate", "kl", "epsilon", "clip", "beta2")
_WORDS = {"baseline": ("mean", "leave-one-out", "none", "batch", "second"),
          "scale": ("group", "batch", "mean", "each", "none")}  # fmt: skip


def of_run(run: Run) -> Stated:
    """What the settings of a run say."""
    logged = flat(run.config.get("logged") or {})
    own = flat({key: value for key, value in run.config.items() if key not in ("logged", "settings", "engine")})
    settings = flat(run.config.get("settings") or {})
    every = {**own, **logged, **{key: value for key, value in settings.items() if value is not None}}
    if run.meta.engine == "grposcope":  # whose defaults are what the record resolved them to
        resolved = {"kl": "objective.kl", "max_tokens": "sampling.max_tokens"}
        every = {name: own[key] for name, key in resolved.items() if key in own} | every
    found = of_settings(every, run.meta.engine)
    if "recipe" not in every:
        return found
    steered = str(every.get("autopilot", "off")).partition(":")[0] not in ("off", "advise")
    return replace(own_schedule(found), schedule=None if steered else found.schedule)


def own_schedule(stated: Stated) -> Stated:
    """Warm-up and updates of our schedule counted as other trainers do.

    Ours reaches its peak one step later than the warm-up is long, and its last step has a rate above 0.
    """
    return replace(
        stated, warmup=(stated.warmup or 0) + 1, updates=None if stated.updates is None else stated.updates + 1
    )


def of_settings(settings: Mapping[str, Any], engine: str = "") -> Stated:
    """What a flat mapping of settings says, keys as ALIASES or as the engine writes them.

    UserError for a value that a setting cannot have.
    """
    found: dict[str, Any] = {}
    for name, keys in ALIASES.items():
        key = next((key for key in keys if settings.get(key) is not None), None)
        if key is not None:
            found[name] = _value(name, key, settings[key])
    if settings.get("auto_group"):
        found["group"] = 0
    shape = _shape(settings, engine)
    loss = stated_loss.of_verl(settings) if engine == "verl" else stated_loss.of_trl(settings, found.get("limit"))
    loss = _own_loss(settings) if engine == "grposcope" and loss is None else loss
    weights = settings.get("reward_weights", settings.get("weights"))
    stated = Stated(
        **{name: value for name, value in found.items() if value is not None},
        ends=_ends(settings.get("ends", settings.get("eos_token_id"))),
        weights=_weights(weights),
        training=_training(settings),
        loss=loss,
    )
    if shape is None:
        return stated
    known = {name: getattr(stated, name) for name in ("baseline", "scale")}
    scale = known["scale"] or shape.scale
    divided = scale in ("group", "batch", "each")
    return replace(
        stated,
        baseline=known["baseline"] or shape.baseline,
        scale=scale,
        ddof=stated.ddof if stated.ddof is not None else shape.ddof if divided else None,
        epsilon=stated.epsilon if stated.epsilon is not None else shape.epsilon if divided or scale == "mean" else None,
    )


def named(stated: Stated, functions: Sequence[str]) -> Stated:
    """With weights that stand in a list under the names of the reward functions, where they are as many."""
    if stated.weights is None or not functions or set(stated.weights) & set(functions):
        return stated
    if len(stated.weights) != len(functions):
        return replace(stated, weights=None)
    return replace(stated, weights=dict(zip(functions, stated.weights.values(), strict=True)))


def said(stated: Stated) -> tuple[str, ...]:
    """Names of the settings that are stated."""
    empty = Stated()
    return tuple(one.name for one in fields(Stated) if getattr(stated, one.name) != getattr(empty, one.name))


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Keys with "." between levels -> values; "/" counts as a level, and the last level is a key too if no other is."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{above}{key}".replace("/", ".")
        if isinstance(value, Mapping) and key != "reward_weights":
            found |= flat(value, f"{name}.")
        elif isinstance(value, Mapping) and set(value) == {"value"}:
            found[name] = value["value"]
        else:
            found[name] = value
    return found


def _shape(settings: Mapping[str, Any], engine: str) -> _Shape | None:
    """How advantages are made; None where that is not said."""
    scale = settings.get("scale_rewards")
    estimator = settings.get("algorithm.adv_estimator", settings.get("advantage") if engine == "verl" else None)
    if estimator is not None:
        shape = VERL.get(str(estimator))
        divides = settings.get("algorithm.norm_adv_by_std_in_grpo", scale)
        if shape is not None and estimator == "grpo" and divides is not None and _word(divides) == "none":
            return _Shape("mean", "none")
        return shape
    if settings.get("multi_objective_aggregation") == "normalize_then_sum":
        return _Shape("mean", "each", 1, 1e-4)
    if scale is not None and _word(scale) is not None:
        word = str(_word(scale))
        epsilon = 1e-6 if engine == "verl" else 1e-4
        return _Shape("mean", word, 1, epsilon) if word in ("group", "batch") else _Shape("mean", word)
    if engine == "grposcope":
        name = settings.get("advantage") or settings.get("objective.advantage")
        return OWN.get(str(name))
    return None


def _training(settings: Mapping[str, Any]) -> str | None:
    """The number format of the trainer's passes by its two switches; None where they are not stated."""
    for name, kind in (("bf16", "bfloat16"), ("fp16", "float16")):
        if settings.get(name) is True:
            return kind
    return "float32" if settings.get("bf16") is False else None


def _word(scale: Any) -> str | None:
    return SCALES.get(str(scale).lower())


def _value(name: str, key: str, value: Any) -> Any:
    """A value of the field's type; UserError for another."""
    if name == "masks_truncated":
        if isinstance(value, bool | int):
            return bool(value)
        found = {"true": True, "false": False}.get(str(value).lower())
        return _fit(found, key, value, "true or false")
    if name in _WORDS:
        return _fit(value if value in _WORDS[name] else None, key, value, ", ".join(_WORDS[name]))
    if name == "schedule":
        return str(value)
    read = json_number(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    number = math.nan if read is None else read
    if name == "updates" and number <= 0:
        return None  # TRL writes −1 where epochs say how many steps there are
    if name in _WHOLE:
        if name == "top_k" and number <= 0:
            return None  # engines write −1 or 0 for no limit
        return _fit(int(number) if math.isfinite(number) and number == int(number) else None, key, value,
                    "a whole number")  # fmt: skip
    return _fit(number if name in _REAL and math.isfinite(number) else None, key, value, "a number")


def _fit(found: Any, key: str, value: Any, wanted: str) -> Any:
    if found is None:
        raise UserError(f"the setting {key} is {visible(str(value), 40)}; it has to be {wanted}, or be left out")
    return found


def _weights(value: Any) -> Mapping[str, float] | None:
    if isinstance(value, str) and "=" in value:
        named_parts = [part.rpartition("=") for part in value.split(",")]
        value = {name.strip(): _number(weight) for name, _, weight in named_parts}
    elif isinstance(value, str):
        value = [_number(part) for part in value.split(",")]
    if isinstance(value, Mapping):
        return {str(name): float(one) for name, one in value.items() if isinstance(one, int | float)}
    if isinstance(value, list | tuple) and value and all(isinstance(one, int | float) for one in value):
        return {str(place): float(one) for place, one in enumerate(value)}
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _ends(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [int(part) for part in value.split(",") if part.strip().isdigit()]
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, list | tuple) else ()


_OWN_SURROGATES = {"clip": "clip", "cispo": "weighted", "onesided": "one-sided", "reinforce": "plain"}
"""Surrogate of our own loop, as its record names it -> surrogate."""

_OWN_REDUCTIONS = ("sequence_mean", "token_mean", "constant_length", "sequence_sum")


def _own_loss(settings: Mapping[str, Any]) -> stated_loss.StatedLoss | None:
    """The loss of our own loop from a flat mapping of its record's config.json; None where this has no words for it."""
    own = {key.removeprefix("objective."): value for key, value in settings.items() if key.startswith("objective.")}
    surrogate = _OWN_SURROGATES.get(str(own.get("surrogate.function")))
    reduction = str(own.get("reduction.function", own.get("reduction")))
    length = _read(own.get("reduction.length"), 0.0)
    odd = (
        own.get("ratio") not in ("token", "sequence", "none")
        or own.get("divergence") not in ("k1", "k2", "k3")
        or own.get("proximal")
        or settings.get("allocate", "uniform") != "uniform"
    )
    unnamed = surrogate is None or reduction not in _OWN_REDUCTIONS
    if odd or unnamed or (reduction == "constant_length" and not length):
        return None
    rounded = settings.get("sampler_precision", "float32") != "float32"
    drawn = settings.get("correction") is None and (rounded or str(settings.get("staleness", "0")) != "0")
    return stated_loss.StatedLoss(
        surrogate=str(surrogate),
        ratio=str(own["ratio"]),
        low=_read(own.get("surrogate.low"), 0.0),
        high=_read(own.get("surrogate.high"), 0.0),
        bound=_read(own.get("surrogate.bound"), 0.0),
        reduction=reduction.replace("_", " "),
        length=int(length),
        divergence=str(own["divergence"]),
        kl_weighted=bool(own.get("kl_weighted")),
        entropy=_read(own.get("entropy"), 0.0),
        counted="all",
        old="sampler" if drawn else "trainer",
    )


def _read(value: Any, absent: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else absent
