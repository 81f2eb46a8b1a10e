"""The best group size that a probe supports, as numbers and sentences, for leave-one-out advantages and for a recipe.

G* is the real-valued group size with the smallest error per budget, `instruments.group_size.planning` has its
definition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np

from grposcope.core.answer import KeyNumber
from grposcope.core.capabilities import Comparison
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats
from grposcope.core.text import number, percent, span
from grposcope.instruments.gradient.probe_record import ProbeRecord
from grposcope.instruments.group_size import mse, planning, recipe_plan
from grposcope.instruments.group_size.planning import GROUPS, Allocation, Plan
from grposcope.instruments.group_size.recipe_plan import RecipePlan
from grposcope.maths import confidence, dead_groups, intervals, resampling
from grposcope.maths import moments as gradient_moments
from grposcope.maths.moments import Moments, Statistics

MOMENTS = ("sigma1", "delta", "prompt_variance", "g2", "mean2")
"""Fields of `Moments` that a plan rests on."""

UNEVEN = 0.2
"""Share of the squared gradients in one prompt from which intervals are too short, where many groups are live."""

TIMES_EVEN = 4.0
"""The same where few are: times the share that a prompt would have if all live groups had the same."""

NORM_KNOWN = 0.16
"""Relative standard error of E‖s‖² over prompts from which single prompts decide, and intervals are too short."""

EXTRAPOLATION = "*: extrapolated beyond the probe's rollouts; success rates are assumed to follow a Beta distribution."
"""Explains the star of `GroupSize.dead_shown`."""

LARGEST_LAYERS = 600e6
"""Bytes of a gram.npz up to which `by_block` reads the Grams of its layers."""

NO_LIMIT = "no upper limit: V_p is not told apart from 0"
"""Why a best group size is not known whose interval is open."""

OUTSIDE = "outside of blocks"
"""Name for the layers that belong to no numbered block, in `by_block`."""

KINDS: dict[str, Comparison] = {
    "rloo": "leave-one-out",
    "shrunk_rloo": "unknown",
    "dr_grpo": "leave-one-out",
    "batch_grpo": "leave-one-out",
    "grpo": "standardized",
    "gspo": "standardized",
    "cispo": "standardized",
    "dapo": "dead groups replaced",
    "reinforce": "no group",
    "ppo": "no group",
    "ppo_critic": "no group",
    "maxrl": "unknown",
    "rec_one_side": "leave-one-out",
    "rec_one_side_is": "leave-one-out",
    "opmd": "leave-one-out",
    "asymre": "leave-one-out",
    "red_weight": "unknown",
}
"""Recipe -> its `Objective.comparison`, known without torch. Weights by length and clipping are left out."""

BEFORE: dict[str, Comparison] = {
    "leave_one_out": "leave-one-out",
    "centered": "leave-one-out",
    "batch_standardized": "leave-one-out",
    "standardized": "standardized",
    "none": "no group",
    "whitened": "no group",
}
"""Advantage -> the same, for probes of versions that did not record it; a new advantage needs no entry."""

_WITHOUT_PLAN: dict[Comparison, str] = {
    "leave-one-out": "the answer for leave-one-out advantages holds, because its gradient differs only by a factor.",
    "no group": (
        "its advantages do not compare the rollouts of a group, so another prompt is always worth at "
        "least as much as another rollout of the same prompt; the answer for leave-one-out advantages "
        "does not apply."
    ),
    "unknown": "cannot tell; the answer is for leave-one-out advantages.",
}


@dataclass(frozen=True)
class GroupSize:
    """Group size that the Gram matrix of one probe supports, for a cost per prompt and per rollout.

    rewards (P, G): those of the probe, NaN for a rollout that is absent.
    """

    moments: Moments
    plan: Plan
    rewards: Floats
    prompt_cost: float = 0.0
    rollout_cost: float = 1.0

    @property
    def decided(self) -> bool:
        """Whether the probe supports an answer; without one nothing is compared with the best and nothing allocated."""
        return self.plan.decided

    @property
    def note(self) -> str:
        """The reason for doubt about the numbers, empty if there is none."""
        return self.plan.continuous.flag or self.moments.sigma1.flag

    def moment_interval(self, name: str) -> tuple[float, float]:
        """95% bootstrap interval of one of MOMENTS."""
        statistic = "none" if name == "g2" else name
        return self.moments.interval(lambda s: getattr(s, statistic))

    def score_mean(self) -> Estimate:
        """‖E s‖²/E‖s‖², which is 0 for scores of whole sampled completions, flagged where it is not."""
        share = planning.score_mean(self.moments)
        flag = "scores do not average to 0 (correlated rollouts, top-p, top-k, dropped ones?); no plan can be made"
        return Estimate(share.value, share.se, share.n, flag if planning.not_independent(self.moments) else "")

    def loss(self, group: int) -> tuple[float, float, float]:
        """Share by which the budget must grow at `group` to reach the error of the best size, with its 95% interval."""
        at = (np.array([group]), self.prompt_cost, self.rollout_cost)
        low, high = resampling.interval(planning.loss(self.moments.bootstrap, *at)[:, 0])
        return float(planning.loss(self.moments.pooled, *at)[0, 0]), low, high

    def efficiency(self, group: int) -> tuple[float, float, float]:
        """Error over that of an oracle that knows every prompt's value, 1 + Δ/((G−1) Σ₁), with its 95% interval."""

        def ratio(s: Statistics) -> Floats:
            return np.asarray(1 + s.delta / ((group - 1) * s.sigma1))

        low, high = self.moments.interval(ratio)
        return self.moments.estimate(ratio).value, low, high

    def dead(self, group: int) -> Estimate:
        """Expected share of dead groups of this size."""
        return dead_groups.expected(self.rewards, group)

    def dead_shown(self, group: int) -> str:
        """`dead` as text, with a star where it is extrapolated; see EXTRAPOLATION."""
        dead = self.dead(group)
        if math.isnan(dead.value):
            return "cannot tell"
        return percent(dead.value, 1) + ("*" if dead.flag == dead_groups.EXTRAPOLATED else "")

    def sentence(self, used: int | None = None) -> str:
        """The best group size with its interval, or why it cannot be told; and what the size `used` costs."""
        plan = self.plan
        if plan.at_least:
            return f"Best G is at least {plan.at_least} (95%), without an upper limit: {self.why_not()}"
        if not self.decided:
            return f"Cannot tell the best group size: {self.why_not()}"
        likely = span(*plan.interval)
        text = f"Best G = {plan.integer} (G* = {number(plan.continuous.value)}, 95% interval {likely})"
        if plan.near[0]:
            if plan.near[0] < plan.near[1]:
                near = f"any G from {plan.near[0]} to {plan.near[1]} needs at most"
            else:
                near = "every other G needs over"
            text += f"; {near} {percent(planning.NEAR)} more {self.unit}"
        if used == plan.integer:
            text += f". G = {used} was used"
        elif used is not None and used >= 2:
            lost, low, high = self.loss(used)
            text += f". At G = {used} you need {percent(lost)} more {self.unit} ({span(low, high, percent)}) "
            text += "to reach the same error"
        return f"{text}. Note: {self.note}." if self.note else f"{text}."

    def why_not(self) -> str:
        """What an undecided plan lacks, what it can still say, and how many more prompts would probably decide."""
        if reason := planning.not_independent(self.moments):
            return (
                f"{reason}. Draw each rollout on its own, with random numbers of its own and without top-p and top-k, "
                "keep truncated ones, and probe again."
            )
        plan, prompts = self.plan, self.moments.prompts
        two = len(np.unique(self.rewards[~np.isnan(self.rewards)])) <= 2
        sides = "at least two successes and two failures" if two else "rewards that differ in more than one rollout"
        if math.isnan(plan.interval[0]):
            reason = (
                f"{plan.informative} of {prompts} groups have {sides}; only such groups show how gradients differ "
                f"between prompts, and at least {confidence.LEAST_INFORMATIVE} are needed."
            )
        else:
            reason = (
                "the probe shows no difference between the gradients of prompts, so very large groups may be best too."
            )
        most = prompts * (confidence.MOST - 1)
        about = f"about {prompts + plan.more_prompts:,}" if plan.more_prompts < most else f"{prompts + most:,} or more"
        return (
            f"{reason} A new probe of {about} prompts like these would probably decide; prompts that are solved about "
            "half the time help most."
        )

    def baseline_sentence(self, group: int) -> str:
        """Whether leave-one-out has less error than no baseline at this group size, and what shrinking would save."""
        least, shrink = mse.pays_from(self.moments), mse.best_shrink(self.moments, group)
        if not (math.isfinite(shrink.value) and shrink.value > 0):
            return ""
        own, bare, best = (mse.needed(self.moments, group, by).value for by in (1.0, 0.0, shrink.value))
        pays = f"from G = {number(math.ceil(least.value))} on" if math.isfinite(least.value) else "at no G"
        said = f"Leave-one-out has less error than no baseline {pays}"
        if not 0 < shrink.value < 1:
            return f"{said}."
        return (
            f"{said}; at G = {group}, for one prompt's gradient, they need {number(own)} and {number(bare)} times the "
            f"rollouts of an oracle that knows its value, and {number(shrink.value)} × the mean of the others as "
            f"baseline {number(best)} (recipe shrunk_rloo)."
        )

    def error_sentence(self, group: int) -> str:
        """Shares of the squared error of the leave-one-out gradient by source, at this group size."""
        split = mse.budget(self.moments, 1, group)
        total = split.total.value
        drawn, oracle, price = (percent(part.value / total) for part in (split.prompts, split.oracle, split.residual))
        return (
            f"Of the squared error at G = {group}, {drawn} comes from drawing prompts, {oracle} from drawing "
            f"rollouts, and {price} from estimating each prompt's value by its group's mean."
        )

    def dead_sentence(self, group: int) -> str:
        """Dead groups at this size, and what replacing them would change."""
        dead = self.dead(group)
        if math.isnan(dead.value):
            return f"Dead groups at G = {group}: cannot tell, {dead.flag}."
        gain = planning.resampling_gain(self.moments, group, dead.value)
        cost = 1 / (1 - dead.value) if dead.value < 1 else math.inf
        return (
            f"Dead groups at G = {group}: {percent(dead.value, 1)} ± {percent(dead.se, 1)}. Replacing them "
            f"(DAPO) takes {number(cost)} × the rollouts; for the same number of rollouts it changes the relative "
            f"error by a factor of {number(1 / gain)}."
        )

    def uneven_sentence(self) -> str:
        """What a few prompts that carry most of the gradients do to the intervals; empty where none do.

        Measured by `benchmarks/plan_coverage.py` on its family `heavy`.
        """
        share, norm = self.moments.largest_share, self.moments.estimate(lambda s: s.norm)
        known = norm.se / norm.value if norm.value > 0 else math.nan
        live = int((self.moments.per_prompt.reward_variance > 0).sum())
        if share > max(UNEVEN, TIMES_EVEN / max(live, 1)):
            what = f"one of {self.moments.prompts} carries {percent(share, 0)} of the squared gradients"
        elif known > NORM_KNOWN:
            what = f"a few of {self.moments.prompts} have most of the squared score norm, whose mean is known to ± "
            what += percent(known, 0)
        else:
            return ""
        return (
            f"Probe more prompts: {what}. With gradients this unequal, 95% intervals missed the best size in 23% of "
            "simulated probes with 24 prompts, in 12% with 64 and in 4% with 128, and those of the error its value in "
            "about half."
        )

    def allocate(self, budget: float, multiple: int = 1, noise: Mapping[int, float] | None = None) -> Allocation:
        """Prompts and rollouts that `budget` buys; raises UserError where it buys no batch.

        noise: that over signal by group size, for a recipe other than leave-one-out; see
        `instruments.group_size.planning.allocate`.
        """
        return planning.allocate(self.moments, budget, self.prompt_cost, self.rollout_cost, multiple, noise)

    def gradient_errors(self, prompts: int, group: int) -> dict[str, Estimate]:
        """Mean-squared error of each kind of policy gradient for a batch of this shape."""
        batch = (self.moments, prompts, group)
        return {
            "no baseline": mse.reinforce(*batch),
            "centered (Dr. GRPO)": mse.centered(*batch),
            "leave-one-out (RLOO)": mse.leave_one_out(*batch),
            "standardized (GRPO), with its bias": mse.standardized(*batch),
            "standardized, variance alone": mse.standardized(*batch, target="own"),
            "leave-one-out shrunk to 0 (shrunk_rloo)": mse.shrunk(
                *batch, shrink=mse.best_shrink(self.moments, group).value
            ),
            "oracle": mse.oracle(*batch),
            "best constant baseline": mse.optimal_baseline(*batch),
        }

    @property
    def unit(self) -> str:
        """Unit in which a larger loss is paid: rollouts, or budget."""
        return "budget" if self.prompt_cost else "rollouts"


@dataclass(frozen=True)
class Unknown:
    """A probe that cannot say which group size is best, with the reason."""

    reason: str

    def sentence(self, used: int | None = None) -> str:
        """Why the best group size cannot be told; `used` changes nothing."""
        return f"Cannot tell the best group size: {self.reason}."


@dataclass(frozen=True)
class RecipeSize:
    """The best group size for one recipe; plan: for standardized advantages alone, None for others."""

    recipe: str
    kind: Comparison
    plan: RecipePlan | None

    @property
    def differs(self) -> bool:
        """Whether the answer for leave-one-out advantages is known to be another than that for this recipe."""
        return self.kind not in ("leave-one-out", "unknown")

    @property
    def decided(self) -> bool:
        """Whether the probe supports an answer for this recipe alone."""
        return self.plan is not None and self.plan.decided

    @property
    def remedy(self) -> str:
        """What to do with this recipe while its best group size is not known."""
        if self.plan is None:
            return "draw more prompts instead of more rollouts of each"
        return "probe more prompts" if self.plan.reason else f"probe groups of {2 * self.plan.largest}"

    def sentence(self) -> str:
        """Which recipe the best group size is for, and what it is for a recipe of standardized advantages."""
        if self.plan is None:
            return f"For recipe {self.recipe}: {_WITHOUT_PLAN[self.kind]}"
        plan = self.plan
        of = f"recipe {self.recipe}, which divides advantages by the group's standard deviation"
        if plan.reason:
            return f"Cannot tell the best group size for {of}: {plan.reason}."
        if plan.decided:
            likely = span(*plan.interval)
            return f"Best G = {plan.best} for {of} (95% interval {likely}), by its noise-to-signal ratio."
        told = "Cannot tell the best group size"
        if plan.at_least:
            told = f"Best G is at least {plan.at_least} (95%), without an upper limit,"
        return (
            f"{told} for {of}: groups of {plan.largest} rollouts or more may be better, but the probe has no larger "
            f"ones. Probe more prompts, or groups of {2 * plan.largest}."
        )


@dataclass(frozen=True)
class LayerSize:
    """The moments of one layer alone, and its G* (`best`, NaN where undecided) with a 95% interval; norm: E‖s‖².

    reason: why the best size is not known, empty where it is.
    """

    norm: Estimate
    sigma1: Estimate
    delta: Estimate
    prompt_variance: Estimate
    g2: Estimate
    mean2: Estimate
    best: float
    interval: tuple[float, float]
    reason: str = ""


def leads(facts: GroupSize, trained: RecipeSize) -> bool:
    """Whether the answer is the recipe's: where it is known to be another than that for leave-one-out advantages, and
    either can be told."""
    return trained.differs and (facts.decided or trained.decided)


def sentences(facts: GroupSize, trained: RecipeSize, used: int | None = None) -> tuple[str, str]:
    """What is said of the recipe that is trained, and of leave-one-out advantages; the first is the answer."""
    alone = facts.sentence(used)
    if leads(facts, trained):
        return trained.sentence(), f"With leave-one-out advantages (recipe rloo): {alone}"
    return alone, trained.sentence()


def best_numbers(facts: GroupSize, trained: RecipeSize) -> list[KeyNumber]:
    """The best group size, where it can be told: of the recipe that is trained, then with leave-one-out advantages."""
    plan, own, name = facts.plan, trained.plan, "best group size"
    found = []
    if own is not None and own.decided:
        low, high = own.interval
        best = Estimate(own.best, (high - low) / (2 * intervals.Z), facts.moments.prompts)
        found.append(KeyNumber(name, best, str(own.best), f"{trained.recipe}, 95% {span(low, high)}"))
    if plan.decided:
        name = f"{name} with leave-one-out advantages" if trained.differs else name
        found.append(KeyNumber(name, plan.continuous, str(plan.integer), f"G* {span(*plan.interval)}"))
    return found


def _of_gram(
    gram: Floats,
    rewards: Floats,
    groups: Sequence[int] = GROUPS,
    prompt_cost: float = 0.0,
    rollout_cost: float = 1.0,
    replicates: int = 1000,
    seed: int = 0,
) -> GroupSize:
    """The facts of a Gram (B, B) and rewards (P, G), with these group sizes on the curve of the plan.

    Raises UserError where the probe cannot say: see `maths.moments.from_gram` and
    `instruments.group_size.planning.optimal_group`.
    """
    return of_grams([(gram, rewards)], groups, prompt_cost, rollout_cost, replicates, seed)


def of_grams(
    probes: Sequence[tuple[Floats, Floats]],
    groups: Sequence[int] = GROUPS,
    prompt_cost: float = 0.0,
    rollout_cost: float = 1.0,
    replicates: int = 1000,
    seed: int = 0,
) -> GroupSize:
    """`_of_gram` of several probes together, with groups of one size."""
    moments = gradient_moments.from_grams(probes, replicates, seed)
    plan = planning.optimal_group(moments, prompt_cost, rollout_cost, groups)
    return GroupSize(moments, plan, np.concatenate([rewards for _, rewards in probes]), prompt_cost, rollout_cost)


def of_probe(probe: ProbeRecord, groups: Sequence[int] = GROUPS) -> GroupSize | Unknown:
    """The facts of a recorded probe, in rollouts."""
    try:
        file = probe.read_gram()
        return _of_gram(file.gram, file.rewards, groups)
    except UserError as error:
        return Unknown(str(error))


def by_block(probe: ProbeRecord) -> dict[str, GroupSize] | Unknown:
    """The facts of each block of the network alone, from the sum of its layers' Grams; empty for fewer than two.

    Unknown where the Grams of the layers are too large to read on the way.
    """
    try:
        if (size := probe.gram_bytes()) > LARGEST_LAYERS:
            return Unknown(f"gram.npz has {size / 1e6:.0f} MB")
        file = probe.read_gram(layers=True)
    except UserError:
        return {}
    if file.layers is None or len(file.layer_names) < 2:
        return {}
    layers_of: dict[str, list[int]] = {}
    for i, name in enumerate(file.layer_names):
        depth = re.search(r"\.(\d+)\.", name)
        layers_of.setdefault(f"block {depth[1]}" if depth else OUTSIDE, []).append(i)
    blocks = {}
    for block in sorted(layers_of, key=lambda name: (name == OUTSIDE, len(name), name)):
        try:
            blocks[block] = _of_gram(file.layers[layers_of[block]].sum(0), file.rewards, ())
        except UserError:
            continue  # a block without a gradient of its own says nothing
    return blocks if len(blocks) > 1 else {}


def of_recipe(facts: GroupSize, recipe: str, comparison: str = "") -> RecipeSize:
    """The best group size for `recipe`, from the moments of a probe; "unknown" for one that is not known.

    comparison: that of the recipe, as a probe recorded it; where it is empty the name tells it.

    A variant, such as "grpo, dapo loss", is of the kind of the recipe before the comma, whose advantage it has, but for
    "grpo, centered advantage" and the like, which is of the kind of that advantage.
    """
    kind = cast(Comparison, comparison) if comparison in get_args(Comparison) else _by_name(recipe)
    if kind not in ("standardized", "dead groups replaced"):
        return RecipeSize(recipe, kind, None)
    costs = (facts.prompt_cost, facts.rollout_cost)
    return RecipeSize(recipe, kind, recipe_plan.standardized(facts.moments, kind == "dead groups replaced", *costs))


def _by_name(recipe: str) -> Comparison:
    base, _, variant = recipe.partition(", ")
    kind = KINDS.get(base, "unknown")
    if not variant.endswith(" advantage"):
        return kind
    return "unknown" if kind == "dead groups replaced" else BEFORE.get(variant.removesuffix(" advantage"), "unknown")
