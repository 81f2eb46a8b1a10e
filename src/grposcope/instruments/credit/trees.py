"""Trees of the same prompts beside independent rollouts: their credit, their gradients, and what was generated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab import credit
from grposcope.lab.credit import trees
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import generation
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.rollouts import draw, generator, joined
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.base import Problem, Task


def drawn_trees(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    group: int,
    sampling: Sampling,
    seed: int,
    wanted: Sequence[str],
    at_once: int = 16,
) -> tuple[dict[str, tuple[RolloutBatch, Tensor, NDArray]], dict[str, str]]:
    """Trees of every wanted shape, such as 2x2x2, for each of the problems, and why others were not drawn, by name.

    The leaves of trees, their credit (B, T), and the tokens generated for each prompt (P,), shared ones once.

    Trees branch at the ends of steps where the task has a text that closes them, else at line breaks.
    """
    trees, skipped = {}, {}
    for widths in wanted:
        name = f"tree:widths={widths},at={'step' if task.step_mark else 'newline'}"
        chosen = credit.chosen(name)
        try:
            chosen.check_group(group)
            shape = generation.of(chosen, task, policy).tree
        except UserError as error:
            skipped[name] = str(error)
            continue
        settings = DrawSettings(sampling, tree=shape)
        stream = generator(seed, name, device=policy.model.device)
        parts = [
            draw(policy, task, problems[start : start + at_once], group, settings, stream).rollouts
            for start in range(0, len(problems), at_once)
        ]
        trees[name] = _joined(parts, chosen, policy)
    return trees, skipped


def _joined(
    parts: Sequence[RolloutBatch], chosen: credit.Chosen, policy: Policy
) -> tuple[RolloutBatch, Tensor, NDArray]:
    rollouts = joined(parts, policy.pad)
    values = chosen.assign(recipes.RLOO, rollouts)
    group = rollouts.groups[1]
    shared = trees.origins(rollouts.token_annotations["levels"], rollouts.mask, group, chosen.values["widths"])[1]
    own = (rollouts.mask.sum(-1) - shared).unflatten(0, rollouts.groups).sum(-1)
    return rollouts, values.to(torch.float64), np.asarray(own.double().cpu())
