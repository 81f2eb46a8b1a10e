"""Experiment: a refresh threshold that allows for sampled rollouts, fitted on some settings and tested on others.

Claim    With sampled gradients a run is lost below N*, because κ varies from batch to batch. A threshold on the second
         moment, the largest N at which E x² of the cycle map with a random κ stays bounded, predicts the loss.
Command  python experiments/dynamics_threshold.py --out runs/dynamics_threshold       resumable, a file per world
         … --settings A D     some settings; … --report     what there is; … --quick --out FOLDER    a smoke test
Setting  Policies with every answer enumerated and a KL of weight λ to their start inside the reward, leave-one-out
         advantages from G sampled answers a prompt, no importance ratio, heavy ball at η with refreshes every N steps.
         A world is a random reward (and network). At the plateau advantages vanish, and the force on a displacement
         is −Ĥ δ with Ĥ = λ × the covariance of scores within groups (G − 1), averaged over prompts: the noise is in κ.
           fitted on    A  4 arms, β 0, ηκ 0.1, G 8       B  8 arms, β 0.5, ηκ 0.08, G 16    C  4 arms, β 0.9, 0.03, G 4
           tested on    D  16 arms, β 0.8, 0.05, G 8      E  4 arms that pay 1 by chance, β 0, 0.1, G 32
                        F  a tanh network, four prompts of eight answers, β 0.5, 0.08, G 8
                        G  the same, β 0, 0.1, G 4        H  the Llama of `dynamics_network.py`, β 0.5, 0.08, G 8
Measured 64 runs of 100 refreshes (Llama: 3 of 40) at each of some intervals from a push of 0.05 in log π (root mean
         square). A run is lost if over its last third the mean objective is below the plateau by more than half of what
         training had gained. N½ is where half of the runs are lost, linear in log N between intervals.
Thresholds, none with a constant, interpolated to where a multiplier is 1:
         mean     N*, the spectral radius of the cycle map with the mean κ of the stiffest direction
         mode     second moments of that direction alone: E M⊗M with the variance of κ̂ over batches; at β = 0 this is
                  N*/(1 + cv²)
         modes    second moments of all directions (at most 12), E[Ĥ X Ĥ] in the middle
         typical  the largest Lyapunov exponent of the random products
         On A to C the one whose log(threshold/N½) spreads least is chosen, with a factor that centres it.
Verdict  On D to H, a world is right if |threshold × factor/N½ − 1| ≤ 0.25 or they differ by at most 1. The corrected
         threshold holds if at least 90 % of the worlds of every tested setting are right, does not hold if fewer than
         half of some setting's are, else cannot tell. The same is said of N* without correction. Where only one side of
         N½ was seen, a world is right unless the prediction is more than 25 % on the other side of that bound.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grposcope.core.files import dumps, write_json
from grposcope.instruments.dynamics import refresh

MODES, POOL, PUSH = 12, 3000, 0.05
KINDS = ("mean", "mode", "modes", "typical")


@dataclass(frozen=True)
class Setting:
    """What the worlds of one letter share."""

    kind: str
    arms: int
    kl: float
    momentum: float
    pull: float
    group: int
    chance: bool = False


SETTINGS = {
    "A": Setting("table", 4, 0.3, 0.0, 0.1, 8), "B": Setting("table", 8, 0.5, 0.5, 0.08, 16),
    "C": Setting("table", 4, 0.3, 0.9, 0.03, 4), "D": Setting("table", 16, 0.5, 0.8, 0.05, 8),
    "E": Setting("table", 4, 0.4, 0.0, 0.1, 32, True), "F": Setting("network", 8, 0.3, 0.5, 0.08, 8),
    "G": Setting("network", 8, 0.3, 0.0, 0.1, 4), "H": Setting("llama", 64, 0.2, 0.5, 0.08, 8),
}  # fmt: skip
FITTED = "ABC"


class Table:
    """A logit for every answer: one prompt of K answers. Parameters (runs, K)."""

    def __init__(self, rng: np.random.Generator, arms: int):
        self.start = np.zeros(arms)

    def logits(self, theta: NDArray) -> NDArray:
        """Logits (runs, P, K)."""
        return theta[:, None]

    def pull(self, theta: NDArray, weights: NDArray) -> NDArray:
        """Gradient (runs, D) of the sum of weights (runs, P, K) × logits."""
        return weights[:, 0]


class Network:
    """Four prompts of six random inputs, 24 tanh units, K answers. Parameters (runs, 6·24 + 24·K)."""

    def __init__(self, rng: np.random.Generator, arms: int):
        self.inputs, self.shapes = rng.normal(size=(4, 6)), ((6, 24), (24, arms))
        self.start = np.concatenate([rng.normal(size=math.prod(s)) / math.sqrt(s[0]) for s in self.shapes])

    def layers(self, theta: NDArray) -> tuple[NDArray, NDArray]:
        """Hidden units (runs, P, 24) and the last weights (runs, 24, K)."""
        first, second = theta[:, :144].reshape(-1, 6, 24), theta[:, 144:].reshape(len(theta), 24, -1)
        return np.tanh(self.inputs @ first), second

    def logits(self, theta: NDArray) -> NDArray:
        """Logits (runs, P, K)."""
        hidden, second = self.layers(theta)
        return hidden @ second

    def pull(self, theta: NDArray, weights: NDArray) -> NDArray:
        """Gradient (runs, D) of the sum of weights (runs, P, K) × logits."""
        hidden, second = self.layers(theta)
        back = weights @ second.swapaxes(1, 2) * (1 - hidden**2)
        parts = self.inputs.T @ back, hidden.swapaxes(1, 2) @ weights
        return np.concatenate([part.reshape(len(theta), -1) for part in parts], 1)


class World:
    """A policy with rewards (P, K), trained in exact expectation to its plateau."""

    def __init__(self, setting: Setting, seed: int):
        rng = np.random.default_rng([2606, seed, setting.arms])
        self.setting = setting
        self.policy = (Table if setting.kind == "table" else Network)(rng, setting.arms)
        self.reference = self.logp(self.policy.start[None])[0]
        self.rewards = rng.random(self.reference.shape)
        self.plateau = self.settled()
        self.here = np.exp(self.logp(self.plateau[None])[0])

    def logp(self, theta: NDArray) -> NDArray:
        """log π (runs, P, K)."""
        logits = self.policy.logits(theta)
        logits = logits - logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def objective(self, theta: NDArray) -> NDArray:
        """E r − λ KL, (runs,)."""
        logp = self.logp(theta)
        return (np.exp(logp) * (self.rewards - self.setting.kl * (logp - self.reference))).sum(-1).mean(-1)

    def settled(self) -> NDArray:
        """The plateau (D,)."""
        if self.setting.kind == "table":
            return self.rewards[0] / self.setting.kl
        theta, velocity = self.policy.start[None], 0.0
        for _ in range(20000):
            logp = self.logp(theta)
            payoff = self.rewards - self.setting.kl * (logp - self.reference)
            weights = np.exp(logp) * (payoff - (np.exp(logp) * payoff).sum(-1, keepdims=True))
            velocity = 0.95 * velocity + self.policy.pull(theta, weights / len(self.rewards))
            theta = theta + 0.3 * velocity
        return theta[0]

    def scores(self) -> NDArray:
        """∂ log π / ∂θ at the plateau, (P, K, D)."""
        prompts, arms = self.rewards.shape
        units = np.eye(prompts * arms).reshape(-1, prompts, arms)
        logits = self.policy.pull(np.repeat(self.plateau[None], len(units), 0), units).reshape(prompts, arms, -1)
        return logits - np.einsum("pk,pkd->pd", self.here, logits)[:, None]

    def run(self, lr: float, interval: int, runs: int, cycles: int, rng: np.random.Generator) -> NDArray:
        """Whether each of the sampled runs is lost, (runs,)."""
        s, prompts = self.setting, len(self.rewards)
        push = rng.normal(size=(runs, len(self.plateau)))
        moved = np.einsum("pkd,nd->npk", self.scores(), push)
        size = np.sqrt((self.here * moved**2).sum(-1).mean(-1, keepdims=True))
        theta, velocity, gaps = self.plateau + PUSH * push / size, np.zeros_like(push), []
        top = self.objective(self.plateau[None])
        for _ in range(cycles):
            gaps.append(top - self.objective(theta))
            logp = self.logp(theta)
            counts = rng.multinomial(s.group, np.exp(logp) / np.exp(logp).sum(-1, keepdims=True))
            paid = rng.binomial(counts, self.rewards) if s.chance else counts * self.rewards
            total = paid - s.kl * counts * (logp - self.reference)
            weights = (total - counts * total.sum(-1, keepdims=True) / s.group) / (s.group - 1) / prompts
            for _ in range(interval):
                velocity = s.momentum * velocity + self.policy.pull(theta, weights)
                theta = theta + lr * velocity
        gained = top - self.objective(self.policy.start[None])
        return np.array(gaps[-cycles // 3 :]).mean(0) > gained / 2


def pool(chances: NDArray, scores: NDArray, kl: float, group: int, rng: np.random.Generator) -> NDArray:
    """Sampled curvatures Ĥ (POOL, m, m) from chances (P, K) and scores (P, K, m)."""
    counts = rng.multinomial(group, chances / chances.sum(-1, keepdims=True), size=(POOL, len(chances)))
    mean = np.einsum("bpk,pkm->bpm", counts, scores) / group
    second = np.einsum("bpk,pkm,pkn->bmn", counts, scores, scores, optimize=True)
    within = second - group * np.einsum("bpm,bpn->bmn", mean, mean)
    return kl * within / (group - 1) / len(chances)


def second_moment(lr: float, momentum: float, interval: int, mean: NDArray, tensor: NDArray) -> float:
    """Largest multiplier of X ← E[M X Mᵀ], with E Ĥ (m, m) and E[Ĥ_ij Ĥ_kl] (m, m, m, m), by its root per cycle."""
    d, power = len(mean), momentum**interval
    held = (1 - power) / (1 - momentum)
    first = momentum * held
    enter = np.array([-lr * (interval - first) / (1 - momentum), -held])
    still = np.array([[1, lr * first], [0, power]])
    x, radius = np.einsum("ab,ij->aibj", np.eye(2), np.eye(d)), 1.0
    for _ in range(150):
        kept = np.einsum("ab,bicj,dc->aidj", still, x, still)
        crossed = np.einsum("a,ij,jcl,dc->aidl", enter, mean, x[0], still)
        new = kept + crossed + crossed.transpose(2, 3, 0, 1)
        inner = np.einsum("ijkl,jk->il", tensor, x[0, :, 0])
        new += np.einsum("a,d,il->aidl", enter, enter, inner)
        radius = float(np.sqrt((new**2).sum() / (x**2).sum()))
        x = (new + new.transpose(2, 3, 0, 1)) / 2 / np.sqrt((new**2).sum())  # rounding would grow
    return math.sqrt(radius)


def typical(lr: float, momentum: float, interval: int, samples: NDArray, rng: np.random.Generator) -> float:
    """Growth a cycle of random products, exp of the largest Lyapunov exponent."""
    d, power = samples.shape[1], momentum**interval
    held = (1 - power) / (1 - momentum)
    first = momentum * held
    x, v, growth = rng.normal(size=(48, d)), np.zeros((48, d)), []
    for _ in range(250):
        force = -np.einsum("nij,nj->ni", samples[rng.integers(len(samples), size=48)], x)
        x, v = x + lr * (interval - first) / (1 - momentum) * force + lr * first * v, power * v + held * force
        size = np.sqrt((x**2).sum(1) + lr**2 * (v**2).sum(1))[:, None]
        x, v = x / size, v / size
        growth.append(np.log(size).mean())
    return float(np.exp(np.mean(growth[50:])))


def thresholds(
    chances: NDArray, scores: NDArray, setting: Setting, rng: np.random.Generator
) -> tuple[float, dict[str, float]]:
    """The step η, and the interval at which each kind of multiplier is 1, from all scores (P, K, D) at the plateau."""
    flat = (np.sqrt(chances / len(chances))[..., None] * scores).reshape(-1, scores.shape[-1])
    _, singular, directions = np.linalg.svd(flat, full_matrices=False)
    keep = min(MODES, int((singular > 1e-8 * singular[0]).sum()))
    projected = scores @ directions[:keep].T
    kappa = setting.kl * float(singular[0] ** 2)
    lr = setting.pull / kappa
    samples = pool(chances, projected, setting.kl, setting.group, rng)
    mean, tensor = samples.mean(0), np.einsum("bij,bkl->ijkl", samples, samples, optimize=True) / POOL
    growth = {
        "mean": lambda n: float(refresh.spectral_radius(lr, setting.momentum, kappa, n)),
        "mode": lambda n: second_moment(lr, setting.momentum, n, mean[:1, :1], tensor[:1, :1, :1, :1]),
        "modes": lambda n: second_moment(lr, setting.momentum, n, mean, tensor),
        "typical": lambda n: typical(lr, setting.momentum, n, samples, np.random.default_rng(n)),
    }
    found = {"cv": math.sqrt(tensor[0, 0, 0, 0] / mean[0, 0] ** 2 - 1), "kappa": kappa, "directions": float(keep)}
    for kind, multiplier in growth.items():
        before, n = multiplier(1), 1
        while (after := multiplier(n + 1)) < 1 and n < 400:
            before, n = after, n + 1
        found[kind] = n + (1 - before) / (after - before) if before < 1 else float(n)
    return lr, found


def half(intervals: list[int], lost: list[float]) -> tuple[float, float, float]:
    """N½ with the last interval before it and the first after it; NaN where one side was not seen."""
    for k in range(1, len(lost)):
        if lost[k] >= 0.5 > lost[k - 1]:
            share = (0.5 - lost[k - 1]) / (lost[k] - lost[k - 1])
            x = np.log(intervals[k - 1 : k + 1])
            return float(np.exp(x[0] + share * (x[1] - x[0]))), intervals[k - 1], intervals[k]
    return math.nan, intervals[-1] if lost[-1] < 0.5 else 0, math.inf if lost[-1] < 0.5 else intervals[0]


def studied(letter: str, seed: int, quick: bool) -> dict:
    """One world: thresholds, and the share of runs that were lost at each interval."""
    setting, rng = SETTINGS[letter], np.random.default_rng([seed, ord(letter)])
    runs, cycles = (4, 12) if quick else (3, 40) if setting.kind == "llama" else (64, 100)
    if setting.kind == "llama":
        from dynamics_threshold_llama import Llama

        world = Llama(setting.kl, setting.momentum, setting.group, seed, quick)
    else:
        world = World(setting, seed)
    lr, found = thresholds(world.here, world.scores(), setting, rng)
    shares = (0.45, 0.6, 0.8, 1.0, 1.25) if setting.kind == "llama" else np.geomspace(0.12, 1.5, 16)
    intervals = sorted({max(1, round(share * found["mean"])) for share in shares})
    lost = [float(world.run(lr, n, runs, cycles, rng).mean()) for n in intervals]
    payoff = world.rewards - setting.kl * (np.log(world.here) - world.reference)
    edge = payoff - (world.here * payoff).sum(-1, keepdims=True)
    return {"setting": letter, "seed": seed, "lr": lr, "thresholds": found, "intervals": intervals, "lost": lost,
            "advantage": float(np.sqrt((world.here * edge**2).sum(-1).mean())), "runs": runs}  # fmt: skip


def right(predicted: float, world: dict) -> bool:
    """Whether a prediction is within 25 % or 1 of N½, or not against what was seen of it."""
    middle, low, high = half(world["intervals"], world["lost"])
    if math.isnan(middle):
        return low * 0.75 <= predicted <= high * 1.25
    return abs(predicted / middle - 1) <= 0.25 or abs(predicted - middle) <= 1


def report(folder: Path) -> None:
    """The table and the verdicts of the worlds that are there; the last line is JSON."""
    worlds = [json.loads(p.read_text()) for p in sorted(folder.glob("?-*.json"))]
    logs: dict[str, dict[str, list[float]]] = {}
    for w in worlds:
        middle = half(w["intervals"], w["lost"])[0]
        for kind in KINDS:
            if math.isfinite(middle):
                logs.setdefault(kind, {}).setdefault(w["setting"], []).append(math.log(w["thresholds"][kind] / middle))
    fit = {kind: [x for s in FITTED for x in logs.get(kind, {}).get(s, [])] for kind in KINDS}
    if not all(len(v) > 1 for v in fit.values()):
        print("the settings that constants are fitted on are not there")
        return
    centred = {kind: float(np.std(values)) for kind, values in fit.items()}
    best = min(KINDS[1:], key=centred.__getitem__)
    factor = {kind: math.exp(-np.mean(values)) for kind, values in fit.items()}
    print("fitted on A to C: " + ", ".join(f"{k}: factor {factor[k]:.3f}, spread of its log {centred[k]:.3f}"
                                           for k in KINDS) + f"; chosen: {best}")  # fmt: skip
    names = ["setting", "worlds", "cv of κ", "N½, least to most", *(f"{k} ÷ N½" for k in KINDS),
             f"{best} × {factor[best]:.2f} right", "N* right", f"{best} right"]  # fmt: skip
    print(f"| {' | '.join(names)} |\n" + "|---" * len(names) + "|")
    shares: dict[str, dict[str, float]] = {}
    for letter in sorted({w["setting"] for w in worlds}):
        own = [w for w in worlds if w["setting"] == letter]
        middles = [half(w["intervals"], w["lost"])[0] for w in own]
        known = [m for m in middles if math.isfinite(m)]
        ratios = []
        for kind in KINDS:
            values = logs[kind].get(letter, [])
            spread = np.exp([np.min(values), np.max(values)]) if values else (math.nan, math.nan)
            ratios.append(f"{math.exp(np.mean(values)):.2f} ({spread[0]:.2f} to {spread[1]:.2f})" if values else "–")
        said = {"corrected": [right(factor[best] * w["thresholds"][best], w) for w in own],
                "mean": [right(w["thresholds"]["mean"], w) for w in own],
                "bare": [right(w["thresholds"][best], w) for w in own]}  # fmt: skip
        shares[letter] = {name: float(np.mean(v)) for name, v in said.items()}
        cv = np.mean([w["thresholds"]["cv"] for w in own])
        row = [letter, str(len(own)), f"{cv:.2f}", f"{min(known):.1f} to {max(known):.1f}" if known else "–", *ratios,
               *(f"{sum(v)} of {len(v)}" for v in said.values())]  # fmt: skip
        print(f"| {' | '.join(row)} |")
    tested = {name: [v[name] for s, v in shares.items() if s not in FITTED] for name in ("corrected", "mean", "bare")}
    verdicts = {name: "holds" if v and min(v) >= 0.9 else "does not hold" if v and min(v) < 0.5 else "cannot tell"
                for name, v in tested.items()}  # fmt: skip
    print("verdict on the settings tested:", "; ".join(f"{k}: {v}" for k, v in verdicts.items()))
    print(dumps({"verdicts": verdicts, "factor": factor, "spread": centred, "best": best, "shares": shares}))


def main() -> None:
    """Make the worlds that are missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_threshold"), help="folder of the results")
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--report", action="store_true", help="simulate nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for letter in given.settings:
        for seed in range(2 if given.quick else given.worlds):
            path, began = given.out / f"{letter}-{seed}.json", time.perf_counter()
            if not given.report and not path.exists():
                write_json(path, studied(letter, seed, given.quick))
                print(f"{letter} {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    report(given.out)


if __name__ == "__main__":
    main()
