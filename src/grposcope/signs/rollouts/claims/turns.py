"""Trajectories of several turns are one: turns go on with one another, end as they were drawn, and begin alike. Exact.

Of rollouts with several turns alone: a pipeline whose rollouts have one has no such claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Bools, Rollout
from grposcope.signs.rollouts import coverage
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import exact

LIKE_BEFORE = 0.8
"""Length of a turn's prompt over that of the turns before it, below which these were compacted and not written anew."""

SHARED = 0.25
"""Share of the turns before that a prompt begins with, below which it is another conversation."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Ends of turns, ids of turns that go on, and states that groups begin in."""
    rows = [row for row in evidence.rows if not row.dropped]
    several = [row for row in rows if (row.turn_count or 0) > 1 or row.pieces > 1]
    if several:
        yield _ends(several)
        yield _continued(several)
    if any(row.anchors for row in rows) or (several and any(row.environment for row in rows)):
        yield _reset(evidence)


def turn_ends(row: Rollout) -> Bools | None:
    """Tokens (T,) that the policy ended a turn with, before a tool or environment answered; None where not known.

    Of turns of two tokens or more: a mask without the one token of a turn leaves out the turn.
    """
    written = row.written
    if written is None or written is row.mask or not len(written):
        return None
    before = np.concatenate([[False], written[:-1]])
    return np.concatenate([written[:-1] & ~written[1:], [False]]) & before


def _ends(rows: Sequence[Rollout]) -> Finding:
    known = [
        (row, ends) for row in rows if row.mask is not None and (ends := turn_ends(row)) is not None and ends.any()
    ]
    if not known:
        return cannot_tell("The mask alone says which tokens the policy wrote; write tool_mask, 0 on what tools and "
                           "environments wrote, or a row for each turn.")  # fmt: skip
    wrong = [row for row, ends in known if _left_out(row, ends)]
    return exact(
        "turn ends masked",
        bool(wrong),
        f"{len(wrong):,} of {len(known):,} rollouts of several turns do not train on the token that ends a turn, which "
        f"the policy drew; the first is {wrong[0].where}"
        if wrong
        else "",
        held=f"In {coverage.share(len(known), len(rows), 'no mask of what tools wrote')} the end of every turn is "
        "trained on.",
        onset=min((row.step for row in wrong), default=None),
    )


def _left_out(row: Rollout, ends: Bools) -> bool:
    """Whether most ends of turns have no weight although other tokens of the rollout have one."""
    mask = row.mask
    if mask is None or len(mask) != len(ends) or not mask.any():
        return False
    return bool((~mask & ends).sum() > ends.sum() / 2)


def _continued(rows: Sequence[Rollout]) -> Finding:
    """Whether the prompt of a turn is what was written before it, token for token."""
    joined = [
        row
        for row in rows
        if row.pieces > 1 and row.prompt_ids is not None and row.completion_ids is not None and not _is_parallel(row)
    ]
    if not joined:
        return cannot_tell("Trajectories are one row each, so that nothing says what each turn was given; write the "
                           "prompt's ids of every turn to see whether it begins with the turns before.")  # fmt: skip
    wrong = [row for row in joined if any(_is_rewritten(other, row) for other in row.continuations)]
    others = sum(bool(row.continuations) and row not in wrong for row in joined) if len(wrong) < len(joined) else 0
    beside = f" ({others:,} have branches or a compacted history)" if others else ""
    return exact(
        "turns retokenised",
        bool(wrong),
        f"in {len(wrong):,} of {len(joined):,} trajectories the prompt of a turn is not the ids of the turns before "
        f"it, although it is as long; the first is {wrong[0].where}"
        if wrong
        else "",
        held=f"In {len(joined):,} trajectories each turn's prompt begins with the ids of the turns before{beside}.",
        onset=min((row.step for row in wrong), default=None),
    )


def _is_parallel(row: Rollout) -> bool:
    """Whether the rows of a rollout all begin with its prompt, so that none goes on with another."""
    before = row.prompt_ids
    others = [other.prompt_ids for other in row.continuations]
    return (
        before is not None
        and row.pieces == len(others) + 1
        and all(own is not None and np.array_equal(own, before) for own in others)
    )


def _is_rewritten(before: Rollout, row: Rollout) -> bool:
    """Whether the prompt of a rollout is an earlier history with other ids, and no branch or summary of it."""
    if before.shared or before.completion_ids is None or before.prompt_ids is None or row.prompt_ids is None:
        return False
    earlier = np.concatenate([before.prompt_ids, before.completion_ids])
    width = min(len(earlier), len(row.prompt_ids))
    differs = np.flatnonzero(earlier[:width] != row.prompt_ids[:width])
    common = int(differs[0]) if len(differs) else width
    return len(row.prompt_ids) >= LIKE_BEFORE * len(earlier) and SHARED * len(earlier) <= common < len(earlier)


def _reset(evidence: PipelineEvidence) -> Finding:
    """Whether the rollouts of a group begin in one state of one environment."""
    wrong, known = [], 0
    for key, places in evidence.groups.items():
        group = [evidence.rows[place] for place in places]
        for values in (
            [row.anchors[0] for row in group if row.anchors],
            [r.environment for r in group if r.environment],
        ):
            if len(values) > 1:
                known += 1
                if len(set(values)) > 1:
                    wrong.append((key, len(set(values))))
                    break
    if not known:
        return cannot_tell("No group has two rollouts with the state that they began in; write anchors, a key of the "
                           "state before each turn, or the seed of the reset.")  # fmt: skip
    first = min(wrong, default=None)
    return exact(
        "reset states differ",
        bool(wrong),
        "" if first is None else f"{len(wrong):,} of {len(evidence.groups):,} groups began in several states or "
        f"environments; the first, {first[0][1][:40]} at step {first[0][0]}, in {first[1]}",
        held="The rollouts of each group that says so began in one state of one environment.",
        onset=None if first is None else first[0][0],
    )  # fmt: skip


PROOF = Proof(
    "turns", "Each turn of a trajectory begins with those before it, and groups begin in one state",
    "rollouts of several turns with token ids and tool_mask, or a row for each turn; anchors or environments", _tests,
    where_there=True,
)  # fmt: skip
