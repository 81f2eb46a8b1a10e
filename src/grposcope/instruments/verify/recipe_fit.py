"""What is said where no stored advantage contradicts a recipe: how many were compared, and what they could not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grposcope.instruments.verify import coverage, recipes
from grposcope.instruments.verify.claim import ClaimTest, NotTestable
from grposcope.instruments.verify.evidence import PipelineEvidence
from grposcope.instruments.verify.explained import TrainedBatch
from grposcope.instruments.verify.recipes import AdvantageRecipe


def told(
    best: AdvantageRecipe, candidates: Sequence[AdvantageRecipe], made: Sequence[TrainedBatch],
    evidence: PipelineEvidence,
) -> Iterator[ClaimTest | NotTestable]:  # fmt: skip
    """What is said where no advantage contradicts the recipe: which were compared, and what they could not show."""
    compared = sum(int(np.isfinite(batch.advantages).sum()) for batch in made)
    if not compared:
        yield NotTestable("No rollout has a reward, a group and an advantage that the loss used; write all three with "
                          "each rollout.")  # fmt: skip
        return
    if not any((np.abs(np.nan_to_num(batch.advantages)) > 0).any() for batch in made):
        yield NotTestable("All advantages are 0 because every group has equal rewards, which is so under every recipe; "
                          "write rollouts of groups with different rewards.")  # fmt: skip
        return
    stated = recipes.states(evidence.stated)
    same = [one for one in candidates if one != best and all(batch.fits(one).all() for batch in made)]
    others = f" ({len(same)} other recipes would fit too)" if same else ""
    whole = sum(not row.dropped for row in evidence.rows)
    of = coverage.share(compared, whole, "no reward, group or advantage")
    end = "" if stated else "; the settings do not state the recipe"
    yield ClaimTest("advantages", False, "", f"The advantages of {of} are {best}{others}{end}.", "", "")
    if not stated:
        yield NotTestable("The settings do not state how advantages are made, so they were compared with the usual "
                          "recipes only; state it (scale_rewards, or baseline and scale).")  # fmt: skip
    elif (other := _not_told_apart(best, made)) is not None:
        yield NotTestable(f"These rollouts do not tell {best} from {other}; write more groups with different rewards.")


def _not_told_apart(best: AdvantageRecipe, made: Sequence[TrainedBatch]) -> AdvantageRecipe | None:
    """A recipe of another baseline or scale under which these rewards have the same advantages, None without one."""
    kind = best.baseline, best.scale
    others = (one for one in recipes.every() if (one.baseline, one.scale) != kind and one.scale != "each")
    return next((one for one in others if all(batch.fits(one).all() for batch in made)), None)
