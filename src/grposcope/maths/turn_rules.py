"""Advantages of turns from the rewards of turns: the rules that trainers use, and what each is biased by.

A group of G rollouts of at most H turns has turn rewards r (G, H), NaN for turns that a rollout did not take. The
rules give an advantage to every turn that was taken, (G, H), NaN elsewhere. With Σ_h A_h s_h as the gradient (s_h: the
score of turn h), and with 0 for the rewards of absent turns:

    broadcast              Σ_k r_k less the mean of the group. Unbiased but for the factor (G − 1)/G
    to-go                  R_h = Σ_{k ≥ h} r_k less the mean of all G, 0 for who has ended. The same, with less noise
    to-go of who is there  R_h less the mean of the n_h that take turn h, which shrinks it by (n_h − 1)/n_h: to nothing
                           where one is alone. Biased where n_h varies
    survivors              Σ_{k ≥ h} (r_k less the mean of those that take turn k). Biased, of any size and sign
    groups of turns        Σ_k r_k less the mean of the n_h that take turn h. Biased as to-go of who is there
    mean over rows         Σ_k r_k less the mean in which a rollout counts once for each of its turns. Biased

Where states (G, H) are known, turns that began in one state may be compared with each other (GiGPO,
arXiv:2505.10978), with n visits of the state by the group:

    step groups            R_h less the mean of the visits of other rollouts; where there are none, R_h less the others'
                           mean of that turn, 0 for who has ended. Unbiased, and not shrunk by (G − 1)/G
    step groups of all     R_h less the mean of the n visits, one's own among them: nothing where the state was reached
                           once. Biased
    step groups, standardized   the same ÷ the deviation of the n visits. Biased

Where the value V̂ of the state before each turn is estimated by continuations, R_h − V̂(s_h) and
r_h + V̂(s_{h+1}) − V̂(s_h) are unbiased (`less_values`, `branches`). That histories behind equal states differ does not
bias step groups of others: these do not depend on this action.

The mean over those that are there depends on the actions by which others ended, and on one's own: a rollout that ends
leaves the comparison, so that what it would have lost is not charged to it. Counting absent turns as 0 cures it.
Source: method of this project; the survivors' rule is that of verl #7244.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Rule = Callable[[Floats, Ints], Floats]
"""Advantages (G, H) of rewards and states (G, H)."""


def returns(rewards: Floats, discount: float = 1.0) -> Floats:
    """R_h = Σ_{k ≥ h} γ^{k − h} r_k (G, H), with 0 for absent turns."""
    rest = np.nan_to_num(rewards)
    for turn in range(rest.shape[1] - 2, -1, -1):
        rest[:, turn] += discount * rest[:, turn + 1]
    return rest


def broadcast(rewards: Floats) -> Floats:
    """The return of the whole rollout less the mean of the group, for each turn that was taken."""
    whole = returns(rewards)[:, :1]
    return _taken(rewards, np.broadcast_to(whole - whole.mean(0), rewards.shape))


def _to_go(rewards: Floats) -> Floats:
    """The return from a turn less the mean of the group, in which those that have ended count as 0."""
    remaining = returns(rewards)
    return _taken(rewards, remaining - remaining.mean(0))


def _to_go_of_present(rewards: Floats) -> Floats:
    """The return from a turn less the mean of those that take this turn."""
    return _taken(rewards, returns(rewards) - _mean_of_present(rewards, returns(rewards)))


def _survivors(rewards: Floats) -> Floats:
    """The sum over the remaining turns of a turn's reward less the mean of those that take that turn."""
    return _taken(rewards, returns(rewards - _mean_of_present(rewards, rewards)))


def _groups_of_turns(rewards: Floats) -> Floats:
    """The return of the whole rollout less the mean of those that take this turn."""
    whole = np.broadcast_to(returns(rewards)[:, :1], rewards.shape)
    return _taken(rewards, whole - _mean_of_present(rewards, whole))


def _mean_over_rows(rewards: Floats) -> Floats:
    """The return of the whole rollout less the mean in which each rollout counts as often as it has turns."""
    whole, turns = returns(rewards)[:, :1], (~np.isnan(rewards)).sum(1, keepdims=True)
    return _taken(rewards, np.broadcast_to(whole - (whole * turns).sum() / max(turns.sum(), 1), rewards.shape))


def step_groups(rewards: Floats, states: Ints, discount: float = 1.0) -> Floats:
    """The return from a turn less the mean of other rollouts' turns that began in its state.

    states (G, H): equal numbers for equal states, 0 for one that nobody knows. G ≥ 2.
    """
    remaining = returns(rewards, discount)
    others = (remaining.sum(0) - remaining) / max(len(rewards) - 1, 1)
    for row, turn in zip(*np.nonzero(~np.isnan(rewards)), strict=True):
        alike = (states == states[row, turn]) & (states != 0) & ~np.isnan(rewards)
        alike[row] = False
        if alike.any():
            others[row, turn] = remaining[alike].mean()
    return _taken(rewards, remaining - others)


def _step_groups_of_all(rewards: Floats, states: Ints, discount: float = 1.0) -> Floats:
    """The return from a turn less the mean of all turns of the group that began in its state."""
    return _of_states(rewards, states, discount)[0]


def _step_groups_standardized(rewards: Floats, states: Ints, discount: float = 1.0) -> Floats:
    """`_step_groups_of_all` ÷ the deviation (ddof 1) of these turns, 0 where it is 0."""
    centred, deviation = _of_states(rewards, states, discount)
    return np.divide(centred, deviation, out=np.where(np.isnan(centred), np.nan, 0.0), where=deviation > 0)


def _of_states(rewards: Floats, states: Ints, discount: float) -> tuple[Floats, Floats]:
    """Returns less the mean of the visits of their state, and the deviation of these; (G, H) each."""
    remaining, taken = returns(rewards, discount), ~np.isnan(rewards)
    centred, deviation = np.zeros(rewards.shape), np.zeros(rewards.shape)
    for state in np.unique(states[taken & (states != 0)]):
        alike = taken & (states == state)
        if alike.sum() > 1:
            centred[alike] = remaining[alike] - remaining[alike].mean()
            deviation[alike] = remaining[alike].std(ddof=1)
    return _taken(rewards, centred), deviation


def less_values(rewards: Floats, values: Floats) -> Floats:
    """The return from a turn less the value (G, H) of the state before it; at first, the others' mean return."""
    return _taken(rewards, returns(rewards) - _with_first(rewards, values))


def branches(rewards: Floats, values: Floats) -> Floats:
    """A turn's reward and the value of the state after it, less that of the state before it: Q − V.

    After the last turn that a rollout took the value is 0.
    """
    before = _with_first(rewards, values)
    after = np.zeros(before.shape)
    after[:, :-1] = np.where(np.isnan(rewards[:, 1:]), 0.0, before[:, 1:])
    return _taken(rewards, np.nan_to_num(rewards) + after - before)


def _with_first(rewards: Floats, values: Floats) -> Floats:
    """The values, that of the first turn being the mean return of the other rollouts."""
    whole = returns(rewards)[:, 0]
    predicted = np.array(values, np.float64)
    predicted[:, 0] = (whole.sum() - whole) / max(len(rewards) - 1, 1)
    return predicted


def _taken(rewards: Floats, values: Floats) -> Floats:
    return np.where(np.isnan(rewards), np.nan, values)


def _mean_of_present(rewards: Floats, values: Floats) -> Floats:
    """Mean (H,) of values (G, H) over the rollouts that take each turn, 0 where none does."""
    there = ~np.isnan(rewards)
    return np.asarray(np.where(there, np.nan_to_num(values), 0.0).sum(0) / np.maximum(there.sum(0), 1))


RULES: Mapping[str, Callable[[Floats], Floats]] = {
    "broadcast": broadcast, "to-go": _to_go, "to-go of who is there": _to_go_of_present, "survivors": _survivors,
    "groups of turns": _groups_of_turns, "mean over rows": _mean_over_rows,
}  # fmt: skip
"""Name -> rule, those without bias first."""

STATE_RULES: Mapping[str, Callable[[Floats, Ints, float], Floats]] = {
    "step groups": step_groups, "step groups of all": _step_groups_of_all,
    "step groups, standardized": _step_groups_standardized,
}  # fmt: skip
"""Name -> rule of rewards, states and a discount, that without bias first."""

UNBIASED = ("broadcast", "to-go", "step groups")
"""Rules whose expected gradient is a multiple of the true one."""

BIAS: Mapping[str, str] = {
    "to-go of who is there": "a turn that n rollouts take counts (n − 1)/n of what it should, and nothing where one is "
    "alone",
    "groups of turns": "a turn that n rollouts take counts (n − 1)/n of what it should, and nothing where one is alone",
    "survivors": "ending is paid or punished by what the others earn later",
    "mean over rows": "the baseline is off by Cov(turns, reward) ÷ mean turns",
    "step groups of all": "a step is compared with itself: it counts (n − 1)/n of what it should where its state was "
    "reached n times, and nothing where that was once",
    "step groups, standardized": "a step is compared with itself, nothing is left where a state was reached once, and "
    "states in which rollouts differ little count as much as others",
}
"""Biased rule -> what the bias is, a clause."""
