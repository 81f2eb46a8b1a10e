"""Number of rollouts per prompt that a budget should buy.

With a cost c_p per prompt (its prefill) and c_r per rollout, P prompts of G rollouts cost P (c_p + c_r G), and

    cost × MSE = f(G) = (c_p + c_r G) (V_p + Σ₁/G + Δ/(G(G−1)))

does not contain P: the best G is the same for every budget. For c_p = 0 it is G* = 1 + √(Δ/V_p)
(arXiv:2603.01162 derives it for an upper bound; here f is the exact error). For c_p > 0, f'(G) = 0 has one root.

f is often flat, so a plan is a curve: `loss` at G is f(G)/f(best) − 1, the share by which the budget must
grow at that G to reach the same error; its intervals are bootstrapped over prompts. The interval of G* is Fieller's,
and a plan is undecided where it has no upper end or where too few groups are informative: see `maths.confidence`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.group_size import mse
from grposcope.maths import resampling
from grposcope.maths.confidence import FARTHEST, LEAST_INFORMATIVE, MOST, POWER, pseudo_values, quantile, sides
from grposcope.maths.moments import LEAST, Moments, Statistics

GROUPS = (2, 4, 8, 16, 32, 64)
NEAR = 0.05
"""Loss up to which a group size counts as near the best."""
SCORE_MEAN = 0.01
"""Share of E‖s‖² in ‖E s‖² from which scores count as not averaging to 0, if beyond four standard errors too."""

_FARTHEST = 1e9  # upper end of the search for the root; an optimum near it counts as infinite


@dataclass(frozen=True)
class _Point:
    """One group size on the curve of a plan.

    cost_mse: cost × MSE. loss: share by which it needs more budget than the best G, 0 at the best;
    loss_interval: its 95 % bootstrap interval. efficiency: MSE over that of the oracle for a given prompt.
    """

    group: int
    cost_mse: Estimate
    loss: float
    loss_interval: tuple[float, float]
    efficiency: Estimate


@dataclass(frozen=True)
class Plan:
    """The best group size and what others lose, or why it cannot be told.

    continuous: the real-valued optimum G*, NaN with a flag where V_p ≤ 0 or too few groups are informative.
    integer: the best whole G ≥ 2, 0 where the plan is undecided. interval: of G*, 95 %; infinite above where V_p is not
    told apart from 0, NaN for too few informative groups. near: the least and the greatest G up to 4096 whose
    loss is at most NEAR, (0, 0) where undecided. informative: groups that decide whether to answer. more_prompts: how
    many further prompts would probably decide, 0 where decided. curve: a point per group size asked for, empty where
    undecided.
    """

    continuous: Estimate
    integer: int
    interval: tuple[float, float]
    near: tuple[int, int]
    informative: int
    more_prompts: int
    curve: tuple[_Point, ...]

    @property
    def decided(self) -> bool:
        """Whether there is an answer: a best group size with an interval that ends."""
        return self.integer > 0

    @property
    def at_least(self) -> int:
        """The least whole G of an interval that has no end, where it rules out smaller ones; else 0."""
        low, high = self.interval
        return math.ceil(low) if high == math.inf and low > 2 else 0


@dataclass(frozen=True)
class Allocation:
    """P prompts × G rollouts that a budget affords, and the MSE they reach."""

    prompts: int
    group: int
    cost: float
    mse: Estimate


def optimal_group(
    moments: Moments, prompt_cost: float = 0.0, rollout_cost: float = 1.0, groups: Sequence[int] = GROUPS
) -> Plan:
    """The plan for these costs per prompt and per rollout, with a point on its curve for each of `groups`.

    Withheld, with the reason as flag, where rollouts of a prompt are no independent draws (`not_independent`). Raises
    UserError where the probe does not determine it: one prompt, G < 4, or no gradient.
    """
    _check_costs(prompt_cost, rollout_cost)
    _require(moments)
    costs = (prompt_cost, rollout_cost)
    if reason := not_independent(moments):
        withheld = Estimate(math.nan, math.nan, moments.prompts, reason)
        return Plan(withheld, 0, (math.nan, math.nan), (0, 0), int(moments.informative.sum()), 0, ())
    interval = _interval(moments, *costs)
    root, left_out = (optimum(s, *costs) for s in (moments.pooled, moments.jackknife))
    informative = int(moments.informative.sum())
    if math.isnan(interval[0]) or not math.isfinite(root[0]):
        flag = (
            "too few informative groups"
            if math.isnan(interval[0])
            else "this probe finds no difference between the gradients of prompts (V_p is not above 0)"
        )
        continuous = Estimate(math.nan, math.nan, moments.prompts, flag)
    else:
        continuous = resampling.estimate(float(root[0]), left_out, _flag(moments, float(root[0])))
    if not (math.isfinite(interval[1]) and math.isfinite(continuous.value)):
        return Plan(continuous, 0, interval, (0, 0), informative, _more_prompts(moments), ())
    candidates = np.unique(np.geomspace(2, 4096, 400).astype(int))
    near = candidates[loss(moments.pooled, candidates, *costs)[0] <= NEAR]
    return Plan(
        continuous=continuous,
        integer=_whole(moments.pooled, float(root[0]), *costs),
        interval=interval,
        near=(int(near.min()), int(near.max())) if len(near) else (0, 0),
        informative=informative,
        more_prompts=0,
        curve=tuple(_point(moments, group, *costs) for group in groups),
    )


_GRID = 1 + np.geomspace(0.01, FARTHEST - 1, 400)


def _interval(moments: Moments, prompt_cost: float = 0.0, rollout_cost: float = 1.0) -> tuple[float, float]:
    """95 % interval of the real-valued best G, from 1 to FARTHEST; inf for an upper end beyond it.

    NaN for both with fewer than LEAST_INFORMATIVE informative groups.
    """
    informative = int(moments.informative.sum())
    if informative < LEAST_INFORMATIVE:
        return math.nan, math.nan
    names = ("prompt_variance", "sigma1", "delta")
    of_prompts = np.stack([pseudo_values(getattr(moments.pooled, n), getattr(moments.jackknife, n)) for n in names])
    shrunk = prompt_cost * (1 - 1 / _GRID) ** 2
    factors = np.stack([rollout_cost * (_GRID - 1) ** 2, -shrunk, shrunk - prompt_cost - rollout_cost])
    below, above = sides(factors.T @ of_prompts)
    return _ends(below, above, quantile(informative))


def _ends(below: NDArray, above: NDArray, reach: float) -> tuple[float, float]:
    """Ends of the set of G where below ≥ −reach and above ≤ reach on the grid, interpolated in ln(G − 1)."""
    scale, room = np.log(_GRID - 1), np.minimum(below, -above) + reach
    inside = np.flatnonzero(room >= 0)
    if not len(inside):  # on one side of 0 everywhere, or narrower than the grid
        inside = np.array([min(int((below < -reach).sum()), len(room) - 1)])
    first, last = int(inside[0]), int(inside[-1])

    def crossing(outside: int, within: int) -> float:
        share = max(room[within], 0.0) / (max(room[within], 0.0) - room[outside])
        return float(1 + np.exp(scale[within] + share * (scale[outside] - scale[within])))

    low = crossing(first - 1, first) if first > 0 else 1.0
    ends = last < len(room) - 1 and above[-1] > reach
    return low, crossing(last + 1, last) if ends else math.inf


def _more_prompts(moments: Moments) -> int:
    """How many further prompts like these would probably decide, at most MOST times as many in all.

    There must be LEAST_INFORMATIVE informative groups, and V_p must lie beyond its limit for an upper end to exist.
    """
    informative, prompts = int(moments.informative.sum()), moments.prompts
    for_groups = 1.25 * LEAST_INFORMATIVE / max(informative, 0.5)
    error, wanted = moments.prompt_variance.se, quantile(max(informative, LEAST_INFORMATIVE)) + POWER
    variance = max(moments.prompt_variance.value / error, 0.0) if error > 0 else 0.0
    for_width = (wanted / variance) ** 2 if variance > 0 else MOST
    return math.ceil(prompts * (min(max(for_groups, for_width, 1.25), MOST) - 1))


def score_mean(moments: Moments) -> Estimate:
    """‖E s‖²/E‖s‖² over pairs of a prompt's rollouts: 0 for independent draws of the policy, above for correlated ones,
    and for draws by top-p, top-k or another temperature."""
    return moments.estimate(lambda s: s.score2 / s.norm)


def not_independent(moments: Moments) -> str:
    """Why the rollouts of a prompt are no independent draws of the policy, where that is told; else empty.

    Correlated rollouts make groups alike and prompts seem to differ, so that a plan would be of another world.
    """
    share = score_mean(moments)
    if not (share.value > 4 * share.se and share.value > SCORE_MEAN):
        return ""
    return (
        f"the scores of two rollouts of a prompt have a correlation of {share.value:.2g} instead of 0, so they are no "
        "independent draws of the policy"
    )


def optimum(statistics: Statistics, prompt_cost: float, rollout_cost: float) -> NDArray:
    """Minimiser of f over real G > 1 for each of the statistics, (k,): 1 for Δ ≤ 0, inf for V_p ≤ 0, else the root.

    (G−1)² f' = c_r V (G−1)² − c_p (Σ₁ − Δ)(1 − 1/G)² − (c_p + c_r) Δ changes sign once, upwards.
    """
    v, s, d = (np.atleast_1d(a) for a in (statistics.prompt_variance, statistics.sigma1, statistics.delta))
    with np.errstate(divide="ignore", invalid="ignore"):
        if prompt_cost == 0:
            root = 1 + np.sqrt(np.maximum(d, 0) / v)
            return np.where(np.isnan(v), np.nan, np.where(v <= 0, np.inf, root))
        low, high = np.full(v.shape, math.log(1e-9)), np.full(v.shape, math.log(_FARTHEST))
        for _ in range(100):
            middle = (low + high) / 2
            gain = np.exp(middle)
            slope = (
                rollout_cost * v * gain**2
                - prompt_cost * (s - d) * (gain / (1 + gain)) ** 2
                - (prompt_cost + rollout_cost) * d
            )
            low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
    root = 1 + np.exp(low)
    return np.where(np.isnan(v), np.nan, np.where((v <= 0) | (root > _FARTHEST / 2), np.inf, root))


def _whole(statistics: Statistics, root: float, prompt_cost: float, rollout_cost: float) -> int:
    """The better of the two whole G ≥ 2 next to the real-valued optimum `root`; 0 for an infinite one."""
    if not math.isfinite(root):
        return 0
    below = max(2, math.floor(root))
    values = [float(cost_mse(statistics, g, prompt_cost, rollout_cost)[0]) for g in (below, below + 1)]
    return below if values[0] <= values[1] else below + 1


def cost_mse(statistics: Statistics, group: int, prompt_cost: float, rollout_cost: float) -> NDArray:
    """f(G) = cost × MSE for each of the statistics, (k,)."""
    per_prompt = mse.second_moment(statistics, group) - statistics.mean2
    return np.atleast_1d((prompt_cost + rollout_cost * group) * per_prompt)


def loss(statistics: Statistics, groups: NDArray, prompt_cost: float, rollout_cost: float) -> NDArray:
    """f(G)/min f − 1 for each of the statistics and group sizes, (k, len(groups)); the minimum is over whole G ≥ 2.

    A V_p below 0 is taken as 0; the minimum is then the limit c_r Σ₁ for G → ∞. NaN where the minimum is not above 0.
    """
    v, s, d = (np.atleast_1d(a) for a in (statistics.prompt_variance, statistics.sigma1, statistics.delta))
    v = np.where(v < 0, 0.0, v)

    def f(group: NDArray) -> NDArray:
        return (prompt_cost + rollout_cost * group) * (v + s / group + d / (group * (group - 1)))

    root = optimum(statistics, prompt_cost, rollout_cost)
    below = np.maximum(2, np.floor(np.where(np.isfinite(root), root, 2)))
    least = np.where(np.isinf(root), rollout_cost * s, np.minimum(f(below), f(below + 1)))
    curve = np.stack([f(np.asarray(g)) for g in groups], -1)
    losses = np.where(least[:, None] > 0, curve / np.where(least > 0, least, 1.0)[:, None] - 1, np.nan)
    return np.where(np.abs(losses) < 1e-9, 0.0, losses)  # rounding error at the best G


def allocate(
    moments: Moments,
    budget: float,
    prompt_cost: float = 0.0,
    rollout_cost: float = 1.0,
    multiple: int = 1,
    noise: Mapping[int, float] | None = None,
) -> Allocation:
    """The whole P and G of least error with P (c_p + c_r G) ≤ budget and P·G divisible by `multiple`.

    multiple: devices × micro-batch. noise: that over signal at each G to choose from, as
    `instruments.group_size.recipe_plan` has it for standardized advantages; by default the error is that of
    leave-one-out, at any G ≥ 2. Raises UserError where the budget does not buy one such batch, and where the best group
    size cannot be told.
    """
    _check_costs(prompt_cost, rollout_cost)
    if multiple < 1:
        raise UserError(f"a batch cannot be a multiple of {multiple}; use devices × micro-batch, 1 or more")
    if noise is None and not optimal_group(moments, prompt_cost, rollout_cost, ()).decided:
        raise UserError("this probe cannot tell the best group size, so it cannot divide a budget; probe more prompts")
    most = int((budget - prompt_cost) / rollout_cost) if budget > prompt_cost else 0
    best: tuple[float, int, int] | None = None
    for group in noise or range(2, most + 1):
        step = multiple // math.gcd(multiple, group)  # P·G is divisible where P is divisible by this
        prompts = int(budget / (prompt_cost + rollout_cost * group)) // step * step
        if prompts >= 1:
            per_prompt = (
                noise[group] / (prompt_cost + rollout_cost * group)
                if noise
                else float(cost_mse(moments.pooled, group, 0.0, 1.0)[0]) / group
            )
            error = per_prompt / prompts
            best = min(best or (math.inf, 0, 0), (error, prompts, group))
    if best is None:
        batch = f"batches in multiples of {multiple} rollouts" if multiple > 1 else "one group of two rollouts"
        raise UserError(f"a budget of {budget:g} is too small for {batch}; raise the budget or lower the multiple")
    _, prompts, group = best
    cost = prompts * (prompt_cost + rollout_cost * group)
    return Allocation(prompts, group, cost, mse.leave_one_out(moments, prompts, group))


def resampling_gain(moments: Moments, group: int, dead: float) -> float:
    """Relative error of plain sampling over that of dynamic resampling (DAPO) at equal numbers of rollouts drawn.

    With a share `dead` of groups without a gradient, replacing them takes P/(1−dead) groups drawn for P live ones.
    Leave-one-out gradients of live groups have mean E g/(1−dead), in the same direction. Variance
    over squared mean, for N rollouts drawn, is G (E‖ĝ‖² − ‖Eg‖²)/N‖Eg‖² without and
    G (E‖ĝ‖² − ‖Eg‖²/(1−dead))/N‖Eg‖² with resampling: a value above 1 says that resampling helps. NaN for dead = 1,
    and where no variance is left with resampling.
    Method of this project; no publication.
    """
    second = float(np.reshape(mse.second_moment(moments.pooled, group), -1)[0])
    mean2 = float(moments.pooled.mean2[0])
    left = second - mean2 / (1 - dead) if dead < 1 else 0.0
    return (second - mean2) / left if left else math.nan


def _require(moments: Moments) -> None:
    """Raise a UserError, naming the moments that are known, unless Σ₁, Δ and V_p are and some reward differs."""
    if not moments.per_prompt.reward_variance.any():
        raise UserError(
            "all rewards are equal within every group, so there is no gradient to plan for; "
            "probe more prompts, or problems the model solves sometimes"
        )
    if moments.prompts < 2 or math.isnan(moments.mean2.value):
        reason = "one prompt" if moments.prompts < 2 else "a Gram matrix without entries across prompts"
        raise UserError(
            f"{reason} does not show how gradients differ between prompts (V_p), so it cannot choose a group "
            f"size; it gives only the variance per rollout Σ₁ = {moments.sigma1.value:.4g} and the price of the "
            f"group's baseline Δ = {moments.delta.value:.4g}; probe 2 prompts or more"
        )
    if moments.group < LEAST:
        errors = [(g, mse.leave_one_out(moments, 1, g)) for g in range(2, moments.group + 1)]
        known = [f"{error.value:.4g} ± {error.se:.2g} at G = {g}" for g, error in errors]
        raise UserError(
            f"unbiased ‖g‖², variance per rollout Σ₁ and price of the group's baseline Δ need {LEAST} rollouts per "
            f"prompt, but the probe has {moments.group}; it gives only the error per prompt, {' and '.join(known)}; "
            f"probe groups of {LEAST} or more"
        )


def _point(moments: Moments, group: int, prompt_cost: float, rollout_cost: float) -> _Point:
    groups = np.array([group])
    return _Point(
        group=group,
        cost_mse=moments.estimate(lambda s: cost_mse(s, group, prompt_cost, rollout_cost)),
        loss=float(loss(moments.pooled, groups, prompt_cost, rollout_cost)[0, 0]),
        loss_interval=resampling.interval(loss(moments.bootstrap, groups, prompt_cost, rollout_cost)[:, 0]),
        efficiency=mse.efficiency(moments, group),
    )


def _flag(moments: Moments, root: float) -> str:
    """The reason for doubt about the optimum."""
    return "this probe finds no cost of estimating the baseline (Δ is not above 0)" if root == 1 else moments.flag


def _check_costs(prompt_cost: float, rollout_cost: float) -> None:
    if not (math.isfinite(prompt_cost) and prompt_cost >= 0):
        raise UserError(f"a cost per prompt of {prompt_cost:g} must be 0 or more")
    if not (math.isfinite(rollout_cost) and rollout_cost > 0):
        raise UserError(f"a cost per rollout of {rollout_cost:g} must be above 0")
