"""Experiment: does the oscillator of arXiv:2606.30789 describe GRPO in a softmax bandit, and where does it stop?

Claims: (1) near the fixed point the trajectory is the closed form, and turns oscillatory where the damping
ratio says; (2) with the force frozen between refreshes a run is stable up to the interval N* at which the
spectral radius of the cycle map reaches 1, with κ from the Jacobian and nothing fitted; the lag rule
2(1 − β)/(ηκ) is up to two times too small; (3) noise around the plateau falls as 1/G; (4) the mean trajectory
does not depend on G.

    python experiments/dynamics_bandit.py            about two minutes on one core
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from grposcope.instruments.dynamics import refresh
from grposcope.instruments.dynamics.bandit import Bandit
from grposcope.instruments.dynamics.oscillator import Oscillator


def stiff_direction(b: Bandit) -> np.ndarray:
    """The eigenvector of the largest κ of a one-context bandit, (1, K)."""
    return np.linalg.eigh(-b.hessian(b.fixed_point())[0])[1][None, :, -1]


def tuned(arms: int, kl: float, curvature: float | None = None, seed: int = 0) -> Bandit:
    """A bandit with `arms` random rewards; with `curvature`, rewards and KL are scaled so that κ is exactly that."""
    rewards = np.random.default_rng(seed).random(arms)
    if curvature is not None:  # at a fixed ratio r/λ the policy stays and κ is proportional to λ
        scale = curvature / Bandit(rewards, kl=kl).stiffness()[0]
        rewards, kl = rewards * scale, kl * scale
    return Bandit(rewards, kl=kl)


def transition() -> tuple[list[dict], bool]:
    """Distance to the closed form for shrinking steps at each damping ratio; whether it falls with 1 − β."""
    b = tuned(4, 0.3)
    kappa, direction = float(b.stiffness()[0]), stiff_direction(b)
    rows = []
    for ratio in (3.0, 1.5, 1.05, 1.0, 0.95, 0.7, 0.3):
        errors, overshoots = [], False
        for beta in (0.8, 0.9, 0.95, 0.975):
            # ζ = (1 − β)/(2 √((1+β)/2 · ηκ)) fixes the step
            lr = ((1 - beta) / (2 * ratio)) ** 2 / ((1 + beta) / 2) / kappa
            model = Oscillator.from_optimizer(lr, beta, kappa, start=1e-3, plateau=0.0)
            steps = int(6 / np.sqrt(model.stiffness / model.mass) * max(ratio, 1.0))
            run = b.simulate(lr, beta, 1, None, steps, start=b.fixed_point() + 1e-3 * direction, keep_path=True)
            assert run.path is not None
            along = ((run.path[0] - b.fixed_point()) * direction).sum((-2, -1))
            errors.append(float(np.abs(along - model.trajectory(run.steps)).max()) / 1e-3)
            exact = bool(refresh.oscillates(lr, beta, kappa, 1))
            overshoots = exact
        rows.append({"zeta": ratio, **{f"error β={be}": e for be, e in zip((0.8, 0.9, 0.95, 0.975), errors,
                     strict=True)}, "multipliers complex (β=0.975)": overshoots})  # fmt: skip
    good = all(r["error β=0.975"] < r["error β=0.8"] / 4 for r in rows)
    return rows, good


def first_unstable(b: Bandit, lr: float, momentum: float, ratio: str, most: int, cycles: int = 240) -> float:
    """The smallest interval whose runs leave the fixed point, found by running a coarse grid and then a finer one."""

    def unstable(intervals: np.ndarray) -> np.ndarray:
        steps = cycles * int(intervals.max())
        every = max(1, int(intervals.min()) // 6)
        begin = b.fixed_point() + 1e-4 * stiff_direction(b)
        run = b.simulate(lr, momentum, intervals, None, steps, start=begin, ratio=ratio, every=every, keep_path=True)
        assert run.path is not None
        distance = np.linalg.norm(run.path - b.fixed_point(), axis=(-2, -1))
        n = distance.shape[1]
        early, late = distance[:, int(0.4 * n) : int(0.6 * n)].max(1), distance[:, int(0.8 * n) :].max(1)
        return (late > 1e-2) | ((late > early) & (late > 1e-8))

    low, high = 0, most
    while high - low > 1:
        grid = np.unique(np.linspace(low + 1, high, 12).astype(int))
        bad = unstable(grid)
        if not bad.any():
            return np.inf if high == most else float(high)
        at = int(bad.argmax())
        high, low = int(grid[at]), int(grid[at - 1]) if at else low
    return float(high)


def thresholds() -> tuple[list[dict], bool]:
    """First unstable interval: measured, by the cycle map, and by the lag rule; whether the map is always right."""
    cases = [(4, 0.4, 0.0959, beta, lr) for beta, lr in ((0.0, 0.1), (0.0, 0.5), (0.9, 0.1), (0.9, 0.5))]
    cases += [(4, 0.3, None, 0.5, 1.0), (16, 0.3, None, 0.0, 1.5), (16, 0.3, None, 0.9, 0.4), (8, 0.8, None, 0.7, 0.3),
              (8, 0.8, None, 0.9, 0.05), (16, 1.5, None, 0.95, 0.02), (2, 0.5, None, 0.9, 0.3)]  # fmt: skip
    rows = []
    for arms, kl, wanted, beta, lr in cases:
        b = tuned(arms, kl, wanted)
        kappa = float(b.stiffness()[0])
        predicted = int(refresh.threshold(lr, beta, kappa)) + 1
        rows.append(
            {
                "K": arms, "KL": round(b.kl, 4), "κ": round(kappa, 5), "β": beta, "η": lr,
                "measured": first_unstable(b, lr, beta, "none", 3 * predicted + 5), "predicted": predicted,
                "lag rule": round(refresh.naive_threshold(lr, beta, kappa), 1),
                "clipped": first_unstable(b, lr, beta, "clipped", 4 * predicted, 60),
                "unclipped": first_unstable(b, lr, beta, "unclipped", 4 * predicted, 60),
            }
        )  # fmt: skip
    return rows, all(r["measured"] == r["predicted"] for r in rows)


def temperature(runs: int) -> list[dict]:
    """Stationary variance of the logits, and distance of the mean trajectory from that at the largest G, against G."""
    b = Bandit([0.2, 0.5, 0.8, 0.4], kl=0.4)
    groups, rows, means = (2, 4, 8, 16, 32, 64), [], {}
    for name in ("leave_one_out", "standardized"):
        variances = []
        for group in groups:
            run = b.simulate(0.05, 0.5, 2, group, 1600, np.arange(runs), binary=True, advantage=name, every=20,
                             keep_path=True)  # fmt: skip
            assert run.path is not None
            late = run.path[:, -40:]
            per_run = ((late - late.mean((0, 1))) ** 2).sum((-2, -1)).mean(1)
            variances.append((per_run.mean(), per_run.std(ddof=1) / np.sqrt(runs)))
            early = run.value[:, 1:20]
            means[name, group] = early.mean(0), early.std(0, ddof=1) / np.sqrt(runs)
            plateau = run.value[:, -40:].mean(1)
            rows.append({"advantage": name, "G": group, "Var θ": variances[-1][0], "se": variances[-1][1],
                         "plateau": plateau.mean(), "plateau se": plateau.std(ddof=1) / np.sqrt(runs)})  # fmt: skip
        x, y = np.log(groups), np.log([v for v, _ in variances])
        weight = np.array([v / e for v, e in variances])
        (slope, _), cov = np.polyfit(x, y, 1, w=weight, cov="unscaled")
        tail = np.array(groups) >= 8
        (slope_tail, _), cov_tail = np.polyfit(x[tail], y[tail], 1, w=weight[tail], cov="unscaled")
        reference, reference_se = means[name, groups[-1]]
        z = {g: float(np.abs((m - reference) / np.hypot(e, reference_se)).max()) for (k, g), (m, e) in means.items()
             if k == name and g != groups[-1]}  # fmt: skip
        rows.append({"advantage": name, "exponent": slope, "se": cov[0, 0] ** 0.5, "exponent G ≥ 8": slope_tail,
                     "se G ≥ 8": cov_tail[0, 0] ** 0.5, "largest |z| of the mean against G = 64": z})  # fmt: skip
    return rows


def table(rows: list[dict]) -> str:
    """The rows as Markdown, with a new table wherever the columns change."""
    lines: list[str] = []
    header: list[str] | None = None
    for row in rows:
        if list(row) != header:
            header = list(row)
            lines += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines.append("| " + " | ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run all parts, print tables and verdicts, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=400, help="sampled runs per setting")
    arguments = parser.parse_args()
    closed, converges = transition()
    print("Distance to the closed form, relative to the initial displacement", table(closed), sep="\n")
    print(f"verdict: {'holds' if converges else 'does not hold'}: the distance falls with 1 − β at a fixed ζ\n")
    measured, equal = thresholds()
    print("First unstable refresh interval", table(measured), sep="\n")
    share = [r["measured"] / r["lag rule"] for r in measured]
    print(f"verdict: {'holds' if equal else 'does not hold'}: equal to the step in {len(measured)} settings; "
          f"measured ÷ lag rule {min(share):.2f} to {max(share):.2f}\n")  # fmt: skip
    noisy = temperature(arguments.runs)
    print("Noise around the plateau, and the mean, against G", table(noisy), sep="\n")
    print(json.dumps({"closed_form": closed, "thresholds": measured, "temperature": noisy}, default=float))


if __name__ == "__main__":
    main()
