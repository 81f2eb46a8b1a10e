"""Experiment: does the optimal draw lower the error of real gradients by what it predicts?

No training: policies are frozen. Of a run whose record forecasts success rates, the forecast is taken from that
record, and the gradients from a probe of its model, which the forecast has not seen. With the P problems of the probe
as the population, the draw is made as `allocators.drawing` makes it, from forecast and assumed norms alone.

    predicted    1 − noise of that draw / least noise of a fixed G, both by the forecast and the assumed norms
    measured     the same with each problem's own ‖g_x‖², Σ₁, Δ from the probe: unbiased estimates of a_x(G), in which
                 N · MSE of any draw that does not depend on the probe is linear
    G = 4, 8, 16 what fixed sizes lose against the best fixed G, measured
    by half      promised and measured by a draw that half of the probe's rollouts of each problem make, as
                 `allocators.check` does; "cannot tell" below 8 rollouts of each problem

The best fixed G is chosen by what was measured, and so in every resample, which favours it. Intervals: bootstrap over
problems, 1,000 resamples. Where a problem is drawn with replacement and rewards are 0 and 1 the formula is exact
(`tests/experiments/test_optimal_draw.py`); what is tested here is forecast and norms together.

Written before the first run: the prediction came true on a model where the measured interval contains it; the draw
lowers the error where the measured interval is above 0. Below the rows: success, forecast, (Δ + Σ₁)/2 and ‖g‖² by the
task's difficulty, means over problems.

    python experiments/allocation_gradient.py RUN=PROBE …        PROBE: grposcope probe --model RUN --recipe rloo
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from allocators import check, theory
from allocators.policies import Optimal
from numpy.typing import NDArray

from grposcope.instruments.gradient import probe_record as probes
from grposcope.lab import tasks
from grposcope.lab.allocation.beta import Rates
from grposcope.lab.train.allocate import _forecaster
from grposcope.logs import read
from grposcope.maths import moments as gradient_moments
from grposcope.maths import resampling
from grposcope.maths.moments import Moments

Floats = NDArray[np.float64]
RESAMPLES = 1000


@dataclass(frozen=True)
class Problems:
    """P problems: what is known of their success rates, and their gradients' moments. sizes (S,): to choose from.

    difficulty, solved (P,): as the task measures it, and the share of the probe's rollouts that succeeded. checked: a
    draw by half of these.
    """

    rates: Rates
    moments: Moments
    sizes: NDArray[np.int64]
    difficulty: Floats
    solved: Floats
    checked: check.Checked | None

    @property
    def second(self) -> Floats:
        """Unbiased a_x(G), (P, S)."""
        each, g = self.moments.per_prompt, self.sizes
        return each.none[:, None] + each.sigma1[:, None] / g + each.delta[:, None] / (g * (g - 1))


def savings(problems: Problems, which: NDArray, mean_squared: float) -> tuple[float, ...]:
    """Predicted saving, measured saving, measured losses of G = 4, 8, 16, and the best fixed G, on problems `which`."""
    way, sizes = Optimal(), problems.sizes
    rates, share = problems.rates.take(which), np.full(len(which), 1 / len(which))
    assumed, squared = way.norms.second_moments(rates, sizes), way.norms.mean_squared(rates)
    draw = theory.own_sizes(assumed, sizes, share, squared, way.floor)
    predicted = 1 - draw.noise / theory.uniform(assumed, sizes, share, squared).noise
    second = problems.second[which]
    fixed = {
        int(g): theory.noise(a, share, share, np.full(len(which), g), mean_squared)
        for g, a in zip(sizes, second.T, strict=True)
    }
    best = min(fixed, key=fixed.__getitem__)
    own = np.take_along_axis(second, np.searchsorted(sizes, draw.sizes)[:, None], 1)[:, 0]
    measured = 1 - theory.noise(own, share, draw.chances, draw.sizes, mean_squared) / fixed[best]
    return predicted, measured, *(fixed[g] / fixed[best] - 1 for g in (4, 8, 16)), float(best)


def of_run(run: Path, folder: Path) -> Problems:
    """The problems of a probe of the run's model, as its record forecasts them."""
    record = read(run)
    task = tasks.load(str(record.setting("task")), None)
    train = list(task.problems("train"))
    known = _forecaster(task, train)
    groups = record.groups
    present = ~np.isnan(groups.rewards)
    known.replay(
        groups.step,
        [groups.problems[i] for i in groups.problem],
        np.add.reduceat(np.nan_to_num(groups.rewards), groups.offsets[:-1]),
        np.add.reduceat(present.astype(float), groups.offsets[:-1]),
    )
    gram = probes.read_gram(folder)
    names = [rollout.problem for rollout in probes._read_rollouts(folder)][:: gram.rewards.shape[1]]
    places = {name: i for i, name in enumerate(known.problems)}
    which = np.array([places[name] for name in names])
    sizes = Optimal().choices(group=0)
    hard = np.array([task.difficulty(train[i]) for i in which])
    moments = gradient_moments.from_gram(gram.gram, gram.rewards, RESAMPLES)
    solved, checked = gram.rewards.mean(1), check.of_gram(gram.gram, gram.rewards)
    return Problems(known.rates(which), moments, sizes, hard, solved, checked)


def by_difficulty(problems: Problems) -> None:
    """Print means over the problems of each difficulty."""
    each = problems.moments.per_prompt
    noise = (each.delta + each.sigma1) / 2
    for level in np.unique(problems.difficulty):
        at = problems.difficulty == level
        print(f"  difficulty {level:g}: {at.sum()} problems, solved {problems.solved[at].mean():.2f}, "
              f"forecast {problems.rates.mean[at].mean():.2f}, noise {noise[at].mean():.0f}, "
              f"‖g‖² {each.none[at].mean():.0f}")  # fmt: skip


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="RUN=PROBE")
    print("| run | problems | best fixed G | predicted | measured | G = 4 needs more | G = 8 | G = 16 | by half |")
    print("|---|---|---|---|---|---|---|---|---|")
    for pair in parser.parse_args().pairs:
        run, _, folder = pair.partition("=")
        problems = of_run(Path(run), Path(folder))
        every = np.arange(len(problems.rates.a))
        point = savings(problems, every, float(problems.moments.pooled.mean2[0]))
        drawn = np.array([
            savings(problems, np.repeat(every, times.astype(int)), float(mean2))
            for times, mean2 in zip(problems.moments.weights, problems.moments.bootstrap.mean2, strict=True)
        ])  # fmt: skip
        parts = [f"{p:.1%} ({low:.1%} to {high:.1%})" for p, (low, high) in
                 ((point[i], resampling.interval(drawn[:, i])) for i in range(5))]  # fmt: skip
        parts.append(problems.checked.shown() if problems.checked else "cannot tell")
        print(f"| {run} | {len(every)} | {point[5]:.0f} | {' | '.join(parts)} |", flush=True)
        by_difficulty(problems)


if __name__ == "__main__":
    main()
