"""The turn Gram matrix of rollouts with several turns, and what credit for turns would save.

The score of a turn is the gradient of the log-probabilities of its tokens, given all that stands before them. A pass
with one row for each turn that was taken, in which the other tokens are read and have no weight, gives the scores of
all turns of a prompt's rollouts at once; their products within the prompt are the turn Gram matrix
(`maths.turn_moments`).
It costs as many rows as there are turns, so that the whole takes about the number of turns times the pass of a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.run import Floats
from grposcope.instruments.gradient import backward, gram
from grposcope.instruments.gradient.probe import memory_needed
from grposcope.instruments.gradient.score import Score
from grposcope.lab import batch_memory, policies
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths import turn_moments
from grposcope.maths.turn_moments import TurnSavings
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
    return turn_moments.savings(grams, _credits(rollouts, grams.shape[2]))
