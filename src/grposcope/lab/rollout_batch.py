"""One batch of sampled completions as arrays.

Axis legend, used in every docstring of the package:
`P` prompts, `G` rollouts per prompt (the group), `B = P·G` rollouts, `S` prompt tokens,
`T` completion tokens, `V` vocabulary, `D` parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError


@dataclass(frozen=True)
class RolloutBatch:
    """One batch of sampled completions: `P` prompts × `G` completions, prompt-major.

    Row `b` belongs to prompt `b // G`. Prompts are padded on the left, completions on the right.

    prompt_ids   (B, S) int64; prompt_mask (B, S) bool, False on padding
    tokens       (B, T) int64; mask (B, T) bool, True up to and including the end-of-text token, False on what a tool
                 or environment wrote before it
    logp         (B, T) log-probability of each token when it was sampled, 0 where masked
    entropy      (B, T) entropy in nats of the distribution it was sampled from, 0 where masked
    truncated    (B,)   True where the completion was cut before its end-of-text token
    stops        (B,)   int64, why each ended, an index of `core.rollouts.STOPS`; None for tasks without turns
    rewards      (P, G) float64 outcome rewards
    components   (P, G, K) float64, the rewards of K functions, whose weighted sum `rewards` is; None where there is one
    weights      (P,) float64, what each group counts for; None where all count 1 and have one size
    versions     (P,) int64, optimiser steps that made the weights which drew each group; None for the current ones
    token_annotations: what sources of credit need to know of every token, (B, T) each, by name; those that nobody asked
                 for are absent:
      step_rewards  float64, the reward of a step on the token that closes it and so decides it; step_ends, bool, marks
                    those tokens. Absent for tasks that label outcomes only.
      prefix_values float64, an estimate of the expected reward of the text up to and including the token, NaN where
                    there is none. Absent where no continuations were drawn.
      levels        int64, of rollouts that share their beginnings as the leaves of trees: how often the text before the
                    token has branched since the prompt. Absent for independent rollouts.
      values        a critic's estimate of the expected reward before each token
      other_logp    log-probability of each token under a teacher, or under the policy with feedback
      collision     Σ_v π_v² of the distribution it was sampled from; 0 where masked, as the two before
      turns         int64, the turn of each token, -1 on padding; with it step_rewards are those of the turns
      states        int64, a number of the state before the token's turn, equal where anchors are; 0 where not known

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
    components: Tensor | None = None
    weights: Tensor | None = None
    versions: Tensor | None = None
    stops: Tensor | None = None
    token_annotations: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[int, int]:
        """(P, G)."""
        prompts, group = self.rewards.shape
        return prompts, group

    @property
    def lengths(self) -> Tensor:
        """Completion lengths in tokens, (B,)."""
        return self.mask.sum(-1)

    @property
    def attended(self) -> Tensor:
        """Tokens that later ones may attend to, (B, T): all up to the last that is trained on, those of tools too."""
        return self.mask.flip(-1).cumsum(-1).flip(-1) > 0

    @property
    def has_holes(self) -> bool:
        """Whether tokens that are not trained on stand before some that are, as those of tools do."""
        return bool((self.attended & ~self.mask).any())

    def arrays(self) -> dict[str, Tensor]:
        """Every array that there is, by its name, token annotations among them."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "token_annotations"}
        return {**{name: array for name, array in own.items() if array is not None}, **self.token_annotations}

    @staticmethod
    def of_arrays(arrays: Mapping[str, Tensor]) -> RolloutBatch:
        """Rollouts of their `arrays`; those with names of their own are token annotations."""
        names = {field.name for field in fields(RolloutBatch)}
        own: dict[str, Any] = {name: array for name, array in arrays.items() if name in names}
        return RolloutBatch(**own, token_annotations={name: a for name, a in arrays.items() if name not in names})

    def each(self, change: Callable[[str, Tensor], Tensor]) -> RolloutBatch:
        """The rollouts with every array changed, from its name and itself; no array is left out."""
        return RolloutBatch.of_arrays({name: change(name, array) for name, array in self.arrays().items()})

    def annotated(self, **annotations: Tensor) -> RolloutBatch:
        """The rollouts with further token annotations, (B, T) each."""
        return replace(self, token_annotations={**self.token_annotations, **annotations})

    def annotation(self, name: str, lacking: str) -> Tensor:
        """A token annotation (B, T); UserError that says what is `lacking` where the rollouts do not carry it."""
        if name not in self.token_annotations:
            raise UserError(lacking)
        return self.token_annotations[name]

    def take(self, prompts: Tensor) -> RolloutBatch:
        """The sub-batch of whole groups `prompts` (indices into P), in that order."""
        rows = rows_of_groups(prompts, self.rewards.shape[1])
        return self.each(lambda name, array: array[prompts if name in PER_PROMPT else rows])

    def to(self, device: torch.device | str) -> RolloutBatch:
        """The rollouts on a device."""
        return self.each(lambda name, array: array.to(device))

    def rows(self, which: slice | Tensor) -> RolloutBatch:
        """Some rollouts, each as a group of its own."""
        group = self.rewards.shape[1]

        def single(name: str, array: Tensor) -> Tensor:
            if name in ("rewards", "components"):
                return array.flatten(0, 1).unsqueeze(1)
            return array.repeat_interleave(group) if name in PER_PROMPT else array

        return self.each(lambda name, array: single(name, array)[which])

    def columns(self, which: slice | Tensor) -> RolloutBatch:
        """Some rollouts of every group, by their places in it, 0 … G − 1."""

        def chosen(name: str, array: Tensor) -> Tensor:
            if name in PER_PROMPT:
                return array[:, which] if name in ("rewards", "components") else array
            return array.unflatten(0, self.groups)[:, which].flatten(0, 1)

        return self.each(chosen)


PER_PROMPT = ("rewards", "components", "weights", "versions")
"""Arrays of rollouts with a row per prompt; the others have one per rollout."""

LEFT_PADDED = ("prompt_ids", "prompt_mask")
"""Arrays of rollouts that are padded on the left; the others are on the right, where they have tokens."""


def blank(name: str, pad: int) -> float:
    """What stands in an array of rollouts where there is no token; pad: the token that does."""
    return {"prompt_ids": pad, "tokens": pad, "prefix_values": math.nan, "turns": -1}.get(name, 0)


def rows_of_groups(prompts: Tensor, group: int) -> Tensor:
    """The rows (indices into B) of the groups `prompts` (indices into P), in that order."""
    return (prompts[:, None] * group + prompts.new_tensor(range(group))).reshape(-1)
