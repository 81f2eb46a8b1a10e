"""Rewards are what the function gives: graded again, in order and out of it, and failures are no zeros. Exact.

A reward that is logged with other digits is equal within 1e-5 of its size. Where the function has a time limit or asks
a model, grading again is no exact test, and two gradings that differ are told as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout, Text
from grposcope.core.run import Bools, Floats
from grposcope.core.text import visible
from grposcope.signs.rollouts import adversarial, coverage
from grposcope.signs.rollouts.evidence import PipelineEvidence, UnansweredError
from grposcope.signs.rollouts.findings import exact

LOST = 5
"""Rollouts without a number as reward from which on what else they lack is looked for."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Sums of weighted functions, failures, and rewards graded again."""
    if not evidence.rows:
        yield cannot_tell("There are no rollouts; write them with their rewards.")
        return
    yield from _no_numbers(evidence)
    yield from _sums(evidence)
    yield from _failures(evidence)
    yield from _empty(evidence)
    yield from _graded(evidence)


def _near(one: Floats, other: Floats) -> Bools:
    return (np.abs(one - other) <= 1e-5 * np.maximum(1.0, np.abs(other))) | (np.isnan(one) & np.isnan(other))


def _sums(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The reward is the weighted sum of its functions, where both were written."""
    weights = evidence.stated.weights
    rows = [row for row in evidence.rows if len(row.rewards) > 1 and np.isfinite(row.reward)]
    if weights is None or not rows or any(set(row.rewards) - set(weights) for row in rows):
        return
    due = np.array([np.nansum([weights[name] * value for name, value in row.rewards.items()]) for row in rows])
    given = np.array([row.reward for row in rows])
    wrong = np.flatnonzero(~_near(given, due))
    first = rows[wrong[0]] if len(wrong) else None
    yield exact(
        fault="wrong reward weights",
        broken=bool(len(wrong)),
        evidence="" if first is None else (
            f"{len(wrong):,} of {len(rows):,} rewards are not the weighted sum of their functions; the first, "
            f"{first.where}, is {given[wrong[0]]:.6g} instead of {due[wrong[0]]:.6g}{_weights_in_force(rows, given)}"
        ),
        held=f"The rewards of {coverage.share(len(rows), len(evidence.rows), 'no reward of several functions')} are "
        "the weighted sum of their functions.",
        effect="The policy is trained on a different reward from that of the settings.",
        remedy="Check the weights of the reward functions, their order, and their signs: a score that is to be high "
        "enters with a plus.",
        onset=None if first is None else first.step,
    )  # fmt: skip


def _no_numbers(evidence: PipelineEvidence) -> Iterator[Finding]:
    """A number beside the reward that is NaN in exactly the rollouts whose reward is, although a function gave each of
    these a number; nothing where there is none, as where they failed."""
    lost = np.array([np.isnan(row.reward) for row in evidence.rows])
    without = [row for row in evidence.rows if np.isnan(row.reward)]
    if lost.all() or lost.sum() < LOST or any(row.failed or row.dropped for row in without):
        return
    if not all(np.isfinite(list(row.rewards.values())).any() for row in without):
        return
    for name in dict.fromkeys(name for row in evidence.rows for name in (*row.rewards, *row.columns)):
        values = np.array([_value(row, name) for row in evidence.rows])
        if np.isinf(values).any() or not np.array_equal(np.isnan(values), lost):
            continue
        first = evidence.rows[int(np.flatnonzero(lost)[0])]
        yield exact(
            "non-finite", True,
            f"the reward of {int(lost.sum()):,} of {len(lost):,} rollouts is NaN, and {visible(name, 40)} is NaN"
            f" in exactly these; the first is {first.where}",
            held="", brief=f"rewards lost with {visible(name, 40)}", onset=first.step,
            effect="Their groups have no advantages, or NaN ones, which make every weight NaN.",
            remedy=f"Keep {visible(name, 40)} out of the sum where it is NaN, or has the weight 0 (0 × NaN is "
            "NaN), and let it return a number, or None where it does not apply.",
        )  # fmt: skip
        return


def _value(row: Rollout, name: str) -> float:
    """A reward or further column of a rollout as a number, ∞ where it is absent or none that could be one."""
    value = row.rewards.get(name, row.columns.get(name))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else np.inf


def _weights_in_force(rows: Sequence[Rollout], given: Floats) -> str:
    """That the rewards (N,) are the sum with other weights, as a clause, where these are known; else empty."""
    names = list(dict.fromkeys(name for row in rows for name in row.rewards))
    parts = np.array([[row.rewards.get(name, np.nan) for name in names] for row in rows])
    if np.isnan(parts).any() or len(rows) <= len(names) or np.linalg.matrix_rank(parts) < len(names):
        return ""
    weights = np.linalg.lstsq(parts, given, rcond=None)[0]
    if not _near(parts @ weights, given).all():
        return ""
    found = ", ".join(f"{name} {weight:.4g}" for name, weight in zip(names, weights, strict=True))
    return f"; all of them are the sum with the weights {found}"


def _failures(evidence: PipelineEvidence) -> Iterator[Finding]:
    """What failed while it was drawn or graded has no reward of its own."""
    failed = [row for row in evidence.rows if row.failed]
    if not failed:
        return
    counted = [row for row in failed if np.isfinite(row.reward) and not row.dropped
               and (row.advantages is None or bool((np.nan_to_num(row.advantages) != 0).any()))]  # fmt: skip
    value = len({row.reward for row in counted}) == 1
    rest = np.array([row.reward for row in evidence.rows if not row.failed and np.isfinite(row.reward)])
    bias = ""
    if counted and len(rest):
        whole = np.concatenate([rest, [row.reward for row in counted]])
        bias = f" The mean reward is {whole.mean():.4g} with them and {rest.mean():.4g} without them."
    where = sorted({row.environment for row in counted if row.environment})
    named = f", in {', '.join(where[:3])}" if where else ""
    yield exact(
        fault="failures as zeros",
        broken=bool(counted) and value,
        evidence=f"{len(counted):,} of {len(failed):,} rollouts that failed ({_most(failed)}{named}) are trained on "
        f"with the reward {counted[0].reward:g}; the first is {counted[0].where}" if counted else "",
        held=f"{len(failed):,} rollouts failed, and none is trained on with one fixed reward.",
        effect=f"A failure of the infrastructure counts as a bad answer and shifts all advantages of its group.{bias}",
        remedy="Leave failed rollouts out of their groups, or draw them again.",
        onset=min((row.step for row in counted), default=None),
    )  # fmt: skip


def _empty(evidence: PipelineEvidence) -> Iterator[Finding]:
    """An empty completion has written nothing that could be paid like the best of the others."""
    empty = [row for row in evidence.rows if _text_of(row) == "" and np.isfinite(row.reward) and not row.failed]
    others = [row.reward for row in evidence.rows if _text_of(row) != "" and np.isfinite(row.reward) and not row.failed]
    if not empty or not others or min(others) == max(others):
        return  # nothing is empty, or the others show no reward to compare with
    paid = [row for row in empty if row.reward > 0 and row.reward >= max(others)]
    first = paid[0] if paid else empty[0]
    yield exact(
        fault="empty completions paid",
        broken=bool(paid),
        evidence=f"{len(paid):,} of {len(empty):,} empty completions have the reward {first.reward:g}, as high as the "
        f"best of the others; the first is {first.where}",
        held=f"{len(empty):,} empty completions have rewards below {max(others):g}, the best of the others.",
        effect="The policy is paid for writing nothing, so completions shrink to nothing.",
        remedy="Check whether texts were lost between sampler and reward function, and give an empty completion no "
        "reward.",
        onset=min((row.step for row in paid), default=None),
    )


def _text_of(row: Rollout) -> Text | None:
    """The completion as it is graded: "" where it has no tokens, None where it was not written down."""
    if row.completion is None and row.completion_ids is not None and not len(row.completion_ids):
        return ""
    return row.completion


def _most(failed: Sequence[object]) -> str:
    reasons = [getattr(row, "failed", "") for row in failed]
    first = max(set(reasons), key=reasons.count)
    return first if len(first) <= 40 else f"{first[:39]}…"


def _graded(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Grading again: twice in the order of the file, once in another."""
    if evidence.grader is None:
        yield cannot_tell("The rollouts were not graded again; give the reward function (--reward).")
        return
    rows = [row for row in evidence.rows if _text_of(row) is not None and np.isfinite(row.reward) and not row.failed]
    if not rows:
        yield cannot_tell("No rollout has both a text and a reward; write the completion as it was graded.")
        return
    prompts, completions = [row.prompt or "" for row in rows], [_text_of(row) or "" for row in rows]

    def grade(order: Sequence[int]) -> Floats:
        assert evidence.grader is not None
        given = evidence.grader([prompts[place] for place in order], [completions[place] for place in order])
        if len(given) != len(order):
            raise UserError(f"the reward function returned {len(given):,} rewards for {len(order):,} completions")
        made = np.empty(len(order))
        made[np.array(order)] = np.array([np.nan if one is None else float(one) for one in given])
        return made

    try:
        once, again = grade(range(len(rows))), grade(range(len(rows)))
    except UnansweredError as late:
        yield cannot_tell(f"The rollouts were not graded again: {late}.")
        return
    if not np.isfinite(once).any():
        yield cannot_tell(f"The reward function gave none of {len(rows):,} rollouts a number; check what it takes.")
        return
    repeated = _near(again, once)
    share = coverage.share(len(rows), len(evidence.rows), "no text or no reward")
    yield exact(
        fault="reward not repeatable",
        broken=not repeated.all(),
        evidence=_unequal(rows, ~repeated, again, once, "get a different reward when graded again"),
        held=f"Of {share} graded twice, all rewards are equal.",
        effect="The grader adds noise to the advantages.",
        remedy="Fix the seed of the reward function, or grade each text once.",
        onset=_first_step(rows, ~repeated),
    )
    if len(rows) < 2:
        yield cannot_tell("One rollout could be graded, so its order and neighbours do not show; write more.")
    else:
        other = grade(range(len(rows))[::-1])
        moved = ~_near(other, once) & repeated
        yield exact(
            fault="reward depends on neighbours",
            broken=bool(moved.any()),
            evidence=_unequal(rows, moved, other, once, "get a different reward when the batch is reordered"),
            held=f"Of {share} graded in another order, all rewards are equal.",
            effect="A rollout's reward depends on its neighbours, so advantages are noise.",
            remedy="Make each reward depend only on its own completion.",
            onset=_first_step(rows, moved),
        )
        if moved.any():
            return
    if repeated.all():
        yield from _cached(evidence, rows)
        yield from _pays_nothing(evidence, rows)
    sure = np.flatnonzero(repeated & np.isfinite(once))
    yield _logged([rows[index] for index in sure], once[sure], len(evidence.rows))


def _cached(evidence: PipelineEvidence, rows: Sequence[Rollout]) -> Iterator[Finding]:
    """A completion is graded for its prompt, not for one that it was graded under before."""
    assert evidence.grader is not None
    shown, tested = adversarial.cached(evidence.grader, rows)
    if not tested:
        return  # no reward changes with the prompt, so that there is nothing to keep for the wrong one
    yield exact(
        fault="cached rewards",
        broken=bool(shown),
        evidence=f"At {shown:,} of {tested:,} prompts a new text that was first graded under another prompt has its "
        "reward under its own prompt too, although it gets another when graded there first",
        held=f"At {tested:,} prompts the reward of a text does not depend on what it was graded under before.",
        effect="A completion that answers several prompts has the reward of whichever came first.",
        onset=None,
    )


def _pays_nothing(evidence: PipelineEvidence, rows: Sequence[Rollout]) -> Iterator[Finding]:
    """An empty answer is not paid as the best one is."""
    assert evidence.grader is not None
    paid = next((one for one in adversarial.asked(evidence.grader, rows) if one.kind == "nothing"), None)
    if paid is None or not paid.prompts:
        return
    yield exact(
        fault="empty completions paid",
        brief="the grader pays for nothing",
        broken=2 * paid.like_best > paid.prompts,
        evidence=f"The grader gives an empty answer at least what the best one got at {paid.like_best:,} of "
        f"{paid.prompts:,} prompts",
        held=f"The grader gives an empty answer {paid.mean:.3g} on average over {paid.prompts:,} prompts.",
        effect="The policy is paid for writing nothing, so completions shrink to nothing.",
        remedy="Give an answer without text no reward in the reward function.",
    )


FAULTS = {
    "shifted in the batch": "misplaced rewards", "shifted among siblings": "misplaced rewards",
    "shuffled in the group": "misplaced rewards", "shuffled across the batch": "misplaced rewards",
    "zeros": "failures as zeros",
}  # fmt: skip
"""How the logged rewards differ from the function's -> its fault; "wrong rewards" for any other way."""


def _logged(rows: Sequence[Rollout], once: Floats, every: int) -> Finding:
    """The logged rewards of some rows, of `every` row, against those that the function gives, once (N,)."""
    given = np.array([row.reward for row in rows])
    wrong = ~_near(given, once)
    if not wrong.any() and (not len(once) or np.ptp(once) == 0):
        return cannot_tell("The rewards that could be graded again are all equal, so rewards in the wrong place would "
                           "not be seen; write rollouts with different rewards.")  # fmt: skip
    kind, words = _kind(given, once, wrong, [str(row.group) for row in rows])
    share = coverage.share(len(rows), every, "no text or no reward")
    return exact(
        fault=FAULTS.get(kind, "wrong rewards"),
        brief=kind,
        broken=bool(wrong.any()),
        evidence=_unequal(rows, wrong, given, once, words),
        held=f"Of {share} graded again, all rewards equal the logged ones.",
        effect="Rollouts are rewarded for what they did not write.",
        remedy="Find where rewards are gathered or sorted separately from their rollouts, and match both by an id.",
        onset=_first_step(rows, wrong),
    )


def _kind(given: Floats, due: Floats, wrong: Bools, groups: Sequence[str]) -> tuple[str, str]:
    """The fault of rewards that are not those of the function, in words."""
    if not wrong.any():
        return "rewards of another function", ""
    for k in (1, -1):
        if _near(np.roll(due, k), given).all():
            return "shifted in the batch", f"have the reward of the rollout {'before' if k == 1 else 'after'} them"
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    parts = [np.array(place) for place in places.values()]
    moves: tuple[tuple[str, str, Callable[[Floats], Floats]], ...] = (
        ("shifted among siblings", "have the reward of the sibling before them", lambda part: np.roll(part, 1)),
        ("shifted among siblings", "have the reward of the sibling after them", lambda part: np.roll(part, -1)),
        ("shuffled in the group", "have the reward of a sibling", np.sort),
    )
    for fault, words, move in moves:
        same = np.sort if move is np.sort else (lambda part: part)
        if all(_near(move(due[part]), same(given[part])).all() for part in parts):
            return fault, words
    if (given[wrong] == 0).all():
        return "zeros", "have the reward 0, although the function gives a different one"
    if _near(np.sort(due), np.sort(given)).all():
        return "shuffled across the batch", "have the reward of another rollout of the batch"
    return "rewards of another function", "have a different reward from the function's"


def _unequal(rows: Sequence[Rollout], wrong: Bools, given: Floats, due: Floats, words: str) -> str:
    """That the rewards `given` (N,) of some rows are `wrong` (N,), as words say, and the first; empty for none."""
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    return (
        f"{int(wrong.sum()):,} of {len(wrong):,} rollouts {words}; the first, {rows[first].where}, has "
        f"{given[first]:.6g} instead of {due[first]:.6g}"
    )


def _first_step(rows: Sequence[Rollout], wrong: Bools) -> int | None:
    """The first step of the rows that are `wrong` (N,); None for none."""
    return min((row.step for row, is_wrong in zip(rows, wrong, strict=True) if is_wrong), default=None)


PROOF = Proof("rewards", "Rewards are those that the function gives",
              "texts and rewards of rollouts, the reward function; errors and time-outs where there were any",
              _tests)  # fmt: skip
