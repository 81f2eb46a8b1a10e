"""The Llama of `dynamics_network.py` as a world of `dynamics_threshold.py`: enumerated answers, sampled rollouts."""

from __future__ import annotations

import numpy as np
import torch
from dynamics_network import small, to_plateau
from numpy.typing import NDArray

from grposcope.lab.train.run_curvature import _parameter_vector, _set_parameters, _unit


class Llama:
    """One layer of width 32, four prompts, all 64 answers of two tokens, trained to its plateau.

    kl, momentum, group: of the setting whose world it is, the weight of the KL, of SGD, and rollouts per prompt.
    """

    def __init__(self, kl: float, momentum: float, group: int, seed: int, quick: bool):
        torch.set_num_threads(1)
        self.kl, self.momentum, self.group, self.answers = kl, momentum, group, small(seed, kl)
        self.rewards, self.reference = self.answers.rewards.numpy(), self.answers.reference.numpy()
        self.before = self.objective()
        to_plateau(self.answers, 60 if quick else 1000)
        self.plateau, self.top = _parameter_vector(self.answers.model), self.objective()
        self.here = self.logp().exp().numpy()

    def logp(self) -> torch.Tensor:
        """log π (P, K) of the present weights."""
        with torch.no_grad():
            return self.answers.logp()

    def objective(self) -> float:
        """E r − λ KL of the present weights."""
        with torch.no_grad():
            return -float(self.answers.objective())

    def scores(self) -> NDArray:
        """∂ log π / ∂θ at the plateau, (P, K, D), in the basis of their own span, so (P, K, P·K)."""
        logp, parameters = self.answers.logp(), list(self.answers.model.parameters())
        rows = [torch.cat([g.reshape(-1) for g in torch.autograd.grad(one, parameters, retain_graph=True)])
                for one in logp.reshape(-1)]  # fmt: skip
        stacked = torch.stack(rows)
        values, vectors = np.linalg.eigh((stacked @ stacked.T).numpy())
        return (vectors * np.sqrt(np.maximum(values, 0))).reshape(*self.rewards.shape, -1)

    def run(self, lr: float, interval: int, runs: int, cycles: int, rng: np.random.Generator) -> NDArray:
        """Whether each of the sampled runs is lost, (runs,); a run that is no number any more is."""
        return np.array([self.one(lr, interval, cycles, rng) for _ in range(runs)])

    def one(self, lr: float, interval: int, cycles: int, rng: np.random.Generator) -> bool:
        """Whether a run is lost."""
        model = self.answers.model
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        push = _unit(torch.randn(len(self.plateau), dtype=self.plateau.dtype, generator=generator))
        _set_parameters(model, self.plateau + 1e-3 * push)
        moved = (self.logp().numpy() - np.log(self.here)) / 1e-3
        size = float(np.sqrt((self.here * moved**2).sum(-1).mean()))
        _set_parameters(model, self.plateau + 0.05 / size * push)
        optimizer, gaps = torch.optim.SGD(model.parameters(), lr=lr, momentum=self.momentum), []
        for _ in range(cycles):
            logp = self.logp().numpy()
            gaps.append(self.top - self.objective())
            if not np.isfinite(logp).all():
                _set_parameters(model, self.plateau)
                return True
            chances = np.exp(logp)
            counts = rng.multinomial(self.group, chances / chances.sum(-1, keepdims=True))
            total = counts * (self.rewards - self.kl * (logp - self.reference))
            weights = (total - counts * total.sum(-1, keepdims=True) / self.group) / (self.group - 1) / len(counts)
            held = torch.tensor(weights)
            for _ in range(interval):
                optimizer.zero_grad()
                (-(held * self.answers.logp()).sum()).backward()
                optimizer.step()
        _set_parameters(model, self.plateau)
        return float(np.mean(gaps[-cycles // 3 :])) > (self.top - self.before) / 2
