"""Credit for turns: what a turn still led to, less what other rollouts or continuations of it got from there.

All tokens of a turn get its advantage. With turn rewards r_h, R_h = Σ_{k ≥ h} r_k, and 0 for turns that were not taken:

    broadcast  R_0 less the others' mean                                                        the rollout's advantage
    to-go      R_h less the others' mean of R_h, by the number of the turn                      arXiv:2402.03300, 4.1.3
    states     R_h less the mean over other rollouts' turns that began in its state             after arXiv:2505.10978
    value      R_h − V̂(s_h), V̂ the mean return of K continuations from the state before the turn
    branches   r_h + V̂(s_{h+1}) − V̂(s_h): Q − V

are without bias: what is subtracted does not depend on the turn's action. The rules of trainers in `_biased` are not;
`maths.turn_rules` has all of them and what each is biased by.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.core.capabilities import PAIRS, TURN_VALUES, TURNS
from grposcope.core.errors import UserError
from grposcope.core.named_settings import Choice, Whole
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths import turn_rules
from grposcope.maths.turn_rules import Floats, Ints

LACKING = "credit for turns needs rollouts of a task with turns, such as hidden_table; use another credit"

FAIR = ("to-go", "broadcast", "states")
"""Rules of rollouts alone, without bias."""

BIASED = {
    "present": "to-go of who is there", "survivors": "survivors", "groups": "groups of turns", "rows": "mean over rows",
    "own": "mean over own turns", "steps": "step groups of all", "gigpo": "step groups, standardized",
}  # fmt: skip
"""Value of the setting -> rule of `maths.turn_rules`; `gigpo` adds the advantage of the rollout."""


def _fair(objective: Objective, rollouts: RolloutBatch, rule: str) -> Float[Tensor, "B T"]:
    """Credit (B, T) by a rule without bias of rollouts alone, in units of the rewards."""

    def of_group(rewards: Floats, states: Ints) -> Floats:
        if rule == "states":
            return turn_rules.step_groups(rewards, states)
        others = len(rewards) / (len(rewards) - 1)  # less the mean of the others, not of all
        return others * turn_rules.RULES[rule](rewards)

    return _by_group(rollouts, of_group)


def _biased(objective: Objective, rollouts: RolloutBatch, rule: str) -> Float[Tensor, "B T"]:
    """Credit (B, T) by a rule of trainers that is biased, in units of the rewards but for gigpo, in deviations."""
    name = BIASED[rule]

    def of_group(rewards: Floats, states: Ints) -> Floats:
        if name == "mean over own turns":
            turns = (~np.isnan(rewards)).sum(1, keepdims=True)
            return turn_rules.broadcast(rewards) / np.maximum(turns, 1)
        if name in turn_rules.RULES:
            return turn_rules.RULES[name](rewards)
        steps = turn_rules.STATE_RULES[name](rewards, states, 1.0)
        if rule != "gigpo":
            return steps
        whole = turn_rules.broadcast(rewards)
        deviation = np.nansum(rewards, 1).std(ddof=1)
        return (whole / deviation if deviation else 0 * whole) + steps

    return _by_group(rollouts, of_group)


def _valued(objective: Objective, rollouts: RolloutBatch, form: str, k: int) -> Float[Tensor, "B T"]:
    """Credit (B, T) from the values of states that rollouts carry; k says how they were drawn, which is done before."""
    values = _table(rollouts, rollouts.annotation("turn_values", "credit turn_values needs continuations of each turn, "
                    "which grposcope train draws; these rollouts have none: use another credit"))  # fmt: skip
    group = rollouts.groups[1]
    rule = turn_rules.branches if form == "branches" else turn_rules.less_values
    rows = iter(np.split(values, len(values) // group))
    return _by_group(rollouts, lambda rewards, states: rule(rewards, next(rows)))


def _by_group(rollouts: RolloutBatch, rule: turn_rules.Rule) -> Float[Tensor, "B T"]:
    """A rule of rewards and states (G, H), applied to each group and written on the tokens of its turns.

    UserError for groups of one.
    """
    if rollouts.groups[1] < 2:
        raise UserError("credit for turns compares rollouts of a group; use a group of 2 or more")
    turns = rollouts.annotation("turns", LACKING)
    rewards = _table(rollouts, rollouts.annotation("step_rewards", LACKING), summed=True)
    states = np.nan_to_num(_table(rollouts, rollouts.annotation("states", LACKING).double())).astype(np.int64)
    assigned = np.zeros(rewards.shape)
    for start in range(0, len(rewards), rollouts.groups[1]):
        places = slice(start, start + rollouts.groups[1])
        assigned[places] = np.nan_to_num(rule(rewards[places], states[places]))
    table = torch.as_tensor(assigned, dtype=torch.float64, device=turns.device)
    return table.gather(-1, turns.clamp(min=0)) * rollouts.mask


def _table(rollouts: RolloutBatch, values: Tensor, summed: bool = False) -> Floats:
    """Values of tokens (B, T) by turn (B, H): their sum, or that of the turn's tokens; NaN where it was not taken."""
    turns, mask = rollouts.token_annotations["turns"].cpu().numpy(), rollouts.mask.cpu().numpy()
    own = values.double().cpu().numpy()
    width = max(1, int(np.where(mask, turns, -1).max(initial=-1)) + 1)
    table = np.full((len(turns), width), np.nan)
    for row in range(len(turns)):
        for turn in range(width):
            inside = mask[row] & (turns[row] == turn)
            if inside.any():
                table[row, turn] = own[row][inside].sum() if summed else own[row][inside][0]
    return table


SOURCES: dict[str, CreditSource] = {
    "turns": CreditSource(
        _fair,
        "what a turn still led to, minus the same of the other rollouts at the same turn, or in the same state",
        needs=frozenset({PAIRS, TURNS}),
        unbiased=True,
        settings={
            "rule": Choice(
                FAIR,
                "what is compared: the return from the turn on, the whole return, or the "
                "return of turns that began in one state",
            )
        },
    ),
    "turn_values": CreditSource(
        _valued,
        "the same, minus or between values of the states before turns, from continuations",
        needs=frozenset({PAIRS, TURNS, TURN_VALUES}),
        unbiased=True,
        settings={
            "form": Choice(("branches", "value"), "reward and next value minus value, or return minus value"),
            "k": Whole(4, 1, "continuations from each state"),
        },
    ),
    "trainer_turns": CreditSource(
        _biased,
        "advantages of turns as trainers make them (biased)",
        needs=frozenset({PAIRS, TURNS}),
        warning="credit trainer_turns has the rules of today's trainers, each of which is biased; credit turns is not",
        settings={
            "rule": Choice(
                tuple(BIASED),
                "mean of those who take the turn, of their turn rewards, of whole "
                "returns, over rows, over own turns; step groups; GiGPO",
            )
        },
    ),
}
"""Name of a setting -> source of credit."""
