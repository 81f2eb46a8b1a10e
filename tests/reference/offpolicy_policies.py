"""Tabular policies of a few tokens, drawn from by another one, of which every completion is listed.

A policy has its own logits at every prefix over the letters 0 … A−1, of which 0 ends the completion; a prompt adds
offsets of its own to the logits, so that scores of all prompts are of one space. Nothing of `grposcope` is used.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grposcope.maths.importance import Ratios


@dataclass(frozen=True)
class World:
    """`prompts` prompts, completions of at most `longest` tokens of `letters`; the sampler's logits are `apart` away.

    own: how far rewards are a prompt's own, against those that all prompts share.
    """

    seed: int = 0
    prompts: int = 2
    letters: int = 3
    longest: int = 3
    apart: float = 0.5
    own: float = 0.5

    @cached_property
    def completions(self) -> list[tuple[int, ...]]:
        """Every completion: letters up to the first 0, or up to the limit."""
        found = []
        for tokens in itertools.product(range(self.letters), repeat=self.longest):
            end = tokens.index(0) + 1 if 0 in tokens else self.longest
            if tokens[:end] not in found:
                found.append(tokens[:end])
        return found

    @cached_property
    def prefixes(self) -> list[tuple[int, ...]]:
        return sorted({one[:t] for one in self.completions for t in range(len(one))})

    @cached_property
    def _logits(self) -> tuple[NDArray, NDArray]:
        """Of the trainer and of the sampler, (X, prefixes, letters) each."""
        rng = np.random.default_rng(self.seed)
        shape = (self.prompts, len(self.prefixes), self.letters)
        trainer = rng.normal(size=shape[1:]) + 0.5 * rng.normal(size=shape)
        return trainer, trainer + self.apart * rng.normal(size=shape)

    def _logs(self, logits: NDArray, prompt: int) -> list[NDArray]:
        """log-probabilities of the tokens of every completion."""
        table = logits[prompt] - np.log(np.exp(logits[prompt]).sum(-1, keepdims=True))
        at = self.prefixes.index
        return [np.array([table[at(one[:t]), one[t]] for t in range(len(one))]) for one in self.completions]

    @cached_property
    def log_ratios(self) -> list[list[NDArray]]:
        """log ρ of the tokens of every completion, by prompt."""
        trainer, sampler = self._logits
        return [
            [a - b for a, b in zip(self._logs(trainer, x), self._logs(sampler, x), strict=True)]
            for x in range(self.prompts)
        ]

    @cached_property
    def sampled(self) -> NDArray:
        """Probability of every completion under the sampler, (X, Y)."""
        return np.array([[np.exp(one.sum()) for one in self._logs(self._logits[1], x)] for x in range(self.prompts)])

    @cached_property
    def trained(self) -> NDArray:
        """Probability of every completion under the trainer, (X, Y)."""
        return np.array([[np.exp(one.sum()) for one in self._logs(self._logits[0], x)] for x in range(self.prompts)])

    @cached_property
    def rewards(self) -> NDArray:
        """Reward of every completion, 0 or 1, the more a prompt's own the larger `own`, (X, Y)."""
        rng = np.random.default_rng(self.seed + 1)
        shape = (self.prompts, len(self.completions))
        return (rng.normal(size=shape[1:]) + self.own * rng.normal(size=shape) > 0.2).astype(float)

    @cached_property
    def token_scores(self) -> list[list[NDArray]]:
        """∇ log π of every token of every completion, (T, D) each, by prompt."""
        trainer = self._logits[0]
        found = []
        for x in range(self.prompts):
            policy = np.exp(trainer[x]) / np.exp(trainer[x]).sum(-1, keepdims=True)
            found.append([self._scores(policy, one) for one in self.completions])
        return found

    def _scores(self, policy: NDArray, completion: tuple[int, ...]) -> NDArray:
        scores = np.zeros((len(completion), len(self.prefixes), self.letters))
        for t, token in enumerate(completion):
            place = self.prefixes.index(completion[:t])
            scores[t, place] = -policy[place]
            scores[t, place, token] += 1
        return scores.reshape(len(completion), -1)

    @cached_property
    def gradient(self) -> NDArray:
        """∇ of the mean over prompts of the expected reward, (D,), from the trainer's own distribution."""
        whole = np.array([[one.sum(0) for one in scores] for scores in self.token_scores])
        return np.einsum("xy,xy,xyd->d", self.trained, self.rewards, whole) / self.prompts

    def corrected(self, correction) -> NDArray:
        """Σ_t c_t s_t of every completion, (X, Y, D)."""
        found = []
        for x in range(self.prompts):
            ratios = Ratios.of(self.log_ratios[x])
            coefficients = np.split(correction.coefficients(ratios), ratios.starts[1:])
            found.append([c @ s for c, s in zip(coefficients, self.token_scores[x], strict=True)])
        return np.array(found)

    def outcomes(self, group: int, vectors: NDArray) -> tuple[NDArray, NDArray]:
        """Probability (K,) and estimate (K, D) of every draw of a prompt with a group, leave-one-out advantages."""
        probabilities, estimates = [], []
        for x in range(self.prompts):
            for drawn in itertools.product(range(len(self.completions)), repeat=group):
                r = self.rewards[x, list(drawn)]
                advantages = np.array([one - np.delete(r, i).mean() for i, one in enumerate(r)])
                probabilities.append(np.prod(self.sampled[x, list(drawn)]) / self.prompts)
                estimates.append(advantages @ vectors[x, list(drawn)] / group)
        return np.array(probabilities), np.array(estimates)

    def draw(self, rng: np.random.Generator, prompts: int, group: int) -> tuple[NDArray, NDArray]:
        """Prompts (P,) and completions (P, G) by number, drawn by the sampler."""
        at = rng.integers(self.prompts, size=prompts)
        uniform = rng.random((prompts, group, 1))
        return at, (uniform > self.sampled[at].cumsum(-1)[:, None, :-1]).sum(-1)

    def second_moment(self, group: int, vectors: NDArray) -> tuple[NDArray, float]:
        """Mean (D,) and mean square of a prompt's estimate, for any group, from pairs of completions alone."""
        means, squares = [], []
        for p, r, v in zip(self.sampled, self.rewards, vectors, strict=True):
            kernel = 0.5 * (r[:, None] - r)[..., None] * (v[:, None] - v)
            mean, by_one = np.einsum("i,j,ijd->d", p, p, kernel), np.einsum("j,ijd->id", p, kernel)
            both, one = np.einsum("i,j,ijd->", p, p, kernel**2), p @ (by_one**2).sum(-1)
            pairs = 2 * both + 4 * (group - 2) * one + (group - 2) * (group - 3) * mean @ mean
            means.append(mean)
            squares.append(pairs / (group * (group - 1)))
        return np.mean(means, axis=0), float(np.mean(squares))


@dataclass(frozen=True)
class Truth:
    """Exact: ‖b‖², V_c of P prompts, need."""

    bias2: float
    variance: float
    need: float


def truth(world: World, correction, group: int, prompts: int) -> Truth:
    """By listing every draw of a prompt and a group, of pairs for groups above 3."""
    vectors, gradient = world.corrected(correction), world.gradient
    if group > 3:
        mean, square = world.second_moment(group, vectors)
    else:
        chances, estimates = world.outcomes(group, vectors)
        mean, square = chances @ estimates, float(chances @ (estimates**2).sum(-1))
    variance = (square - mean @ mean) / prompts
    along = (mean @ gradient) ** 2
    need = (mean @ mean + variance) * (gradient @ gradient) / along - 1 if along > 0 else np.inf
    return Truth(float((mean - gradient) @ (mean - gradient)), float(variance), float(need))
