"""Experiment: whether a forecast of a reward beats its last level, on public runs of sources it was not learned on.

Rule of judging. A place is a run of at least 90 rewards, cut at 30, 50 or 70 %. Its score is the root mean square
error of the expected rewards over all that came, ÷ that of the mean of the last tenth of what was seen; scores are
averaged as geometric means, with an interval from a bootstrap over sources (owners of repositories). A verdict of
rising or declining is right if the mean of the last tenth of what came lies on that side of the level, beyond its own
standard error; flat is right if it lies within the margin that was said of the level, give or take that standard error.
It holds if, on sources left out: the interval of the score ends below 1, no kind of curve is above 1.05, no place above
1.3, the 90 % band holds 87 to 93 % of what came, and at least 30 % of the verdicts are not "cannot tell", 90 % of them
right.

SETTLED are the sources on which the constants were chosen; the others were scored once, when the choice was made.
`--learn` chooses again. Of a grid of temper and keep it takes those whose mean logarithm of the score, plus 0.2 of what
a place is above log 1.3, is within 0.002 of the best; of them the least keep, then the least temper, since what a
forecast does not say cannot mislead. Then it takes the spread whose coverage, in the mean over sources, is nearest to
90 %. It scores each tenth of the settled sources with the constants of the other nine. Simulated curves of known kinds
are the control.

    python experiments/dynamics_forecast.py [--learn] [--unseen]      some minutes on one core
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from forecast_corpus import load
from numpy.typing import NDArray
from scipy.signal import lfilter

from grposcope.dynamics import fit
from grposcope.errors import UserError
from grposcope.timeseries.forecast import level_ahead
from grposcope.timeseries.forecast_prior import LEARNED
from grposcope.timeseries.level_path import Prior
from grposcope.timeseries.model_comparison import last_level
from grposcope.timeseries.reward_curve import RewardCurve, clean
from grposcope.timeseries.reward_range import inferred

Floats = NDArray[np.float64]

ORIGINS = (0.3, 0.5, 0.7)
LEAST = 90
SETTLED = frozenset({
    "alexchilton", "anishmah100", "arvindcr4", "beibeizzz", "bsvaz", "dzungphieuluuky", "haoranluo", "hasonsk",
    "jg-eno", "jorahn", "joshsalako", "kevindic0214", "madhurachanna", "manojpatil123", "matthewchung74", "monaim1",
    "neuromorphs", "ning-guo", "pranays676", "qhy991", "radar-lei", "ragharao314159", "s-haider10", "seg-man",
    "th3ctrlkey", "tkg31302", "wallacexuhanxiao", "xun-3", "yuiseki", "unslothai", "rohunagrawal", "jianghoucheng",
    "imjonezz", "abdo-ashraf",
})  # fmt: skip
GRID = [Prior(temper, keep, 1.0) for temper, keep in itertools.product((0.2, 0.4, 0.7), (0.3, 0.4, 0.5, 0.6, 0.8))]
SPREADS = (0.6, 0.8, 1.0, 1.2, 1.4)
SIMULATED = ("saturates early", "rises and declines", "flat", "straight", "late take-off", "logistic", "wanders",
             "declines", "near the ceiling", "falls at once")  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """A reward curve with its source and its kind."""

    source: str
    kind: str
    series: RewardCurve


@dataclass(frozen=True)
class Place:
    """A curve cut after `seen` rewards."""

    curve: Curve
    origin: float
    past: RewardCurve
    later: Floats
    truth: Floats

    @property
    def base(self) -> float:
        """Error of the last level."""
        return rmse(last_level(self.past.reward), self.truth)

    @property
    def tail(self) -> tuple[float, float]:
        """Mean of the last tenth of what came, and its standard error."""
        part = self.truth[-max(3, len(self.truth) // 10) :]
        return float(part.mean()), float(part.std(ddof=1)) / math.sqrt(len(part))


def rmse(a: Floats | float, b: Floats) -> float:
    """Root mean square difference."""
    return float(np.sqrt(np.mean((a - b) ** 2)))


def public() -> list[Curve]:
    """The runs of the corpus that are long enough."""
    curves = []
    for run in load():
        try:
            series = clean(run.columns["step"], run.columns["reward"])
        except UserError:
            continue
        if len(series.reward) >= LEAST and not series.constant:
            curves.append(Curve(run.owner, run.descriptor.kind, series))
    return curves


def simulated(seed: int, count: int = 8) -> list[Curve]:
    """Curves of 100 to 500 rewards by kind.

    Half are unbounded, with noise of lag-one autocorrelation up to 0.6; half are shares of solved rollouts.
    """
    random = np.random.default_rng(seed)
    curves = []
    for kind, i in itertools.product(SIMULATED, range(count)):
        n = int(random.choice([100, 200, 500]))
        u = np.arange(1.0, n + 1) / n
        peak, middle = random.uniform(0.2, 0.6), random.uniform(0.1, 0.5)
        shape = {
            "saturates early": 1 - np.exp(-u / random.uniform(0.03, 0.15)),
            "rises and declines": np.where(u < peak, u / peak, 1 - (u - peak) / (1 - peak) * random.uniform(0.4, 1)),
            "flat": 0 * u,
            "straight": u,
            "late take-off": 1 / (1 + np.exp(-(u - middle - 0.4) * random.uniform(10, 40))),
            "logistic": 1 / (1 + np.exp(-(u - middle) * random.uniform(8, 25))),
            "wanders": np.cumsum(random.standard_normal(n)) / math.sqrt(n),
            "declines": 1 - u ** random.uniform(0.5, 2),
            "near the ceiling": 1 - np.exp(-u / random.uniform(0.1, 0.3)),
            "falls at once": 1 - np.exp(-u / 0.1) - (u > random.uniform(0.4, 0.9)) * random.uniform(0.5, 1),
        }[kind]
        if i % 2 or kind == "near the ceiling":
            low = random.uniform(0.05, 0.4)
            high = random.uniform(0.9, 0.995) if kind == "near the ceiling" else random.uniform(low + 0.05, 0.97)
            rollouts = int(random.choice([32, 128, 512]))
            scaled = (shape - shape.min()) / max(float(np.ptp(shape)), 1.0 if kind == "flat" else 1e-9)
            reward = random.binomial(rollouts, np.clip(low + (high - low) * scaled, 0, 1)) / rollouts
        else:
            rho, rise = random.choice([0.0, 0.3, 0.6]), math.exp(random.uniform(math.log(1.5), math.log(15)))
            noise = lfilter([math.sqrt(1 - rho**2)], [1, -rho], random.standard_normal(n + 50))[50:]
            reward = rise * shape + noise
        curves.append(Curve(kind, kind, RewardCurve(np.arange(1.0, n + 1), reward)))
    return curves


def places(curves: Sequence[Curve]) -> list[Place]:
    """Every curve at every origin; where the last level makes no error there is nothing to divide by."""
    found = []
    for curve, origin in itertools.product(curves, ORIGINS):
        series, n = curve.series, round(origin * len(curve.series.reward))
        past = RewardCurve(series.steps[:n], series.reward[:n])
        place = Place(curve, origin, past, series.steps[n:], series.reward[n:])
        if not past.constant and place.base > 0:
            found.append(place)
    return found


def judged(place: Place, prior: Prior = LEARNED) -> dict:
    """Score, coverage and verdict of the forecast at one place."""
    ahead = fit.forecast(place.past.steps, place.past.reward, place.later, prior=prior)
    tail, error = place.tail
    change = tail - ahead.level.value
    right = {
        "rising": change > error,
        "declining": change < -error,
        "flat": abs(change) <= ahead.margin + error,
        "cannot tell": True,
    }[ahead.verdict]
    fifth = float(place.past.reward[-max(1, round(0.2 * len(place.past.reward))) :].mean())
    return {
        "source": place.curve.source,
        "kind": place.curve.kind,
        "origin": place.origin,
        "score": rmse(ahead.mean, place.truth) / place.base,
        "last fifth": rmse(fifth, place.truth) / place.base,
        "future mean (oracle)": rmse(float(place.truth.mean()), place.truth) / place.base,
        "covered": float(((ahead.low <= place.truth) & (place.truth <= ahead.high)).mean()),
        "verdict": ahead.verdict,
        "right": bool(right),
        "strictly": bool(right and (ahead.verdict != "flat" or abs(change) <= ahead.margin)),
    }


def geometric(rows: Sequence[dict], name: str) -> float:
    """Geometric mean of a column."""
    return float(np.exp(np.mean([math.log(max(row[name], 1e-3)) for row in rows])))


def bootstrap(rows: Sequence[dict], statistic: Callable[[list[dict]], float], draws: int = 1000) -> tuple[float, float]:
    """95 % interval of a statistic of the rows, by drawing sources."""
    random = np.random.default_rng(0)
    by_source: dict[str, list[dict]] = {}
    for row in rows:
        by_source.setdefault(row["source"], []).append(row)
    groups = list(by_source.values())
    values = []
    for _ in range(draws):
        picked = random.integers(0, len(groups), len(groups))
        values.append(statistic([row for i in picked for row in groups[i]]))
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))


def report(title: str, rows: Sequence[dict]) -> None:
    """Print every figure of the rule."""
    print(f"\n{title}: {len(rows)} places, {len({row['source'] for row in rows})} sources")
    for name in ("score", "last fifth", "future mean (oracle)"):
        low, high = bootstrap(rows, lambda some, name=name: geometric(some, name))
        worst = max(row[name] for row in rows)
        print(f"  {name}: {geometric(rows, name):.3f} [{low:.3f}, {high:.3f}], worst {worst:.2f}, "
              f"{sum(row[name] > 1.3 for row in rows)} above 1.3")  # fmt: skip
    low, high = bootstrap(rows, lambda some: float(np.mean([row["covered"] for row in some])))
    print(f"  coverage of the 90 % band: {np.mean([row['covered'] for row in rows]):.3f} [{low:.3f}, {high:.3f}]")
    for key in ("kind", "origin"):
        for value in sorted({row[key] for row in rows}, key=str):
            some = [row for row in rows if row[key] == value]
            print(f"    {value}: {len(some)} places, score {geometric(some, 'score'):.3f}, "
                  f"worst {max(row['score'] for row in some):.2f}, "
                  f"coverage {np.mean([row['covered'] for row in some]):.3f}")  # fmt: skip
    told = [row for row in rows if row["verdict"] != "cannot tell"]
    print(f"  verdicts: {len(told)} of {len(rows)} places, {sum(row['right'] for row in told)} right")
    for verdict in ("rising", "declining", "flat"):
        some = [row for row in told if row["verdict"] == verdict]
        strictly = f", {sum(row['strictly'] for row in some)} within the margin itself" if verdict == "flat" else ""
        print(f"    {verdict}: {len(some)}, {sum(row['right'] for row in some)} right{strictly}")


def learn(some: Sequence[Place]) -> tuple[Prior, list[dict]]:
    """The constants chosen on all these places, and each tenth of their sources scored with those of the others."""
    logs = np.empty((len(GRID), len(some)))
    for j, place in enumerate(some):
        limits = inferred(place.past.reward)
        for i, prior in enumerate(GRID):
            mean = level_ahead(place.past, place.later, limits, prior=prior)[0].mean
            logs[i, j] = math.log(rmse(mean, place.truth) / place.base)
    loss = logs + 0.2 * np.maximum(logs - math.log(1.3), 0)
    sources = np.array([place.curve.source for place in some])
    covered = np.empty((len(SPREADS), len(some)))
    for i, spread in enumerate(SPREADS):
        prior = replace(LEARNED, spread=spread)
        covered[i] = [judged(place, prior)["covered"] for place in some]
    print("\nmean score by temper and keep")
    for prior, row in zip(GRID, logs, strict=True):
        print(f"  {prior.temper}, {prior.keep}: {np.exp(row.mean()):.4f}, worst {np.exp(row.max()):.2f}")
    print("coverage by spread: " + ", ".join(f"{s}: {c:.3f}" for s, c in zip(SPREADS, covered.mean(1), strict=True)))

    def chosen(use: NDArray[np.bool_]) -> Prior:
        losses = loss[:, use].mean(1)
        close = [prior for prior, value in zip(GRID, losses, strict=True) if value <= losses.min() + 0.002]
        by_source = [covered[:, use & (sources == source)].mean(1) for source in np.unique(sources[use])]
        spread = SPREADS[int(np.abs(np.mean(by_source, axis=0) - 0.9).argmin())]
        return replace(min(close, key=lambda prior: (prior.keep, prior.temper)), spread=spread)

    rows = []
    for fold in np.array_split(np.random.default_rng(0).permutation(np.unique(sources)), 10):
        left = np.isin(sources, fold)
        rows += [judged(place, chosen(~left)) for place, out in zip(some, left, strict=True) if out]
    return chosen(np.ones(len(some), bool)), rows


def main() -> None:
    """Print the figures of the rule on settled sources, sources left out, and simulated curves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--learn", action="store_true", help="choose the constants again on the settled sources")
    parser.add_argument("--unseen", action="store_true", help="score the sources that were left out")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated curves (default: 0)")
    arguments = parser.parse_args()
    curves = public()
    settled = places([curve for curve in curves if curve.source in SETTLED])
    if arguments.learn:
        best, rows = learn(settled)
        print(f"\nchosen: temper {best.temper}, keep {best.keep}, spread {best.spread}")
        report("settled sources, each tenth with the constants of the others", rows)
    report("settled sources", [judged(place) for place in settled])
    parts = {"simulated": [judged(place) for place in places(simulated(arguments.seed))]}
    report("simulated curves", parts["simulated"])
    if arguments.unseen:
        parts["unseen"] = [judged(place) for place in places([c for c in curves if c.source not in SETTLED])]
        report("sources left out", parts["unseen"])
    print(json.dumps({name: {"score": geometric(rows, "score"), "places": len(rows)} for name, rows in parts.items()}))


if __name__ == "__main__":
    main()
