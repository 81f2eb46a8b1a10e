"""Trajectories weigh what the loss says, whatever their turns: in the loss, in baselines, in the advantages of turns.

Exact, of rollouts with several turns alone. A trainer that makes a row of training of each turn or branch may count
rows where it means rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats
from grposcope.core.text import number
from grposcope.maths import turn_rules
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import exact

Ints = NDArray[np.int64]

ALIKE = 0.02
"""Relative spread of the weights over what they are to be proportional to, below which they are."""

MOSTLY = 0.5
"""Share of the trajectories whose last turn alone has an advantage, from which that is no rule of credit."""

CLOSE = 1e-3
"""Relative distance of numbers that are the same but for rounding."""

OF_REDUCTION: Mapping[str, str] = {
    "sequence mean": "equally", "token mean": "by its tokens", "part token mean": "by its tokens",
    "constant length": "by its tokens", "sequence sum": "by its tokens",
}  # fmt: skip
"""Reduction of the stated loss -> how a trajectory weighs in it."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Turns without an advantage, weights in the loss, baselines, and the rule of the advantages of turns."""
    rows = [row for row in evidence.rows if not row.dropped]
    several = [row for row in rows if (row.turn_count or 0) > 1 or row.pieces > 1]
    if not several:
        return
    if (alone := _last_alone(several)) is not None:
        yield alone
    yield _weights(evidence, rows)
    if any(row.pieces > 1 for row in rows):
        yield _baseline(evidence)
    if any(row.turn_rewards is not None for row in rows):
        yield _rule(evidence)


def _last_alone(rows: Sequence[Rollout]) -> Finding | None:
    """Whether the last turn of a trajectory has an advantage, and the trained tokens before it have 0; None where no
    trajectory of several turns says so of its tokens."""
    ends = [(row, end) for row in rows if (end := _with_advantage(row)) is not None and end[1]]
    if not ends:
        return None
    wrong = [row for row, (before, _) in ends if not before]
    return exact(
        "last turn alone",
        len(wrong) > MOSTLY * len(ends),
        f"in {len(wrong):,} of {len(ends):,} trajectories whose last turn has an advantage, the tokens of all turns "
        f"before it have 0; the first is {wrong[0].where}"
        if wrong
        else "",
        held=f"Turns before the last have an advantage where the last has one, in {len(ends) - len(wrong):,} of "
        f"{len(ends):,} trajectories.",
        onset=min((row.step for row in wrong), default=None),
    )


def _with_advantage(row: Rollout) -> tuple[bool, bool] | None:
    """Whether any trained token before the last turn, and any of the last, has an advantage other than 0; None where
    the rollout has no advantage for each token, one turn alone, or rewards of turns before the last."""
    if row.turns is None or row.mask is None or row.advantages is None or len(row.advantages) != len(row.turns):
        return None
    if row.turn_rewards is not None and row.turn_rewards[:-1].any():
        return None
    trained = row.mask & (row.turns >= 0)
    if not trained.any() or row.turns[trained].min() == row.turns[trained].max():
        return None
    last = row.turns == row.turns[trained].max()
    return bool(row.advantages[trained & ~last].any()), bool(row.advantages[trained & last].any())


def _weights(evidence: PipelineEvidence, rows: Sequence[Rollout]) -> Finding:
    """Σ |∂L/∂log π| ÷ |A| of each trajectory, against its tokens, turns and rows."""
    known = [row for row in rows if _weight(row) is not None]
    if len({_turns(row) for row in known}) < 2:
        return cannot_tell("No two rollouts of different numbers of turns have the weights of their tokens in the "
                           "loss; write loss_weights.")  # fmt: skip
    parts: dict[tuple[int, int], list[Rollout]] = {}
    for row in known:
        parts.setdefault((row.step, row.micro_batch), []).append(row)
    spreads = {name: _spread(parts.values(), name) for name in _SIZES}
    best = min(spreads, key=lambda name: spreads[name])
    loss = evidence.stated.loss
    due = None if loss is None else OF_REDUCTION.get(loss.reduction)
    if spreads[best] > ALIKE:
        return cannot_tell("The weights of trajectories follow neither their tokens, turns or rows nor are they equal; "
                           "write them at the first update of a batch, before ratios move.")  # fmt: skip
    if due is not None and spreads[due] <= ALIKE:
        best = due
    wrong = best != due if due is not None else best in ("by its rows", "by its turns")
    long, short = (_mean_share(known, most) for most in (True, False))
    stated = f"the stated loss lets it weigh {due}" if due is not None else "no loss is stated"
    return exact(
        "weight by turns",
        wrong,
        f"a trajectory weighs {best} in the loss, and {stated}: one of the most turns has {number(long / short)} × the "
        "weight of one of the fewest",
        held=f"A trajectory weighs {best} in the loss"
        + (", as the stated loss has it." if due is not None else "; no loss is stated."),
        brief=f"a trajectory weighs {best}",
        onset=min(row.step for row in known) if wrong else None,
    )


_SIZES: Mapping[str, Callable[[Rollout], float]] = {
    "equally": lambda row: 1.0,
    "by its tokens": lambda row: _tokens(row),
    "by its rows": lambda row: float(row.pieces),
    "by its turns": lambda row: float(_turns(row)),
}
"""How a trajectory may weigh -> what its weight is then proportional to."""


def _turns(row: Rollout) -> int:
    """Turns of a rollout; 1 of one whose tokens do not say, which has no more."""
    return row.turn_count or 1


def _tokens(row: Rollout) -> float:
    """Tokens of a trajectory with a weight in the loss, those of its other histories too."""
    own = 0.0 if row.mask is None else float(row.mask.sum())
    return own + sum(_tokens(other) for other in row.continuations)


def _weight(row: Rollout) -> float | None:
    """Σ |∂L/∂log π| ÷ |A| of a trajectory; None where it is not known or the advantage is 0 or varies."""
    if row.loss_weights is None or row.advantages is None:
        return None
    drawn = row.advantages if row.mask is None or len(row.advantages) == 1 else row.advantages[row.mask]
    if not len(drawn) or np.ptp(drawn) > CLOSE * np.abs(drawn).max() or drawn[0] == 0:
        return None
    total = np.abs(row.loss_weights).sum()
    total += sum(np.abs(other.loss_weights).sum() for other in row.continuations if other.loss_weights is not None)
    return float(total / abs(drawn[0]))


def _spread(parts: Iterable[list[Rollout]], name: str) -> float:
    """Largest relative spread over the parts of the loss of the weights over what they may be proportional to."""
    worst, seen = 0.0, False
    for part in parts:
        sizes = np.array([_SIZES[name](row) for row in part])
        if len(part) < 2 or (sizes <= 0).any():
            continue
        ratio = np.array([_weight(row) or 0.0 for row in part]) / sizes
        worst, seen = max(worst, float(np.ptp(ratio) / max(ratio.mean(), 1e-300))), True
    return worst if seen else np.inf


def _mean_share(rows: Sequence[Rollout], most: bool) -> float:
    """Mean weight of the trajectories of the most or the fewest turns."""
    counts = [_turns(row) for row in rows]
    end = max(counts) if most else min(counts)
    return float(np.mean([_weight(row) for row, count in zip(rows, counts, strict=True) if count == end]))


def _baseline(evidence: PipelineEvidence) -> Finding:
    """Whether baselines are means over trajectories or over rows, of groups whose trajectories have different rows.

    Of A = (r − b)/s with one b and s > 0 in a group, two different rewards give b.
    """
    by_rows = by_trajectory = 0
    first: Rollout | None = None
    for places in evidence.groups.values():
        group = [evidence.rows[place] for place in places]
        baseline = _implied([row.reward for row in group], [_outcome(row) for row in group])
        rewards, pieces = np.array([row.reward for row in group]), np.array([row.pieces for row in group], float)
        plain, weighted = rewards.mean(), (rewards * pieces).sum() / pieces.sum()
        scale = np.ptp(rewards)
        if baseline is None or abs(plain - weighted) <= 10 * CLOSE * scale:
            continue
        near_rows = abs(baseline - weighted) < CLOSE * scale
        by_rows += near_rows
        by_trajectory += abs(baseline - plain) < CLOSE * scale
        first = first or (group[0] if near_rows else None)
    if not by_rows + by_trajectory:
        return cannot_tell("No group of trajectories with different numbers of rows has an advantage for each and "
                           "different rewards, so its baseline is not seen; write advantages.")  # fmt: skip
    wrong = by_rows > by_trajectory
    return exact(
        "baseline by rows",
        wrong,
        f"in {by_rows:,} groups the baseline is the mean over rows of training, and not over rollouts: a rollout of "
        f"several rows counts as often; the first is that of {first.where}"
        if first is not None
        else "",
        held=f"In {by_trajectory:,} groups the baseline is the mean over rollouts, whatever rows they have.",
        onset=first.step if wrong and first is not None else None,
    )


def _outcome(row: Rollout) -> float:
    """The one advantage of a rollout; NaN where it has none or several."""
    if row.advantages is None or not len(row.advantages):
        return float("nan")
    own = row.advantages if len(row.advantages) == 1 or row.mask is None else row.advantages[row.mask]
    return float(own[0]) if len(own) and np.ptp(own) <= CLOSE * max(np.abs(own).max(), 1e-12) else float("nan")


def _implied(rewards: Sequence[float], advantages: Sequence[float]) -> float | None:
    """The baseline b of A = (r − b)/s (G,) each; None where it is not seen, or where no such b and s > 0 are."""
    r, a = np.array(rewards), np.array(advantages)
    if not (np.isfinite(r).all() and np.isfinite(a).all()) or np.ptp(r) == 0 or np.ptp(a) == 0:
        return None
    low, high = int(r.argmin()), int(r.argmax())
    slope = (a[high] - a[low]) / (r[high] - r[low])
    if slope <= 0:
        return None
    baseline = float(r[low] - a[low] / slope)
    return baseline if np.allclose(a, slope * (r - baseline), rtol=CLOSE, atol=CLOSE * np.abs(a).max()) else None


def _rule(evidence: PipelineEvidence) -> Finding:
    """The rule of `maths.turn_rules` that the advantages of turns follow, up to positive factors in each group."""
    groups = [group for places in evidence.groups.values()
              if (group := _turn_group([evidence.rows[place] for place in places])) is not None]  # fmt: skip
    best = next((rule for rule in _rules() if _fits_all(groups, rule)), None)
    if best is None:
        reason = "No group has an advantage and a reward for each turn of all its rollouts; write turn_rewards and the "
        if groups:
            reason = "The advantages of turns follow no known rule of their rewards; write the rule's own "
            if all(group.states is None for group in groups):
                reason = (
                    f"{reason}advantages, and anchors where it compares equal states; write them or the rule's own "
                )
        return cannot_tell(f"{reason}advantages.")
    biased = [name for name in best.names if name not in turn_rules.UNBIASED]
    first = groups[0].first
    rule = " with ".join(f"“{name}”" for name in best.names)
    bias = turn_rules.BIAS[biased[0]] if biased else ""
    return exact(
        _FAULTS.get(biased[0], "absent turns") if biased else "absent turns",
        bool(biased),
        f"the advantages of turns are those of the rule {rule} in all {len(groups):,} groups: {bias}"
        f"{_turned(groups, best)}; the first is that of {first.where}",
        held=f"The advantages of turns are those of the rule {rule}, which has no bias: ended rollouts count as 0.",
        brief=f"turns are compared by the rule {rule}",
        onset=first.step if biased else None,
    )


@dataclass(frozen=True)
class _TurnGroup:
    """A group with rewards and advantages (G, H) of its turns, and its states, None where they are not known."""

    first: Rollout
    rewards: Floats
    advantages: Floats
    states: Ints | None


@dataclass(frozen=True)
class _Rule:
    """Names of the rules whose sum the advantages are, each with a positive factor, and the discount of the last."""

    names: tuple[str, ...]
    discount: float = 1.0

    def columns(self, group: _TurnGroup) -> list[Floats] | None:
        """What each of the rules gives, (G, H); None where it needs states and there are none."""
        made = []
        for name in self.names:
            if name in turn_rules.RULES:
                made.append(turn_rules.RULES[name](group.rewards))
            elif group.states is None:
                return None
            else:
                made.append(turn_rules.STATE_RULES[name](group.rewards, group.states, self.discount))
        return made


DISCOUNTS = (1.0, 0.95, 0.99, 0.9)
"""Discounts of the returns of step groups that are tried; 0.95 is the default of verl-agent."""

_FAULTS = {
    "mean over rows": "baseline by rows", "step groups of all": "biased step groups",
    "step groups, standardized": "biased step groups",
}  # fmt: skip
"""Biased rule -> its fault, where that is not absent turns."""


_FAIR = {
    "to-go of who is there": "to-go", "survivors": "to-go", "groups of turns": "broadcast",
    "mean over rows": "broadcast", "step groups of all": "step groups", "step groups, standardized": "step groups",
}  # fmt: skip
"""Biased rule -> that without bias which it is compared with."""


def _rules() -> Iterator[_Rule]:
    """The rules that are tried, in this order: those of rewards, those of states, and GiGPO's sum of both."""
    yield from (_Rule((name,)) for name in turn_rules.RULES)
    for discount in DISCOUNTS:
        yield from (_Rule((name,), discount) for name in turn_rules.STATE_RULES)
    for discount in DISCOUNTS:
        for whole in ("broadcast", "mean over rows"):
            yield from (_Rule((whole, name), discount) for name in turn_rules.STATE_RULES)


def _fits_all(groups: Sequence[_TurnGroup], rule: _Rule) -> bool:
    """Whether the advantages of every group are sums of the rule's columns with positive factors, and some tell it."""
    told = False
    for group in groups:
        columns = rule.columns(group)
        if columns is None:
            return False
        fit = _follows(group.advantages, columns)
        if fit is False:
            return False
        told = told or fit is True
    return told


def _turned(groups: Sequence[_TurnGroup], rule: _Rule) -> str:
    """How many advantages have another sign than under the rule without bias in its place, as a clause."""
    instead = _Rule(tuple(_FAIR.get(name, name) for name in rule.names), rule.discount)
    other = total = 0
    for group in groups:
        columns, fair = rule.columns(group), instead.columns(group)
        if columns is None or fair is None:
            continue
        taken = ~np.isnan(group.rewards)
        factors = _factors(group.advantages[taken], [column[taken] for column in columns])
        wanted = sum(factor * column[taken] for factor, column in zip(factors, fair, strict=True))
        total += int(taken.sum())
        other += int((np.sign(np.round(wanted, 9)) != np.sign(np.round(group.advantages[taken], 9))).sum())
    return f"; {other:,} of {total:,} turns have another sign than by the rule without it" if total else ""


def _turn_group(group: Sequence[Rollout]) -> _TurnGroup | None:
    """A group of which every rollout has an advantage and a reward for each turn; None for another."""
    seen = [_of_turns(row) for row in group]
    if len(group) < 2 or any(own is None for own in seen):
        return None
    rewards, advantages = _padded([own for own in seen if own is not None])
    states = None
    counts = (~np.isnan(rewards)).sum(1)
    if all(row.anchors and len(row.anchors) == count for row, count in zip(group, counts, strict=True)):
        numbers = {anchor: place for place, anchor in enumerate(
            dict.fromkeys(anchor for row in group for anchor in row.anchors), 1)}  # fmt: skip
        states = np.zeros(rewards.shape, np.int64)
        for place, row in enumerate(group):
            states[place, : len(row.anchors)] = [numbers[anchor] if anchor else 0 for anchor in row.anchors]
    return _TurnGroup(group[0], rewards, advantages, states)


def _of_turns(row: Rollout) -> tuple[Floats, Floats] | None:
    """The reward and the advantage of each turn, (H,) each; None where they are not known or vary within a turn."""
    if row.turns is None or row.turn_rewards is None or row.advantages is None:
        return None
    count = int(row.turns.max()) + 1 if len(row.turns) else 0
    if count != len(row.turn_rewards):
        return None
    if len(row.advantages) == 1:
        return row.turn_rewards, np.full(count, row.advantages[0])
    drawn = row.mask if row.mask is not None else row.written
    made = np.full(count, np.nan)
    for turn in range(count):
        own = row.advantages[(row.turns == turn) & (True if drawn is None else drawn)]
        if not len(own) or np.ptp(own) > CLOSE * max(np.abs(own).max(), 1e-12):
            return None
        made[turn] = own[0]
    return row.turn_rewards, made


def _padded(turns: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Rewards and advantages of turns (G, H) of a group, NaN for turns that were not taken."""
    width = max(len(rewards) for rewards, _ in turns)
    both = np.full((2, len(turns), width), np.nan)
    for place, own in enumerate(turns):
        for kind, values in enumerate(own):
            both[kind, place, : len(values)] = np.nan_to_num(values) if kind == 0 else values
    return both[0], both[1]


def _follows(advantages: Floats, rules: Sequence[Floats]) -> bool | None:
    """Whether advantages (G, H) are a sum of those of the rules, each with a positive factor.

    None where both are 0 throughout, and where as many factors would fit any advantages.
    """
    taken = ~np.isnan(rules[0])
    a, columns = advantages[taken], [rule[taken] for rule in rules]
    tiny = 1e-9
    if np.abs(a).max(initial=0) <= tiny and all(np.abs(b).max(initial=0) <= tiny for b in columns):
        return None
    factors = _factors(a, columns)
    if len(columns) > 1 and len(np.unique(np.round(np.column_stack([a, *columns]), 9), axis=0)) <= len(columns) + 1:
        return None
    left = np.abs(a - sum(factor * b for factor, b in zip(factors, columns, strict=True))).max(initial=0)
    return bool((factors > 0).all() and left <= CLOSE * np.abs(a).max())


def _factors(advantages: Floats, columns: Sequence[Floats]) -> Floats:
    """The factors of the sum of columns that is nearest to the advantages."""
    return np.asarray(np.linalg.lstsq(np.column_stack(columns), advantages, rcond=1e-9)[0], np.float64)


PROOF = Proof(
    "trajectory weights", "Trajectories weigh as the loss says, whatever their turns",
    "rollouts of several turns with loss_weights, advantages and rewards; turn_rewards where turns have advantages of "
    "their own", _tests, where_there=True,
)  # fmt: skip
