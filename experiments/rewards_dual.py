"""Does a multiplier hold a constraint whose cost hardly varies, and is its swing predicted from the loop's stiffness?

A policy with one logit θ takes a costly answer (c = 1) with probability p = σ(θ); its reward is 1 with probability 0.9
if it does and 0.5 if not. Groups of G = 8, advantage Z(reward) − λ C with Z standardized within groups, and C one of:
raw, c − c̄; standardized, (c − c̄)/(s + 1e-4); clipped, that within −1 … 1. The expected gradient
F(θ) − λ H(θ) = E (1/G) Σ A_i (c_i − p) is an exact sum over all groups. A batch: θ += η (F − λ H), η = 0.5; violation
v = (p − d)/d; the integral grows by η_λ v, not below 0; λ of the next batch is the integral + κ v, not below 0.

Prediction, from the loop at its fixed point alone (p = d, λ* = F/H): with a = η (F − λ* H)', b = η H and
γ = η_λ p'/d, the map (δθ, δI, δλ) -> ((1 + a) δθ − b δλ, δI + γ δθ, δI + (γ + κ p'/d) δθ) has eigenvalues z. The
period is 2π/arg z of the largest complex z; the swing grows where |z| > 1; without damping that is γ b > −a, so that
the critical rate is −a d/(b p'), 0 where a ≥ 0. Overshoot: the largest δθ of this linear map from δθ = 0, δλ = −λ*
over 5,000 batches, as where a policy crosses the limit with a multiplier of 0.

Cells: three costs, d = 0.02, 0.1, 0.5, η_λ = 0.005, 0.02, 0.1, κ = 0 and 0.2. A start where the constraint nearly
always holds, p = d/10, and one where it nearly never does, p = 1 − d/10; 4,000 batches.

Rules, before the first run:
1. A cell holds if the mean of p over its last fifth is at most 1.1 d. In exact expectation; and sampled (1,000 batches
   of 32 groups, 8 seeds, κ = 0.2, both starts) if it does in at least 7 of 8 seeds. A cost holds the constraint if it
   does in every cell of a start. Standardizing pays if it holds more cells than raw.
2. The period is predicted if the median distance of upward crossings of d over the last half, in exact expectation,
   lies within 25 % of 2π/arg z, in at least 90 % of the cells with three crossings or more. Cells are those from
   p = d/10.
3. The critical rate is predicted if the rate between which swings of a start at δθ = 0.01 shrink and grow over 2,000
   batches (bisected, κ = 0) lies within 10 % of −a d/(b p'), in all nine cells; cells with a ≥ 0 count as predicted if
   the swing grows at every rate down to 1e-4.
4. Overshoot is predicted if the largest θ − θ_d in exact expectation from p = d/10 lies within 25 % of the linear one
   in at least 90 % of the 54 cells.
Budget: 3 CPU-minutes.

Added after the first run, without rules: the largest p ÷ d over the last fifth; overshoot of the first swing alone, for
the linear map grows without end where the swing does; and the critical rate from swings begun at 1e-7 over six periods,
for swings that grow fast have grown before the first 500 batches end, and slow ones take longer than 2,000.

    python experiments/rewards_dual.py
"""

from __future__ import annotations

from itertools import product
from math import factorial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GROUP, LR, STEPS = 8, 0.5, 4000
PAID = (0.5, 0.9)  # chance of a reward for c = 0 and c = 1
COSTS = ("raw", "standardized", "clipped")
LIMITS, RATES, DAMPINGS = (0.02, 0.1, 0.5), (0.005, 0.02, 0.1), (0.0, 0.2)
GRID = np.linspace(-14, 14, 5601)


def sigmoid(theta: Floats | float) -> Floats:
    """1/(1 + e^−θ)."""
    value: Floats = 1 / (1 + np.exp(-np.asarray(theta, np.float64)))
    return value


def standardized(x: Floats) -> Floats:
    """Z within groups, over the last axis."""
    z: Floats = (x - x.mean(-1, keepdims=True)) / (x.std(-1, ddof=1, keepdims=True) + 1e-4)
    return z


def cost(kind: str, c: Floats) -> Floats:
    """What a multiplier weighs, of costs (…, G)."""
    if kind == "raw":
        return c - c.mean(-1, keepdims=True)
    z = standardized(c)
    return np.clip(z, -1, 1) if kind == "clipped" else z


def forces() -> tuple[Floats, dict[str, Floats]]:
    """F and, for each cost, H on the GRID, exactly."""
    counts = np.array([n for n in product(range(GROUP + 1), repeat=4) if sum(n) == GROUP])  # of (c, r) = 00, 01, 10, 11
    kinds = np.array([np.repeat([0, 1, 2, 3], n) for n in counts])
    c, r = (kinds // 2).astype(float), (kinds % 2).astype(float)
    ways = np.array([factorial(GROUP) / np.prod([factorial(k) for k in n]) for n in counts])
    share = ways * np.prod(
        [q**n for q, n in zip((1 - PAID[0], PAID[0], 1 - PAID[1], PAID[1]), counts.T, strict=True)], 0
    )
    p, ones = sigmoid(GRID)[:, None], c.sum(1)
    chance = share * p**ones * (1 - p) ** (GROUP - ones)  # (grid, groups)

    def expected(advantage: Floats) -> Floats:
        along = (advantage * c).mean(1) - p * advantage.mean(1)
        found: Floats = (chance * along).sum(1)
        return found

    return expected(standardized(r)), {kind: expected(cost(kind, c)) for kind in COSTS}


F, H = forces()


def at(values: Floats, theta: Floats | float) -> Floats:
    """A force at θ."""
    found: Floats = np.asarray(np.interp(theta, GRID, values))
    return found


def exact(kind: str, limit: float, rate: float, damping: float, theta: float, start: tuple[float, float] = (0.0, 0.0),
          steps: int = STEPS) -> Floats:  # fmt: skip
    """θ of every batch in exact expectation; start: integral and multiplier."""
    path, (integral, multiplier) = np.empty(steps), start
    for t in range(steps):
        path[t] = theta
        violation = float(sigmoid(theta)) / limit - 1
        theta = float(np.clip(theta + LR * float(at(F, theta) - multiplier * at(H[kind], theta)), -13.9, 13.9))
        integral = max(integral + rate * violation, 0.0)
        multiplier = max(integral + damping * violation, 0.0)
    return path


def sampled(
    kind: str, limit: float, rate: float, theta0: float, damping: float, seeds: int = 8, groups: int = 32
) -> Floats:
    """The mean of p over the last fifth of batches, by seed."""
    random = np.random.default_rng(0)
    theta, integral, multiplier = np.full(seeds, theta0), np.zeros(seeds), np.zeros(seeds)
    late, steps = np.zeros(seeds), STEPS // 4
    for t in range(steps):
        p = sigmoid(theta)
        c = (random.random((seeds, groups, GROUP)) < p[:, None, None]).astype(float)
        r = (random.random(c.shape) < np.where(c > 0, PAID[1], PAID[0])).astype(float)
        advantage = standardized(r) - multiplier[:, None, None] * cost(kind, c)
        violation = c.mean((1, 2)) / limit - 1
        theta = np.clip(theta + LR * (advantage * (c - p[:, None, None])).mean((1, 2)), -13.9, 13.9)
        integral = np.maximum(integral + rate * violation, 0)
        multiplier = np.maximum(integral + damping * violation, 0)
        late += p * (t >= 0.8 * steps) / (steps - np.ceil(0.8 * steps))
    return late


def loop(kind: str, limit: float) -> tuple[float, float, float, float, float]:
    """θ_d, λ*, a, b and p'/d at the fixed point."""
    theta = float(np.log(limit / (1 - limit)))
    multiplier = float(at(F, theta) / at(H[kind], theta))
    net, h = F - multiplier * H[kind], 0.02
    slope = float(at(net, theta + h) - at(net, theta - h)) / (2 * h)
    return theta, multiplier, LR * slope, LR * float(at(H[kind], theta)), 1 - limit


def linear(kind: str, limit: float, rate: float, damping: float) -> NDArray[np.float64]:
    """The map of (δθ, δI, δλ)."""
    _, _, a, b, gain = loop(kind, limit)
    return np.array([[1 + a, 0, -b], [rate * gain, 1, 0], [(rate + damping) * gain, 1, 0]])


def period(matrix: Floats) -> float:
    """2π/arg z of the largest complex eigenvalue; NaN without one."""
    z = [value for value in np.linalg.eigvals(matrix) if value.imag > 1e-9]
    return 2 * np.pi / float(np.angle(max(z, key=abs))) if z else float("nan")


def linear_overshoot(matrix: Floats, multiplier: float) -> float:
    """The largest δθ from (0, −λ*, −λ*)."""
    state, most = np.array([0.0, -multiplier, -multiplier]), 0.0
    for _ in range(5000):
        state = matrix @ state
        most = max(most, float(state[0]))
        if most > 100:
            break
    return most


def crossings(path: Floats, theta: float) -> Floats:
    """Batches at which the last half of a path crosses θ upwards."""
    half = path[len(path) // 2 :] - theta
    where: Floats = np.flatnonzero((half[:-1] < 0) & (half[1:] >= 0)).astype(float)
    return where


def grows(kind: str, limit: float, rate: float) -> bool:
    """Whether a swing begun at δθ = 0.01 grows."""
    theta, multiplier, *_ = loop(kind, limit)
    away = np.abs(exact(kind, limit, rate, 0.0, theta + 0.01, (multiplier, multiplier), 2000) - theta)
    return bool(away[-500:].max() > away[:500].max())


def critical(kind: str, limit: float) -> tuple[float, float]:
    """Critical rate as predicted and as bisected; 0 where the swing grows at 1e-4."""
    _, _, a, b, gain = loop(kind, limit)
    low, high = 1e-4, 30.0
    if grows(kind, limit, low):
        return max(-a / (b * gain), 0.0), 0.0
    for _ in range(14):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if grows(kind, limit, middle) else (middle, high)
    return max(-a / (b * gain), 0.0), low


def first_swing(path: Floats) -> float:
    """The largest value of a path before it first falls below 0 after it was above."""
    above = np.flatnonzero(path > 0)
    if not len(above):
        return 0.0
    fallen = np.flatnonzero(path[above[0] :] < 0)
    end = above[0] + fallen[0] if len(fallen) else len(path)
    return float(path[above[0] : end].max())


def linear_first(matrix: Floats, multiplier: float) -> float:
    """The first swing of the linear map from (0, −λ*, −λ*)."""
    state, path = np.array([0.0, -multiplier, -multiplier]), []
    for _ in range(STEPS):
        state = matrix @ state
        path.append(state[0])
        if state[0] < 0:
            break
    return first_swing(np.array(path))


def critical_small(kind: str, limit: float) -> float:
    """Critical rate from swings begun at 1e-7 over six periods; 0 where they grow at 1e-4."""
    theta, multiplier, *_ = loop(kind, limit)

    def growing(rate: float) -> bool:
        turn = period(linear(kind, limit, rate, 0.0))
        if not turn > 0:  # no swing
            return False
        steps = int(np.clip(6 * turn, 200, 30_000))
        away = np.abs(exact(kind, limit, rate, 0.0, theta + 1e-7, (multiplier, multiplier), steps) - theta)
        return bool(away[-steps // 3 :].max() > away[: steps // 3].max())

    low, high = 1e-4, 1.0
    if growing(low):
        return 0.0
    for _ in range(10):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if growing(middle) else (middle, high)
    return low


def afterwards(paths: dict[tuple[str, bool, float, float, float], Floats]) -> None:
    """Print what was added after the first run."""
    print("\nadded later: largest p ÷ d over the last fifth, median and most of 18 cells")
    for kind, damping in product(COSTS, DAMPINGS):
        peaks = [float(sigmoid(path[-STEPS // 5 :]).max()) / key[2] for key, path in paths.items()
                 if (key[0], key[4]) == (kind, damping)]  # fmt: skip
        print(f"{kind}, κ = {damping:g}: {np.median(peaks):.2f}, {max(peaks):.2f}")
    ratios = []
    for (kind, always, limit, rate, damping), path in paths.items():
        if always:
            theta, multiplier, *_ = loop(kind, limit)
            said = linear_first(linear(kind, limit, rate, damping), multiplier)
            ratios.append(first_swing(path - theta) / said)
    found = np.array(ratios)
    print(f"first swing, measured ÷ linear: within 25 % {((found >= 0.8) & (found <= 1.25)).sum()} of {len(found)}; "
          f"{found.min():.2f} to {found.max():.2f}, median {np.median(found):.2f}")  # fmt: skip
    for kind, limit in product(COSTS, LIMITS):
        _, _, a, b, gain = loop(kind, limit)
        print(f"critical rate, {kind}, d = {limit:g}: predicted {max(-a / (b * gain), 0):.4f}, "
              f"measured {critical_small(kind, limit):.4f}, a = {a:.1e}")  # fmt: skip


def main() -> None:
    """Print the tables and the verdicts."""
    cells = list(product(LIMITS, RATES, DAMPINGS))
    print("| cost | start | held, of 18 exact | of 9 sampled, κ = 0.2 | multiplier λ* at d = 0.02, 0.1, 0.5 |")
    print("|---|---|---|---|---|")
    paths = {}
    for kind, always in product(COSTS, (True, False)):
        held, seen = 0, 0
        for limit, rate, damping in cells:
            p0 = limit / 10 if always else 1 - limit / 10
            theta0 = float(np.log(p0 / (1 - p0)))
            path = paths[kind, always, limit, rate, damping] = exact(kind, limit, rate, damping, theta0)
            held += bool(sigmoid(path[-STEPS // 5 :]).mean() <= 1.1 * limit)
            if damping:
                seen += bool((sampled(kind, limit, rate, theta0, damping) <= 1.1 * limit).sum() >= 7)
        stars = ", ".join(f"{loop(kind, limit)[1]:.2f}" for limit in LIMITS)
        print(f"| {kind} | nearly {'always' if always else 'never'} holds | {held} | {seen} | {stars} |", flush=True)
    right = judged = overshot = 0
    worst = []
    for (kind, always, limit, rate, damping), path in paths.items():
        if not always:
            continue
        theta, multiplier, *_ = loop(kind, limit)
        matrix = linear(kind, limit, rate, damping)
        found, said = float(path.max() - theta), linear_overshoot(matrix, multiplier)
        overshot += 0.8 <= found / said <= 1.25
        worst.append(found / said)
        if len(at_steps := crossings(path, theta)) >= 3:
            judged += 1
            right += 0.8 <= float(np.median(np.diff(at_steps))) / period(matrix) <= 1.25
    print(f"\nperiod within 25 %: {right} of {judged} cells that swing")
    print(f"overshoot within 25 %: {overshot} of 54 cells; measured ÷ linear {min(worst):.2f} to {max(worst):.2f}")
    print("\n| cost | d | critical rate predicted | measured |\n|---|---|---|---|")
    good = 0
    for kind, limit in product(COSTS, LIMITS):
        said, found = critical(kind, limit)
        good += (said < 1e-4 and not found) or (found > 0 and abs(said / found - 1) <= 0.1)
        print(f"| {kind} | {limit:g} | {said:.4f} | {found:.4f} |")
    print(f"\ncritical rate predicted in {good} of 9 cells")
    afterwards(paths)


if __name__ == "__main__":
    main()
