"""One way to give credit to tokens, with what it needs and its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from grposcope.core.capabilities import ADVANTAGE, Capabilities, Capability
from grposcope.core.named_settings import Setting

SPREADS: Capabilities = frozenset({ADVANTAGE})
"""What a source provides that spreads the objective's advantage."""


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
        return _needed(self.needs, kind)


def _needed(needs: Collection[Capability], kind: Capability) -> bool:
    """Whether something of a kind is needed: the capability itself, or one that comes by it."""
    return any(need is kind or need.by is kind for need in needs)
