"""What was dropped was dropped blindly: whether a rollout was left out does not depend on its reward or its length.

Siblings of one group are exchangeable where dropping is blind: permuting who was dropped within each group gives
the distribution of Σ (x − group mean) over the dropped: an exact test, by random permutations. Whole groups whose
rewards are equal have no gradient under a group baseline and may be left out; other whole groups are tested across
groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Floats
from grposcope.signs.rollouts import coverage
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import by_chance

PERMUTATIONS = 9999
FEWEST = 5
"""Dropped rollouts below which nothing is tested."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Reward and length of what was dropped against its siblings', then whole groups."""
    if not any(row.dropped for row in evidence.rows):
        if evidence.filtered is False and evidence.rows:
            yield cannot_tell("Nothing was dropped, so there is nothing to test.")
        else:
            yield cannot_tell(
                "No rollout is marked as dropped; also write the rollouts that were left out, with the reason "
                "(dropped)."
            )
        return
    groups = [list(places) for places in evidence.groups.values()]
    mixed = [
        places for places in groups if 0 < sum(bool(evidence.rows[index].dropped) for index in places) < len(places)
    ]
    whole = [places for places in groups if places and all(evidence.rows[index].dropped for index in places)]
    kept = [places for places in groups if places and not any(evidence.rows[index].dropped for index in places)]
    for name, of in (("reward", _reward), ("length", _length)):
        values = np.array([of(row) for row in evidence.rows])
        yield from _within(evidence, mixed, values, name)
    live = [places for places in whole if _live(evidence, places)]
    others = [places for places in kept if _live(evidence, places)]
    if len(live) >= FEWEST and len(others) >= FEWEST:
        yield _between(evidence, live, others)
    elif live:
        yield cannot_tell(f"{len(live):,} whole groups with different rewards were dropped and {len(others):,} kept, "
                          f"too few to compare; {FEWEST} of each are enough.")  # fmt: skip


def _reward(row: Rollout) -> float:
    return row.reward


def _length(row: Rollout) -> float:
    if row.completion_ids is not None:
        return float(len(row.completion_ids))
    return float(len(row.completion)) if isinstance(row.completion, str) else float("nan")


def _live(evidence: PipelineEvidence, places: Sequence[int]) -> bool:
    rewards = np.array([evidence.rows[index].reward for index in places])
    finite = rewards[np.isfinite(rewards)]
    return bool(len(finite)) and float(np.ptp(finite)) > 0


def _within(evidence: PipelineEvidence, mixed: Sequence[Sequence[int]], values: Floats, name: str) -> Iterator[Finding]:
    parts = [np.array([index for index in places if np.isfinite(values[index])], np.int64) for places in mixed]
    parts = [indices for indices in parts if len(indices) > 1]
    out = np.array([bool(row.dropped) for row in evidence.rows])
    count = int(sum(out[indices].sum() for indices in parts))
    if count < FEWEST:
        yield cannot_tell(f"{count} dropped rollouts have a {name} and kept siblings, too few to test whether dropping "
                          f"depends on it; write the {name} and group of every dropped rollout.")  # fmt: skip
        return
    if not any(np.ptp(values[indices]) > 0 for indices in parts):
        yield cannot_tell(f"The {name} of every dropped rollout equals its siblings', so whether dropping depends on "
                          f"it cannot be seen; write groups with different {name}s.")  # fmt: skip
        return
    seen, p = _permuted([values[indices] for indices in parts], [out[indices] for indices in parts])
    step = min(evidence.rows[int(indices[0])].step for indices in parts)
    rewards = np.array([row.reward for row in evidence.rows])
    finite = np.isfinite(rewards)
    bias = ""
    if (finite & ~out).any():
        mean_kept, every = rewards[finite & ~out].mean(), rewards[finite].mean()
        bias = f" The mean reward of the kept rollouts is {mean_kept:.4g}; that of all rollouts is {every:.4g}."
    of = coverage.share(count, int(out.sum()), f"no {name} or no kept sibling", "dropped rollout")
    difference = f"{abs(seen):.3g} {'higher' if seen > 0 else 'lower'} in reward"
    if name == "length":
        difference = f"{abs(seen):.3g} tokens {'longer' if seen > 0 else 'shorter'}"
    yield by_chance(
        fault="selective dropping",
        brief=f"dropped by {name}",
        broken=p < 0.05,
        evidence=f"{count:,} dropped rollouts are {difference} than their siblings (p = {p:.2g})",
        held=f"{of} do not differ measurably in {name} from their siblings (p = {p:.2g}).",
        effect=(
            "The remaining rollouts are not a random sample of the policy: their mean reward and gradient are "
            f"biased.{bias}"
        ),
        remedy=(
            "Drop by a criterion that does not depend on the answer, or keep the dropped rollouts with their reward."
        ),
        p=p,
        onset=step,
    )


def _permuted(values: Sequence[Floats], out: Sequence[Bools]) -> tuple[float, float]:
    """Mean distance of the dropped from their siblings, and its two-sided p-value."""
    random = np.random.default_rng(0)
    total, draws, count = 0.0, np.zeros(PERMUTATIONS), 0
    for rewards_of_group, lost in zip(values, out, strict=True):
        centred = rewards_of_group - rewards_of_group.mean()
        total += float(centred[lost].sum())
        drawn = random.permuted(np.tile(centred, (PERMUTATIONS, 1)), axis=1)
        draws += drawn[:, : int(lost.sum())].sum(1)
        count += int(lost.sum())
    p = (1 + int((np.abs(draws) >= abs(total) - 1e-12 * (1 + abs(total))).sum())) / (1 + PERMUTATIONS)
    differences = [part[left].mean() - part[~left].mean() for part, left in zip(values, out, strict=True)
                   if (~left).any()
             and left.any()]  # fmt: skip
    return float(np.mean(differences)) if differences else 0.0, p


def _between(evidence: PipelineEvidence, dropped: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> Finding:
    """Mean rewards of whole groups that were dropped, none of which is dead, against those that were kept."""

    def mean(places: Sequence[int]) -> float:
        return float(np.nanmean([evidence.rows[index].reward for index in places]))

    values = np.array([mean(places) for places in (*dropped, *groups)])
    out = np.arange(len(values)) < len(dropped)
    seen, p = _permuted([values], [out])
    return by_chance(
        fault="selective dropping",
        brief="dropped by prompt",
        broken=p < 0.05,
        evidence=f"The mean reward of {len(dropped):,} dropped groups is {abs(seen):.3g} "
        f"{'higher' if seen > 0 else 'lower'} than that of the kept groups (p = {p:.2g})",
        held=f"The mean reward of {len(dropped):,} dropped groups does not differ measurably from that of the kept "
        f"groups (p = {p:.2g}).",
        effect="Prompts of some difficulties are trained on more than others.",
        remedy="Drop only groups whose rewards are all equal, or draw the prompts again.",
        p=p,
        onset=min(evidence.rows[places[0]].step for places in dropped),
    )  # fmt: skip


PROOF = Proof("dropped", "Rollouts were dropped without regard to reward or length",
              "all rollouts that were drawn, those left out marked as dropped", _tests)  # fmt: skip
