"""Every source of credit on the same rollouts: what the task can feed, beside exact credit and placebos.

Values of boundaries come from continuations in two halves, independent of each other, so that the noise of neither is
taken for credit: see `instruments.credit.error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from grposcope.core.capabilities import (
    CONTINUATIONS,
    CRITIC,
    FEEDBACK,
    FURTHER_ROLLOUTS,
    MODEL_PASS,
    STEP_ENDS,
    STEP_REWARDS,
    TEACHER,
    TREES,
    TURNS,
)
from grposcope.core.errors import UserError
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit.error import BASE, EXACT, GradientSource, Ranged
from grposcope.lab import credit
from grposcope.lab.credit import placebo
from grposcope.lab.credit.continued import continued
from grposcope.lab.objectives import Objective, advantages, recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.continuations import Continuations

CLASSES = {CONTINUATIONS: "ii", TREES: "iii", CRITIC: "iv", STEP_REWARDS: "v", TEACHER: "vi", FEEDBACK: "vi"}
"""What a source needs -> its class; of class i, from rollouts alone, where it needs none of these."""

HALVES = ("exact, one half", "exact, other half", "continuations, one half", "continuations, other half")
"""Base vectors from the halves of the continuations."""

SURE = 3.0
"""Standard errors that exact credit must lie from 0 for its sign to count as known."""

FEW = 16
"""Continuations per boundary below which no sign of exact credit is called sure."""


@dataclass
class Credits:
    """Credits (B, T) of the base vectors by name, and the sources made of them.

    purchasable: names of sources that can be had in training. skipped: sources without credit, and why. shown: the
    credit that stands for each source in pictures. kinds: class of each source. trees: drawn in their place.
    """

    base: dict[str, Tensor] = field(default_factory=dict)
    shown: dict[str, Tensor] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    unbiased: set[str] = field(default_factory=set)
    purchasable: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    trees: dict[str, tuple[RolloutBatch, Tensor, NDArray]] = field(default_factory=dict)
    each: int = 0

    def add(self, name: str, values: Tensor, kind: str, unbiased: bool, purchasable: bool = True) -> None:
        """A source with a base vector of its own."""
        self.base[name] = self.shown[name] = values.double()
        self._note(name, kind, unbiased, purchasable)

    def _note(self, name: str, kind: str, unbiased: bool, purchasable: bool) -> None:
        self.kinds[name] = kind
        if unbiased:
            self.unbiased.add(name)
        if purchasable:
            self.purchasable.add(name)

    def add_continued(self, rollouts: RolloutBatch, values: Values, wanted: tuple[int, ...]) -> None:
        """Exact credit, continuations at each of the `wanted` K, and a placebo of exact credit, from two halves."""
        halves = [values.of(half, rollouts) for half in values.halves]
        for name, given in zip(HALVES, (*(own for own, _ in halves), *(others for _, others in halves)), strict=True):
            self.base[name] = given
        self.each = values.each
        self.shown[EXACT] = (halves[0][0] + halves[1][0]) / 2
        self._note(EXACT, "control", True, False)
        for k in wanted:
            name = f"continuations:k={k}"
            self.counts[name] = k
            self.shown[name] = values.of(values.few(k), rollouts)[1]
            self._note(name, "ii", True, True)
        fake = placebo.permuted(self.shown[EXACT], rollouts.tokens, rollouts.mask)
        self.add(f"placebo:of={EXACT}", fake, "control", False, False)

    def add_trees(self, drawn: Mapping[str, tuple[RolloutBatch, Tensor, NDArray]], skipped: Mapping[str, str]) -> None:
        """Trees, which are rollouts of their own, and why others were not drawn."""
        self.skipped.update(skipped)
        for name, tree in drawn.items():
            self.trees[name] = tree
            self._note(name, "iii", True, True)

    def sources(self, names: tuple[str, ...], tokens: NDArray, extra: NDArray, drawn: int) -> list[GradientSource]:
        """The sources in order, outcome credit first; names: of the base vectors, those of trees among them.

        tokens (P,): of the rollouts. extra (P,): of the `drawn` continuations per boundary.
        """
        unit, pairs = np.eye(len(names)), []
        for name in self.shown:
            if name == EXACT:
                pairs.append(credit_error.crossed(name, _places(names, HALVES[:2]), len(names), tokens))
            elif name in self.counts:
                k = self.counts[name]
                paid = tokens + extra * k / drawn
                halves = _places(names, HALVES[2:])
                pairs.append(credit_error.continued(name, halves, len(names), self.each, k, paid))
            else:
                pairs.append(_plain(name, unit[names.index(name)], tokens, name in self.unbiased))
        for name, (*_, drawn_tokens) in self.trees.items():
            pairs.append(_plain(name, unit[names.index(name)], drawn_tokens, name in self.unbiased))
        return pairs


@dataclass(frozen=True)
class Values:
    """Values of the boundaries of rollouts, from continuations in two halves of `each`, and of their prompts.

    halves: which of the K continuations are in either half. starts (2, P): the value of each prompt, from further
    rollouts in two halves.
    """

    continuations: Continuations
    starts: Float[Tensor, "2 P"]

    @property
    def each(self) -> int:
        """Continuations of a boundary in either half."""
        return self.continuations.rewards.shape[1] // 2

    @property
    def halves(self) -> tuple[slice, slice]:
        """The two halves; an odd continuation is in neither."""
        return slice(0, self.each), slice(self.each, 2 * self.each)

    def few(self, k: int) -> slice:
        """The last k continuations, of which exact credit by the first half knows nothing where k is at most `each`."""
        drawn = self.continuations.rewards.shape[1]
        return slice(max(drawn - k, 0), drawn)

    def of(self, which: slice, rollouts: RolloutBatch) -> tuple[Tensor, Tensor]:
        """Credit (B, T) by these continuations: with the prompt's own value, and with the mean of the others."""
        values = self.continuations.per_boundary[:, which].mean(-1)
        table = self.continuations.on_tokens(rollouts.mask, values)
        others = continued(table, rollouts.mask, rollouts.rewards)
        group = rollouts.groups[1]
        rewards = rollouts.rewards.double()
        mean = (rewards.sum(-1, keepdim=True) - rewards) / (group - 1)
        start = self.starts[0 if which.start == 0 else 1][:, None]
        first = _segments(table, rollouts.mask) == 0
        own = others + (mean - start).reshape(-1, 1) * (first & rollouts.mask)
        return own, others


def _segments(table: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Tensor:
    """Number of each token's segment, from 0; boundaries are where the table is known."""
    ends = ~table.isnan() & mask
    return ends.long().cumsum(-1) - ends.long()


def assigned(
    rollouts: RolloutBatch,
    labels_steps: bool,
    task: str,
    supplied: Callable[[str], RolloutBatch] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Credits:
    """Credit of every source that needs no other rollouts, outcome credit first, and why others have none.

    supplied: the rollouts with what a source of this name needs of a model; UserError where there is nothing to give.
    settings: a source -> its name with settings, where they are not the usual ones.
    """
    credits = Credits()
    base = recipes.RLOO
    credits.add(BASE, credit.per_token(BASE, base, rollouts, torch.float64), "i", True)
    for name, advantage in advantages.ALL.items():
        if name == "leave_one_out":
            continue
        _try(credits, f"{BASE}:{name}", BASE, replace(base, advantage=advantage.function), rollouts)
    for name, source in credit.SOURCES.items():
        if name == BASE or source.requires(FURTHER_ROLLOUTS):
            continue
        if source.requires(TURNS) and "turns" not in rollouts.token_annotations:
            continue
        if source.requires(STEP_ENDS) and not labels_steps:
            credits.skipped[name] = f"the task {task} does not label steps"
            continue
        whole = (settings or {}).get(name, name)
        try:
            fed = supplied(whole) if source.requires(MODEL_PASS) and supplied is not None else rollouts
        except UserError as error:
            credits.skipped[name] = str(error)
            continue
        _try(credits, whole, whole, base, fed)
    if "prefix" in credits.base:
        fake = placebo.permuted(credits.base["prefix"], rollouts.tokens, rollouts.mask)
        credits.add("placebo:of=prefix", fake, "control", False, False)
    return credits


def _try(credits: Credits, name: str, source: str, objective: Objective, rollouts: RolloutBatch) -> None:
    """Add a source under an objective, or why it has no credit here."""
    try:
        values = credit.per_token(source, objective, rollouts, torch.float64)
    except UserError as error:
        credits.skipped[name] = str(error)
        return
    if not bool(values.isfinite().all()):
        credits.skipped[name] = "its credit is not finite"
    elif not bool(values.any()):
        credits.skipped[name] = "all of its credit is 0 on these rollouts"
    else:
        known = credit.SOURCES[source.partition(":")[0]]
        kind = next((kind for need, kind in CLASSES.items() if need in known.needs), "i")
        credits.add(name, values, kind, known.unbiased or name == f"{BASE}:none")


def _places(names: tuple[str, ...], pair: tuple[str, ...]) -> tuple[int, int]:
    first, other = (names.index(name) for name in pair)
    return first, other


# What the arrays say without a gradient


def wrong_signs(credits: Credits, values: Values, rollouts: RolloutBatch) -> dict[str, Ranged]:
    """By source, the share of segments with the sign opposite to exact credit that is surely not 0; half for a 0.

    Exact credit is that of the first half of the continuations, of which those charged for are no part.
    """
    if values.each < FEW:
        return {}
    half = values.halves[0]
    drawn = values.continuations.per_boundary[:, half]
    table = values.continuations.on_tokens(rollouts.mask)
    number = _segments(table, rollouts.mask)
    spread = values.continuations.on_tokens(rollouts.mask, drawn.var(-1) / values.each).nan_to_num(0.0)
    exact, _ = values.of(half, rollouts)
    count = int(number[rollouts.mask].max()) + 1
    onto = torch.nn.functional.one_hot(number, count).double() * rollouts.mask[..., None]  # (B, T, segments)
    size = onto.sum(1)
    after = torch.einsum("btk,bt->bk", onto, spread)
    value = values.starts[0]
    start = (value * (1 - value)).clamp(min=0).repeat_interleave(rollouts.groups[1]) / max(values.each, 1)
    before = torch.cat((start[:, None], after[:, :-1]), 1)
    mean = torch.einsum("btk,bt->bk", onto, exact) / size.clamp(min=1)
    sure = (size > 0) & (mean.abs() > SURE * (after + before).sqrt()) & (mean.abs() > 1e-9)
    of_prompt = sure.unflatten(0, rollouts.groups).sum((1, 2)).double().cpu().numpy()
    shares = {}
    for name, given in credits.shown.items():
        if name == EXACT:
            continue
        own = torch.einsum("btk,bt->bk", onto, given.to(onto)) / size.clamp(min=1)
        off = torch.where(own.abs() <= 1e-12, 0.5, (own * mean < 0).double()) * sure
        shares[name] = credit_error.ratio(off.unflatten(0, rollouts.groups).sum((1, 2)).cpu().numpy(), of_prompt)
    return shares


def _plain(name: str, base: NDArray, tokens: NDArray, unbiased: bool) -> GradientSource:
    """A source whose gradient is the combination `base` (V,) of the base vectors."""
    return GradientSource(name, base, np.outer(base, base), tokens, unbiased)
