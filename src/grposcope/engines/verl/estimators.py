"""Our advantages and credit in the form of verl's advantage estimators.

verl hands an estimator `token_level_rewards` (B, T) and `response_mask` (B, T), the group of every row (`index`, its
uid) and the section `algorithm` of its configuration, by keyword; it takes back advantages and returns, (B, T) each.
Groups may be of any size and in any order: the functions of `lab.objectives.advantages` and `credit` are asked for all
groups of one size at a time. A group of one has no baseline, so it contributes 0 (verl's own grpo, rloo and others give
it the raw reward as its advantage).

Estimators of outcomes sum the rewards of a rollout, as verl's do. Estimators of steps read a reward on a token as the
end of a step there; MARK stands for a reward of 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab import credit
from grposcope.lab.credit.values import values
from grposcope.lab.objectives import advantages
from grposcope.lab.objectives.advantages import Advantage

PREFIX = "grposcope_"
"""What our names begin with in verl's registry."""

MARK = torch.finfo(torch.float32).tiny
"""The token-level reward that stands for a step whose reward is 0: too small to change a sum, yet not 0."""

NOTHING = 1e-30
"""Token-level rewards above −NOTHING and up to 0 are no end of a step: what balances marks, so that they sum to 0."""

Credit = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Step rewards, step ends and mask (B, T), and the group size, to credit (B, T)."""


def steps_credit() -> dict[str, Credit]:
    """Estimators that read rewards of steps: name without PREFIX -> credit; `values` has no source of ours."""
    sources = {name: source.from_steps for name, source in credit.SOURCES.items()}
    return {**{name: function for name, function in sources.items() if function is not None}, "values": values}


logger = logging.getLogger("grposcope")
_told: set[str] = set()


@dataclass(frozen=True)
class _OutcomeEstimator:
    """An advantage of `lab.objectives.advantages` as verl calls it, by the name it has there."""

    name: str
    advantage: Advantage

    def __call__(
        self,
        token_level_rewards: Float[Tensor, "B T"],
        response_mask: Float[Tensor, "B T"],
        index: Sequence[Any] | None = None,
        **rest: Any,
    ) -> tuple[Tensor, Tensor]:
        """(advantages, returns): both the advantage of the summed rewards on every token, 0 where masked."""
        rewards = token_level_rewards.double().sum(-1)
        if self.advantage.needs_group:
            values = torch.zeros_like(rewards)
            function = self._function(rewards)
            for rows in _groups_by_size(_groups(index, PREFIX + self.name)):
                values[rows] = function(rewards[rows])
        else:
            values = self.advantage.function(rewards[None])[0]
        spread = (values[:, None] * response_mask).to(token_level_rewards)
        return spread, spread

    def _function(self, rewards: Tensor) -> Callable[[Tensor], Tensor]:
        if self.advantage.function is advantages.batch_standardized:  # σ of the batch, not of the groups of one size
            return partial(advantages.batch_standardized, deviation=rewards.std())
        return self.advantage.function


@dataclass(frozen=True)
class _StepEstimator:
    """A credit of steps as verl calls it."""

    name: str
    credit: Credit

    def __call__(
        self,
        token_level_rewards: Float[Tensor, "B T"],
        response_mask: Float[Tensor, "B T"],
        index: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> tuple[Tensor, Tensor]:
        """(advantages, returns): the credit, 0 where masked, and the rewards still to come.

        Steps may end on tokens that are masked, such as the answer of a tool. UserError where a KL penalty has been
        added to the rewards, as every token would then end a step.
        """
        if config is not None and config.get("use_kl_in_reward"):
            raise UserError(
                f"algorithm.use_kl_in_reward=True gives every token a reward, so that algorithm.adv_estimator="
                f"{PREFIX}{self.name} cannot tell where steps end; penalise KL by "
                "actor_rollout_ref.actor.use_kl_loss=True"
            )
        ends = (token_level_rewards > 0) | (token_level_rewards < -NOTHING)
        rewards = token_level_rewards.double()
        values = torch.zeros_like(rewards)
        for rows in _groups_by_size(_groups(index, PREFIX + self.name)):
            flat = rows.reshape(-1)
            everywhere = torch.ones_like(ends[flat])
            values[flat] = self.credit(rewards[flat], ends[flat], everywhere, rows.shape[1])
        to_come = rewards.flip(-1).cumsum(-1).flip(-1)
        return (values * response_mask).to(token_level_rewards), (to_come * response_mask).to(token_level_rewards)


Estimator = _OutcomeEstimator | _StepEstimator


def all_estimators() -> dict[str, Estimator]:
    """Every estimator by its name in verl: one per entry of `advantages.ALL`, one per credit `from_steps`."""
    outcomes = {PREFIX + name: _OutcomeEstimator(name, advantage) for name, advantage in advantages.ALL.items()}
    return {**outcomes, **{PREFIX + name: _StepEstimator(name, estimate) for name, estimate in steps_credit().items()}}


def _groups_by_size(groups: list[list[int]]) -> list[Tensor]:
    """Rows of groups (P, G), a tensor per size G ≥ 2; groups of one are left out, and that is logged once.

    UserError where all are groups of one, as nothing could be learned.
    """
    sizes: dict[int, list[list[int]]] = {}
    for rows in groups:
        sizes.setdefault(len(rows), []).append(rows)
    single = len(sizes.pop(1, []))
    if single and not sizes:
        raise UserError(
            f"all {single} groups have one rollout, which has nothing to be compared with, so every advantage "
            "would be 0; set actor_rollout_ref.rollout.n=2 or more, or algorithm.adv_estimator=grposcope_whitened"
        )
    if single and "single" not in _told:
        _told.add("single")
        logger.warning(
            "%d of %d groups have one rollout; they have no baseline and contribute nothing (told once)",
            single,
            len(groups),
        )
    return [torch.tensor(sizes[size]) for size in sorted(sizes)]


def _groups(index: Sequence[Any] | None, name: str) -> list[list[int]]:
    """Rows of every group, in order of appearance; UserError without uids."""
    if index is None:
        raise UserError(
            f"algorithm.adv_estimator={name} compares the rollouts of a prompt, but the batch has no uid in its "
            "non_tensor_batch; give every rollout the uid of its prompt"
        )
    groups: dict[Any, list[int]] = {}
    for row, uid in enumerate(index.tolist() if hasattr(index, "tolist") else index):
        groups.setdefault(uid, []).append(row)
    return list(groups.values())
