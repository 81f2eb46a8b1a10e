"""The turn Gram matrix of rollouts with several turns, and what credit for turns would save.

The score of a turn is the gradient of the log-probabilities of its tokens, given all that stands before them. A pass
with one row for each turn that was taken, in which the other tokens are read and have no weight, gives the scores of
all turns of a prompt's rollouts at once; their products within the prompt are the turn Gram matrix
(`maths.turn_moments`).
It costs as many rows as there are turns, so that the whole takes about the number of turns times the pass of a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats
from grposcope.instruments.gradient import backward, gram
from grposcope.instruments.gradient.probe import memory_needed
from grposcope.instruments.gradient.score import Score
from grposcope.lab import batch_memory, policies
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths import resampling
from grposcope.maths.turn_moments import LEAST, TurnSavings
from grposcope.maths.turn_rules import returns

TURNS = "turns"
"""Token annotation with the turn of each token, -1 for none."""

WHOLE, TO_GO = "reward of the rollout", "return from the turn on"
"""Credits that rollouts at hand allow: the second where turns have rewards."""


def _of_tokens(rollouts: RolloutBatch) -> Tensor:
    """The turn of each token that is trained on, (B, T), -1 elsewhere: as annotated, else by runs of the mask."""
    turns = rollouts.token_annotations.get(TURNS)
    if turns is None:
        begins = rollouts.mask & ~torch.nn.functional.pad(rollouts.mask[:, :-1], (1, 0))
        turns = begins.long().cumsum(-1) - 1
    return turns.long().where(rollouts.mask, -1)


def several(rollouts: RolloutBatch) -> bool:
    """Whether any rollout has two turns or more."""
    return bool((_of_tokens(rollouts) > 0).any())


def measure(
    model: Any, rollouts: RolloutBatch, temperature: float = 1.0, progress: Callable[[str], None] = lambda _: None
) -> Floats:
    """Inner products of the scores of turns within each prompt, (P, G, H, G, H), over all parameters that a probe
    measures; 0 for turns that were not taken.

    A pass for each prompt, with a row for each turn of its rollouts. UserError as from `probe`.
    """
    prompts, group = rollouts.groups
    number = _of_tokens(rollouts)
    most = int(number.max()) + 1
    if most < 1:
        raise UserError("no rollout has a token that is trained on, so there are no turns to measure")
    attached = backward.attach(model, None, temperature)
    found: Floats = np.zeros((prompts, group, most, group, most))
    bare = replace(rollouts, weights=None, token_annotations={})
    for prompt in range(prompts):
        own = number[prompt * group : (prompt + 1) * group]
        taken = torch.stack([(own == turn).any(-1) for turn in range(most)], 1).nonzero()  # (R, 2): rollout, turn
        if not len(taken):
            continue
        rows = bare.rows(prompt * group + taken[:, 0])
        rows = replace(rows, mask=own[taken[:, 0]] == taken[:, 1:])
        needed, free = memory_needed(attached, rows), policies.available_memory(rows.mask.device)
        remedy = "use smaller groups or shorter completions"
        batch_memory.refuse_if_full("the pass over turns", needed, free, remedy, backward.Refusal)
        total = torch.zeros(len(taken), len(taken), dtype=torch.float64)
        products: list[Tensor] = []

        def keep(score: Tensor, scores: list[Tensor] = products) -> None:
            scores[:] = [score.cpu() if not scores else scores[0] + score.cpu()]

        attached.stream(rows, _gram, keep=keep)
        total = products[0] if products else total
        places = (taken[:, 0] * most + taken[:, 1]).numpy(force=True)
        found[prompt].reshape(group * most, group * most)[np.ix_(places, places)] = total.numpy(force=True)
        progress(f"turns of prompt {prompt + 1}/{prompts}: {len(taken)} turns of {group} rollouts")
    return found


def _gram(score: Score) -> Tensor:
    """Inner products of the rows of one parameter; UserError that names it where they are not finite."""
    products = gram.gram(score)
    if not bool(torch.isfinite(products).all()):
        score.check_finite()
        raise UserError(f"layer {score.name}: inner products of its gradients overflow; scale the loss down")
    return products


def _credits(rollouts: RolloutBatch, most: int) -> Mapping[str, Floats]:
    """The credit of each turn, (P, G, H) by name: the reward of the rollout, and the return from the turn on where
    `step_rewards` has rewards of turns on their tokens. The first counts for turns that were not taken too."""
    prompts, group = rollouts.groups
    rewards = rollouts.rewards.double().numpy(force=True)
    made = {WHOLE: np.repeat(rewards[..., None], most, -1)}
    known = rollouts.token_annotations.get("step_rewards")
    if known is not None:
        number, paid = _of_tokens(rollouts), known.double().nan_to_num(0.0)
        each = [(paid * (number == turn)).sum(-1) for turn in range(most)]
        of_turns = torch.stack(each, 1).numpy(force=True)
        made[TO_GO] = returns(of_turns).reshape(prompts, group, most)
    return made


def savings(rollouts: RolloutBatch, grams: Floats) -> TurnSavings:
    """What credit for turns saves, from `measure`; UserError for groups of fewer than four."""
    return _savings_of_turns(grams, _credits(rollouts, grams.shape[2]))


@dataclass(frozen=True)
class _TurnNoise:
    """Moments of one turn credit, per prompt (P,): means of ⟨h, h⟩ over pairs sharing two, one, no rollouts.

    by_turn (3, P, H): the part of each turn in the three; sums over turns are the moments.
    """

    both: Floats
    one: Floats
    none: Floats
    by_turn: Floats

    def noise(self, group: int) -> Floats:
        """Σ₁/G + Δ/(G(G − 1)) per prompt (P,): the squared error of the gradient of a group of this size."""
        return _noise(self.both, self.one, self.none, group)

    def noise_by_turn(self, group: int) -> Floats:
        """The same of each turn, (P, H)."""
        both, single, none = self.by_turn
        return _noise(both, single, none, group)


def _noise(both: Floats, single: Floats, none: Floats, group: int) -> Floats:
    sigma1, delta = 4 * (single - none), 2 * (both - 2 * single + none)
    return np.asarray(sigma1 / group + delta / (group * (group - 1)))


def _of_group(gram: Floats, credit: Floats) -> Floats:
    """both, one and none of one group by turn, (3, H), from the Gram (n, H, n, H) of its turns and their credit (n, H).

    Absent turns have scores of 0, so that their rows of the Gram are 0, and a credit that counts in the means. n ≥ 4.
    """
    n, turns = credit.shape
    square = gram.reshape(n * turns, n * turns)
    centred = (credit - credit.mean(0)).reshape(-1)
    difference = credit[:, None] - credit[None]  # (n, n, H)
    coefficients = -0.5 * np.broadcast_to(difference[:, :, :], (n, n, turns)).copy()  # of s_jh in Σ_j h(i, j)
    coefficients[np.arange(n), np.arange(n)] = 0.5 * n * centred.reshape(n, turns)
    flat = coefficients.reshape(n, n * turns)
    products = flat @ square
    stars = (flat * products).reshape(n, n, turns).sum((0, 1))
    whole = n**2 * (centred * (square @ centred)).reshape(n, turns).sum(0)
    own = np.einsum("ihik->ihk", gram)
    cross = gram.transpose(0, 2, 1, 3)  # (i, j, h, k)
    between = own[:, None] + own[None, :] - cross - cross.swapaxes(0, 1)
    pairs = 0.25 * np.einsum("ijh,ijk,ijhk->h", difference, difference, between)
    both = pairs / (n * (n - 1))
    single = (stars - pairs) / (n * (n - 1) * (n - 2))
    none = (whole - 4 * stars + 2 * pairs) / (n * (n - 1) * (n - 2) * (n - 3))
    return np.array([both, single, none])


def _of_prompts(grams: Floats, credit: Floats) -> _TurnNoise:
    """Moments of a turn credit (P, n, H) from the Grams (P, n, H, n, H) of the prompts; UserError for n < 4."""
    if credit.shape[1] < LEAST:
        raise UserError(f"groups of {credit.shape[1]} rollouts do not show the noise of a credit; take {LEAST} or more")
    parts = np.stack([_of_group(gram, own) for gram, own in zip(grams, credit, strict=True)], 1)
    both, single, none = parts.sum(-1)
    return _TurnNoise(both, single, none, parts)


def _savings_of_turns(
    grams: Floats, credits: Mapping[str, Floats], group: int | None = None, replicates: int = 1000, seed: int = 0
) -> TurnSavings:
    """What each credit (P, n, H) saves against the first, for groups of `group` rollouts, by default n.

    grams (P, n, H, n, H): inner products of the scores of turns, within prompts. Prompts count once each. UserError for
    groups of fewer than four and where no credit is given.
    """
    if not credits:
        raise UserError("no credit was given; give that of the whole rollout first")
    measured = {name: _of_prompts(grams, credit) for name, credit in credits.items()}
    first = next(iter(measured.values()))
    prompts, size = len(grams), grams.shape[1]
    chosen = size if group is None else group
    weights = {"point": resampling.point(prompts), "left out": resampling.jackknife(prompts)}
    weights["drawn"] = resampling.bootstrap(prompts, replicates, seed)
    noise: dict[str, Estimate] = {}
    ratio: dict[str, Estimate] = {}
    interval: dict[str, tuple[float, float]] = {}
    for name, own in measured.items():
        means = {kind: resampling.mean(own.noise(chosen), w) for kind, w in weights.items()}
        base = {kind: resampling.mean(first.noise(chosen), w) for kind, w in weights.items()}
        noise[name] = resampling.estimate(float(means["point"][0]), means["left out"])
        quotients = {kind: _quotient(means[kind], base[kind]) for kind in weights}
        ratio[name] = resampling.estimate(float(quotients["point"][0]), quotients["left out"])
        interval[name] = resampling.interval(quotients["drawn"])
    return TurnSavings(chosen, noise, ratio, interval, _shares(first, chosen, weights), prompts)


def _shares(noise: _TurnNoise, group: int, weights: Mapping[str, Floats]) -> tuple[Estimate, ...]:
    whole = {kind: resampling.mean(noise.noise(group), w) for kind, w in weights.items()}
    made = []
    for own in noise.noise_by_turn(group).T:
        parts = {kind: _quotient(resampling.mean(own, w), whole[kind]) for kind, w in weights.items()}
        made.append(resampling.estimate(float(parts["point"][0]), parts["left out"]))
    return tuple(made)


def _quotient(numerator: Floats, other: Floats) -> Floats:
    """one / other (k,), NaN where the other is not above 0."""
    return np.divide(numerator, other, out=np.full(len(numerator), np.nan), where=other > 0)
