"""Which tokens the sampler drew, which checkpoint should have drawn them, and whether rollouts were left out since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Ints
from grposcope.signs.rollouts.evidence import PipelineEvidence, ScoredTokens

LEAST_GROUPS = 8
"""Groups from which on it is noticed that none of them has equal rewards."""

RARE = 1e-3
"""Chance of no group with equal rewards below which dead groups are taken to have been filtered out."""


def sampled(row: Rollout, scored: ScoredTokens, index: int, ends: tuple[int, ...] = ()) -> Bools:
    """Which tokens (T,) of a row the sampler drew and the checkpoint scored: those that it wrote, where that is said.

    A mask that leaves out a part of a completion leaves out what it did not write, such as tool output; one that leaves
    out all of it says that the rollout was not trained on, not who wrote it.
    """
    scored_there = ~np.isnan(scored.logp[index])
    if (
        row.truncated
        and row.completion_ids is not None
        and len(row.completion_ids) == len(scored_there)
        and len(scored_there)
    ):
        scored_there[-1] &= int(row.completion_ids[-1]) not in ends  # put behind a cut completion, as no end was drawn
    if row.written is None and row.completion_ids is not None and len(row.completion_ids) == len(scored_there):
        scored_there[_behind(row.completion_ids, ends) :] = False
    if row.written is not None and len(row.written) == len(scored_there):
        return np.asarray(scored_there & row.written)
    if row.mask is not None and len(row.mask) == len(scored_there) and row.mask.any():
        return np.asarray(scored_there & row.mask)
    return np.asarray(scored_there)


def _behind(ids: Ints, ends: tuple[int, ...]) -> int:
    """The place behind the first token that ends a completion: a sampler draws nothing after it."""
    places = np.flatnonzero(np.isin(ids, ends))
    return int(places[0]) + 1 if len(places) else len(ids)


def stated(evidence: PipelineEvidence) -> Ints:
    """The place among `evidence.scored` of the checkpoint that should have drawn each row (N,), -1 where none is given.

    The version that a row carries decides, else its step: rollouts of step N + 1 are drawn by the weights after N
    steps. Of checkpoints that the caller named, the last is meant where rows carry no step, the last before it where
    they all carry one that fits none, and the first where checkpoints have no step.
    """
    rows, scored = evidence.rows, evidence.scored
    of_step = {checkpoint.step: number for number, checkpoint in enumerate(scored) if checkpoint.step is not None}
    if not scored:
        return np.full(len(rows), -1)
    if not of_step:
        return np.full(len(rows), 0 if evidence.named else -1, np.int64)
    wanted = [int(row.version) if row.version == row.version else row.step - 1 for row in rows]
    numbers = np.array([of_step.get(step, -1) for step in wanted], np.int64)
    versions = any(row.version == row.version for row in rows)
    if evidence.named and len({row.step for row in rows}) == 1 and not versions and (numbers < 0).all():
        before = [step for step in of_step if not rows[0].step or step < rows[0].step]
        numbers[:] = of_step[max(before)] if before else -1
    return numbers


def selection(evidence: PipelineEvidence) -> str:
    """Why the rows may be a selection of those that were drawn, which biases every test of the draws; empty if not."""
    if any(row.dropped for row in evidence.rows):
        return ""
    if evidence.filtered:
        return (
            "Rollouts were filtered before they were written, so they are not a random sample; write all "
            "rollouts, and the reason for each that was dropped."
        )
    if evidence.filtered is None and _no_dead_group(evidence):
        return (
            "No group has equal rewards, although chance would produce some: dead groups were probably "
            "filtered out, so the rest is not a random sample; write all groups."
        )
    return ""


def _no_dead_group(evidence: PipelineEvidence) -> bool:
    """Whether all groups have unequal rewards, where the rewards are two values and chance would make some equal.

    The chance is bounded from below: a group whose rewards are independent with success rate p is dead with
    p^G + (1 − p)^G, which is least, 2^(1 − G), at p = 1/2.
    """
    groups = [
        rewards
        for places in evidence.groups.values()
        if len(rewards := [evidence.rows[index].reward for index in places]) > 1 and not np.isnan(rewards).any()
    ]
    values = {reward for rewards in groups for reward in rewards}
    if len(groups) < LEAST_GROUPS or len(values) != 2 or any(len(set(rewards)) == 1 for rewards in groups):
        return False
    top = max(values)
    means = np.array([np.mean(np.array(rewards) == top) for rewards in groups])
    sizes = np.array([len(rewards) for rewards in groups])
    return bool(np.exp(np.log1p(-(means**sizes + (1 - means) ** sizes)).sum()) < RARE)


@dataclass(frozen=True)
class RowTokens:
    """The drawn tokens of a row under the checkpoint that should have drawn it.

    place: of the row; checkpoint: of `evidence.scored`; kept (T,): the drawn tokens.
    """

    place: int
    checkpoint: int
    kept: Bools


def rows_of(evidence: PipelineEvidence) -> list[RowTokens]:
    """The rows that a stated checkpoint scored, in drawn order; those without drawn tokens are left out."""
    tokens = []
    for index, checkpoint in enumerate(stated(evidence)):
        if checkpoint < 0:
            continue
        inside = sampled(evidence.rows[index], evidence.scored[checkpoint], index, evidence.stated.ends)
        if inside.any():
            tokens.append(RowTokens(index, int(checkpoint), inside))
    return tokens


NO_MODEL = "No checkpoint was given, so the tokens cannot be scored; give the one that should have drawn them."
NO_TOKENS = (
    "No rollout with tokens is from a step that a given checkpoint should have drawn; give the checkpoint before it."
)


def lacking(evidence: PipelineEvidence, rows: list[RowTokens]) -> str:
    """Why nothing can be said of the tokens; empty where something can."""
    return NO_MODEL if not evidence.scored else NO_TOKENS if not rows else ""


def relative_error(nats: float) -> float:
    """About the share of the gradient that is not the objective's where rollouts are `nats` of KL from its policy.

    The weights of rollouts spread by √χ², which is √(2 KL) where that is small; 1 is the most that is said.
    """
    return float(min(1.0, np.sqrt(max(0.0, 2 * nats))))


def factors(evidence: PipelineEvidence, rows: Sequence[RowTokens]) -> list[float]:
    """Factors on the adapters under which the stated checkpoints of all rows were scored."""
    each = [set(evidence.scored[index].at_scale) for index in {row.checkpoint for row in rows}]
    return sorted(set.intersection(*each)) if each else []
