"""A probe as the record that is written to a folder: `runs.probe` knows the format, this module fills it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grposcope.geometry.layers import Layer
from grposcope.geometry.probe import Probe
from grposcope.geometry.spectrum import Spectrum
from grposcope.geometry.statistics import STATISTICS
from grposcope.runs.probe import (
    CreditShares,
    DeadGroupShares,
    Estimates,
    LayerRecord,
    Measures,
    ProbeGram,
    ProbeRecord,
    ProbeRollout,
    SpectrumRecord,
    WeightingRanks,
)
from grposcope.runs.rollout_source import RolloutSource
from grposcope.tasks.base import Problem
from grposcope.ustat import dead_groups

VALUES = 64
"""Singular values of a matrix that are kept."""


def record(
    probe: Probe, model: str, task: str, seed: int, step: int | None = None, source: RolloutSource | None = None
) -> ProbeRecord:
    """The record of a probe of this model on this task.

    step: the optimiser step of the model. source: of rollouts that were not drawn for the probe.
    """
    pooled, of_prompts = probe.baseline()
    prompts, group = probe.rewards.shape
    return ProbeRecord(
        model=model,
        task=task,
        seed=seed,
        step=step,
        recipe=probe.recipe,
        tier=probe.tier,
        complete=probe.complete,
        prompts=prompts,
        group=group,
        rollouts=prompts * group,
        tokens=int(probe.mask.sum()),
        truncated=float(probe.truncated.mean()),
        solved=float(probe.rewards.mean()),
        self_check=probe.error,
        left_out=probe.left_out,
        share_left_out=probe.share_left_out,
        skipped=probe.skipped,
        weightings={
            name: WeightingRanks(
                Estimates(probe.mean_ranks(name)),
                Measures(probe.rollout_spectrum(name).ranks()),
                Measures(probe.token_spectra[name].ranks()) if name in probe.token_spectra else None,
            )
            for name in probe.weightings
            if name in probe.rollout_grams
        },
        groups=DeadGroupShares(
            dead_groups.share(probe.rewards),
            dead_groups.chance_if_alike(probe.rewards),
            {size: dead_groups.share_in_subsets(probe.rewards, size) for size in (2, 4, 8, 16) if size < group},
        ),
        class_means=probe.class_means(),
        baseline=pooled,
        credit=CreditShares(probe.credit.cancelled, probe.credit.shared, probe.credit.common),
        token_sparsity=Measures(probe.token_sparsity()),
        parameter_sparsity=Estimates(probe.parameters),
        statistics={name: Estimates(statistic(probe)) for name, statistic in STATISTICS.items()},
        layers=tuple(_layer(layer) for layer in probe.layers if layer.spectra),
        baselines=of_prompts,
        source=source,
    )


def gram(probe: Probe) -> ProbeGram:
    """The Gram matrix of all parameters and of each, with the rewards."""
    names = tuple(layer.name for layer in probe.layers)
    layers = np.stack([layer.gram for layer in probe.layers])
    return ProbeGram(probe.gram, probe.rewards, probe.truncated, layers, names)


def rollouts(
    probe: Probe, problems: Sequence[Problem], completions: Sequence[str], tokens: Sequence[Sequence[str]]
) -> list[ProbeRollout]:
    """The rollouts with their numbers per token.

    problems (P,), completions (B,) and tokens (B, length): the texts of the rollouts.
    """
    columns = {
        "weight": probe.weightings[probe.recipe].weights,
        "norm": probe.token_scores.norms,
        "mass": probe.credit.mass,
        "net": probe.credit.net,
    }
    rows = []
    for row, completion in enumerate(completions):
        mask, problem = probe.mask[row], problems[row // probe.rewards.shape[1]]
        rows.append(
            ProbeRollout(
                problem=problem.id,
                prompt=problem.prompt,
                completion=completion,
                reward=float(probe.rewards.flat[row]),
                tokens=tuple(tokens[row]),
                **{name: tuple(column[row][mask].tolist()) for name, column in columns.items()},
                sharers=tuple(probe.credit.sharers[row][mask].tolist()),
            )
        )
    return rows


def _layer(layer: Layer) -> LayerRecord:
    spectra = {name: _spectrum(spectrum) for name, spectrum in layer.spectra.items()}
    norm = float(layer.gram.diagonal().mean()) ** 0.5
    return LayerRecord(layer.name, layer.role, layer.depth, layer.shape, norm, spectra)


def _spectrum(spectrum: Spectrum) -> SpectrumRecord:
    return SpectrumRecord(
        values=tuple(float(f"{v:.6g}") for v in spectrum.values[:VALUES]),
        size=spectrum.size,
        frobenius=spectrum.frobenius,
        left_out=spectrum.left_out,
        ranks=Measures(spectrum.ranks()),
        bounds=None if spectrum.complete else spectrum.bounds(),
    )
