"""The published methods as values. `ALL` maps a command-line name to its objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from grposcope.lab.objectives import advantages, divergences, ratios, reductions
from grposcope.lab.objectives.objective import Objective
from grposcope.lab.objectives.surrogates import Cispo, Clip, OneSided, Reinforce

_EQUAL = "equal rewards: the group contributes 0. Empty mask: the rollout contributes 0. "
_PAIR = _EQUAL + "G = 1: refused, there is no baseline."

GRPO = Objective(
    name="grpo",
    paper="Shao et al. 2024, DeepSeekMath, arXiv:2402.03300",
    degenerate=_PAIR,
)

DR_GRPO = Objective(
    name="dr_grpo",
    paper="Liu et al. 2025, Understanding R1-Zero-Like Training, arXiv:2503.20783",
    degenerate=_PAIR,
    advantage=advantages.centered,
    reduction=reductions.constant_length,
)

RLOO = Objective(
    name="rloo",
    paper="Ahmadian et al. 2024, Back to Basics, arXiv:2402.14740",
    degenerate=_PAIR,
    advantage=advantages.leave_one_out,
    surrogate=Reinforce(),
    reduction=reductions.sequence_sum,
)

SHRUNK_RLOO = replace(
    RLOO,
    name="shrunk_rloo",
    paper="RLOO of Ahmadian et al. 2024, arXiv:2402.14740; that its baseline is shrunk is a method of this project",
    degenerate="A group of equal rewards other than 0 still contributes. G = 1: refused, there is no baseline.",
    advantage=advantages.shrunk,
)

DAPO = Objective(
    name="dapo",
    paper="Yu et al. 2025, DAPO, arXiv:2503.14476",
    degenerate=_EQUAL + "Dead groups are replaced by further prompts before the update. G = 1: refused.",
    surrogate=Clip(low=0.2, high=0.28),
    reduction=reductions.token_mean,
    resample_dead=True,
    overlong=0.2,
)

GSPO = Objective(
    name="gspo",
    paper="Zheng et al. 2025, Group Sequence Policy Optimization, arXiv:2507.18071",
    degenerate=_PAIR,
    ratio=ratios.sequence,
    surrogate=Clip(low=3e-4, high=4e-4),
)

CISPO = Objective(
    name="cispo",
    paper="MiniMax 2025, MiniMax-M1, arXiv:2506.13585",
    degenerate=_PAIR,
    surrogate=Cispo(),
    reduction=reductions.token_mean,
)

REINFORCE = Objective(
    name="reinforce",
    paper="Williams 1992, Machine Learning 8, 229-256",
    degenerate="any G. Equal rewards still contribute: there is no baseline. Empty mask: the rollout contributes 0.",
    advantage=advantages.none,
    ratio=ratios.none,
    surrogate=Reinforce(),
    reduction=reductions.sequence_sum,
)

PPO = Objective(
    name="ppo",
    paper="Schulman et al. 2017, arXiv:1707.06347; the clipped surrogate, with the batch mean in place of a critic",
    degenerate="any G. All rewards of the batch equal: contributes 0. Empty mask: the rollout contributes 0.",
    advantage=advantages.whitened,
    reduction=reductions.token_mean,
)

PPO_CRITIC = replace(
    PPO,
    name="ppo_critic",
    paper="Schulman et al. 2017, arXiv:1707.06347; clip, a critic with GAE, several epochs on a batch",
    degenerate="any G. Equal rewards: contributes what the critic did not foresee. Empty mask: contributes 0.",
)

MAXRL = Objective(
    name="maxrl",
    paper="Tajwar et al. 2026, Maximum Likelihood Reinforcement Learning, arXiv:2602.02710",
    degenerate=_PAIR + " Rewards below 0: refused.",
    advantage=advantages.mean_normalized,
    reduction=reductions.token_mean,
)

BATCH_GRPO = Objective(
    name="batch_grpo",
    paper="Liu et al. 2025, Lite PPO, arXiv:2508.08221",
    degenerate=_PAIR,
    advantage=partial(advantages.batch_standardized, ddof=1, eps=1e-4),
    reduction=reductions.token_mean,
)

_OFF_POLICY = "Yao et al. 2025, Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm, arXiv:2509.24203; "

REC_ONE_SIDE = Objective(
    name="rec_one_side",
    paper=f"{_OFF_POLICY}REC-OneSide-NoIS: the tokens of the clip, without importance ratios",
    degenerate=_PAIR,
    advantage=advantages.centered,
    surrogate=OneSided(),
    reduction=reductions.token_mean,
)

REC_ONE_SIDE_IS = replace(
    REC_ONE_SIDE, name="rec_one_side_is", paper=f"{_OFF_POLICY}REC-OneSide-IS: with the ratios", surrogate=Clip()
)

_NO_RATIO = replace(REC_ONE_SIDE, ratio=ratios.none, surrogate=Reinforce())

OPMD = replace(
    _NO_RATIO,
    name="opmd",
    paper=f"{_OFF_POLICY}the update of Kimi k1.5, arXiv:2501.12599: 0.1 log² ρ in place of a clip",
    degenerate="equal rewards still contribute: they hold the policy to the old one. Empty mask: contributes 0. "
    "G = 1: refused, there is no baseline.",
    proximal=0.2,
)

ASYMRE = replace(
    OPMD,
    name="asymre",
    paper=f"{_OFF_POLICY}the update of Arnal et al. 2025, arXiv:2506.20520: 0.1 above every advantage, a forward KL",
    proximal=0.1,
    proximity=divergences.forward,
)

RED_WEIGHT = replace(
    _NO_RATIO,
    name="red_weight",
    paper=f"{_OFF_POLICY}RED-Weight: advantages times e^A",
    advantage=advantages.exponential,
)

_EVERY = (
    GRPO,
    DR_GRPO,
    RLOO,
    SHRUNK_RLOO,
    DAPO,
    GSPO,
    CISPO,
    REINFORCE,
    PPO,
    PPO_CRITIC,
    MAXRL,
    BATCH_GRPO,
    REC_ONE_SIDE,
    REC_ONE_SIDE_IS,
    OPMD,
    ASYMRE,
    RED_WEIGHT,
)

ALL = {recipe.name: recipe for recipe in _EVERY}

DEFAULT_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    PPO_CRITIC.name: {"credit": "value:lambda=0.95,gamma=1,whiten=yes", "interval": 4},
}
"""Settings of training that a recipe brings beside its objective: its credit, and steps on each batch of rollouts."""

LEARNING_RATE_FACTORS: Mapping[str, float] = {PPO_CRITIC.name: 0.25}
"""Share of the usual learning rate that a recipe has by default: four steps on a batch at all of it drift too far."""


def with_advantage(recipe: Objective, name: str) -> Objective:
    """The recipe with an advantage of `advantages.ALL`, and a name that says so where it is not the recipe's own."""
    function, own = advantages.ALL[name].function, recipe.advantage
    if function is (own.func if isinstance(own, partial) else own):
        return recipe
    return replace(recipe, name=f"{recipe.name}, {name} advantage", advantage=function)
