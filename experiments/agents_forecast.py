"""Which credit for turns should train best, by the turn Gram matrix of rollouts before any training.

Each batch of rollouts is taken as one group, so that the matrix has the products of all its turns, across prompts too.
Any credit A (B, H) of the batch makes the gradient ĝ = Σ A_ih s_ih / B, of which the matrix K gives

    E‖ĝ‖²   the mean of Aᵀ K A / B² over batches
    ⟨E ĝ, g⟩   the mean over pairs of different prompts of ⟨ĝ_p, ĝ_q of broadcast⟩, which are independent

whatever bias the credit has; for one without bias the second is ‖g‖², the same as for broadcast. A step of an optimizer
that scales gradients to one size goes ⟨E ĝ, g⟩ / √E‖ĝ‖² along g, and a run of a fixed number of tokens makes fewer
steps where continuations cost tokens: the forecast of a credit is that progress ÷ its tokens, over the same of
broadcast. It is of the first steps, of small ones, and of Adam as if all parameters had one scale.

`python experiments/agents_training.py forecast` runs it; the rules are in that file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.instruments.gradient import turns
from grposcope.instruments.gradient.turns import _savings_of_turns
from grposcope.lab.credit import per_token
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.train.setup import Setup

Floats = NDArray[np.float64]

MOST_TURNS = 5
"""Turns that `hidden_table` allows at its defaults."""

MARGIN = 0.05
"""How far from 1 the whole interval has to be for a forecast of better or worse."""


def forecast(setup: Setup, names: Sequence[str], unbiased: Collection[str], batches: int, seed: int) -> dict[str, Any]:
    """What batches of a start, drawn with continuations, say of the credits; the first is what others are compared to.

    cost: tokens with continuations over those without. credits: by name ratio, its interval of 95 % and the forecast.
    shares: of each turn in the noise, with standard errors. to-go: noise by the return from the turn on over that of
    the whole reward, with its interval.
    """
    position, moments, costs, grams, rewards = 0, [], [], [], []
    for _ in range(batches):
        batch = setup.collect(seed, position)
        position, rollouts = batch.position, batch.rollouts
        prompts, group = rollouts.groups
        as_one = replace(rollouts, rewards=rollouts.rewards.reshape(1, -1))
        whole = widened(turns.measure(setup.policy.model, as_one)[0])
        own = [by_turn(per_token(name, setup.objective, rollouts), rollouts) for name in names]
        moments.append([of_batch(whole, credit, own[0], prompts) for credit in own])
        costs.append((int(rollouts.mask.sum()), batch.tokens))
        each = whole.reshape(prompts, group, MOST_TURNS, prompts, group, MOST_TURNS)
        grams += [each[p, :, :, p] for p in range(prompts)]
        rewards.append(np.stack(list(turns._credits(rollouts, MOST_TURNS).values())))
    paid = np.concatenate(rewards, 1)
    saved = _savings_of_turns(np.array(grams), {"whole": paid[0], "to-go": paid[1]})
    return {
        **summed(names, unbiased, np.array(moments), np.array(costs, float)),
        "shares": [[share.value, share.se] for share in saved.share],
        "to-go": [saved.ratio["to-go"].value, *saved.interval["to-go"]],
        "prompts": len(grams),
    }


def widened(gram: Floats) -> Floats:
    """A Gram matrix (B, H, B, H) of MOST_TURNS turns, 0 for those that nobody took."""
    made = np.zeros((len(gram), MOST_TURNS, len(gram), MOST_TURNS))
    made[:, : gram.shape[1], :, : gram.shape[1]] = gram
    return made


def by_turn(tokens: Tensor, rollouts: RolloutBatch) -> Floats:
    """Credit of tokens (B, T), the same for all of a turn, by turn (B, H); 0 for turns that were not taken."""
    number = turns._of_tokens(rollouts)
    rows = [torch.where(number == turn, tokens, 0).sum(-1) / (number == turn).sum(-1).clamp(min=1)
            for turn in range(MOST_TURNS)]  # fmt: skip
    return torch.stack(rows, 1).double().numpy(force=True)


def of_batch(gram: Floats, credit: Floats, base: Floats, prompts: int) -> tuple[float, float]:
    """Mean of ⟨ĝ_p, ĝ_q of the base⟩ over pairs of different prompts, and ‖ĝ‖² of the batch.

    gram (B, H, B, H); credit, base (B, H), of which B / prompts rows each are of one prompt.
    """
    own, other = credit.reshape(prompts, -1), base.reshape(prompts, -1)
    square = gram.reshape(prompts, own.shape[1], prompts, -1)
    between = np.einsum("pi,piqj,qj->pq", own, square, other, optimize=True)
    norm = np.einsum("pi,piqj,qj->", own, square, own, optimize=True)
    return float((between.sum() - np.trace(between)) / (prompts * (prompts - 1))), float(norm / prompts**2)


def summed(names: Sequence[str], unbiased: Collection[str], moments: Floats, costs: Floats) -> dict[str, Any]:
    """Progress a token over that of the first credit, with its interval of 95 % by bootstrap over batches.

    moments (N, C, 2): of each batch and credit. costs (N, 2): tokens without and with continuations. signal and square:
    the two means over those of the first credit, in which the scale of the credit counts.
    """

    def ratios(rows: Any) -> Floats:
        signal, square = moments[rows].mean(0).T
        signal = np.where([name in unbiased for name in names], signal[0], signal)
        further = costs[rows, 1].sum() / costs[rows, 0].sum()
        reached = signal / np.sqrt(square) / [further if "k=1" in name else 1.0 for name in names]
        return np.asarray(reached / reached[0])

    drawn = np.random.default_rng(0).integers(len(moments), size=(2000, len(moments)))
    point, again = ratios(np.arange(len(moments))), np.array([ratios(rows) for rows in drawn])
    told = {}
    ends = np.quantile(again, (0.025, 0.975), axis=0).T
    for place, (name, ratio, (low, high)) in enumerate(zip(names, point, ends, strict=True)):
        word = "better" if low > 1 + MARGIN else "worse" if high < 1 - MARGIN else "alike"
        signal, square = moments[:, place].mean(0) / moments[:, 0].mean(0)
        told[name] = {"ratio": float(ratio), "low": float(low), "high": float(high), "forecast": word,
                      "signal": float(signal), "square": float(square)}  # fmt: skip
    return {"cost": float(costs[:, 1].sum() / costs[:, 0].sum()), "credits": told}
