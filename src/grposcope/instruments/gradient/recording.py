"""A probe as the record that is written to a folder: `instruments.gradient.probe_record` knows the format, this module
fills it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.instruments.gradient.layers import Layer
from grposcope.instruments.gradient.probe import Probe
from grposcope.instruments.gradient.probe_record import (
    Estimates,
    LayerRecord,
    Measures,
    ProbeGram,
    ProbeRecord,
    SpectrumRecord,
)
from grposcope.instruments.gradient.rollout_source import RolloutSource
from grposcope.instruments.gradient.spectrum import Spectrum
from grposcope.instruments.gradient.statistics import STATISTICS
from grposcope.lab.tasks.base import Problem
from grposcope.maths.turn_moments import TurnSavings

VALUES = 64
"""Singular values of a matrix that are kept."""


def record(
    probe: Probe,
    model: str,
    task: str,
    seed: int,
    step: int | None = None,
    source: RolloutSource | None = None,
    turns: TurnSavings | None = None,
) -> ProbeRecord:
    """The record of a probe of this model on this task.

    step: the optimiser step of the model. source: of rollouts that were not drawn for the probe. turns: of rollouts
    with several.
    """
    prompts, group = probe.rewards.shape
    names = {field.name for field in fields(ProbeRecord)}
    ranks = probe.group_ranks()
    measured: dict[str, Any] = {name: statistic(probe) for name, statistic in STATISTICS.items()}
    return ProbeRecord(
        model=model,
        task=task,
        seed=seed,
        step=step,
        recipe=probe.recipe,
        comparison=probe.comparison,
        tier=probe.tier,
        complete=probe.complete,
        prompts=prompts,
        group=group,
        rollouts=prompts * group,
        self_check=probe.error,
        left_out=probe.left_out,
        share_left_out=probe.share_left_out,
        skipped=probe.skipped,
        statistics={name: Estimates(estimates) for name, estimates in measured.items() if name not in names},
        turns=turns,
        layers=tuple(_layer(layer, Measures(ranks.of_layer(row))) for row, layer in enumerate(probe.matrices)),
        source=source,
        **{name: estimates for name, estimates in measured.items() if name in names},
    )


def gram(probe: Probe) -> ProbeGram:
    """The Gram matrix of all parameters and of each, with the rewards."""
    names = tuple(layer.name for layer in probe.layers)
    layers = np.stack([layer.gram for layer in probe.layers])
    return ProbeGram(probe.gram, probe.rewards, probe.truncated, layers, names)


def rollouts(
    probe: Probe, problems: Sequence[Problem], completions: Sequence[str], tokens: Sequence[Sequence[str]]
) -> list[Rollout]:
    """The rollouts with their numbers per token.

    problems (P,), completions (B,) and tokens (B, length): the texts of the rollouts.
    """
    weights = probe.weightings[probe.recipe].weights
    measures = {
        "norm": probe.token_scores.norms,
        "mass": probe.credit.mass,
        "net": probe.credit.net,
        "sharers": probe.credit.sharers,
    }
    rows = []
    for row, completion in enumerate(completions):
        mask, problem = probe.mask[row], problems[row // probe.rewards.shape[1]]
        rows.append(
            Rollout(
                problem=problem.id,
                prompt=problem.prompt,
                completion=completion,
                reward=float(probe.rewards.flat[row]),
                tokens=tuple(tokens[row]),
                loss_weights=np.asarray(weights[row][mask], np.float64),
                measures={name: np.asarray(column[row][mask], np.float64) for name, column in measures.items()},
            )
        )
    return rows


def _layer(layer: Layer, group_rank: Measures) -> LayerRecord:
    spectra = {name: _spectrum(spectrum) for name, spectrum in layer.spectra.items()}
    norm = float(layer.gram.diagonal().mean()) ** 0.5
    return LayerRecord(layer.name, layer.role, layer.depth, layer.shape, norm, spectra, group_rank)


def _spectrum(spectrum: Spectrum) -> SpectrumRecord:
    return SpectrumRecord(
        values=tuple(float(f"{v:.6g}") for v in spectrum.values[:VALUES]),
        size=spectrum.size,
        frobenius=spectrum.frobenius,
        left_out=spectrum.left_out,
        ranks=Measures(spectrum.ranks()),
        bounds=None if spectrum.complete else spectrum.bounds(),
    )
