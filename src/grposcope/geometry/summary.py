"""A probe as plain values: what goes into JSON, and the table of a terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from grposcope.geometry.probe import Probe
from grposcope.geometry.spectrum import Spectrum
from grposcope.ustat import dead_groups

SHOWN = ("stable", "participation", "entropy_sq", "energy_90", "energy_99", "threshold_0.1")
"""The ranks in the terminal's table; JSON has all."""


def summary(found: Probe) -> dict[str, Any]:
    """Everything but the single layers and tokens."""
    pooled, _ = found.baseline()
    prompts, group = found.rewards.shape
    names = [name for name in found.settings if name in found.rollout_grams]
    return {
        "recipe": found.recipe,
        "tier": found.tier,
        "complete": found.complete,
        "prompts": prompts,
        "group": group,
        "rollouts": prompts * group,
        "tokens": int(found.mask.sum()),
        "truncated": float(found.truncated.mean()),
        "solved": float(found.rewards.mean()),
        "self_check": found.error,
        "left_out": list(found.left_out),
        "share_left_out": found.share_left_out,
        "skipped": found.skipped,
        "settings": {
            name: {
                "layer": {rank: asdict(value) for rank, value in found.mean_ranks(name).items()},
                "rollout": found.rollout_spectrum(name).ranks(),
                "token": found.token_spectra[name].ranks() if name in found.token_spectra else None,
            }
            for name in names
        },
        "groups": {
            "dead": asdict(dead_groups.share(found.rewards)),
            "dead_if_alike": dead_groups.chance_if_alike(found.rewards),
            "dead_at": {
                size: asdict(dead_groups.share_in_subsets(found.rewards, size))
                for size in (2, 4, 8, 16)
                if size < group
            },
        },
        "two_classes": {name: asdict(value) for name, value in found.two_classes().items()},
        "baseline": {**{name: asdict(value) for name, value in vars(pooled).items()}, "verdict": pooled.verdict()},
        "credit": {name: getattr(found.credit, name) for name in ("cancelled", "shared", "common")},
        "token_sparsity": found.token_sparsity(),
        "parameter_sparsity": {name: asdict(value) for name, value in found.parameters.items()},
    }


def layers(found: Probe) -> list[dict[str, Any]]:
    """Every matrix with its spectra, for plots by layer and depth."""
    return [
        {
            "name": layer.name,
            "role": layer.role,
            "depth": layer.depth,
            "shape": list(layer.shape),
            "score_norm": float(layer.gram.diagonal().mean()) ** 0.5,
            "spectra": {name: _spectrum(one) for name, one in layer.spectra.items()},
        }
        for layer in found.layers
        if layer.spectra
    ]


def prompts(found: Probe) -> list[dict[str, Any]]:
    """The baseline of every prompt."""
    return [
        {"prompt": number, **{name: asdict(value) for name, value in vars(one).items()}, "verdict": one.verdict()}
        for number, one in enumerate(found.baseline()[1])
    ]


def tokens(found: Probe, row: int) -> dict[str, list[float]]:
    """What each token of one rollout carries: its weight, score norm, mass, sharers, and what is left of the mass."""
    kept = found.mask[row]
    return {
        "weight": found.settings[found.recipe].weights[row][kept].tolist(),
        "norm": found.view.norms[row][kept].tolist(),
        "mass": found.credit.mass[row][kept].tolist(),
        "net": found.credit.net[row][kept].tolist(),
        "sharers": found.credit.sharers[row][kept].tolist(),
    }


def table(found: Probe) -> str:
    """Ranks by setting, as text."""
    rows: list[tuple[str, ...]] = [("credit", *SHOWN, "rollouts", "tokens")]
    for name in found.settings:
        if name not in found.rollout_grams:
            continue
        ranks = found.mean_ranks(name)
        token = found.token_spectra.get(name)
        rows.append(
            (
                name,
                *(f"{ranks[rank].value:.2f}" for rank in SHOWN),
                f"{found.rollout_spectrum(name).ranks()['stable']:.2f}",
                f"{token.ranks()['stable']:.2f}" if token else "-",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{c:>{w}}" if i else f"{c:<{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )


def by_depth(found: Probe) -> dict[int, float]:
    """Mean stable rank of the recipe's gradient over the matrices of each block."""
    cells: dict[int, list[float]] = {}
    for layer in found.layers:
        if layer.depth is not None and found.recipe in layer.spectra:
            cells.setdefault(layer.depth, []).append(layer.spectra[found.recipe].ranks()["stable"])
    return {depth: sum(values) / len(values) for depth, values in sorted(cells.items())}


def _spectrum(one: Spectrum) -> dict[str, Any]:
    return {
        "values": [float(f"{v:.6g}") for v in one.values[:64]],
        "size": one.size,
        "frobenius": one.frobenius,
        "left_out": one.left_out,
        "ranks": one.ranks(),
        "bounds": None if one.complete else {name: list(pair) for name, pair in one.bounds().items()},
    }
