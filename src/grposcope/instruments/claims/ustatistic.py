"""[U] arXiv:2603.01162: the gradient of GRPO is a U-statistic; its error, the oracle, the group size, the limit law.

[U] arXiv:2603.01162 at a group size that is trained with: its objective, its baseline, the scale of its limit.

[U] arXiv:2603.01162, Theorem 12: what the updates since the rollouts were drawn do to the gradient.

With rollouts of π_old the gradient at θ is Σ_y π_old(y) E[A | y] Σ_t c_t s_t(y), over completions y, with A the
advantage in a group of π_old's rollouts and c_t what a method puts on each token: 1 without a ratio, π/π_old of the
token with a token ratio, and of the whole completion (full weights) without bias. The bias is the difference to these.

[U] arXiv:2603.01162, appendix A: what estimating the deviation costs, and which divergence k3 is the gradient of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, stats

from grposcope.instruments.claims.claim import Derived, Drawing, PaperClaim, Tell
from grposcope.instruments.claims.enumerated_policy import Array, EnumeratedPolicy, leave_one_out
from grposcope.instruments.group_size import limit
from grposcope.maths import standardized_weight
from grposcope.maths.dead_groups import log_choose


def _standardized_error(tell: Tell) -> Derived:
    """G × MSE of standardized gradients about g/σ as G grows, against tr Σ₁ with the known deviation and with ours.

    Two classes of answers with means d apart and scatters 1 and 1.5; sums over all numbers of successes K.
    """
    said, good, below, dimension = [], True, True, 1.0
    for success in (0.1, 0.3, 0.5):
        spread = success * (1 - success)
        squared = spread**2 * dimension  # ‖g‖², g = V(1 − V) d
        plus, minus = (1 - success) ** 2 * dimension + 1.0, success**2 * dimension + 1.5
        second = success * (1 - success) ** 2 * plus + (1 - success) * success**2 * minus
        explained = (second - squared) / spread
        own = explained - 0.75 * (1 - 2 * success) ** 2 * squared / spread**2
        group = 16_384
        k = np.arange(1, group)
        chance = np.exp(log_choose(group, k) + k * math.log(success) + (group - k) * math.log1p(-success))
        scale = np.sqrt(k * (group - k) / (group * (group - 1)))
        square = float(chance @ (scale**2 * (dimension + 1.0 / k + 1.5 / (group - k))))
        target = math.sqrt(spread * dimension)
        error = group * (square - 2 * float(chance @ scale) * target + target**2)
        good, below = good and abs(error / own - 1) < 0.01, below and error <= explained * 1.001
        said.append(f"{error:.3f} at V = {success:g} (printed {explained:.3f}, ours {own:.3f})")
    return Derived(
        "holds in part" if good and below else "cannot tell",
        f"G × MSE at G = 16,384: {', '.join(said)}; so the printed term is a bound from above, and estimating the "
        "deviation lowers the variance",
        "two classes of answers, sums over every number of successes",
    )


def _tokens(logits: dict[tuple[int, ...], Array], theta: Array) -> tuple[list[tuple[int, ...]], Array, Array]:
    """Completions of two tokens, their token probabilities (N, 2) and token scores (N, 2, D)."""
    letters = range(len(next(iter(logits.values()))))
    completions = list(itertools.product(letters, repeat=2))
    chances, scores = [], []
    for completion in completions:
        rows = []
        for t in range(2):
            features = logits[completion[:t]]
            p = np.exp(features @ theta)
            p /= p.sum()
            rows.append((p[completion[t]], features[completion[t]] - p @ features))
        chances.append([p for p, _ in rows])
        scores.append([s for _, s in rows])
    return completions, np.array(chances), np.array(scores)


def _k3_of_tokens(tell: Tell) -> Derived:
    """Distance of the gradients of k3, of sequences, over tokens and as a reward, to those of both divergences."""
    rng, worst = np.random.default_rng(13), 0.0
    away: list[float] = []
    paid: list[float] = []
    for _ in range(9):
        places = [(), (0,), (1,), (2,)]
        logits = {position: rng.normal(size=(3, 4)) for position in places}
        theta, fixed = rng.normal(size=(2, 4))
        _, chances, scores = _tokens(logits, theta)
        _, reference, _ = _tokens(logits, fixed)
        p, q, whole = chances.prod(1), reference.prod(1), scores.sum(1)
        forward = -(q @ whole)  # ∇ KL(π_ref ‖ π)
        reverse = np.einsum("n,nd->d", p * np.log(p / q), whole)  # ∇ KL(π ‖ π_ref)
        sequence = np.einsum("n,nd->d", p * (1 - q / p), whole)
        token = np.einsum("n,nt,ntd->d", p, 1 - reference / chances, scores)
        k3 = reference / chances - 1 - np.log(reference / chances)
        reward = np.einsum("n,n,nd->d", p, k3.sum(1), whole)
        worst = max(worst, float(np.linalg.norm(sequence - forward) / np.linalg.norm(forward)))
        for distances, gradient in ((away, token), (paid, reward)):
            distances.append(
                min(
                    float(np.linalg.norm(gradient - direction) / np.linalg.norm(direction))
                    for direction in (forward, reverse)
                )
            )
    nearest, as_reward = float(np.median(away)), float(np.median(paid))
    return Derived(
        "does not hold" if nearest > 0.05 and worst < 1e-9 else "cannot tell",
        f"summed over tokens it is {nearest:.2f} of its length away from the nearer of the gradients of KL(π_ref‖π) "
        f"and KL(π‖π_ref), in the median; of whole sequences it is that of KL(π_ref‖π) to {worst:.0e}; paid as a "
        f"reward it is {as_reward:.2f} away",
        "nine policies of two tokens, every completion enumerated",
    )


DISTANCES = np.geomspace(1e-3, 3e-2, 5)
"""‖θ − θ_old‖ of the updates."""

RATIOS: dict[str, Callable[[Array], Array]] = {
    "no ratio": np.ones_like,
    "token ratio": lambda ratios: ratios,
}
"""What multiplies each token, from its own ratios (N, 2)."""


def _tables(features: Array, theta: Array) -> tuple[Array, Array]:
    """Chances of the two tokens of every completion (9, 2) and their scores (9, 2, D): the second behind the first."""
    chances, scores = [], []
    logits = features @ theta
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    own = features - np.einsum("sa,sad->sd", p, features)[:, None]
    for first, second in itertools.product(range(3), repeat=2):
        chances.append((p[0, first], p[1 + first, second]))
        scores.append((own[0, first], own[1 + first, second]))
    return np.array(chances), np.array(scores)


def _advantage(success: float, group: int) -> tuple[float, float]:
    """E[A | r] of a standardized advantage (ddof 0) for r = 0 and 1, the others drawn with this success rate."""
    rows = []
    for own in (0.0, 1.0):
        total = 0.0
        for others in itertools.product((0.0, 1.0), repeat=group - 1):
            r = np.array((own, *others))
            if r.std() > 0:
                chance = float(np.prod(np.where(r[1:] == 1, success, 1 - success)))
                total += chance * float((own - r.mean()) / r.std())
        rows.append(total)
    return rows[0], rows[1]


def _bias(features: Array, old: Array, step: Array, right: Array, ratio: Callable[[Array], Array]) -> float:
    """‖bias‖² of the gradient at old + step, on rollouts of old in groups of four; right (9,): rewards, 0 or 1."""
    drawn, _ = _tables(features, old)
    now, scores = _tables(features, old + step)
    chance = drawn.prod(1)
    advantages = np.asarray(_advantage(float(chance @ right), 4))[right.astype(int)]
    ratios = now / drawn
    off = ratio(ratios) - ratios.prod(1, keepdims=True)
    return float((np.einsum("n,n,nt,ntd->d", chance, advantages, off, scores) ** 2).sum())


def _between_updates(tell: Tell) -> Derived:
    """The slope of ln ‖bias‖² on ln ‖θ − θ_old‖, in nine worlds."""
    slopes: dict[str, list[float]] = {name: [] for name in RATIOS}
    points: list[tuple[str, float, float, float]] = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        features, old = rng.normal(size=(4, 3, 4)), rng.normal(size=4)
        right, direction = np.eye(9)[rng.choice(9, 2, replace=False)].sum(0), rng.normal(size=4)
        direction /= np.linalg.norm(direction)
        for name, ratio in RATIOS.items():
            squares = [_bias(features, old, distance * direction, right, ratio) for distance in DISTANCES]
            slopes[name].append(float(np.polyfit(np.log(DISTANCES), np.log(squares), 1)[0]))
            if seed == 0:
                points += [(name, float(d), value, 0.0) for d, value in zip(DISTANCES, squares, strict=True)]
    good = all(abs(slope - 2) < 0.1 for each in slopes.values() for slope in each)
    shown = " and ".join(f"{min(each):.2f} to {max(each):.2f} with {name}" for name, each in slopes.items())
    return Derived(
        "holds" if good else "does not hold",
        f"‖bias‖² grows as ‖θ − θ_old‖ to the power {shown}; with full weights there is no bias",
        "nine policies of two tokens, standardized advantages of four, every completion enumerated",
        Drawing("‖θ − θ_old‖", "‖bias‖²", points, log=True),
    )


SUCCESSES = (0.02, 0.1, 0.25, 0.5)


def _weight(success: float, group: int) -> float:
    """The factor on ∇p of the standardized gradient of one prompt, over its 2^G outcomes; the score is (r − p)/(p(1−p))
    up to ∇p."""
    total = 0.0
    for outcome in itertools.product((0.0, 1.0), repeat=group):
        r = np.array(outcome)
        if r.std() > 0:
            chance = float(np.prod(np.where(r == 1, success, 1 - success)))
            total += chance * float(((r - r.mean()) / r.std() * (r - success)).mean())
    return total / (success * (1 - success))


def _standardized_objective(tell: Tell) -> Derived:
    """Weights of hard prompts by enumeration, against those of arcsin and of ψ_G′."""
    groups, worst = (2, 3, 4, 8, 12), 0.0
    points: list[tuple[str, float, float, float]] = []
    at = {}
    for group in groups:
        half = _weight(0.5, group)
        for success in SUCCESSES:
            listed = _weight(success, group)
            worst = max(worst, abs(listed - float(standardized_weight.weight(success, group))))
            points.append((f"success {success:g}", group, listed / half, 0.0))
        at[group] = _weight(0.1, group) / half
    arcsin = standardized_weight.limit(0.1)
    far = float(standardized_weight.relative(0.1, 1024))
    same = abs(at[8] - arcsin) < 0.01
    shown = ", ".join(f"{value:.2f} at G = {group}" for group, value in at.items())
    return Derived(
        "holds" if same else "does not hold",
        f"a prompt of success rate 0.1 weighs {shown} relative to one of 0.5, and {arcsin:.2f} under arcsin, which is "
        f"the limit ({far:.2f} at G = 1,024); ψ_G′ = w_G agrees with enumeration to {worst:.1g}",
        "every outcome of G = 2 to 12, rewards of two values",
        Drawing("group size G", "weight of a prompt ÷ that of success ½", points),
    )


def _uniform(arms: int) -> EnumeratedPolicy:
    """A uniform softmax of which one arm is right: score norms are equal, so Cov(r, ‖s‖²) = 0, assumption A2, holds."""
    return EnumeratedPolicy(np.full((1, arms), 1 / arms), (np.eye(arms) - 1 / arms)[None], np.eye(1, arms))


def _finite_baseline(tell: Tell) -> Derived:
    """Enumerated errors of leave-one-out and of no baseline where assumption A2 holds exactly."""
    beaten, right, points = [], True, []
    for arms in (2, 3, 4):
        policy = _uniform(arms)
        _, oracle, residual = policy.parts()
        value = 1 / arms
        bare = policy.error(1, lambda r, _: r)
        border = 1 + residual / (bare - oracle)
        for group in range(2, 10):
            own = policy.error(group, leave_one_out)
            points.append((f"V = {value:.2g}", float(group), own / (bare / group), 0.0))
            if abs(group - border) > 1e-9:
                right = right and (own < bare / group) is (group > border)
            if own > bare / group + 1e-12:
                beaten.append(f"G = {group} at V = {value:.2g}")
    return Derived(
        "does not hold" if beaten and right else "holds" if right else "cannot tell",
        f"no baseline has less error than leave-one-out at {', '.join(beaten)}, and more from G of about 1/V on, as "
        "G − 1 > Δ/(E r²‖s‖² − ‖g‖² − Σ₁) says",
        "uniform softmax policies of 2 to 4 answers, where Cov(r, ‖s‖²) = 0; every outcome of G = 2 to 9 enumerated",
        Drawing("group size G", "error of leave-one-out ÷ that of no baseline", points),
    )


def _limit_scale(tell: Tell, steps: int = 40_000) -> Derived:
    """n Var(θ_n) of the exact recursion against the limit with and without η²."""
    said, good, curvature = [], True, 1.0
    for rate in (1.0, 2.0, 3.0):
        variance = 1.0
        for n in range(20, 20 + steps):
            variance = variance * (1 - rate * curvature / n) ** 2 + rate**2 / n**2
        reached = variance * (20 + steps)
        printed = 1 / (2 * rate * curvature - 1)
        good = good and abs(reached / (rate**2 * printed) - 1) < 0.01
        said.append(f"{reached:.3f} at η = {rate:g} (with η² {rate**2 * printed:.3f}, as printed {printed:.3f})")
    return Derived(
        "does not hold" if good else "cannot tell",
        f"n Var(θ_n): {', '.join(said)}",
        "θ ← θ − η/n (θ + noise of variance 1), whose variance is a recursion without sampling",
    )


def _shrunk_error(policy: EnumeratedPolicy, group: int, shrink: float) -> float:
    """Error of one prompt's gradient with the baseline λ × the mean of the others, over every outcome."""

    def advantages(rewards: Array, _: int) -> Array:
        others = (rewards.sum() - rewards) / (len(rewards) - 1)
        return np.asarray(rewards - shrink * others)

    return policy.error(group, advantages)


def _shrunk_baseline(tell: Tell) -> Derived:
    """The enumerated error of a shrunk baseline against its formula, and what it needs on hard prompts."""
    worst, saved = 0.0, []
    for seed in (1, 2):
        policy = EnumeratedPolicy.random(seed, 2, 3, 3, binary=True)
        prompt, _, residual = policy.parts()
        for group, shrink in itertools.product((2, 3, 5), (0.0, 0.4, 1.0)):
            value = (policy.chances * policy.rewards).sum(1, keepdims=True)
            length = (policy.scores**2).sum(-1)
            square = (policy.chances * (policy.rewards - shrink * value) ** 2 * length).sum(1)
            rollouts = float((square - (policy.gradients**2).sum(-1)).mean())
            formula = prompt + rollouts / group + shrink**2 * residual / (group * (group - 1))
            worst = max(worst, abs(_shrunk_error(policy, group, shrink) - formula))
    for arms in (16, 32):
        policy, value = _uniform(arms), 1 / arms
        _, oracle, residual = policy.parts()
        length = 1 - 1 / arms
        best = value * value * length / (value**2 * length + residual / 3)
        needs = [_shrunk_error(policy, 4, shrink) * 4 / oracle for shrink in (0.0, 1.0, best)]
        saved.append(f"{needs[2]:.2f} (none {needs[0]:.2f}, leave-one-out {needs[1]:.2f}) at V = {value:.2g}")
    return Derived(
        "holds" if worst < 1e-10 else "does not hold",
        f"formula and enumeration differ by at most {worst:.1g}; rollouts needed at G = 4 ÷ the oracle's: "
        f"{', '.join(saved)}",
        "softmax policies, every outcome enumerated",
    )


ROUNDING = 1e-10
"""Difference from which on two sums over listed outcomes are not equal."""


def _policies() -> list[EnumeratedPolicy]:
    return [EnumeratedPolicy.random(seed, 2, 3, 3, binary) for seed in (1, 2) for binary in (False, True)]


def _mse(tell: Tell) -> Derived:
    """Formula against a list of every outcome."""
    worst, cells = 0.0, 0
    points: list[tuple[str, float, float, float]] = []
    for number, policy in enumerate(_policies(), 1):
        prompt, oracle, residual = policy.parts()
        for group in (2, 3, 4, 8):
            formula = prompt + oracle / group + residual / (group * (group - 1))
            listed = policy.error(group, leave_one_out)
            worst, cells = max(worst, abs(listed - formula)), cells + 1
            points.append((f"policy {number}", group, listed / prompt, 0.0))
    return Derived(
        "holds" if worst < ROUNDING else "does not hold",
        f"formula and enumeration differ by at most {worst:.1g} in {cells} cells (G = 2 to 8, graded and binary "
        "rewards)",
        "softmax policies of 2 prompts and 3 answers, every outcome enumerated",
        Drawing("group size G", "error of one prompt's gradient ÷ V_p", points, log=True),
    )


def _oracle(tell: Tell) -> Derived:
    """The error against that of a gradient that knows the value of each prompt, both listed, without prompts' share."""
    ratios: dict[int, list[float]] = {group: [] for group in (2, 8, 16)}
    worst = 0.0
    for policy in _policies():
        values = (policy.chances * policy.rewards).sum(1)
        prompt, sigma, residual = policy.parts()
        for group, found in ratios.items():
            own = policy.error(group, leave_one_out) - prompt
            error = policy.error(group, lambda r, x, values=values: r - values[x]) - prompt  # type: ignore[misc]
            found.append(own / error)
            worst = max(worst, abs(own / error - (1 + residual / ((group - 1) * sigma))))
    mean = {group: math.fsum(values) / len(values) for group, values in ratios.items()}
    good = worst < 1e-8 and 1 < mean[16] < mean[8] < mean[2]
    return Derived(
        "holds" if good else "does not hold",
        "error ÷ the oracle's, mean of four policies: "
        + ", ".join(f"{value:.2f} at G = {group}" for group, value in mean.items())
        + f"; it agrees with 1 + Δ/((G−1)Σ₁) to {worst:.1g}",
        "the same policies, every outcome enumerated",
        Drawing("group size G", "error ÷ the oracle's", [("mean", group, value, 0.0) for group, value in mean.items()]),
    )


def _universal(tell: Tell) -> Derived:
    """The best G for several budgets, by the listed error, against 1 + √(Δ/V_p)."""
    groups, equal, said = np.arange(2, 13), True, []
    points: list[tuple[str, float, float, float]] = []
    for seed in (1, 2, 5):
        policy = EnumeratedPolicy.random(seed, 2, 2, 3, True)
        prompt, _, residual = policy.parts()
        root = 1 + math.sqrt(residual / prompt)
        error = np.array([policy.error(int(group), leave_one_out) for group in groups])
        best = {int(groups[(error * groups / budget).argmin()]) for budget in (64, 512, 4096)}
        near = {int(np.clip(math.floor(root), 2, 12)), int(np.clip(math.ceil(root), 2, 12))}
        equal = equal and len(best) == 1 and best <= near
        needed = error * groups / (error * groups).min()
        points += [(f"G* = {root:.2f}", float(g), float(y), 0.0) for g, y in zip(groups, needed, strict=True)]
        said.append(f"{min(best)} (1 + √(Δ/V_p) = {root:.2f})")
    return Derived(
        "holds" if equal else "does not hold",
        f"the G with the smallest error is the same at 64, 512 and 4,096 rollouts: {', '.join(said)}",
        "three softmax policies, every outcome of G = 2 to 12 enumerated; it changes during training "
        "(ustat_universality_seeds.py)",
        Drawing("group size G", "rollouts needed ÷ the minimum", points),
    )


class _World:
    """Two prompts of four answers over three parameters, with a ridge, so that there is one optimum inside."""

    ridge, step = 0.3, 4.0

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.features, self.rewards = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4))

    def chances(self, theta: Array) -> Array:
        weights = np.exp(np.einsum("xad,...d->...xa", self.features, theta))
        return np.asarray(weights / weights.sum(-1, keepdims=True))

    def objective(self, theta: Array) -> Array:
        value = (self.chances(theta) * self.rewards).sum(-1).mean(-1)
        return np.asarray(value - self.ridge / 2 * (theta**2).sum(-1))

    def parts(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Scores' pieces at one θ: gradients (X, D), their outer product, Σ₁ and Δ as matrices (D, D)."""
        p = self.chances(theta)
        s = self.features - (p[..., None] * self.features).sum(1, keepdims=True)
        off = self.rewards - (p * self.rewards).sum(-1, keepdims=True)
        g = ((p * off)[..., None] * s).sum(1)
        outer = g.T @ g / len(g)
        sigma = np.einsum("xa,xad,xae->de", p * off**2, s, s) / len(g) - outer
        fisher = np.einsum("xa,xad,xae->xde", p, s, s)
        delta = ((p * off**2).sum(-1)[:, None, None] * fisher).mean(0) + outer
        return g, outer, sigma, delta

    def gradient(self, theta: Array) -> Array:
        return np.asarray(self.parts(theta)[0].mean(0) - self.ridge * theta)

    def sampled(self, theta: Array, group: int, rng: np.random.Generator) -> Array:
        """A leave-one-out gradient of one random prompt for each θ, (runs, D)."""
        x = rng.integers(2, size=len(theta))
        ladder = np.take_along_axis(self.chances(theta), x[:, None, None], 1)[:, 0].cumsum(-1)
        drawn = (rng.random((len(theta), group, 1)) > ladder[:, None, :-1]).sum(-1)
        r = self.rewards[x[:, None], drawn]
        advantages = (r - r.mean(-1, keepdims=True)) / (group - 1)  # they sum to zero: features stand for scores
        return np.asarray((advantages[:, None] @ self.features[x[:, None], drawn])[:, 0] - self.ridge * theta)


def _limit_law(tell: Tell, runs: int = 2000, steps: int = 1500) -> Derived:
    """Distance of n × gap to the weighted χ² law at the end, and to the law with another group's noise."""
    world, groups, rows = _World(), (2, 8), {}
    best = optimize.root(world.gradient, np.zeros(3), tol=1e-13).x
    slope = -np.stack([(world.gradient(best + e) - world.gradient(best - e)) / 2e-5 for e in 1e-5 * np.eye(3)])
    hessian = (slope + slope.T) / 2
    g, outer, sigma, delta = world.parts(best)
    spread = outer - np.outer(g.mean(0), g.mean(0))
    laws = {
        group: limit.weights(
            hessian, limit.covariance(hessian, limit.noise(spread, sigma, delta, 1, group), world.step)
        ) / 2
        for group in groups
    }  # fmt: skip
    for group in groups:
        tell(f"limit law: {runs:,} runs at G = {group}")
        rng, theta = np.random.default_rng([11, group]), np.tile(best, (runs, 1))
        for n in range(1, steps + 1):
            theta = theta + world.step / (n + 20) * world.sampled(theta, group, rng)
        gaps = steps * (world.objective(best) - world.objective(theta))
        other = groups[1 - groups.index(group)]
        rows[group] = [
            float(stats.kstest(gaps, lambda x, law=laws[of]: limit.cdf(x, law)).statistic) for of in (group, other)
        ]
    least = float(stats.kstwo.ppf(0.99, runs))
    good = all(own < 2 * least and off > 3 * own for own, off in rows.values())
    return Derived(
        "holds" if good else "does not hold",
        "Kolmogorov-Smirnov distance between n × gap and its law: "
        + ", ".join(
            f"{own:.3f} at G = {group} ({off:.2f} to the law of the other group size)"
            for group, (own, off) in rows.items()
        )
        + f"; 99% of samples from the law itself stay below {least:.3f}",
        f"one softmax policy of three parameters, {runs:,} runs of {steps:,} steps each",
    )


CLAIMS = (
    PaperClaim(
        "mse", "u", "The error of the group gradient is (1/P)[V_p + Σ₁/G + Δ/(G(G−1))], like that of a U-statistic",
        f"holds if formula and enumeration differ by less than {ROUNDING:g} in every cell", True,
        "ustat_exactness.py", _mse, "ours",
    ),
    PaperClaim(
        "oracle", "u", "As G grows, the group gradient becomes as good as one that knows the value of each prompt",
        "holds if the ratio of the enumerated errors is 1 + Δ/((G−1)Σ₁) and falls towards 1", True,
        "ustat_deep_network.py", _oracle, "theorem",
    ),
    PaperClaim(
        "group-size", "u", "One group size is best, whatever the budget: G* = 1 + √(Δ/V_p)",
        "holds if the enumerated error is smallest at the same G for three budgets, and that G is next to G*", True,
        "ustat_universality.py", _universal, "theorem",
    ),
    PaperClaim(
        "limit-law", "u", "Near the optimum the gap tends to a weighted χ² law that depends on the group size",
        "holds if the distance to the law is less than twice that of samples from it, and the distance to the law of "
        "another group size is over three times as large", False, "ustat_limit.py", _limit_law, "theorem",
    ),
    PaperClaim(
        "limit-scale", "u", "The covariance of Theorem 8, as printed without η², is that of √n (θ_n − θ*)",
        "does not hold if n Var of an exact recursion is within 1% of the formula with η² at three rates", True,
        "ustat_limit.py", _limit_scale, "theorem",
    ),
    PaperClaim(
        "arcsin", "u", "At a fixed G standardized advantages climb 2 arcsin √V (Proposition 13)",
        "does not hold if at G = 8 the enumerated weight of a prompt of success rate 0.1 is not that of arcsin", True,
        "", _standardized_objective, "theorem",
    ),
    PaperClaim(
        "finite-baseline", "u", "Under assumption A2 leave-one-out beats no baseline at every G (Corollary 5)",
        "does not hold if an enumerated error without a baseline is less where Cov(r, ‖s‖²) = 0", True,
        "ustat_finite_baseline.py", _finite_baseline, "theorem",
    ),
    PaperClaim(
        "shrunk-baseline", "u", "A baseline of λ × the others' mean has the error V_p + [E(r−λV)²‖s‖² − ‖g‖²]/G + "
        "λ²Δ/(G(G−1))", f"holds if formula and enumeration differ by less than {ROUNDING:g}", True, "",
        _shrunk_baseline, "ours",
    ),
    PaperClaim(
        "standardized-error", "u", "Standardized gradients have the error tr Σ₁/G of the known deviation (Theorem 12)",
        "in part if G × MSE is below it and agrees with [tr Σ₁ − ¾(1−2V)²‖g‖²/σ⁴] to 1%", True, "",
        _standardized_error, "theorem",
    ),
    PaperClaim(
        "k3-tokens", "u", "A k3 penalty summed over tokens is a penalty of KL(π‖π_ref) (Proposition 13)",
        "does not hold if its pathwise gradient is over 5% off those of both divergences, in the median", True, "",
        _k3_of_tokens, "theorem",
    ),
    PaperClaim(
        "batch-reuse", "u", "Between updates of one batch the squared bias grows as ‖θ − θ_old‖² (Theorem 12)",
        "holds if the slope of its logarithm is within 0.1 of 2 without a ratio and with one per token, in every world",
        True, "offpolicy_between_updates.py", _between_updates, "theorem",
    ),
)  # fmt: skip
