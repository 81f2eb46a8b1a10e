"""An objective of ours as arguments of TRL's GRPOConfig: the inverse of reading their settings as an objective.

TRL's loss is linear in the advantages but for their sign, and takes advantages per token, so every advantage of ours
runs through it: those that TRL computes itself by `scale_rewards`, the others handed over by our trainer.

| factor of ours                  | TRL                                                                |
|---------------------------------|--------------------------------------------------------------------|
| sequence_mean                   | loss_type grpo                                                     |
| token_mean                      | loss_type dapo, whose normaliser is the tokens of the whole step   |
| constant_length                 | loss_type dr_grpo                                                  |
| sequence_sum                    | loss_type luspo at token level                                     |
| ratios.token, ratios.sequence   | importance_sampling_level token, sequence                          |
| ratios.none                     | token, where every batch is used once and the ratio is 1           |
| Clip(low, high, bound)          | epsilon, epsilon_high, delta                                       |
| Reinforce()                     | epsilon and epsilon_high at UNCLIPPED                              |
| Cispo(low ≥ 1, high)            | loss_type cispo, epsilon_high = 1 + high: TRL clamps ρ itself      |
| k3, kl, kl_weighted             | beta, use_bias_correction_kl                                       |
| entropy                         | entropy_coef                                                       |
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from grposcope.core import capabilities
from grposcope.core.capabilities import LOWER_CLIP, WEIGHTED_KL, Lack, Part, factor
from grposcope.core.errors import UserError
from grposcope.engines.trl.settings import SCALES
from grposcope.lab.objectives import Objective, advantages, divergences, ratios, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip, Reinforce

UNCLIPPED = 1e9
"""Clip range that no ratio of float32 log-probabilities of a usable run leaves."""

LOSS_TYPES: dict[Any, str] = {
    reductions.sequence_mean: "grpo",
    reductions.token_mean: "dapo",
    reductions.constant_length: "dr_grpo",
    reductions.sequence_sum: "luspo",
}
"""Reduction of ours -> the loss of TRL whose clipped form has it."""


def loss_arguments(
    objective: Objective, limit: int, reuse: int = 1, parts: int = 1, pieces: int = 1
) -> tuple[dict[str, Any], str | None, tuple[str, ...]]:
    """Arguments of GRPOConfig that make TRL's loss the objective's, with completions of at most `limit` tokens; the
    advantage in `advantages.ALL` that our trainer has to hand to the loss, None where TRL computes it; and parts of the
    recipe that TRL does not have, a sentence each.

    reuse: optimiser steps on each batch of rollouts. parts: minibatches that it is split into. pieces: forward passes,
    over all processes, of a step. UserError, naming the part and the remedy, where TRL's loss has no such part.
    """
    capabilities.check(_loss(objective, reuse), objective.part())
    arguments = {**_reduction(objective, limit)}
    arguments["importance_sampling_level"] = "sequence" if objective.ratio is ratios.sequence else "token"
    scale, advantage = _advantage(objective)
    arguments |= _surrogate(objective, arguments["loss_type"])
    arguments |= {"scale_rewards": scale, "beta": objective.kl, "entropy_coef": objective.entropy}
    if objective.kl:
        arguments["use_bias_correction_kl"] = objective.kl_weighted
    left_out = []
    if objective.resample_dead:
        left_out.append(
            f"TRL does not replace groups of equal rewards with further prompts, so recipe {objective.name} runs "
            "without that"
        )
    if parts > 1 and arguments["loss_type"] in ("dapo", "cispo"):
        left_out.append(
            f"TRL divides the sum over a minibatch's tokens by those of the whole batch / {parts}, not by its own"
        )
    if pieces > 1 and objective.entropy:
        left_out.append(f"TRL's entropy bonus is a mean over each of {pieces} forward passes, then over these")
    return arguments, advantage, tuple(left_out)


def _loss(objective: Objective, reuse: int) -> Part:
    """The factors that TRL's loss has, where it is that of this objective on batches that are used so often."""
    lacks = {LOWER_CLIP: Lack("clips only from above", "leave out clip_low, or use engine grposcope")}
    if reuse > 1:
        lacks[factor("ratio", ratios.none)] = Lack("weighs old rollouts by a ratio", "use an interval of 1")
    if objective.reduction is not reductions.token_mean:
        lacks[factor("surrogate", Cispo)] = Lack("has it only with the reduction token_mean", "use engine grposcope")
    provided = [factor("ratio", ratio) for ratio in (ratios.none, ratios.token, ratios.sequence)]
    provided += [factor("surrogate", surrogate) for surrogate in (Reinforce, Clip, Cispo)]
    provided += [factor("reduction", reduction) for reduction in LOSS_TYPES]
    provided += [factor("divergence", divergences.k3), WEIGHTED_KL]
    return Part("engine trl", "use engine grposcope", provides=frozenset(provided), lacks=lacks)


def _reduction(objective: Objective, limit: int) -> dict[str, Any]:
    plain = objective.reduction.func if isinstance(objective.reduction, partial) else objective.reduction
    if isinstance(objective.reduction, partial) and objective.reduction.keywords.get("length", limit) != limit:
        raise UserError(f"recipe {objective.name} divides by another length than that of the longest completion")
    return {"loss_type": LOSS_TYPES[plain], "max_completion_length": limit}


def _surrogate(objective: Objective, loss_type: str) -> dict[str, Any]:
    surrogate = objective.surrogate
    if isinstance(surrogate, Reinforce):
        return {"epsilon": UNCLIPPED, "epsilon_high": UNCLIPPED}
    if isinstance(surrogate, Clip):
        bound = {} if surrogate.bound is None else {"delta": surrogate.bound}
        return {"epsilon": surrogate.low, "epsilon_high": surrogate.high, **bound}
    assert isinstance(surrogate, Cispo)  # `_loss` provides no other
    return {"loss_type": "cispo", "epsilon_high": 1 + surrogate.high}


def _advantage(objective: Objective) -> tuple[str, str | None]:
    """`scale_rewards`, and the name of the advantage where TRL does not compute it."""
    wanted = _spelled_out(objective.advantage)
    name = next((n for n, estimator in advantages.ALL.items() if _spelled_out(estimator.function) == wanted), None)
    if name is None:
        raise UserError(f"the advantage of recipe {objective.name} has no name that could be passed to TRL")
    scale = next((scale for scale, computed in SCALES.items() if computed == name), None)
    return (scale, None) if scale is not None else ("none", name)


def _spelled_out(function: Any) -> tuple[Any, dict[str, Any]]:
    """The plain function and all its settings, so that a default and the same value given are one."""
    plain, keywords = (function.func, function.keywords) if isinstance(function, partial) else (function, {})
    defaults = {name: p.default for name, p in inspect.signature(plain).parameters.items() if p.default is not p.empty}
    return plain, {**defaults, **keywords}
