"""Credit: how much of the reward each token is given, (B, T), the form in which every objective takes its advantages.

`SOURCES` names the ways to give credit for settings, flags and probes. A source with settings of its own is written
with them, `position:decay=0.9`, and so wherever credit is asked for by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.core import capabilities
from grposcope.core.capabilities import (
    ADVANTAGE,
    COLLISION,
    CONTINUATIONS,
    CRITIC,
    ENTROPY,
    FEEDBACK,
    INDEPENDENT,
    ONE_SIZE,
    PAIRS,
    STEP_ENDS,
    STEP_MARK,
    STEP_READER,
    STEP_REWARDS,
    TEACHER,
    TOKEN_WEIGHTS,
    TREES,
    TURN_VALUES,
    TURNS,
    WHOLE_GROUPS,
    Capabilities,
    Capability,
    Lack,
    Part,
)
from grposcope.core.errors import UserError
from grposcope.core.named_settings import Choice, Decimal, Setting, Text, Whole, Widths, nearest, read_settings
from grposcope.lab.credit import (
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
    turns,
)
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


@dataclass(frozen=True)
class CreditSource:
    """One way to give credit to tokens.

    assign: from an objective and rollouts, and its settings by name, to credit (B, T), 0 where masked. help: what it
    is, for a list of sources. needs: what must be there for it: groups of 2 or more, labels of steps, what has to be
    generated besides independent rollouts, what a model must say of every token, … (`capabilities`). provides:
    ADVANTAGE where it spreads the objective's advantage. whole: whether all tokens of a rollout get the same.
    charged: whether further rollouts count. unbiased: whether its expectation is the gradient of the outcome reward by
    construction. warning: what to know before training with it; empty for none. settings: by name, those that
    `name:key=value` sets. more_needs: what it needs besides with some values of these. fits: UserError for a group
    that it cannot be had of, from the values and G. from_steps: the same credit from step rewards, step ends, mask
    (B, T) and G, for a source that reads nothing else; verl has it then.
    """

    assign: Callable[..., Tensor]
    help: str
    needs: Capabilities = frozenset()
    provides: Capabilities = frozenset()
    whole: bool = False
    charged: bool = True
    unbiased: bool = False
    warning: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    more_needs: Callable[[Mapping[str, Any]], Capabilities] = lambda values: frozenset()
    fits: Callable[[Mapping[str, Any], int], None] = lambda values, group: None
    from_steps: Callable[[Tensor, Tensor, Tensor, int], Tensor] | None = None

    def requires(self, kind: Capability) -> bool:
        """Whether it needs a capability, or one that comes by it."""
        return capabilities.needed(self.needs, kind)


@dataclass(frozen=True)
class Chosen:
    """A source with the values of its settings. name: as it was asked for."""

    name: str
    source: CreditSource
    values: Mapping[str, Any] = field(default_factory=dict)

    def assign(self, objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
        """Credit of every token, 0 where masked."""
        return self.source.assign(objective, rollouts, **self.values)

    def check_group(self, group: int) -> None:
        """UserError where this credit cannot be had of groups of this size."""
        try:
            self.source.fits(self.values, group)
        except UserError as error:
            raise UserError(f"credit {self.name}: {error}") from None

    def part(self, field: str = "credit ") -> Part:
        """What the source needs of a run, provides to it and takes from it. field: what a message calls credit."""
        source, lacks = self.source, {}
        varied = frozenset() if source.whole else frozenset({WHOLE_GROUPS, ONE_SIZE, TOKEN_WEIGHTS})
        reads = frozenset({STEP_READER}) if source.requires(STEP_ENDS) else frozenset()
        if ADVANTAGE not in source.provides:
            lacks[ADVANTAGE] = Lack("compares rewards itself", "use credit outcome")
        if not reads:
            lacks[STEP_READER] = Lack("does not read it", "use credit steps")
        if source.requires(TREES):
            lacks[INDEPENDENT] = Lack("has the leaves of a tree, which are not", "use another credit, such as outcome")
        return Part(f"{field}{self.name}", "use another credit", source.needs | varied, source.provides | reads, lacks)


def _outcome(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """A_i on every token of rollout i, 0 where masked (GRPO, arXiv:2402.03300, section 4.1.2)."""
    return objective.token_advantages(rollouts, torch.float64)


_BOUNDARIES: dict[str, Setting] = {
    "at": Choice(("step", "newline", "entropy"), "where segments end: at steps that the task labels, at line breaks, "
                 "or before the policy becomes undecided"),
    "share": Decimal(0.1, 0.0, 1.0, "at=entropy: tokens at which the policy counts as undecided"),
}  # fmt: skip

SPREADS: Capabilities = frozenset({ADVANTAGE})
"""What a source provides that spreads the objective's advantage."""


def _at_boundaries(values: Mapping[str, Any]) -> Capabilities:
    """What segments that end there need."""
    return {"step": frozenset({STEP_ENDS}), "entropy": frozenset({ENTROPY})}.get(values["at"], frozenset())


SOURCES: dict[str, CreditSource] = {
    "outcome": CreditSource(_outcome, "the rollout's advantage at every token", provides=SPREADS, whole=True),
    "steps": CreditSource(
        steps.of_rollouts,
        "verified steps still to come, minus those of the other rollouts, never standardized",
        needs=frozenset({PAIRS, STEP_REWARDS}),
        from_steps=steps.steps,
    ),
    "process": CreditSource(
        process.of_rollouts,
        "process supervision of the GRPO paper (biased)",
        needs=frozenset({STEP_REWARDS}),
        from_steps=process.process,
        warning="credit process, GRPO's process supervision as published, is biased: where later steps are right less "
        "often than earlier ones it teaches the policy to stop early; credit steps is not biased",
    ),
    "prefix": CreditSource(
        prefix.of_rollouts,
        "mean reward of rollouts with the same text up to and with the token, minus that of others with the same text "
        "before it",
        needs=frozenset({PAIRS}),
        unbiased=True,
    ),
    "state": CreditSource(
        state.of_rollouts,
        "the same, over rollouts that passed through the same step",
        needs=frozenset({PAIRS, STEP_ENDS}),
        warning="credit state treats rollouts that wrote the same step as equal from there on, and is biased as "
        "far as they differ",
    ),
    "position": CreditSource(
        shaped.position,
        "the advantage, weighted by the tokens still to come (biased)",
        provides=SPREADS,
        warning="credit position is biased: it weighs tokens by how long the rollout will be, not by what they earn",
        settings={"decay": Decimal(0.98, 0.0, 1.0, "discount per token in the sum over the tokens still to come")},
    ),
    "entropy": CreditSource(
        shaped.entropy,
        "the advantage, weighted by the policy's entropy (biased)",
        needs=frozenset({ENTROPY}),
        provides=SPREADS,
        warning="credit entropy is biased: it weighs tokens by how undecided the policy was, not by what they earn",
    ),
    "continuations": CreditSource(
        continued.of_rollouts,
        "mean reward of continuations after a segment, minus that before it",
        needs=frozenset({PAIRS, CONTINUATIONS}),
        unbiased=True,
        settings={"k": Whole(4, 1, "continuations from each boundary"), **_BOUNDARIES},
        more_needs=_at_boundaries,
    ),
    "oracle": CreditSource(
        continued.of_rollouts,
        "the same from many continuations whose tokens are not counted (a control)",
        needs=frozenset({PAIRS, CONTINUATIONS}),
        charged=False,
        warning="credit oracle is a control: the tokens of its continuations are not counted in the record",
        settings={"k": Whole(16, 1, "continuations from each boundary"), **_BOUNDARIES},
        more_needs=_at_boundaries,
    ),
    "tree": CreditSource(
        trees.of_rollouts,
        "mean reward of the leaves below a branch of a tree, minus that below its siblings",
        needs=frozenset({PAIRS, TREES}),
        unbiased=True,
        more_needs=lambda values: frozenset({STEP_MARK} if values["at"] == "step" else ()),
        fits=trees.check_group,
        settings={
            "widths": Widths((2, 2, 2), "branches at each branching; their product is the number of leaves of a tree"),
            "at": Choice(("tokens", "step", "newline"), "what is counted from one branching to the next"),
            "every": Whole(0, 0, "how many of these from one branching to the next; 0: 8 tokens, or each step or line"),
        },
    ),
    "turns": CreditSource(
        turns.fair,
        "what a turn still led to, minus the same of the other rollouts at the same turn, or in the same state",
        needs=frozenset({PAIRS, TURNS}),
        unbiased=True,
        settings={
            "rule": Choice(
                turns.FAIR,
                "what is compared: the return from the turn on, the whole return, or the "
                "return of turns that began in one state",
            )
        },
    ),
    "turn_values": CreditSource(
        turns.valued,
        "the same, minus or between values of the states before turns, from continuations",
        needs=frozenset({PAIRS, TURNS, TURN_VALUES}),
        unbiased=True,
        settings={
            "form": Choice(("branches", "value"), "reward and next value minus value, or return minus value"),
            "k": Whole(4, 1, "continuations from each state"),
        },
    ),
    "trainer_turns": CreditSource(
        turns.biased,
        "advantages of turns as trainers make them (biased)",
        needs=frozenset({PAIRS, TURNS}),
        warning="credit trainer_turns has the rules of today's trainers, each of which is biased; credit turns is not",
        settings={
            "rule": Choice(
                tuple(turns.BIASED),
                "mean of those who take the turn, of their turn rewards, of whole "
                "returns, over rows, over own turns; step groups; GiGPO",
            )
        },
    ),
    "token_baseline": CreditSource(
        token_baseline.of_rollouts,
        "the reward, minus the rewards of the others weighted by their score norms up to the token",
        needs=frozenset({PAIRS, COLLISION}),
        unbiased=True,
    ),
    "value": CreditSource(
        critic.of_rollouts,
        "what a critic trained beside the policy did not predict (GAE)",
        needs=frozenset({CRITIC}),
        settings={
            "lambda": Decimal(0.95, 0.0, 1.0, "λ of GAE; 1 for the reward less the value", closed=True),
            "gamma": Decimal(1.0, 0.0, 1.0, "discount per token", closed=True),
            "alpha": Decimal(None, 0.0, math.inf, "λ = 1 − 1/(α · length) in place of lambda (VAPO), biased"),
            "critic_lambda": Decimal(1.0, 0.0, 1.0, "λ of the returns that the critic learns", closed=True),
            "whiten": Choice(("no", "yes"), "subtract the batch's mean and divide by its σ, biased"),
            "trunk": Choice(("own", "shared"), "layers below the value head: a copy that learns, or the policy's"),
            "updates": Whole(4, 1, "steps of the critic per optimiser step, each on a part of the batch"),
            "lr": Decimal(None, 0.0, math.inf, "learning rate of the critic"),
            "warmup": Whole(0, 0, "optimiser steps in which only the critic learns"),
        },
    ),
    "teacher": CreditSource(
        distillation.of_rollouts,
        "log-probability under a teacher minus the policy's own",
        needs=frozenset({TEACHER}),
        settings={
            "model": Text("", "the teacher, a name or a folder"),
            "gamma": Decimal(0.0, 0.0, 1.0, "weight of a later token's log-ratio per token", closed=True),
            "outcome": Decimal(0.0, 0.0, math.inf, "weight of outcome credit that is added", closed=True),
        },
    ),
    "feedback": CreditSource(
        distillation.of_rollouts,
        "the same with the policy itself as teacher, told the right answer",
        needs=frozenset({FEEDBACK}),
        settings={
            "gamma": Decimal(0.0, 0.0, 1.0, "weight of a later token's log-ratio per token", closed=True),
            "outcome": Decimal(0.0, 0.0, math.inf, "weight of outcome credit that is added", closed=True),
        },
    ),
}
"""Name of a setting -> source of credit."""

PLACEBO, PLACEBO_HELP = "placebo", "the credit of another source, permuted within each rollout (a control)"
"""Name and help of the control that any source can be given."""


def described() -> str:
    """The sources and what each gives, in one line."""
    listed = [f"{name}, {source.help}" for name, source in SOURCES.items()]
    return "what each token's credit is: " + "; ".join([*listed, f"{PLACEBO}:of=NAME, {PLACEBO_HELP}"])


def chosen(text: str) -> Chosen:
    """The source that `name` or `name:key=value,key=value` asks for; UserError for what there is not."""
    name, _, options = text.partition(":")
    if name == PLACEBO:
        return _placebo(text, options)
    if name not in SOURCES:
        raise UserError(f"unknown credit {text!r}{nearest(name, SOURCES)}; use one of {', '.join(SOURCES)}, {PLACEBO}")
    source = SOURCES[name]
    values = read_settings("credit", text, name, options, source.settings)
    source = replace(source, needs=source.needs | source.more_needs(values))
    for key, setting in source.settings.items():
        if isinstance(setting, Text) and not values[key]:
            raise UserError(f"credit {text}: {name} needs {key}, {setting.help}; write {name}:{key}=…")
    if values.get("outcome"):  # mixed with outcome credit
        source = replace(source, provides=SPREADS)
    return Chosen(text, source, values)


def per_token(
    kind: str, objective: Objective, rollouts: RolloutBatch, dtype: torch.dtype | None = None
) -> Float[Tensor, "B T"]:
    """Credit of every token under `objective`, 0 where masked.

    kind: a source as `chosen` reads it. dtype: float32 where it is not given. UserError for an unknown source, or where
    the rollouts lack what it needs.
    """
    return chosen(kind).assign(objective, rollouts).to(torch.float32 if dtype is None else dtype)


def _placebo(text: str, options: str) -> Chosen:
    """The placebo of the source that `of=…` names, which needs what that one needs."""
    key, _, of = options.partition("=")
    if key != "of" or of.partition(":")[0] == PLACEBO:
        raise UserError(f"credit {text}: a placebo shuffles another source's credit; write {PLACEBO}:of=prefix")
    inner = chosen(of)

    def assign(objective: Objective, rollouts: RolloutBatch, **settings: Any) -> Tensor:
        return placebo.permuted(inner.assign(objective, rollouts), rollouts.tokens, rollouts.mask)

    return Chosen(text, replace(inner.source, assign=assign, help=PLACEBO_HELP, warning="", settings={}), inner.values)
