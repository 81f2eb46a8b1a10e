"""Credit: how much of the reward each token is given, (B, T), the form in which every objective takes its advantages.

`SOURCES` names the ways to give credit for settings, flags and probes. A source with settings of its own is written
with them, `position:decay=0.9`, and so wherever credit is asked for by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.credit import (
    continued,
    critic,
    distillation,
    placebo,
    prefix,
    process,
    shaped,
    state,
    steps,
    token_baseline,
    trees,
)
from grposcope.errors import UserError
from grposcope.named import Choice, Decimal, Setting, Text, Whole, Widths, nearest, read_settings
from grposcope.objectives import Objective
from grposcope.records import Rollouts


@dataclass(frozen=True)
class CreditSource:
    """One way to give credit to tokens.

    assign: from an objective and rollouts, and its settings by name, to credit (B, T), 0 where masked. help: what it
    is, for a list of sources. uses_advantage: whether it spreads the objective's advantage, so that it needs a group
    where the advantage does. needs_group: whether it compares the rollouts of a group itself, so that G must be 2 or
    more. needs_steps: whether the rollouts must carry rewards of their steps, which only some tasks label. generates:
    what has to be generated for it other than independent rollouts: continuations of these (`Rollouts.prefix_values`),
    or trees in their place (`Rollouts.levels`); empty for nothing. charged: whether those continuations count.
    unbiased: whether its expectation is the gradient of the outcome reward by construction. needs: name of what a model
    must supply of every token (`training.supplies.SUPPLIES`); empty for nothing. warning: what to know before training
    with it; empty for none. settings: by name, those that `name:key=value` sets.
    """

    assign: Callable[..., Tensor]
    help: str
    uses_advantage: bool = False
    needs_group: bool = False
    needs_steps: bool = False
    generates: Literal["", "continuations", "tree"] = ""
    charged: bool = True
    unbiased: bool = False
    needs: str = ""
    warning: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """A source with the values of its settings. name: as it was asked for."""

    name: str
    source: CreditSource
    values: Mapping[str, Any] = field(default_factory=dict)

    def assign(self, objective: Objective, rollouts: Rollouts) -> Float[Tensor, "B T"]:
        """Credit of every token, 0 where masked."""
        return self.source.assign(objective, rollouts, **self.values)


def outcome(objective: Objective, rollouts: Rollouts) -> Float[Tensor, "B T"]:
    """A_i on every token of rollout i, 0 where masked (GRPO, arXiv:2402.03300, section 4.1.2)."""
    return objective.token_advantages(rollouts, torch.float64)


_BOUNDARIES: dict[str, Setting] = {
    "at": Choice(("step", "newline", "entropy"), "where segments end: at steps that the task labels, at line breaks, "
                 "or before the policy becomes undecided"),
    "share": Decimal(0.1, 0.0, 1.0, "at=entropy: tokens at which the policy counts as undecided"),
}  # fmt: skip

SOURCES: dict[str, CreditSource] = {
    "outcome": CreditSource(outcome, "one for the whole rollout", uses_advantage=True),
    "steps": CreditSource(
        steps.of_rollouts,
        "verified steps still to come, less those of the others, never standardized",
        needs_group=True,
        needs_steps=True,
    ),
    "process": CreditSource(
        process.of_rollouts,
        "process supervision of the GRPO paper, biased",
        needs_steps=True,
        warning="credit process, GRPO's process supervision as published, is biased: where later steps are right less "
        "often than earlier ones it teaches the policy to stop early; credit steps is not",
    ),
    "prefix": CreditSource(
        prefix.of_rollouts,
        "what rollouts with the same text earned, less the others before",
        needs_group=True,
        unbiased=True,
    ),
    "state": CreditSource(
        state.of_rollouts,
        "the same for rollouts that came by the same step",
        needs_group=True,
        needs_steps=True,
        warning="credit state takes rollouts that wrote the same step for equal from there on, and is biased by as "
        "much as they are not",
    ),
    "position": CreditSource(
        shaped.position,
        "the advantage, weighted by the tokens still to come, biased",
        uses_advantage=True,
        warning="credit position is biased: it weighs tokens by how long the rollout will be, not by what they earn",
        settings={"decay": Decimal(0.98, 0.0, 1.0, "weight of a token among those that the next one has")},
    ),
    "entropy": CreditSource(
        shaped.entropy,
        "the advantage, weighted by the policy's entropy, biased",
        uses_advantage=True,
        warning="credit entropy is biased: it weighs tokens by how undecided the policy was, not by what they earn",
    ),
    "continuations": CreditSource(
        continued.of_rollouts,
        "what continuations earn after a segment, less what they earn before it",
        needs_group=True,
        unbiased=True,
        generates="continuations",
        settings={"k": Whole(4, 1, "continuations from each boundary"), **_BOUNDARIES},
    ),
    "oracle": CreditSource(
        continued.of_rollouts,
        "the same from many continuations whose tokens are not counted, a control",
        needs_group=True,
        generates="continuations",
        charged=False,
        warning="credit oracle is a control: the tokens of its continuations are not counted in the record",
        settings={"k": Whole(16, 1, "continuations from each boundary"), **_BOUNDARIES},
    ),
    "tree": CreditSource(
        trees.of_rollouts,
        "what the leaves below a branch of a tree earn, less those below its siblings",
        needs_group=True,
        unbiased=True,
        generates="tree",
        settings={
            "widths": Widths((2, 2, 2), "branches at each branching, their product the leaves, which make up a group"),
            "at": Choice(("tokens", "step", "newline"), "what is counted from one branching to the next"),
            "every": Whole(0, 0, "how many of those, 0 for 8 tokens, or for each step or line"),
        },
    ),
    "token_baseline": CreditSource(
        token_baseline.of_rollouts,
        "the reward, less what the others earned, weighted by their score norms up to the token",
        needs_group=True,
        unbiased=True,
        needs="collision",
    ),
    "value": CreditSource(
        critic.of_rollouts,
        "what a critic that learns beside the policy did not foresee (GAE)",
        needs="values",
        settings={
            "lambda": Decimal(0.95, 0.0, 1.0, "λ of GAE; 1 for the reward less the value", closed=True),
            "gamma": Decimal(1.0, 0.0, 1.0, "discount per token", closed=True),
            "alpha": Decimal(None, 0.0, math.inf, "λ = 1 − 1/(α · length) in place of lambda (VAPO), biased"),
            "critic_lambda": Decimal(1.0, 0.0, 1.0, "λ of the returns that the critic learns", closed=True),
            "whiten": Choice(("no", "yes"), "subtract the batch's mean and divide by its σ, biased"),
            "trunk": Choice(("own", "shared"), "layers below the value head: a copy that learns, or the policy's"),
            "updates": Whole(4, 1, "steps of the critic per optimiser step, each on a part of the batch"),
            "lr": Decimal(None, 0.0, math.inf, "learning rate of the critic"),
            "warmup": Whole(0, 0, "optimiser steps in which the critic alone learns"),
        },
    ),
    "teacher": CreditSource(
        distillation.of_rollouts,
        "log-probability under a teacher less the policy's own",
        needs="teacher",
        settings={
            "model": Text("", "the teacher, a name or a folder"),
            "gamma": Decimal(0.0, 0.0, 1.0, "weight of a later token's log-ratio per token", closed=True),
            "outcome": Decimal(0.0, 0.0, math.inf, "weight of outcome credit that is added", closed=True),
        },
    ),
    "feedback": CreditSource(
        distillation.of_rollouts,
        "the same with the policy itself as teacher, told the right answer",
        needs="feedback",
        settings={
            "gamma": Decimal(0.0, 0.0, 1.0, "weight of a later token's log-ratio per token", closed=True),
            "outcome": Decimal(0.0, 0.0, math.inf, "weight of outcome credit that is added", closed=True),
        },
    ),
}
"""Name of a setting -> source of credit."""

PLACEBO, PLACEBO_HELP = "placebo", "that of another source, permuted within each rollout, a control"
"""Name and help of the control that any source can be given."""


def described() -> str:
    """The sources and what each gives, in one line."""
    listed = [f"{name}, {source.help}" for name, source in SOURCES.items()]
    return "what each token's credit is: " + "; ".join([*listed, f"{PLACEBO}:of=NAME, {PLACEBO_HELP}"])


def chosen(text: str) -> Chosen:
    """The source that `name` or `name:key=value,key=value` asks for; UserError for what there is not."""
    name, _, given = text.partition(":")
    if name == PLACEBO:
        return _placebo(text, given)
    if name not in SOURCES:
        raise UserError(f"unknown credit {text!r}{nearest(name, SOURCES)}; use one of {', '.join(SOURCES)}, {PLACEBO}")
    source = SOURCES[name]
    values = read_settings("credit", text, name, given, source.settings)
    if source.generates == "continuations" and values.get("at") == "step":
        source = replace(source, needs_steps=True)
    for key, setting in source.settings.items():
        if isinstance(setting, Text) and not values[key]:
            raise UserError(f"credit {text}: {name} needs {key}, {setting.help}; write {name}:{key}=…")
    if values.get("outcome"):  # mixed with outcome credit
        source = replace(source, uses_advantage=True)
    return Chosen(text, source, values)


def per_token(
    kind: str, objective: Objective, rollouts: Rollouts, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "B T"]:
    """Credit of every token under `objective`, 0 where masked.

    kind: a source as `chosen` reads it. UserError for an unknown one, or where the rollouts lack what it needs.
    """
    return chosen(kind).assign(objective, rollouts).to(dtype)


def _placebo(text: str, given: str) -> Chosen:
    """The placebo of the source that `of=…` names, which needs what that one needs."""
    key, _, of = given.partition("=")
    if key != "of" or of.partition(":")[0] == PLACEBO:
        raise UserError(f"credit {text}: a placebo is one of another source; write {PLACEBO}:of=prefix")
    inner = chosen(of)

    def assign(objective: Objective, rollouts: Rollouts, **settings: Any) -> Tensor:
        return placebo.permuted(inner.assign(objective, rollouts), rollouts.tokens, rollouts.mask)

    return Chosen(text, replace(inner.source, assign=assign, help=PLACEBO_HELP, warning="", settings={}), inner.values)
