"""Checks of a Gram matrix of scores and its rewards before moments are estimated from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError

ROUNDING = 1e-6
"""Relative rounding error that a Gram matrix of float32 scores may have, against symmetry and, per row, positivity."""


def checked(gram: NDArray, rewards: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Gram and rewards as float64, and which rollouts are present, (P, G) bool; UserError for unusable input.

    A rollout is absent where its reward is NaN and its row of the Gram is zero or NaN; such rows are
    set to 0. A NaN reward whose row has a score is an error, not an absent rollout.
    """
    gram, rewards = np.asarray(gram, np.float64), np.asarray(rewards, np.float64)
    if rewards.ndim != 2 or not rewards.size:
        raise UserError(f"rewards have shape {rewards.shape}; give (prompts, group)")
    prompts, group = rewards.shape
    size = prompts * group
    if gram.shape not in ((size, size), (prompts, group, group)):
        raise UserError(
            f"the Gram has shape {gram.shape}; {prompts} prompts of {group} rollouts need ({size}, {size}), "
            f"or ({prompts}, {group}, {group}) for the blocks within prompts"
        )
    if np.isinf(rewards).any():
        raise UserError(f"the reward of {_which(np.isinf(rewards))} is infinite; grade it again or leave it out")
    present = ~np.isnan(rewards)
    lengths = np.diagonal(gram) if gram.ndim == 2 else np.einsum("pii->pi", gram)
    ungraded = ~present & (np.nan_to_num(lengths.reshape(rewards.shape)) != 0)
    if ungraded.any():
        raise UserError(
            f"the reward of {_which(ungraded)} is NaN but its score is in the Gram; grade it, or set its rows to 0"
        )
    if present.sum(-1).max() < 2:
        raise UserError(
            "no prompt has two rollouts, so there is no group to compare; probe groups of 4 rollouts or more"
        )
    pair = _pairs(gram, present)
    if not np.isfinite(gram[pair]).all():
        row = np.argwhere(pair & ~np.isfinite(gram))[0]
        where = int(row[0]) if gram.ndim == 2 else int(row[0]) * group + int(row[1])
        raise UserError(f"the Gram is not finite in row {where}; that rollout's gradient over- or underflowed")
    gram = np.where(pair, gram, 0.0)
    _check_symmetric(gram)
    _check_positive(gram)
    return (gram + np.swapaxes(gram, -1, -2)) / 2, rewards, present


def _pairs(gram: NDArray, present: NDArray) -> NDArray:
    """Mask of the entries of the Gram whose two rollouts are present."""
    if gram.ndim == 3:
        return present[:, :, None] & present[:, None, :]
    flat = present.reshape(-1)
    return flat[:, None] & flat[None, :]


def _largest(gram: NDArray) -> float:
    return max(float(np.abs(np.diagonal(gram, axis1=-2, axis2=-1)).max()), np.finfo(float).tiny)


def _check_symmetric(gram: NDArray) -> None:
    difference = float(np.abs(gram - np.swapaxes(gram, -1, -2)).max()) / _largest(gram)
    if difference > 10 * ROUNDING:
        raise UserError(
            f"the Gram is not symmetric: K and its transpose differ by {difference:.2g} of its largest diagonal entry, "
            f"more than rounding ({10 * ROUNDING:.0e}); make it as S Sᵀ of the scores"
        )


def _check_positive(gram: NDArray) -> None:
    """Raise UserError for eigenvalues below −shift: K + shift·I then has no Cholesky factor."""
    shift = ROUNDING * gram.shape[-1] * _largest(gram)
    try:
        np.linalg.cholesky(gram + shift * np.eye(gram.shape[-1]))
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh(gram)
        least, largest = float(values.min()), float(values.max())
        raise UserError(
            f"the Gram is not positive semi-definite: its least eigenvalue is {least:.3g}, its largest {largest:.3g}, "
            f"beyond rounding ({-shift:.1g}); no set of scores has it, so check how it was computed"
        ) from None


def _which(where: NDArray) -> str:
    prompt, rollout = np.argwhere(where)[0]
    return f"prompt {prompt}, rollout {rollout}"
