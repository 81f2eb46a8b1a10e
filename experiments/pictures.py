"""Pictures of what the experiments on the papers' claims found, from their folders of results.

    python experiments/pictures.py --results runs --out docs/pictures

--results has a folder of each experiment, named as its script: dynamics_closed_form, dynamics_constant_lag,
dynamics_size, dynamics_threshold, dynamics_transfer, geometry_group_rank, offpolicy_length, ustat_best_group,
ustat_gap, ustat_shrunk_training, ustat_universality_seeds. What is missing or has too few seeds is left out and named.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from dynamics_closed_form import GROUPS as CURVE_GROUPS
from dynamics_closed_form import MODELS, NETWORKS
from dynamics_threshold import half
from dynamics_transfer import FAMILIES, GROUPS, TRAINED
from scipy import stats
from ustat_best_group import STEPS
from ustat_best_group_power import CHECKPOINTS
from ustat_best_group_power import GROUPS as GROUP_SIZES
from ustat_shrunk_training import ARMS as BASELINES

from grposcope.core.answer import Columns, Figure
from grposcope.instruments.evaluation import record as evaluation
from grposcope.render import charts as base
from grposcope.render.charts import export

TITLES = {
    "dynamics_closed_form": "Forecast error of four curves, ÷ that of the last level",
    "dynamics_constant_lag": "Largest stable lag of exact runs, over what three rules say",
    "dynamics_size": "Stiffest curvature and time to half of the reward, over size",
    "dynamics_threshold": "Refresh interval at which half of the sampled runs are lost",
    "dynamics_transfer": "Held-out pass@1 by family and group size of the training",
    "geometry_group_rank": "Rank of the rows A ψ of a group at R = 8 over training, eight seeds",
    "offpolicy_length": "Share of a completion's weight that a correction keeps, over its length",
    "ustat_best_group": "Held-out pass@1 by group size at 256 rollouts a step",
    "ustat_gap": "Gap of the learned policy, ÷ that of the oracle baseline",
    "ustat_shrunk_training": "Held-out pass@1 on hard prompts at G = 4, by baseline",
    "ustat_universality_seeds": "Best group size over training, a line a seed",
}


def columns(rows: list[tuple[Any, ...]], *names: str) -> dict[str, Columns]:
    """Rows as the one data set of a figure, `rows`."""
    return {"rows": {name: [row[i] for row in rows] for i, name in enumerate(names)}}


def estimate(values: list[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % t interval."""
    half_width = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return float(np.mean(values)), float(np.mean(values)) - half_width, float(np.mean(values)) + half_width


def shades(names: list[str]) -> alt.Color:
    """A colour of each name, with a legend."""
    return base.colours("name", base.palette(names), alt.Legend(columns=4))


def figure(name: str, layers: list[alt.Chart], data: dict[str, Columns]) -> Figure:
    """A figure with the title of its experiment."""
    return base.figure(name, TITLES[name], layers, data)


def read(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """The results of the folder, a file each."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def closed_form(folder: Path) -> Figure:
    """Error of the second half, ÷ that of the last level, of each kind of curve in each cell, with 95 % intervals."""
    runs, rows = read(folder, "*.json"), []
    for network in NETWORKS:
        for k, group in enumerate(CURVE_GROUPS):
            own = [run["rows"][k] for run in runs if run["network"] == network]
            for model in MODELS:
                logs = [math.log(one[model]["error"] / one["level"]) for one in own]
                rows.append((f"{network}, G = {group}", model, *np.exp(estimate(logs)).tolist()))
    x = alt.X("value:Q").axis(title="÷ last level", format="~g").scale(type="log", nice=False)
    points = base.dataset("rows").encode(
        x, alt.Y("cell:N").axis(labelLimit=200), shades(list(MODELS)), yOffset=alt.YOffset("name:N")
    )
    layers = [
        points.mark_rule(strokeWidth=2, opacity=0.5).encode(alt.X("low:Q"), alt.X2("high")),
        points.mark_point(filled=True, size=50, opacity=1),
    ]
    return figure("dynamics_closed_form", layers, columns(rows, "cell", "name", "value", "low", "high"))


def size(folder: Path) -> Figure:
    """κ and τ of each network, ÷ those of the smallest of its seed, over the number of parameters."""
    runs = {(run["width"], run["seed"]): run for run in read(folder, "w*-s*.json")}
    least = min(width for width, _ in runs)
    rows = []
    for (_, seed), run in runs.items():
        if (first := runs.get((least, seed))) is not None:
            kinds = ("κ", run["kappa"] / first["kappa"]), ("τ", run["times"]["0.5"] / first["times"]["0.5"])
            rows += [(run["parameters"], seed, name, value) for name, value in kinds]
    points = base.dataset("rows").encode(
        alt.X("parameters:Q").axis(title="parameters", format="~s").scale(type="log", nice=False),
        alt.Y("value:Q").axis(title="÷ smallest network", format="~g").scale(type="log", nice=False),
        shades(["κ", "τ"]),
    )
    layers = [points.mark_line(opacity=0.4).encode(detail="seed:N"), points.mark_point(filled=True, size=40)]
    return figure("dynamics_size", layers, columns(rows, "parameters", "seed", "name", "value"))


def threshold(folder: Path) -> Figure:
    """N* of the mean dynamics against the interval at which half of the sampled runs are lost, a point a world."""
    rows = []
    for world in read(folder, "?-*.json"):
        middle = half(world["intervals"], world["lost"])[0]
        if math.isfinite(middle):
            rows.append((world["thresholds"]["mean"], middle, f"setting {world['setting']}"))
    both = [value for row in rows for value in row[:2]]
    ends = [0.8 * min(both), 1.25 * max(both)]
    x = alt.X("predicted:Q").axis(title="N* of the mean dynamics", format="~g").scale(type="log", domain=ends)
    y = alt.Y("seen:Q").axis(title="N½ of the sampled runs", format="~g").scale(type="log", domain=ends)
    layers = [
        base.dataset("even").mark_line(strokeDash=[4, 4], color="var(--muted)").encode(x, y),
        base.dataset("rows").mark_point(filled=True, size=60).encode(x, y, shades(sorted({row[2] for row in rows}))),
    ]
    data = columns(rows, "predicted", "seen", "name") | {"even": {"predicted": ends, "seen": ends}}
    return figure("dynamics_threshold", layers, data)


def gap(folder: Path) -> Figure:
    """Gap of each way to a baseline, ÷ the oracle's at the same group size and the longest run, a point a world."""
    rows = []
    for world in read(folder, "world-*.json"):
        cells = {(cell["method"], cell["group"]): cell for cell in world["cells"]}
        last = list(cells["oracle", 2]["mean"])[-1]
        for (method, group), cell in cells.items():
            if method not in ("oracle", "standard"):
                rows.append((f"{group}", method, cell["mean"][last] / cells["oracle", group]["mean"][last]))
    names = sorted({row[1] for row in rows})
    points = base.dataset("rows").encode(
        alt.X("group:N", sort=["2", "8", "32"]).axis(title="G", labelAngle=0),
        alt.Y("value:Q").axis(title="÷ oracle", format="~g").scale(type="log", nice=False),
        shades(names),
        xOffset=alt.XOffset("name:N"),
    )
    even = base.dataset("even").mark_rule(strokeDash=[4, 4], color="var(--muted)").encode(alt.Y("value:Q"))
    data = columns(rows, "group", "name", "value") | {"even": {"value": [1.0]}}
    return figure("ustat_gap", [even, points.mark_point(filled=True, size=50)], data)


def transfer(folder: Path) -> Figure:
    """Mean pass@1 over trainings of each family and G, with 95 % intervals over seeds; before training as a tick."""
    rows, before = [], []
    for family in (TRAINED, *FAMILIES):
        for place in sorted((folder / "evaluations").iterdir()):
            if place.name == "start":
                before.append((short(family), score(place, family)))
        for group in GROUPS:
            found = [score(place, family) for place in sorted((folder / "evaluations").glob(f"{group}-*"))]
            rows.append((short(family), f"G = {group}", *estimate(found)))
    x = alt.X("value:Q").axis(title="pass@1", format="~%")
    y = alt.Y("family:N", sort=[short(one) for one in (TRAINED, *FAMILIES)]).axis(labelLimit=200)
    points = base.dataset("rows").encode(
        x, y, shades([f"G = {group}" for group in GROUPS]), yOffset=alt.YOffset("name:N")
    )
    layers = [
        base.dataset("before").mark_tick(thickness=2, color="var(--muted)").encode(x, y),
        points.mark_rule(strokeWidth=2, opacity=0.5).encode(alt.X("low:Q"), alt.X2("high")),
        points.mark_point(filled=True, size=50, opacity=1),
    ]
    start: Columns = {"family": [row[0] for row in before], "value": [row[1] for row in before]}
    return figure(
        "dynamics_transfer", layers, columns(rows, "family", "name", "value", "low", "high") | {"before": start}
    )


def short(family: str) -> str:
    """A family of sums by its option."""
    return family.removeprefix("arithmetic:") if family != TRAINED else "as trained"


def score(place: Path, family: str) -> float:
    """Mean pass@1 of an evaluation on a family."""
    rows = next(some for (_, task), some in evaluation.read(place).rows.items() if task == family)
    return float(np.mean([row.right / len(row.completions) for row in rows]))


def baselines(folder: Path) -> Figure:
    """Mean pass@1 over seeds of each arm over the rollouts drawn, with its standard error."""
    found = json.loads((folder / "report.json").read_text())
    rows = [
        (256 * step, BASELINES[arm], mean, mean - error, mean + error)
        for arm, (means, errors) in found["curves"].items()
        for step, mean, error in zip(found["steps"], means, errors, strict=True)
    ]
    x = alt.X("rollouts:Q").axis(title="rollouts", format="~s")
    lines = base.dataset("rows").encode(x, shades(list(BASELINES.values())))
    layers = [
        lines.mark_rule(opacity=0.5).encode(alt.Y("low:Q"), alt.Y2("high")),
        base.dotted_line(lines).encode(alt.Y("value:Q").axis(title="pass@1", format="~%").scale(zero=False)),
    ]
    return figure("ustat_shrunk_training", layers, columns(rows, "rollouts", "name", "value", "low", "high"))


def ranks(folder: Path) -> Figure:
    """Rank of the rows at R = 8, uncut and cut at two, and of orthogonal rows: means over seeds at each probe."""
    found = json.loads((folder / "training.json").read_text())["curves"]
    kinds = {"group_rank_null": "orthogonal rows, 4K(R−K)/R", "group_rank": "uncut", "group_rank_of_two": "cut at two"}
    rows = [
        (
            1 + 5 * probe,
            name,
            float(np.mean(at)),
            float(np.mean(at) - stats.sem(at)),
            float(np.mean(at) + stats.sem(at)),
        )
        for kind, name in kinds.items()
        for probe, at in enumerate(np.array([one[kind] for one in found]).T)
    ]
    lines = base.dataset("rows").encode(alt.X("step:Q").axis(title="step"), shades(list(kinds.values())))
    layers = [
        lines.mark_rule(opacity=0.5).encode(alt.Y("low:Q"), alt.Y2("high")),
        base.dotted_line(lines).encode(alt.Y("value:Q").axis(title="r_eff", format="~g")),
    ]
    return figure("geometry_group_rank", layers, columns(rows, "step", "name", "value", "low", "high"))


def lags(folder: Path) -> Figure:
    """The last stable lag over what a rule calls the last stable one: above 1 the rule is safe."""
    kinds = {"K*": "K*", "rule": "κηK < 1 − μ", "N*": "N* (of refreshes)"}
    rows = [
        (f"β = {cell['beta']:g}, ηκ = {cell['pull']:g}", name, (cell["first_unstable"] - 1) / cell[kind])
        for cell in json.loads((folder / "cells.json").read_text())["cells"]
        for kind, name in kinds.items()
        if cell[kind] > 0
    ]
    points = base.dataset("rows").encode(
        alt.Y("cell:N").axis(labelLimit=200),
        alt.X("value:Q").axis(title="seen ÷ rule", format="~g"),
        shades(list(kinds.values())),
        yOffset=alt.YOffset("name:N"),
    )
    even = base.dataset("even").mark_rule(strokeDash=[4, 4], color="var(--muted)").encode(alt.X("value:Q"))
    data = columns(rows, "cell", "name", "value") | {"even": {"value": [1.0]}}
    return figure("dynamics_constant_lag", [even, points.mark_point(filled=True, size=40)], data)


def best_group(folder: Path) -> Figure:
    """Mean pass@1 over seeds of each group size over training, with its 95 % interval."""
    values = np.array(json.loads((folder / "report.json").read_text())["pass@1"])  # seeds, checkpoints, groups
    steps = [(k + 1) * STEPS // CHECKPOINTS for k in range(CHECKPOINTS)]
    names = [f"G = {group}" for group in GROUP_SIZES]
    rows = [
        (step, name, *estimate(values[:, k, g].tolist()))
        for g, name in enumerate(names) for k, step in enumerate(steps)
    ]  # fmt: skip
    lines = base.dataset("rows").encode(alt.X("step:Q").scale(zero=False), shades(names))
    layers = [
        lines.mark_rule(opacity=0.5).encode(alt.Y("low:Q"), alt.Y2("high")),
        base.dotted_line(lines).encode(alt.Y("value:Q").axis(title="pass@1", format="~%").scale(zero=False)),
    ]
    return figure("ustat_best_group", layers, columns(rows, "step", "name", "value", "low", "high"))


def universality(folder: Path) -> Figure:
    """G* by stage of the training, a line a seed."""
    found = json.loads((folder / "rows.json").read_text())
    rows = [(place, seed, stage["best"]) for seed, stages in enumerate(found) for place, stage in stages.items()]
    line = base.dotted_line(base.dataset("rows")).encode(
        alt.X("stage:N", sort=["start", "middle", "end"]).axis(labelAngle=0),
        alt.Y("value:Q").axis(title="G*", format="~g").scale(zero=False),
        detail="seed:N",
    )
    return figure("ustat_universality_seeds", [line], columns(rows, "stage", "seed", "value"))


def length(folder: Path) -> Figure:
    """Kept weight of TRL's mask and verl's band over length: a line for each spread of log ρ, points simulated."""
    dashes = {"sequence_mask:3": [1, 0], "geometric_band:0.999,1.001": [6, 4]}
    found = [row for row in json.loads((folder / "rows.json").read_text()) if row["correction"] in dashes]
    rows = [
        (row["tokens"], row["weight"], row["simulated"], f"s = {row['spread']:g}", row["correction"]) for row in found
    ]
    dash = alt.StrokeDash(
        "correction:N", legend=alt.Legend(columns=2, symbolSize=900, labelLimit=200, symbolStrokeColor="var(--muted)"),
        scale=alt.Scale(domain=list(dashes), range=list(dashes.values())),
    )  # fmt: skip
    x = alt.X("tokens:Q").axis(title="tokens", format="~s").scale(type="log", nice=False)
    colour = shades(list(dict.fromkeys(row[3] for row in rows)))
    layers = [
        base.dataset("rows")
        .mark_line(strokeWidth=2)
        .encode(x, alt.Y("weight:Q").axis(title="kept weight"), colour, dash),
        base.dataset("rows").mark_point(filled=True, size=30).encode(x, alt.Y("simulated:Q"), colour),
    ]
    return figure("offpolicy_length", layers, columns(rows, "tokens", "weight", "simulated", "name", "correction"))


PICTURES: dict[str, Callable[[Path], Figure]] = {
    "dynamics_closed_form": closed_form,
    "dynamics_constant_lag": lags,
    "dynamics_size": size,
    "dynamics_threshold": threshold,
    "dynamics_transfer": transfer,
    "geometry_group_rank": ranks,
    "offpolicy_length": length,
    "ustat_best_group": best_group,
    "ustat_gap": gap,
    "ustat_shrunk_training": baselines,
    "ustat_universality_seeds": universality,
}


def main() -> None:
    """Draw what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, required=True, help="folder with a folder of each experiment")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    given = parser.parse_args()
    for name, draw in PICTURES.items():
        try:
            print(*export([draw(given.results / name)], given.out, "png"))
        except (FileNotFoundError, ValueError) as error:
            print(f"{name}: not drawn, {error}")


if __name__ == "__main__":
    main()
