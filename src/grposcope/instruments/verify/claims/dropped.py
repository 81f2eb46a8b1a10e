"""What was dropped was dropped blindly: whether a rollout was left out does not depend on its reward or its length.

Siblings of one group are exchangeable where dropping is blind: permuting who was dropped within each group gives
the distribution of Σ (x − group mean) over the dropped: an exact test, by random permutations. Whole groups whose
rewards are equal have no gradient under a group baseline and may be left out; other whole groups are tested across
groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Floats
from grposcope.instruments.verify import coverage
from grposcope.instruments.verify.claim import Claim, ClaimTest, NotTestable
from grposcope.instruments.verify.evidence import PipelineEvidence

PERMUTATIONS = 9999
FEWEST = 5
"""Dropped rollouts below which nothing is tested."""


def tests(evidence: PipelineEvidence) -> Iterator[ClaimTest | NotTestable]:
    """Reward and length of what was dropped against its siblings', then whole groups."""
    if not any(row.dropped for row in evidence.rows):
        if evidence.filtered is False and evidence.rows:
            yield NotTestable("Nothing was dropped, so there is nothing to test.")
        else:
            yield NotTestable(
                "No rollout is marked as dropped; also write the rollouts that were left out, with the reason "
                "(dropped)."
            )
        return
    groups = [list(places) for places in evidence.groups.values()]
    mixed = [
        places for places in groups if 0 < sum(bool(evidence.rows[place].dropped) for place in places) < len(places)
    ]
    whole = [places for places in groups if places and all(evidence.rows[place].dropped for place in places)]
    kept = [places for places in groups if places and not any(evidence.rows[place].dropped for place in places)]
    for name, of in (("reward", _reward), ("length", _length)):
        values = np.array([of(row) for row in evidence.rows])
        yield from _within(evidence, mixed, values, name)
    live = [places for places in whole if _live(evidence, places)]
    others = [places for places in kept if _live(evidence, places)]
    if len(live) >= FEWEST and len(others) >= FEWEST:
        yield _between(evidence, live, others)
    elif live:
        yield NotTestable(f"{len(live):,} whole groups with different rewards were dropped and {len(others):,} kept, "
                          f"too few to compare; {FEWEST} of each are enough.")  # fmt: skip


def _reward(row: Rollout) -> float:
    return row.reward


def _length(row: Rollout) -> float:
    if row.completion_ids is not None:
        return float(len(row.completion_ids))
    return float(len(row.completion)) if isinstance(row.completion, str) else float("nan")


def _live(evidence: PipelineEvidence, places: Sequence[int]) -> bool:
    rewards = np.array([evidence.rows[place].reward for place in places])
    known = rewards[np.isfinite(rewards)]
    return bool(len(known)) and float(np.ptp(known)) > 0


def _within(
    evidence: PipelineEvidence, mixed: Sequence[Sequence[int]], values: Floats, name: str
) -> Iterator[ClaimTest | NotTestable]:
    parts = [np.array([place for place in places if np.isfinite(values[place])], np.int64) for places in mixed]
    parts = [part for part in parts if len(part) > 1]
    out = np.array([bool(row.dropped) for row in evidence.rows])
    count = int(sum(out[part].sum() for part in parts))
    if count < FEWEST:
        yield NotTestable(f"{count} dropped rollouts have a {name} and kept siblings, too few to test whether dropping "
                          f"depends on it; write the {name} and group of every dropped rollout.")  # fmt: skip
        return
    if not any(np.ptp(values[part]) > 0 for part in parts):
        yield NotTestable(f"The {name} of every dropped rollout equals its siblings', so whether dropping depends on "
                          f"it cannot be seen; write groups with different {name}s.")  # fmt: skip
        return
    seen, p = _permuted([values[part] for part in parts], [out[part] for part in parts])
    step = min(evidence.rows[int(part[0])].step for part in parts)
    rewards = np.array([row.reward for row in evidence.rows])
    known = np.isfinite(rewards)
    bias = ""
    if (known & ~out).any():
        kept, every = rewards[known & ~out].mean(), rewards[known].mean()
        bias = f" The mean reward of the kept rollouts is {kept:.4g}; that of all rollouts is {every:.4g}."
    of = coverage.share(count, int(out.sum()), f"no {name} or no kept sibling", "dropped rollout")
    apart = f"{abs(seen):.3g} {'higher' if seen > 0 else 'lower'} in reward"
    if name == "length":
        apart = f"{abs(seen):.3g} tokens {'longer' if seen > 0 else 'shorter'}"
    yield ClaimTest(
        fault=f"dropped by {name}",
        broken=p < 0.05,
        evidence=f"{count:,} dropped rollouts are {apart} than their siblings (p = {p:.2g})",
        held=f"{of} do not differ measurably in {name} from their siblings (p = {p:.2g}).",
        effect=(
            "The remaining rollouts are not a random sample of the policy: their mean reward and gradient are "
            f"biased.{bias}"
        ),
        remedy=(
            "Drop by a criterion that does not depend on the answer, or keep the dropped rollouts with their reward."
        ),
        p=p,
        since=step,
    )


def _permuted(values: Sequence[Floats], out: Sequence[Bools]) -> tuple[float, float]:
    """Mean distance of the dropped from their siblings, and its two-sided p-value."""
    random = np.random.default_rng(0)
    total, draws, count = 0.0, np.zeros(PERMUTATIONS), 0
    for part, left in zip(values, out, strict=True):
        centred = part - part.mean()
        total += float(centred[left].sum())
        drawn = random.permuted(np.tile(centred, (PERMUTATIONS, 1)), axis=1)
        draws += drawn[:, : int(left.sum())].sum(1)
        count += int(left.sum())
    p = (1 + int((np.abs(draws) >= abs(total) - 1e-12 * (1 + abs(total))).sum())) / (1 + PERMUTATIONS)
    apart = [part[left].mean() - part[~left].mean() for part, left in zip(values, out, strict=True) if (~left).any()
             and left.any()]  # fmt: skip
    return float(np.mean(apart)) if apart else 0.0, p


def _between(evidence: PipelineEvidence, dropped: Sequence[Sequence[int]], kept: Sequence[Sequence[int]]) -> ClaimTest:
    """Mean rewards of whole groups that were dropped, none of which is dead, against those that were kept."""

    def mean(places: Sequence[int]) -> float:
        return float(np.nanmean([evidence.rows[place].reward for place in places]))

    values = np.array([mean(places) for places in (*dropped, *kept)])
    out = np.arange(len(values)) < len(dropped)
    seen, p = _permuted([values], [out])
    return ClaimTest(
        fault="dropped by prompt",
        broken=p < 0.05,
        evidence=f"The mean reward of {len(dropped):,} dropped groups is {abs(seen):.3g} "
        f"{'higher' if seen > 0 else 'lower'} than that of the kept groups (p = {p:.2g})",
        held=f"The mean reward of {len(dropped):,} dropped groups does not differ measurably from that of the kept "
        f"groups (p = {p:.2g}).",
        effect="Prompts of some difficulties are trained on more than others.",
        remedy="Drop only groups whose rewards are all equal, or draw the prompts again.",
        p=p,
        since=min(evidence.rows[places[0]].step for places in dropped),
    )  # fmt: skip


CLAIM = Claim("dropped", "Rollouts were dropped without regard to reward or length",
              "all rollouts that were drawn, those left out marked as dropped", tests)  # fmt: skip
