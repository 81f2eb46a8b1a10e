"""[U] arXiv:2603.01162 at a group size that is trained with: its objective, its baseline, the scale of its limit."""

from __future__ import annotations

import itertools

import numpy as np

from grposcope.instruments.claims.claim import Derived, Drawing, Tell
from grposcope.instruments.claims.enumerated_policy import Array, EnumeratedPolicy, leave_one_out
from grposcope.maths import standardized_weight

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


def standardized_objective(tell: Tell) -> Derived:
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


def finite_baseline(tell: Tell) -> Derived:
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


def limit_scale(tell: Tell, steps: int = 40_000) -> Derived:
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


def shrunk_baseline(tell: Tell) -> Derived:
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
