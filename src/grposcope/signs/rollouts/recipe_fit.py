"""What is said where no stored advantage contradicts a recipe: how many were compared, and what they could not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.text import visible
from grposcope.signs.rollouts import coverage, recipes
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import exact
from grposcope.signs.rollouts.recipes import AdvantageRecipe
from grposcope.signs.rollouts.wrong_advantages import TrainedBatch

UNEXPLAINED = "unexplained advantages"
"""The fault of advantages that are not those of the recipe and that nothing explains."""


def told(
    best: AdvantageRecipe, candidates: Sequence[AdvantageRecipe], made: Sequence[TrainedBatch],
    evidence: PipelineEvidence,
) -> Iterator[Finding]:  # fmt: skip
    """What is said where no advantage contradicts the recipe: which were compared, and what they could not show."""
    compared = sum(int(np.isfinite(batch.advantages).sum()) for batch in made)
    if not compared:
        yield cannot_tell("No rollout has a reward, a group and an advantage that the loss used; write all three with "
                          "each rollout.")  # fmt: skip
        return
    if not any((np.abs(np.nan_to_num(batch.advantages)) > 0).any() for batch in made):
        yield cannot_tell("All advantages are 0 because every group has equal rewards, which is so under every recipe; "
                          "write rollouts of groups with different rewards.")  # fmt: skip
        return
    stated = recipes.states(evidence.stated)
    same = [
        candidate
        for candidate in candidates
        if candidate != best and all(batch.fits(candidate).all() for batch in made)
    ]
    others = f" ({len(same)} other recipes would fit too)" if same else ""
    whole = sum(not row.dropped for row in evidence.rows)
    masks = [row.mask for row in evidence.rows if row.mask is not None and len(row.mask)]
    trained = ", or no trained token" if any(not mask.any() for mask in masks) else ""
    of = coverage.share(compared, whole, f"no reward, group or advantage{trained}")
    end = "" if stated else "; the settings do not state the recipe"
    weighted = _found_weights(evidence, made[0])
    yield exact(UNEXPLAINED, False, "", f"The advantages of {of} are {best}{weighted}{others}{end}.")
    if weighted and made[0].weights is not None and made[0].weights.min() < 0:
        yield cannot_tell(f"A reward is subtracted{weighted}, which is right for a penalty alone; state its weight.")
    if not stated and not same and best.baseline == "batch":
        yield _over_the_batch(made)
    if not stated:
        yield cannot_tell("The settings do not state how advantages are made, so they were compared with the usual "
                          "recipes only; state it (scale_rewards, or baseline and scale).")  # fmt: skip
    elif (other := _not_told_apart(best, made)) is not None:
        yield cannot_tell(f"These rollouts do not tell {best} from {other}; write more groups with different rewards.")


def _found_weights(evidence: PipelineEvidence, batch: TrainedBatch) -> str:
    """The weights of the reward functions where they were found and not stated, as a clause; else empty."""
    if evidence.stated.weights is not None or batch.weights is None:
        return ""
    names = dict.fromkeys(name for row in evidence.rows for name in row.rewards)
    weighed = [f"{weight:.3g} × {visible(name, 40)}" for name, weight in zip(names, batch.weights, strict=True)]
    return f" with r = {' + '.join(weighed)}"


def _over_the_batch(made: Sequence[TrainedBatch]) -> Finding:
    """That rollouts are compared with the batch and not with their group, which only settings could call meant."""
    alike = [
        np.abs(np.nan_to_num(batch.advantages[batch.group == group])).max() > 0
        for batch in made
        for group in np.unique(batch.group)
        if np.ptp(batch.rewards[batch.group == group]) == 0
    ]
    shown = f": {sum(alike):,} of {len(alike):,} groups of equal rewards have advantages other than 0" if alike else ""
    return Finding(
        "wrong baseline",
        "possible",
        because=f"rollouts are compared with the mean of the batch, not of their group{shown}; so REINFORCE++ means "
        "it, and so it is where groups of unequal sizes, or prompts that lost their ids, are taken for one group",
        brief="a baseline of the batch",
        remedy="if groups were meant, compute the mean by the id of the group (slime: group_index), not by its place",
    )


def _not_told_apart(best: AdvantageRecipe, made: Sequence[TrainedBatch]) -> AdvantageRecipe | None:
    """A recipe of another baseline or scale under which these rewards have the same advantages, None without one."""
    kind = best.baseline, best.scale
    others = (
        recipe for recipe in recipes.every() if (recipe.baseline, recipe.scale) != kind and recipe.scale != "each"
    )
    return next((recipe for recipe in others if all(batch.fits(recipe).all() for batch in made)), None)
