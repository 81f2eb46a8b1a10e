"""Small frozen records that travel between the layers.

Axis legend, used in every docstring of the package:
`P` prompts, `G` rollouts per prompt (the group), `B = P·G` rollouts, `S` prompt tokens,
`T` completion tokens, `V` vocabulary, `D` parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # ustat and dynamics import this module and must not pull in torch
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty.

    value: the estimate; NaN where nothing can be said.
    se:    its standard error; NaN where it cannot be estimated.
    n:     how many independent units it rests on.
    flag:  empty when the estimate is fit for use, otherwise the reason for doubt.
    """

    value: float
    se: float
    n: int
    flag: str = ""

    @staticmethod
    def mean(values: list[float]) -> Estimate:
        """Sample mean of independent values with its standard error (ddof 1)."""
        n = len(values)
        if n == 0:
            return Estimate(math.nan, math.nan, 0, "no data")
        centre = math.fsum(values) / n
        if n == 1:
            return Estimate(centre, math.nan, 1, "one value: no standard error")
        variance = math.fsum((v - centre) ** 2 for v in values) / (n - 1)
        return Estimate(centre, math.sqrt(variance / n), n)

    def interval(self, z: float = 1.959963984540054) -> tuple[float, float]:
        """Normal interval value ± z·se (95 % by default)."""
        return self.value - z * self.se, self.value + z * self.se

    def __str__(self) -> str:
        note = f" [{self.flag}]" if self.flag else ""
        return f"{self.value:.4g} ± {self.se:.2g} (n={self.n}){note}"


@dataclass(frozen=True)
class Rollouts:
    """One batch of sampled completions: `P` prompts × `G` completions, prompt-major.

    Row `b` belongs to prompt `b // G`. Prompts are padded on the left, completions on the right.

    prompt_ids   (B, S) int64; prompt_mask (B, S) bool, False on padding
    tokens       (B, T) int64; mask (B, T) bool, True up to and including the end-of-text token
    logp         (B, T) log-probability of each token when it was sampled, 0 where masked
    entropy      (B, T) entropy in nats of the distribution it was sampled from, 0 where masked
    truncated    (B,)   True where the completion was cut before its end-of-text token
    rewards      (P, G) float64 outcome rewards
    step_rewards (B, T) float64, the reward of a step on the token that closes it and so decides it; step_ends
                 (B, T) bool marks those tokens. None for tasks that label outcomes only.
    prefix_values (B, T) float64, an estimate of the expected reward of the text up to and including the token, NaN
                 where there is none. None where no continuations were drawn.
    levels       (B, T) int64, of rollouts that share their beginnings as the leaves of trees: how often the text before
                 the token has branched since the prompt. None for independent rollouts.
    values       (B, T) a critic's estimate of the expected reward before each token
    other_logp   (B, T) log-probability of each token under a teacher, or under the policy with feedback
    collision    (B, T) Σ_v π_v² of the distribution it was sampled from. These three are there only where the credit
                 needs them, and are 0 where masked.
    weights      (P,) float64, what each group counts for; None where all count 1 and have one size

    Groups of different sizes are padded to the largest: a row that was not drawn has the reward NaN and an empty mask.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    logp: Tensor
    entropy: Tensor
    truncated: Tensor
    rewards: Tensor
    step_rewards: Tensor | None = None
    step_ends: Tensor | None = None
    prefix_values: Tensor | None = None
    levels: Tensor | None = None
    weights: Tensor | None = None
    values: Tensor | None = None
    other_logp: Tensor | None = None
    collision: Tensor | None = None

    @property
    def groups(self) -> tuple[int, int]:
        """(P, G)."""
        prompts, group = self.rewards.shape
        return prompts, group

    @property
    def lengths(self) -> Tensor:
        """Completion lengths in tokens, (B,)."""
        return self.mask.sum(-1)

    def take(self, prompts: Tensor) -> Rollouts:
        """The sub-batch of whole groups `prompts` (indices into P), in that order."""
        rows = rows_of_groups(prompts, self.rewards.shape[1])
        per_row: dict[str, Any] = {}
        for field in fields(self):
            array = getattr(self, field.name)
            if field.name != "rewards" and array is not None:
                per_row[field.name] = array[prompts if field.name == "weights" else rows]
        return replace(self, rewards=self.rewards[prompts], **per_row)

    def to(self, device: torch.device | str) -> Rollouts:
        """The rollouts on a device."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: array.to(device) for name, array in given.items() if array is not None}
        return replace(self, **moved)

    def rows(self, which: slice | Tensor) -> Rollouts:
        """Some rollouts, each as a group of its own."""
        given = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "rewards": self.rewards.reshape(-1, 1),
            "weights": None if self.weights is None else self.weights.repeat_interleave(self.rewards.shape[1]),
        }
        chosen: dict[str, Any] = {name: array[which] for name, array in given.items() if array is not None}
        return replace(self, **chosen)


def rows_of_groups(prompts: Tensor, group: int) -> Tensor:
    """The rows (indices into B) of the groups `prompts` (indices into P), in that order."""
    return (prompts[:, None] * group + prompts.new_tensor(range(group))).reshape(-1)
