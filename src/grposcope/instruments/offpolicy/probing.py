"""An off-policy probe while training: the products of the gradient on rollouts of another policy, under corrections.

What is measured is what the update sees: the rollouts as μ drew them, and the weights π right before the step. It draws
no random number and changes neither weights nor gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grposcope.instruments.offpolicy import estimates
from grposcope.instruments.offpolicy.error import GradientProducts
from grposcope.instruments.offpolicy.estimates import CorrectedProducts
from grposcope.instruments.offpolicy.from_model import mismatched
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.maths.corrections import ALL, Correction

COMPARED = tuple(correction for correction in ALL if correction.name != "prefix_ratio")
"""Corrections that a probe compares while training: all but one, which no trainer offers, and whose copy of every
rollout would make the probe half as long again."""


def measure(
    model: Any,
    rollouts: RolloutBatch,
    step: int,
    *,
    micro_batch: int,
    temperature: float = 1.0,
    own: Correction | None = None,
    check: bool = True,
) -> tuple[MismatchedRollouts, CorrectedProducts]:
    """These rollouts, whose `logp` are those of the policy that drew, with the log-probabilities of the weights before
    `step`; and the products of their gradient under each correction.

    own: the correction of the run, measured beside those with usual bounds. micro_batch: rollouts of a pass without
    gradients. check: compare with autograd on a few tokens first. Versions of the rollouts are optimiser steps, as
    `RolloutBatch` has them. UserError as from `probe`.
    """
    trainer = frozen_logprobs(model, rollouts, temperature, micro_batch)
    lags = None if rollouts.versions is None else step - 1 - rollouts.versions.double()
    drawn = mismatched(rollouts, trainer, lags)
    further = own is not None and own.name not in {correction.name for correction in COMPARED}
    corrections: Sequence[Correction] = (*COMPARED, own) if further and own is not None else COMPARED
    if bool((rollouts.rewards == rollouts.rewards[:, :1]).all()):
        return drawn, _nothing(*rollouts.groups, corrections)
    return drawn, estimates.measure(model, rollouts, drawn.ratios, corrections, temperature, check)


def _nothing(prompts: int, group: int, corrections: Sequence[Correction]) -> CorrectedProducts:
    """What groups of equal rewards have: estimates of 0 under every correction."""
    zeros = np.zeros((prompts, prompts))
    products = {correction.name: GradientProducts(zeros, zeros, zeros) for correction in corrections}
    return CorrectedProducts(products, np.full(prompts * group, np.nan), 0, 0.0)


def whole_groups(rollouts: RolloutBatch, prompts: int) -> RolloutBatch | None:
    """The first so many groups that lost no rollout, all of whose rollouts have tokens; None where there are fewer."""
    there = (rollouts.lengths > 0).reshape(rollouts.groups).all(-1)
    good = (~rollouts.rewards.isnan().any(-1) & there).nonzero()[:, 0]
    return rollouts.take(good[:prompts]) if len(good) >= prompts else None


def drawn_by(rollouts: RolloutBatch, logp: Tensor, version: int | None = None) -> RolloutBatch:
    """The rollouts as those of the policy with log-probabilities (B, T), and of the weights after `version` steps."""
    versions = None if version is None else torch.full((len(rollouts.rewards),), version, device=logp.device)
    return replace(rollouts, logp=logp, versions=versions)
