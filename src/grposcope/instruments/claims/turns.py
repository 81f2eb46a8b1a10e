"""[PG] arXiv:2606.29238 §6: does the total return bias the gradient of a policy of several turns? By enumeration."""

from __future__ import annotations

import itertools

import numpy as np

from grposcope.instruments.claims.claim import Derived, Drawing, Tell
from grposcope.instruments.claims.enumerated_policy import Array


class _Episodes:
    """Every trajectory of H turns of two actions, the history as state and a logit for each, a reward per turn.

    chances (N,), rewards (N, H), scores (N, H, D) of the turns, value (N, H) of the state before each. start: V(s_0).
    """

    def __init__(self, turns: int, seed: int):
        rng = np.random.default_rng([turns, seed])
        histories = [h for t in range(turns) for h in itertools.product((0, 1), repeat=t)]
        index = {history: i for i, history in enumerate(histories)}
        up = 1 / (1 + np.exp(-0.7 * rng.normal(size=len(histories))))
        pays = {(*h, a): float(rng.random() < 0.5) for h in histories for a in (0, 1)}
        paths = list(itertools.product((0, 1), repeat=turns))
        states = np.array([[index[path[:t]] for t in range(turns)] for path in paths])
        actions = np.array(paths)
        self.chances = np.where(actions == 1, up[states], 1 - up[states]).prod(1)
        self.rewards = np.array([[pays[path[: t + 1]] for t in range(turns)] for path in paths])
        self.scores = np.zeros((len(paths), turns, len(histories)))
        rows = np.arange(len(paths))
        for t in range(turns):
            self.scores[rows, t, states[:, t]] = actions[:, t] - up[states[:, t]]
        to_go = self.rewards[:, ::-1].cumsum(1)[:, ::-1]
        self.value = np.empty(self.rewards.shape)
        for t in range(turns):
            for state in np.unique(states[:, t]):
                here = states[:, t] == state
                self.value[here, t] = self.chances[here] @ to_go[here, t] / self.chances[here].sum()
        self.to_go, self.start = to_go, float(self.chances @ self.rewards.sum(1))

    def variance(self, credit: Array) -> float:
        """tr Var of Σ_h credit_h s_h of one trajectory, credit (N, H)."""
        estimate = np.einsum("nh,nhd->nd", credit, self.scores)
        mean = self.chances @ estimate
        return float(self.chances @ (estimate**2).sum(1) - mean @ mean)


def multi_turn(tell: Tell, trees: int = 8) -> Derived:
    """What Bias_h = past reward + V(s_h) − V(s_0) adds to the gradient, and what the total return costs in variance."""
    worst, size, points, said = 0.0, 0.0, [], []
    for turns in (1, 2, 4, 6):
        ratios = []
        for seed in range(trees):
            toy = _Episodes(turns, seed)
            past = toy.rewards.cumsum(1) - toy.rewards
            bias = past + toy.value - toy.start
            added = np.einsum("n,nh,nhd->d", toy.chances, bias, toy.scores)
            worst, size = max(worst, float(np.abs(added).max())), max(size, float(np.abs(bias).max()))
            total = np.broadcast_to((toy.rewards.sum(1) - toy.start)[:, None], toy.rewards.shape)
            if (own := toy.variance(toy.to_go - toy.value)) > 0:
                ratios.append(toy.variance(total) / own)
        ratio = float(np.median(ratios))
        said.append(f"{ratio:.2f} at {turns} turn{'s' * (turns > 1)}")
        points.append(("total return ÷ reward to go", float(turns), ratio, 0.0))
    return Derived(
        "does not hold" if worst < 1e-12 < size else "holds",
        f"Bias_h is up to {size:.1f} on single histories and adds {worst:.0e} to the gradient; what it costs is "
        f"variance: that of the total return is, relative to reward to go less V(s_h), {', '.join(said)}",
        f"{trees} random trees a length, two actions a turn, every trajectory enumerated",
        Drawing("turns", "variance ÷ that of reward to go − V(s_h)", points),
    )
