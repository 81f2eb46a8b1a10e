"""Credit: how much of the reward each token is given, (B, T), the form in which every objective takes its advantages.

`SOURCES` names the ways to give credit for settings, flags and probes. A source with settings of its own is written
with them, `position:decay=0.9`, and so wherever credit is asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.core.capabilities import (
    ADVANTAGE,
    INDEPENDENT,
    ONE_SIZE,
    STEP_ENDS,
    STEP_READER,
    TOKEN_WEIGHTS,
    TREES,
    WHOLE_GROUPS,
    Lack,
    Part,
)
from grposcope.core.errors import UserError
from grposcope.core.named_settings import Text, nearest, read_settings
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
from grposcope.lab.credit.source import SPREADS, CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


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


SOURCES: dict[str, CreditSource] = {
    "outcome": CreditSource(_outcome, "the rollout's advantage at every token", provides=SPREADS, whole=True),
    **steps.SOURCES,
    **process.SOURCES,
    **prefix.SOURCES,
    **state.SOURCES,
    **shaped.SOURCES,
    **continued.SOURCES,
    **trees.SOURCES,
    **turns.SOURCES,
    **token_baseline.SOURCES,
    **critic.SOURCES,
    **distillation.SOURCES,
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
