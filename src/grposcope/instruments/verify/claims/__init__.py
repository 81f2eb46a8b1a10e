"""One file for each claim; a new one is a file with a CLAIM and its name here."""

from grposcope.instruments.verify.claim import Claim
from grposcope.instruments.verify.claims import (
    advantages,
    arrived,
    checkpoints,
    dropped,
    first_update,
    gradient,
    groups,
    metrics,
    resume,
    rewards,
    sampling,
    tokens,
    weights,
)

CLAIMS: tuple[Claim, ...] = (
    weights.CLAIM,
    sampling.CLAIM,
    checkpoints.CLAIM,
    arrived.CLAIM,
    advantages.CLAIM,
    groups.CLAIM,
    tokens.CLAIM,
    rewards.CLAIM,
    dropped.CLAIM,
    gradient.CLAIM,
    first_update.CLAIM,
    metrics.CLAIM,
    resume.CLAIM,
)
"""All claims, in the order in which they are told."""
