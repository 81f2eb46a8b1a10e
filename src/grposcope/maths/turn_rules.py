"""Advantages of turns from the rewards of turns: the rules that trainers use, and what each is biased by.

A group of G rollouts of at most H turns has turn rewards r (G, H), NaN for turns that a rollout did not take. The
rules give an advantage to every turn that was taken, (G, H), NaN elsewhere. With Σ_h A_h s_h as the gradient (s_h: the
score of turn h), and with 0 for the rewards of absent turns:

    broadcast              Σ_k r_k less the mean of the group. Unbiased but for the factor (G − 1)/G
    to-go                  R_h = Σ_{k ≥ h} r_k less the mean of all G, 0 for who has ended. The same, with less noise
    to-go of who is there  R_h less the mean of the n_h that take turn h, which shrinks it by (n_h − 1)/n_h: to nothing
                           where one is alone. Biased where n_h varies
    survivors              Σ_{k ≥ h} (r_k less the mean of those that take turn k). Biased, of any size and sign

The mean over those that are there depends on the actions by which others ended, and on one's own: a rollout that ends
leaves the comparison, so that what it would have lost is not charged to it. Counting absent turns as 0 cures it.
Source: method of this project; the survivors' rule is that of verl #7244.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def returns(rewards: Floats) -> Floats:
    """R_h = Σ_{k ≥ h} r_k (G, H), with 0 for absent turns."""
    return np.cumsum(np.nan_to_num(rewards)[:, ::-1], axis=1)[:, ::-1]


def broadcast(rewards: Floats) -> Floats:
    """The return of the whole rollout less the mean of the group, for each turn that was taken."""
    whole = returns(rewards)[:, :1]
    return _taken(rewards, np.broadcast_to(whole - whole.mean(0), rewards.shape))


def to_go(rewards: Floats) -> Floats:
    """The return from a turn less the mean of the group, in which those that have ended count as 0."""
    remaining = returns(rewards)
    return _taken(rewards, remaining - remaining.mean(0))


def to_go_of_present(rewards: Floats) -> Floats:
    """The return from a turn less the mean of those that take this turn."""
    return _taken(rewards, returns(rewards) - _mean_of_present(rewards, returns(rewards)))


def survivors(rewards: Floats) -> Floats:
    """The sum over the remaining turns of a turn's reward less the mean of those that take that turn."""
    return _taken(rewards, returns(rewards - _mean_of_present(rewards, rewards)))


def _taken(rewards: Floats, values: Floats) -> Floats:
    return np.where(np.isnan(rewards), np.nan, values)


def _mean_of_present(rewards: Floats, values: Floats) -> Floats:
    """Mean (H,) of values (G, H) over the rollouts that take each turn, 0 where none does."""
    there = ~np.isnan(rewards)
    return np.asarray(np.where(there, np.nan_to_num(values), 0.0).sum(0) / np.maximum(there.sum(0), 1))


RULES: Mapping[str, Callable[[Floats], Floats]] = {
    "broadcast": broadcast, "to-go": to_go, "to-go of who is there": to_go_of_present, "survivors": survivors,
}  # fmt: skip
"""Name -> rule, those without bias first."""

UNBIASED = ("broadcast", "to-go")
"""Rules whose expected gradient is a multiple of the true one."""
