"""Sampling trees: rollouts that share their beginnings, which are generated once and branch at places fixed in advance.

A branch writes into the row of its first leaf; where it branches, its row in the decoder is repeated with all that it
has read and with the logits that follow, so that no token is read twice. From one branching to the next, tokens are
drawn as the plain sampler draws them. What a leaf shares with others is filled in at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.lab import cpu
from grposcope.lab.credit import trees
from grposcope.lab.no_gradient import inference
from grposcope.lab.sampling.decoding import decoder
from grposcope.lab.sampling.sampler import Completions, Sampling, Turns, drawn_tokens, finished


@dataclass(frozen=True)
class Tree:
    """Where rollouts branch, and into how many.

    widths: branches at each branching, the first at the prompt. every: from one branching to the next, tokens, or
    tokens among `marks` (V,) where these are given, those that end a step, say.
    """

    widths: tuple[int, ...]
    every: int
    marks: Tensor | None = None


@inference
@cpu.with_products
def sample_trees(
    model: PreTrainedModel,
    prompts: tuple[Tensor, Tensor],
    group: int,
    tree: Tree,
    sampling: Sampling,
    eos: Tensor,
    pad: int,
    generator: torch.Generator,
) -> tuple[Completions, Tensor]:
    """As `sampler.sample`, but a group is the leaves of a tree, or of several; and the level of each token, (B, T).

    A leaf of a branch that ended early has the same completion as the first leaf of that branch. UserError where the
    leaves do not make up a group.
    """
    widths, (prompt_ids, prompt_mask) = trees.filling(tree.widths, group), prompts
    rows, steps, device = len(prompt_ids) * group, sampling.max_tokens, prompt_ids.device
    spans = torch.tensor([prod(widths[level + 1 :]) for level in range(len(widths))], device=device)
    every_width = torch.tensor([*widths[1:], 1], device=device)  # of the next branching, by level
    tokens, levels = (
        torch.full((rows, steps), pad, device=device),
        torch.zeros(rows, steps, dtype=torch.long, device=device),
    )
    numbers = torch.zeros(2, rows, steps, device=device)  # log-probabilities and entropies
    used = torch.zeros(rows, dtype=torch.bool, device=device)
    live = torch.arange(0, rows, int(spans[0]), device=device)  # rows of the output that are written
    used[live] = True
    decode = decoder(model, prompt_ids, prompt_mask, group, steps)
    logits = decode.logits[live]
    if len(live) < rows:
        decode.keep(live)
    level, since, t = torch.zeros_like(live), torch.zeros_like(live), 0
    going = torch.ones_like(live, dtype=torch.bool)
    turns = Turns()
    while True:
        few = int((0.95 if decode.light else 0.75) * len(live))  # then the others leave
        unfinished = going & (level + 1 < len(widths))
        together = min(steps - t, turns.most)
        if bool(unfinished.any()):
            together = min(together, int((tree.every - since)[unfinished].min()) if tree.marks is None else 1)
        drawn = drawn_tokens(decode, logits, sampling, eos, going, together, few, generator)
        turns.drew(len(drawn.tokens))
        here, chosen = slice(t, t + len(drawn.tokens)), drawn.tokens[-1]
        tokens[live, here], levels[live, here] = drawn.tokens.T, level[:, None]
        numbers[0, live, here], numbers[1, live, here] = drawn.logp.T, drawn.entropy.T
        t = here.stop
        count = int(going.sum())
        if count == 0 or t == steps:
            break
        since += len(drawn.tokens) if tree.marks is None else tree.marks[drawn.tokens].sum(0)
        if count <= few:
            live, chosen, level, since = live[going], chosen[going], level[going], since[going]
            decode.keep(going.nonzero()[:, 0])
            going = going[going]
        logits = decode.step(chosen)
        forks = going & (since >= tree.every) & (level + 1 < len(widths))
        if bool(forks.any()):
            repeats = torch.where(forks, every_width[level], 1) * going
            again = torch.arange(len(live), device=device).repeat_interleave(repeats)
            number = torch.arange(len(again), device=device) - (repeats.cumsum(0) - repeats)[again]  # of the branch
            level, since = (level + forks)[again], torch.where(forks, 0, since)[again]
            before, live, going = live[again], live[again] + number * spans[level], going[again]
            new = number > 0
            for array in (tokens, levels, *numbers):
                array[live[new], :t] = array[before[new], :t]
            used[live] = True
            decode.keep(again)
            logits = logits[again]
    owner = torch.where(used, torch.arange(rows, device=device), 0).cummax(0).values
    logp, entropy = numbers[:, owner]
    limits = torch.full((rows,), steps, device=device)
    completions = finished(tokens[owner], logp, entropy, eos, pad, limits)
    return completions, levels[owner, : completions.mask.shape[1]] * completions.mask
