"""What a source of credit needs generated: continuations of independent rollouts, or trees in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from grposcope.core.capabilities import CONTINUATIONS, TREES, TURN_VALUES
from grposcope.lab.credit import Chosen, boundaries
from grposcope.lab.objectives import Objective, shaping
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.continuations import ContinuationPlan, Continuations, continue_from
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.sampler import Tree
from grposcope.lab.tasks.base import Problem, Task

EVERY = 8
"""Tokens between the branchings of a tree where nothing else is asked for."""


@dataclass(frozen=True)
class Generation:
    """What the chosen credit needs generated besides independent rollouts, and how.

    tree: how rollouts branch, None where they do not. marks (V,): tokens with a line break, None where nobody asks.
    """

    credit: Chosen
    tree: Tree | None = None
    marks: Tensor | None = None

    @property
    def turn_values(self) -> int:
        """Continuations from the state before each turn."""
        return int(self.credit.values["k"]) if self.credit.source.requires(TURN_VALUES) else 0

    def continued(
        self,
        policy: Policy,
        task: Task,
        problems: Sequence[Problem],
        rollouts: RolloutBatch,
        objective: Objective,
        settings: DrawSettings,
        generator: torch.Generator,
    ) -> tuple[RolloutBatch, Continuations | None]:
        """The rollouts with the values of their continuations, and these; as they are where the credit needs none."""
        if not self.credit.source.requires(CONTINUATIONS):
            return rollouts, None
        plan = ContinuationPlan(self.places(rollouts), self.credit.values["k"])
        drawn = continue_from(policy, task, problems, rollouts, plan, settings, generator)
        drawn = _shaped(drawn, objective, settings.sampling.max_tokens)
        return rollouts.annotated(prefix_values=drawn.on_tokens(rollouts.mask)), drawn

    def places(self, rollouts: RolloutBatch) -> boundaries.Places:
        """Where the rollouts are continued."""
        at = self.credit.values["at"]
        if at == "step":
            return boundaries.steps(rollouts)
        if at == "entropy":
            return boundaries.entropy(rollouts, self.credit.values["share"])
        assert self.marks is not None
        return boundaries.marked(rollouts, self.marks)


def _shaped(continuations: Continuations, objective: Objective, max_tokens: int) -> Continuations:
    """The continuations with the objective's penalty for long completions in their rewards, as rollouts have it."""
    if not objective.overlong:
        return continuations
    before = torch.zeros(len(continuations.rewards), dtype=torch.long, device=continuations.place.device)
    before[continuations.which] = continuations.place
    total = continuations.lengths + before[:, None]
    penalty = shaping.overlong(total.flatten(), max_tokens, round(objective.overlong * max_tokens))
    return replace(continuations, rewards=continuations.rewards + penalty.reshape(total.shape).to(torch.float64))


def of(credit: Chosen, task: Task, policy: Policy) -> Generation:
    """What a credit needs generated with this task and policy."""
    at, settings = credit.values.get("at", ""), credit.values
    if credit.source.requires(CONTINUATIONS):
        return Generation(credit, marks=tokens_with(policy, "\n") if at == "newline" else None)
    if not credit.source.requires(TREES):
        return Generation(credit)
    marks = None if at == "tokens" else tokens_with(policy, task.step_mark if at == "step" else "\n")
    return Generation(credit, Tree(settings["widths"], settings["every"] or (EVERY if marks is None else 1), marks))


def tokens_with(policy: Policy, text: str) -> Tensor:
    """Which tokens of the vocabulary contain the text, (V,) bool."""
    size = len(cast(nn.Embedding, policy.model.get_input_embeddings()).weight)
    vocabulary = min(size, len(policy.tokenizer))
    said = policy.tokenizer.batch_decode([[token] for token in range(vocabulary)])
    marks = torch.zeros(size, dtype=torch.bool)
    marks[:vocabulary] = torch.tensor([text in token_text for token_text in said])
    return marks.to(policy.model.device)
