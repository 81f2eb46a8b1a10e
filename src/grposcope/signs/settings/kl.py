"""Where settings say whether and how the KL to a reference is penalised; verl has a switch and a coefficient, twice."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.settings import Settings
from grposcope.signs import kl_gradient
from grposcope.signs.kl_gradient import KlTerm
from grposcope.signs.settings.verl import ACTOR, VALIDATE

IN_LOSS, LOSS_COEFFICIENT = ACTOR + "use_kl_loss", ACTOR + "kl_loss_coef"
IN_REWARD, REWARD_COEFFICIENT = "algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef"

PENALTIES = ((IN_LOSS, LOSS_COEFFICIENT), (IN_REWARD, REWARD_COEFFICIENT))
"""Switch and coefficient of each penalty."""

SOURCE = "https://verl.readthedocs.io/en/latest/algo/grpo.html; " + VALIDATE

_LOSS_KIND, _REWARD_KIND = ACTOR + "kl_loss_type", "algorithm.kl_penalty"
_WEIGHTED = "use_bias_correction_kl"
_SKYRL = "trainer.algorithm."
_OPENRLHF = ("algo.kl.estimator", "algo.kl.init_coef", "algo.kl.use_loss")
_OPENRLHF_BEFORE = ("kl_estimator", "init_kl_coef", "use_kl_loss")
"""Estimator, coefficient and switch into the loss, by the flags with dots and by those before 0.10."""

_NEMO_RL = "loss_fn.reference_policy_kl_"
_NEMO_RL_REWARD = "loss_fn.use_kl_in_reward"


def terms(settings: Settings) -> Iterator[KlTerm]:
    """The KL terms that are in force, as far as the settings name their estimator."""
    readers = {
        "verl": _of_verl, "trl": _of_trl, "ms-swift": _of_trl, "slime": _of_slime, "skyrl": _of_skyrl,
        "openrlhf": _of_openrlhf, "open-instruct": _of_open_instruct, "nemo-rl": _of_nemo_rl,
        "grposcope": _of_own,
    }  # fmt: skip
    yield from readers.get(settings.dialect.name, _none)(settings)


def _of_verl(settings: Settings) -> Iterator[KlTerm]:
    if settings.on(IN_LOSS) and settings.number(LOSS_COEFFICIENT):
        kind = settings.get(_LOSS_KIND) if settings.says(_LOSS_KIND) else "low_var_kl"
        if estimator := kl_gradient.named(kind):
            yield KlTerm(estimator, keys=(_LOSS_KIND, IN_LOSS))
    if settings.on(IN_REWARD) and settings.number(REWARD_COEFFICIENT):
        kind = settings.get(_REWARD_KIND) if settings.says(_REWARD_KIND) else "kl"
        value = str(kind).rstrip("+")  # a reward has no gradient that "+" could change
        if estimator := kl_gradient.NAMES.get(value, ""):
            yield KlTerm(estimator, "reward", keys=(_REWARD_KIND, IN_REWARD))


def _of_trl(settings: Settings) -> Iterator[KlTerm]:
    if not settings.number("beta"):
        return
    if settings.dialect.title == "TRL (RLOO)":
        yield KlTerm("k1", "reward", keys=("beta",))
    elif settings.get(_WEIGHTED) is not None:
        yield KlTerm("k3", weighted=settings.on(_WEIGHTED), keys=("beta", _WEIGHTED))


def _of_slime(settings: Settings) -> Iterator[KlTerm]:
    estimator = kl_gradient.named(settings.get("kl_loss_type"))
    if settings.number("kl_loss_coef") and settings.on("use_kl_loss") and estimator:
        yield KlTerm(estimator, keys=("kl_loss_type", "kl_loss_coef"))


def _of_skyrl(settings: Settings) -> Iterator[KlTerm]:
    estimator = kl_gradient.named(settings.get(_SKYRL + "kl_estimator_type"))
    if not estimator or not settings.number(_SKYRL + "kl_loss_coef"):
        return
    if settings.on(_SKYRL + "use_kl_loss"):
        yield KlTerm(estimator, "loss", keys=(_SKYRL + "kl_estimator_type", _SKYRL + "use_kl_loss"))
    if settings.on(_SKYRL + "use_kl_in_reward"):
        yield KlTerm(estimator, "reward", keys=(_SKYRL + "kl_estimator_type", _SKYRL + "use_kl_in_reward"))


def _of_openrlhf(settings: Settings) -> Iterator[KlTerm]:
    """Of the flags with dots, and of those before 0.10; without the switch the term is a part of the reward."""
    dotted = any(key.startswith("algo.") for key in settings.given)
    kind, coefficient, switch = _OPENRLHF if dotted else _OPENRLHF_BEFORE
    estimator = kl_gradient.named(settings.get(kind))
    if settings.number(coefficient) and estimator and switch not in settings.opaque:
        if settings.on(switch):
            yield KlTerm(estimator, keys=(kind, switch))
        elif not settings.partial:
            yield KlTerm(estimator, "reward", keys=(kind,))


def _of_open_instruct(settings: Settings) -> Iterator[KlTerm]:
    """By its names kl1 to kl4, or their places from 0; kl4 is k3 of the exact ratio."""
    kind = settings.get("kl_estimator")
    kind = kind + 1 if isinstance(kind, int) and not isinstance(kind, bool) else str(kind).removeprefix("kl")
    estimator = {"1": "k1", "2": "k2", "3": "k3"}.get(str(kind))
    if settings.number("beta") and estimator:
        yield KlTerm(estimator, keys=("kl_estimator", "beta"))


def _of_nemo_rl(settings: Settings) -> Iterator[KlTerm]:
    """k1 in the loss alone: what other estimators pull towards was changed by #2506, and no file has the version."""
    estimator = kl_gradient.named(settings.get(_NEMO_RL + "type"))
    if settings.number(_NEMO_RL + "penalty") and estimator == "k1" and not settings.on(_NEMO_RL_REWARD):
        yield KlTerm(estimator, keys=(_NEMO_RL + "type", _NEMO_RL + "penalty"))


def _of_own(settings: Settings) -> Iterator[KlTerm]:
    if settings.number("kl"):
        kind = settings.get("divergence") if settings.says("divergence") else "k3"
        yield KlTerm(kl_gradient.named(kind), weighted=settings.on("kl_weighted"), keys=("divergence", "kl"))


def _none(settings: Settings) -> Iterator[KlTerm]:
    yield from ()
