"""What a source of credit needs generated: continuations of independent rollouts, or trees in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

import torch
from torch import Tensor, nn

from grposcope.credit import Chosen, boundaries, trees
from grposcope.errors import UserError
from grposcope.objectives import Objective
from grposcope.policies import Policy
from grposcope.records import Rollouts
from grposcope.tasks.base import Problem, Task
from grposcope.tasks.faults import ErrorPolicy
from grposcope.training.continuations import Continuations, continue_from, shaped
from grposcope.training.sampler import Sampling
from grposcope.training.tree_sampler import Tree

EVERY = 8
"""Tokens between the branchings of a tree where nothing else is asked for."""


@dataclass(frozen=True)
class Extras:
    """What the chosen credit needs of a policy and a task.

    tree: how rollouts branch, None where they do not. marks (V,): tokens with a line break, None where nobody asks.
    """

    credit: Chosen
    tree: Tree | None = None
    marks: Tensor | None = None

    def continued(
        self,
        policy: Policy,
        task: Task,
        problems: Sequence[Problem],
        rollouts: Rollouts,
        objective: Objective,
        sampling: Sampling,
        generator: torch.Generator,
        reward_timeout: float = 0,
        reward_errors: ErrorPolicy = "fail",
    ) -> tuple[Rollouts, Continuations | None]:
        """The rollouts with the values of their continuations, and these; as they are where the credit needs none."""
        if self.credit.source.generates != "continuations":
            return rollouts, None
        settings = self.credit.values
        drawn = continue_from(
            policy,
            task,
            problems,
            rollouts,
            self.places(rollouts),
            settings["k"],
            sampling,
            generator,
            reward_timeout=reward_timeout,
            reward_errors=reward_errors,
        )
        drawn = shaped(drawn, objective, sampling.max_tokens)
        return replace(rollouts, prefix_values=drawn.on_tokens(rollouts.mask)), drawn

    def places(self, rollouts: Rollouts) -> boundaries.Places:
        """Where the rollouts are continued."""
        at = self.credit.values["at"]
        if at == "step":
            return boundaries.steps(rollouts)
        if at == "entropy":
            return boundaries.entropy(rollouts, self.credit.values["share"])
        assert self.marks is not None
        return boundaries.marked(rollouts, self.marks)


def check_group(credit: Chosen, group: int) -> None:
    """UserError where a group cannot be made of the credit's trees."""
    if credit.source.generates != "tree":
        return
    widths = credit.values["widths"]
    try:
        trees.filling(widths, group)
    except UserError as error:
        wider = "the tree is wider than the group: " if prod(widths) > group else ""
        raise UserError(f"credit {credit.name}: {wider}{error}") from None


def of(credit: Chosen, task: Task, policy: Policy) -> Extras:
    """The extras of a credit; UserError where the task cannot feed it."""
    at, settings = credit.values.get("at", ""), credit.values
    if credit.source.generates == "continuations":
        return Extras(credit, marks=tokens_with(policy, "\n") if at == "newline" else None)
    if credit.source.generates != "tree":
        return Extras(credit)
    if at == "step" and not task.step_mark:
        raise UserError(
            f"credit {credit.name}: trees that branch at steps need a task with a text that closes them, such as "
            f"arithmetic; {task.name} has none: use at=newline or at=tokens"
        )
    marks = None if at == "tokens" else tokens_with(policy, task.step_mark if at == "step" else "\n")
    return Extras(credit, Tree(settings["widths"], settings["every"] or (EVERY if marks is None else 1), marks))


def tokens_with(policy: Policy, text: str) -> Tensor:
    """Which tokens of the vocabulary contain the text, (V,) bool."""
    size = len(cast(nn.Embedding, policy.model.get_input_embeddings()).weight)
    known = min(size, len(policy.tokenizer))
    said = policy.tokenizer.batch_decode([[token] for token in range(known)])
    marks = torch.zeros(size, dtype=torch.bool)
    marks[:known] = torch.tensor([text in one for one in said])
    return marks.to(policy.model.device)
