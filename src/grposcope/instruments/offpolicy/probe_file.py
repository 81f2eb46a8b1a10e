"""Off-policy probes of a run, RUN/offpolicy/step-NNNNNN.npz: the one module that knows the format, and their pooling.

A probe is of the rollouts of another policy μ that an optimiser step trains on, and of the gradient at the weights π
right before it. Arrays of a file, with P prompts of G rollouts each, B = P·G, N tokens end to end and C corrections:

    format, step, batch   whole numbers: of the format; the step; prompts of the batch that the step takes
    source                text: what drew, `sampler`, or the weights some steps before, `earlier`
    lengths (B,)          tokens of each rollout        log_ratios, sampler (N,)   log π/μ and log μ of each token
    absent                tokens without one of them    rewards (P, G)
    behind (B,)           optimiser steps by which the weights that drew are behind; NaN where that is not known
    norms (B,)            ‖∇ log π‖ of each rollout, NaN where its group has equal rewards
    names (C,) text; own, cross (C, P, P); full (P, P)     products of the prompts' estimates, `error.GradientProducts`

Probes of several steps are pooled: every product is of two prompts of one probe, so that the means over pairs are those
of the steps. Without a trend they are what one large probe would have. Prompts with equal rewards count, with 0: those
that are left out would be the easy and the hard ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from grposcope.instruments.offpolicy import error
from grposcope.instruments.offpolicy.error import GradientProducts
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.logs.native import step_arrays
from grposcope.maths.corrections import named
from grposcope.maths.importance import Floats, Ratios

FORMAT = 1
"""The version that this module writes, and the newest that it reads."""

FOLDER = "offpolicy"
"""Subfolder of a run with its off-policy probes."""

Source = Literal["sampler", "earlier"]
"""What drew the rollouts: another sampler, or the trainer's own weights some steps before."""


@dataclass(frozen=True)
class OffPolicyProbe:
    """What one probe measured.

    step: the optimiser step that trains on the rollouts. batch: prompts of the batch of that step. source: "sampler",
    or "earlier" where the trainer's own weights some steps before drew. rollouts: with both log-probabilities, prompt
    after prompt, in groups of one size. products: by correction. norms (B,): ‖s‖, NaN in groups of equal rewards.
    """

    step: int
    batch: int
    source: Source
    rollouts: MismatchedRollouts
    products: dict[str, GradientProducts]
    norms: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """(P, G)."""
        prompts = int(self.rollouts.prompts.max()) + 1
        return prompts, len(self.rollouts.prompts) // prompts

    @property
    def live(self) -> int:
        """Prompts whose rewards differ."""
        return int(np.isfinite(self.norms.reshape(self.shape)).any(1).sum())


def write(run: Path, probe: OffPolicyProbe) -> Path:
    """Write a probe into the folder of a run; returns its file. UserError where that fails."""
    drawn, products = probe.rollouts, list(probe.products.values())
    assert drawn.sampler is not None
    assert drawn.rewards is not None
    behind = np.full(len(drawn.prompts), np.nan) if drawn.behind is None else drawn.behind
    arrays = {
        "format": FORMAT, "step": probe.step, "batch": probe.batch, "source": probe.source, "absent": drawn.absent,
        "lengths": [len(log_ratio) for log_ratio in drawn.log_ratios], "log_ratios": np.concatenate(drawn.log_ratios),
        "sampler": np.concatenate(drawn.sampler), "rewards": drawn.rewards.reshape(probe.shape), "behind": behind,
        "norms": probe.norms, "names": np.array(list(probe.products), np.str_), "full": products[0].full,
        "own": np.stack([product.own for product in products]),
        "cross": np.stack([product.cross for product in products]),
    }  # fmt: skip
    return step_arrays.write(run / FOLDER, probe.step, arrays)


def in_folder(run: Path) -> list[OffPolicyProbe]:
    """The probes in the folder of a run, or of the record in its subfolder `grposcope`, by step.

    UserError for a file that is damaged.
    """
    return sorted(map(_read, step_arrays.in_run(run, FOLDER)), key=lambda probe: probe.step)


def _read(path: Path) -> OffPolicyProbe:
    """The probe in a file; UserError where it is damaged or of a newer format."""
    return step_arrays.read(path, FORMAT, _checked)


def _checked(arrays: dict[str, NDArray]) -> OffPolicyProbe:
    """The probe of these arrays; ValueError where they do not fit together."""
    rewards, lengths, names = arrays["rewards"], arrays["lengths"], [str(name) for name in arrays["names"]]
    prompts, group = rewards.shape
    tokens, pairs = int(lengths.sum()), (len(names), prompts, prompts)
    due = {
        "lengths": (rewards.size,), "behind": (rewards.size,), "norms": (rewards.size,), "log_ratios": (tokens,),
        "sampler": (tokens,), "own": pairs, "cross": pairs, "full": pairs[1:],
    }  # fmt: skip
    for name, shape in due.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} has shape {arrays[name].shape}, not {shape}")
    for name in ("log_ratios", "sampler", "rewards", "own", "cross", "full"):
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} holds values that are not finite")
    for name in names:
        named(name)
    ends, behind = np.cumsum(lengths)[:-1], arrays["behind"]
    rollouts = MismatchedRollouts(
        np.split(arrays["log_ratios"], ends), int(arrays["absent"]), rewards.reshape(-1), None,
        np.repeat(np.arange(prompts), group), True, np.split(arrays["sampler"], ends),
        behind=None if np.isnan(behind).any() else behind,
    )  # fmt: skip
    Ratios.of(rollouts.log_ratios)
    full = arrays["full"]
    products = {
        name: GradientProducts(own, cross, full)
        for name, own, cross in zip(names, arrays["own"], arrays["cross"], strict=True)
    }
    return OffPolicyProbe(
        int(arrays["step"]), int(arrays["batch"]), cast(Source, str(arrays["source"])), rollouts, products,
        arrays["norms"],
    )  # fmt: skip


def joined(parts: Sequence[MismatchedRollouts]) -> MismatchedRollouts:
    """Rollouts of several batches, whose prompts are different ones."""
    before = np.cumsum([0, *(int(drawn.prompts.max()) + 1 for drawn in parts)])
    behind = [drawn.behind for drawn in parts if drawn.behind is not None]
    return MismatchedRollouts(
        [log for drawn in parts for log in drawn.log_ratios],
        sum(drawn.absent for drawn in parts),
        np.concatenate([drawn.rewards for drawn in parts if drawn.rewards is not None]),
        None,
        np.concatenate([drawn.prompts + start for drawn, start in zip(parts, before, strict=False)]),
        True,
        [log for drawn in parts for log in drawn.sampler or ()],
        behind=np.concatenate(behind) if len(behind) == len(parts) else None,
    )


def products(probes: Sequence[OffPolicyProbe]) -> dict[str, GradientProducts]:
    """The products of probes of one size, pooled, by the corrections that all of them have."""
    shared = [name for name in probes[0].products if all(name in probe.products for probe in probes)]
    return {name: error.pooled([probe.products[name] for probe in probes]) for name in shared}
