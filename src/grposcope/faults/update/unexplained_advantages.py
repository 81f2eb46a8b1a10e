"""Advantages follow from the rewards by no recipe that is known.

What it is
    Rewards that were changed before the advantages were computed, advantages that were changed after, or a recipe
    of one's own.
How it shows
    They are not those of the stated recipe, and no other recipe, permutation, grouping, sign or factor gives them.
What it does to the gradient
    It does not use the advantages of the settings; by how much is said in their own size.
What to do
    Write the rewards from which advantages are computed, and state the recipe.
What decides
    Rewards, groups and advantages of one batch, written at one place: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages

FAULT = Fault(
    name="unexplained advantages",
    rank=3.2,
    remedy="write the rewards that the advantages are computed from, and state the recipe",
    beside="warning",
    rollouts=(advantages.PROOF,),
)
