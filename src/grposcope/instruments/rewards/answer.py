"""What is said of several rewards: intended beside effective weight, what is dead, what collides, who pays for whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from grposcope.core import finding
from grposcope.core.answer import Answer, DrawnLater, Figure, Table, Word
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run, labels
from grposcope.core.text import capitalised, listed, number, percent, visible
from grposcope.instruments.rewards import (
    INSTRUMENT,
    RewardSettings,
    constraint_answer,
    found,
    gradient_answer,
    logged_spreads,
    source,
)
from grposcope.instruments.rewards.found import GradientParts, RewardsFound, Trade
from grposcope.instruments.rewards.logged_spreads import Row
from grposcope.instruments.rewards.wording import shown_share, shown_value
from grposcope.maths import component_weights
from grposcope.maths.aggregation import Aggregation, Floats
from grposcope.maths.component_weights import ComponentWeight, RewardWeights
from grposcope.signs import standardizing
from grposcope.signs.answers import pays_for_answers
from grposcope.signs.texts import idle_tries, right_answers, sample

MOSTLY = 0.5
"""Share of the live groups in which a component is constant, above which it is named."""

COLLIDING = 0.05
"""Share of pairs with different rewards and one advantage above which it is a warning."""

RESIDUAL = 0.05
"""|Σ A|/Σ|A| of a group above which it is said that groups do not sum to 0."""


_INVERTED, _MIXED = 0.05, 10
"""Share of the pairs of a right and a wrong sibling in which the wrong one is paid more, and groups that have both,
from which on it is said."""

_ORDER = (
    "pay what is beside the answer to right answers alone, or less of it than the answer earns: then no wrong answer "
    "is paid more than a right one of its group"
)
"""What to do where wrong answers are paid more than right ones."""

_ENOUGH, _GRADED, _AT_AN_END = 64, 10, 0.5
"""Rollouts, different values of a reward, and share of the rollouts with one value of another reward at which it has
one value, from which on it is said to be at an end."""

_LIMITS = (
    "print that reward beside what it measures for ten rollouts, and set its limit in the unit that it counts in (a "
    "length in characters is three to five times that in tokens: ms-swift #3353, cosine_max_len); where it is at its "
    "end it says nothing of what it is for"
)
"""What to do about a reward that is at an end for most rollouts."""


def answers(runs: Sequence[Run], settings: RewardSettings) -> list[Answer]:
    """What the rewards of the runs weigh, an answer for each run that has several rewards."""
    made = []
    for label, run in zip(labels(runs), runs, strict=True):
        said = of_run(run, settings)
        if said is not None:
            made.append(_named(said, label) if len(runs) > 1 else said)
    held = constraint_answer.section(runs)
    return made if held is None else [*made, held]


def of_run(run: Run, settings: RewardSettings, gram: Floats | None = None) -> Answer | None:
    """What is said of a run; None where it has one reward, or none of a single function.

    gram (N, N): inner products of the scores of its rollouts, in their order. UserError where they do not fit.
    """
    rollouts = source.of_run(run, settings)
    if rollouts is not None:
        moved = found.probed(run) if gram is None else found.gradient(rollouts, gram)
        return _with_unpaid(_of_found(found.of_rollouts(rollouts), settings, moved), run)
    spreads = logged_spreads.of_run(run, settings)
    return _of_one_reward(run) if spreads is None else _of_spreads(*spreads)


def _of_one_reward(run: Run) -> Answer | None:
    """What a single reward pays for that it should not, or does not pay; None where that is not seen."""
    rows = sample.recorded(run)
    idle = idle_tries.paid_more(rows) if not len(run.groups.components) else None
    said = idle or right_answers.unpaid(rows)
    if said is None:
        return None
    facts = {} if idle is None else {"facts": [finding.document(idle)]}
    return Answer(INSTRUMENT.name, INSTRUMENT.question, "warning", sentence=f"{capitalised(said.brief)}.",
                  because=said.because, do=said.remedy, document=facts)  # fmt: skip


def _with_unpaid(said: Answer, run: Run) -> Answer:
    """The answer, first that texts with the right answer are not paid, or that trying nothing is, where that is so: it
    is why a reward is what it is."""
    rows = sample.recorded(run)
    first = right_answers.unpaid(rows) or idle_tries.paid_more(rows)
    if first is None:
        return said
    because = "; ".join(filter(None, (first.because, said.because)))
    return replace(said, word="warning", because=because, do=first.remedy)


def _named(said: Answer, label: str) -> Answer:
    return replace(said, name=f"{said.name}-{label}", question=f"{said.question} ({label})")


def _of_found(what: RewardsFound, settings: RewardSettings, moved: GradientParts | None = None) -> Answer:
    """What is said of rewards of single rollouts. moved: what each moves of the gradient, where that is known."""
    weights, how = what.weights, what.rollouts.how
    verified = {name.strip() for name in settings.verified.split(",") if name.strip()}
    ended, inverted = _at_an_end(what.rollouts), _wrong_paid_more(what.rollouts)
    faults = [*inverted, *_faults(weights), *ended, *_of_trades(what.trades, verified)]
    return Answer(
        INSTRUMENT.name,
        INSTRUMENT.question,
        word=_word(what, bool(faults)),
        sentence=_sentence(weights),
        because="; ".join(faults),
        do=_ORDER if inverted else _LIMITS if ended and faults[0] == ended[0] else _do(weights, how) if faults else "",
        text=[
            *what.rollouts.notes,
            *_notes(weights, how),
            *_standardizing(what.rollouts),
            *gradient_answer.notes(moved),
        ],
        tables=[
            _table(weights),
            *_sizes(what),
            *gradient_answer.tables(moved),
            *_correlations(weights.correlations),
            *_collisions(what),
        ],
        figures=DrawnLater(lambda: _figures(what)),
        missing=_missing(what, verified, moved),
        document=_document(what, moved),
    )


def _word(what: RewardsFound, faulty: bool) -> Word:
    if not what.weights.live:
        return "cannot tell"
    return "warning" if faulty else "told" if not what.rollouts.known else "healthy"


def _sentence(weights: RewardWeights) -> str:
    if not weights.live:
        return f"All advantages of the {weights.groups:,} groups are 0, so no reward has any weight."
    largest = max(weights.components, key=lambda one: one.share.value)
    others = [component for component in weights.components if component is not largest and component.intended]
    if not others:
        return f"{visible(largest.name, 40)} is the only reward with a weight other than 0."
    apart = max(others, key=lambda one: one.intended_share / max(one.share.value, 1e-12))
    return (
        f"{visible(largest.name, 40)} has {shown_share(largest.share)} of the weight in the advantage "
        f"(its weight asks for {percent(largest.intended_share)}), and {visible(apart.name, 40)} "
        f"has {shown_share(apart.share)} (its weight asks for {percent(apart.intended_share)})."
    )


def _faults(weights: RewardWeights) -> list[str]:
    faults = []
    for component in weights.components:
        name = visible(component.name, 40)
        if component.dead:
            faults.append(
                f"{name} is {number(component.constant)} on every rollout, so the policy learns nothing from it"
            )
        elif _cancels(component):
            faults.append(
                f"{name} is the same for all rollouts of every group, so that it cancels with the group's mean "
                "whatever its weight"
            )
        elif component.muted:
            faults.append(
                f"{name} should have {percent(component.intended_share)} of the weight but has "
                f"{shown_share(component.share, 1)}"
            )
    share = weights.collisions.share
    if weights.collisions.pairs and share.value > COLLIDING:
        faults.append(f"{percent(share.value)} of the pairs of rollouts with different rewards have the same advantage")
    return faults


def _at_an_end(rollouts: source.RewardRollouts) -> list[str]:
    """Rewards of many values that are at one value for most rollouts with one value of another reward, as where
    a length is beyond its limit: what they add is what that other one says already."""
    names, values = rollouts.given.names, rollouts.given.rewards
    said = []
    for graded in range(len(names)):
        others = [k for k in range(len(names)) if k != graded and len(np.unique(values[:, k])) == 2]
        both = values[:, graded][np.isfinite(values[:, graded])]
        if len(both) < _ENOUGH or len(np.unique(both)) < _GRADED:
            continue
        for other in others:
            low, high = np.unique(values[:, other])
            ends = [_usual(values[values[:, other] == value, graded]) for value in (high, low)]
            if min(share for _, share in ends) < _AT_AN_END or ends[0][0] == ends[1][0]:
                continue
            name, by = visible(names[graded], 40), visible(names[other], 40)
            said.append(
                f"{name} is {number(ends[0][0])} on {percent(ends[0][1])} of the rollouts with {by} {number(high)} and "
                f"{number(ends[1][0])} on {percent(ends[1][1])} of those with {by} {number(low)}: there it is at an "
                f"end, and pays once more for {by} alone"
            )
            break
    return said


def _wrong_paid_more(rollouts: source.RewardRollouts) -> list[str]:
    """That wrong answers have more of the whole reward than right siblings, by the first reward of two values whose
    name says that it pays for answers, and which reward makes it so."""
    given, weights = rollouts.given, rollouts.weights
    for j, name in enumerate(given.names):
        right = given.rewards[:, j]
        if not pays_for_answers(name) or weights[j] <= 0 or len(np.unique(right[np.isfinite(right)])) != 2:
            continue
        parts = np.nan_to_num(given.rewards) * weights
        whole = np.where(np.isfinite(rollouts.total), rollouts.total, parts.sum(1))
        pairs, inverted, mixed, by = 0, 0, 0, np.zeros(len(given.names))
        ends = np.cumsum(np.bincount(given.group, minlength=len(given.batch)))
        for rows in np.split(np.argsort(given.group, kind="stable"), ends[:-1]):
            good, bad = rows[right[rows] == np.nanmax(right)], rows[right[rows] == np.nanmin(right)]
            if not len(good) or not len(bad):
                continue
            more = whole[bad][None, :] > whole[good][:, None] + source.EXACT
            pairs, inverted, mixed = pairs + more.size, inverted + int(more.sum()), mixed + 1
            by += (parts[bad][None, :] - parts[good][:, None])[more].sum(0)
        if mixed < _MIXED or inverted < _INVERTED * pairs:
            return []
        most = visible(given.names[int(by.argmax())], 40)
        return [
            f"in {percent(inverted / pairs)} of the {pairs:,} pairs of siblings of which {visible(name, 40)} calls one "
            f"right and one wrong the wrong one is paid more, most by {most}"
        ]
    return []


def _usual(values: Floats) -> tuple[float, float]:
    """The most frequent value and its share."""
    each, counts = np.unique(values, return_counts=True)
    return float(each[np.argmax(counts)]), float(counts.max() / len(values))


def _cancels(weight: ComponentWeight) -> bool:
    """Whether a reward that varies is equal within every live group, so that no weight brings it into the advantage."""
    return bool(weight.intended and not weight.dead and weight.dead_in_live.value >= 1)


def _of_trades(trades: Sequence[Trade], verified: set[str]) -> list[str]:
    """Rewards that rose while another fell, gaming told apart where the other is verified."""
    said = []
    for trade in trades:
        up, down = visible(trade.rising, 40), visible(trade.falling, 40)
        moved = (
            f"{up} rose from {number(trade.rose[0])} to {number(trade.rose[1])} while {down} fell from "
            f"{number(trade.fell[0])} to {number(trade.fell[1])}"
        )
        if trade.falling in verified and trade.rising not in verified:
            said.append(f"{moved}: {up} is gamed, because {down} is verified")
        elif trade.rising in verified:
            said.append(f"{moved}: {up} improves at the expense of {down}")
        else:
            said.append(moved)
    return said


def _do(weights: RewardWeights, how: Aggregation) -> str:
    if any(component.dead for component in weights.components):
        return "check the reward that never varies: it may be broken, too hard, or already at its maximum"
    if any(_cancels(component) for component in weights.components):
        return (
            "give that reward by rollout, so that it differs within a group, or use it to weigh or drop whole groups; "
            "a larger weight changes nothing"
        )
    if any(component.muted for component in weights.components):
        if how.method == "sum_then_normalize":
            return (
                "standardize each reward before the sum (TRL multi_objective_aggregation=normalize_then_sum, "
                "verl algorithm.adv_estimator=gdpo, aggregation standardized_components of grposcope train), or "
                "raise the weight of the reward that hardly counts"
            )
        return "the reward that hardly counts is constant in most groups: give it partial credit, or larger groups"
    if weights.collisions.share.value > COLLIDING:
        return "choose weights that give different rewards different sums, or standardize each reward before the sum"
    return "read rollouts where the rising reward is high and the falling one is low"


def _notes(weights: RewardWeights, how: Aggregation) -> list[str]:
    notes = []
    for component in weights.components:
        name = visible(component.name, 40)
        if component.dead_in_live.value > MOSTLY and not component.dead and component.intended:
            notes.append(
                f"{name} is constant in {shown_share(component.dead_in_live)} of the live groups and adds "
                "nothing there."
            )
        if component.met and component.intended:
            notes.append(
                f"{name} has its best value on {percent(component.best)} of the rollouts: little is left to learn from "
                "it, and a larger weight would not bring it back."
            )
        if component.absent and how.method == "sum_then_normalize":
            notes.append(
                f"{name} has no value for {percent(component.absent, 1)} of the rollouts; in the sum these count as 0."
            )
        elif component.absent:
            notes.append(f"{name} has no value for {percent(component.absent, 1)} of the rollouts and adds 0 to them.")
    if how.over_batch and len(weights.rescaling):
        low, middle, high = np.quantile(weights.rescaling, [0.05, 0.5, 0.95])
        of_what = "tokens" if how.method == "gdpo_tokens" else "completions"
        ignored = ", and scale_rewards has no effect" if how.method == "normalize_then_sum" else ""
        notes.append(
            f"Dividing by the deviation over the {of_what} of a batch multiplies all weights by "
            f"{number(float(middle))} "
            f"({number(float(low))} to {number(float(high))} over the steps){ignored}."
        )
    if weights.residual > RESIDUAL:
        notes.append(
            f"Advantages of a group do not sum to 0: the sum is {percent(weights.residual)} of their size, because "
            "the mean that is subtracted counts long completions more often."
        )
    return notes


def _standardizing(rollouts: source.RewardRollouts) -> list[str]:
    """What division by the group's deviation does to hard prompts, for each sum or reward of two values."""
    given, how = rollouts.given, rollouts.how
    if how.method == "sum_then_normalize":
        columns = {"the weighted sum": rollouts.total} if how.scale == "group" else {}
    else:
        columns = {visible(name, 40): given.rewards[:, j] for j, name in enumerate(given.names)}
    group = int(np.bincount(given.group).min())
    success = {}
    for name, values in columns.items():
        levels = np.unique(values[~np.isnan(values)])
        if len(levels) == 2 and group >= 2:
            success[name] = float(np.nanmean(values == levels[1]))
    return [f"For {name}, {standardizing.effect(group, rate)}." for name, rate in list(success.items())[:2]]


def _table(weights: RewardWeights) -> Table:
    header = (
        "reward",
        "weight",
        "asked for",
        "has",
        "effective weight",
        "per unit",
        "of the variance",
        "constant in live groups",
    )
    rows = [
        (visible(component.name, 60), number(component.intended), percent(component.intended_share),
         shown_share(component.share, 1),
         shown_value(component.effective), shown_value(component.per_unit), shown_share(component.variance_share, 1),
         shown_share(component.dead_in_live))
        for component in weights.components
    ]  # fmt: skip
    return Table(
        "What each reward weighs", header, rows,
        "Asked for: share of Σ|λ|. Has: share of the effective weights λσ/σ_S, mean over "
        f"{weights.live:,} live of {weights.groups:,} groups. Per unit: weight of the reward's own "
        "gradient in the update, approximately. Of the variance: share of the advantage's variance "
        "within groups, half of each covariance included, so that shares sum to 1. ± is half a 95% "
        "interval (jackknife over prompts).",
    )  # fmt: skip


def _sizes(what: RewardsFound) -> list[Table]:
    """Groups without a spread of each reward, and of any, at smaller group sizes."""
    given = what.rollouts.given
    group = int(np.bincount(given.group).min())
    sizes = [size for size in (group // 4, group // 2, group) if size >= 2]
    if len(sizes) < 2:
        return []
    names = [visible(name, 60) for name in given.names]
    rows = []
    for size in sizes:
        single, every = component_weights.constant_shares(given, size)
        rows.append((str(size), *(percent(share) for share in single), percent(every)))
    header = ("group size", *(f"{name} constant" for name in names), "all constant")
    caption = (
        "Share of groups that teach nothing about one reward, and about any reward; means over all "
        "subsets of the groups."
    )
    return [Table("With another group size", header, rows, caption, folded=True)]


def _correlations(pairs: Sequence[tuple[str, str, Estimate]]) -> list[Table]:
    rows = []
    for first, second, correlation in pairs:
        value = shown_value(correlation)
        told = value if value != "cannot tell" else f"cannot tell: {correlation.flag}"
        rows.append((visible(first, 60), visible(second, 60), told))
    if not rows:
        return []
    caption = "Below 0: among rollouts of a prompt, a higher value of one goes with a lower value of the other."
    header = ("reward", "and", "correlation")
    return [Table("Correlation within groups", header, rows, caption, folded=len(rows) > 3)]


def _collisions(what: RewardsFound) -> list[Table]:
    met = what.weights.collisions
    if not met.examples:
        return []
    used = [name for name, w in zip(what.rollouts.given.names, what.rollouts.weights, strict=True) if w]
    rows = [(_tuple(first), _tuple(second), f"{times:,}") for first, second, times in met.examples]
    return [Table(
        "Different rewards, same advantage", (", ".join(visible(name, 30) for name in used), "and", "pairs"), rows,
        f"{shown_share(met.share, 1)} of {met.pairs:,} pairs of rollouts of one group with different rewards.",
    )]  # fmt: skip


def _tuple(values: Sequence[float]) -> str:
    return f"({', '.join(number(value) for value in values)})"


def _missing(what: RewardsFound, verified: set[str], moved: GradientParts | None) -> list[str]:
    missing = []
    if not what.rollouts.known:
        missing.append("To compare with the settings, give the weights of the rewards.")
    if what.trades and not verified:
        missing.append("To tell gaming from a trade-off, name the verified reward.")
    if moved is None:
        missing.append(
            "To see which reward moves the weights, give the inner products of the rollouts' scores from a probe."
        )
    return missing


def _figures(what: RewardsFound) -> Iterable[Figure]:
    if not what.windows:
        return
    from grposcope.instruments.rewards import figures

    yield figures.over_run(what)


def _document(what: RewardsFound, moved: GradientParts | None) -> dict[str, Any]:
    weights = what.weights
    return {
        "gradient": gradient_answer.document(moved),
        "aggregation": asdict(what.rollouts.how),
        "weights_known": what.rollouts.known,
        "groups": weights.groups,
        "live": weights.live,
        "components": {component.name: _component(component) for component in weights.components},
        "correlations": [
            {"first": first, "second": second, "value": asdict(value)} for first, second, value in weights.correlations
        ],
        "collisions": asdict(weights.collisions),
        "residual": weights.residual,
        "rescaling": [float(np.quantile(weights.rescaling, q)) for q in (0.05, 0.5, 0.95)],
        "windows": [
            {"first": first, "last": last, "shares": [asdict(share) for share in shares]}
            for first, last, shares in what.windows
        ],
        "trades": [asdict(trade) for trade in what.trades],
    }


def _component(weight: ComponentWeight) -> dict[str, Any]:
    return {**asdict(weight), "muted": weight.muted, "met": weight.met, "dead": weight.dead}


def _of_spreads(spreads: Sequence[Row], notes: Sequence[str]) -> Answer:
    """What is said of a log with means and deviations over the batch, which say less."""
    rows = [
        (visible(name, 60), number(weight), percent(asked), _range(share), percent(dead))
        for name, weight, asked, share, dead in spreads
    ]
    table = Table(
        "What each reward weighs, by deviations over the batch",
        ("reward", "weight", "asked for", "has, about", "steps with deviation 0"), rows,
        "Has: share of Σ|λ|σ, 5% to 95% of the steps.",
    )  # fmt: skip
    mute = [visible(name, 40) for name, weight, _, _, dead in spreads if weight and dead == 1]
    return Answer(
        INSTRUMENT.name,
        INSTRUMENT.question,
        word="warning" if mute else "cannot tell",
        sentence=(
            f"{listed(mute)} never varied in any batch, so {'it trains' if len(mute) == 1 else 'they train'} nothing."
            if mute
            else "This is only an estimate of what the rewards weigh: the log has deviations over whole batches, "
                 "but the advantage uses those within groups."
        ),
        text=list(notes),
        tables=[table],
        missing=["Weights within groups need the rewards of single rollouts: log the completions."],
        document={"approximate": {row[0]: {"weight": row[1], "asked": row[2], "share": row[3], "never_varied": row[4]}
                                  for row in spreads}},
    )  # fmt: skip


def _range(values: tuple[float, float, float]) -> str:
    low, middle, high = values
    return "cannot tell" if not math.isfinite(middle) else f"{percent(middle)} ({percent(low)} to {percent(high)})"
