"""Turns of the environment that the policy writes itself, as "Observation:" behind its own action."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.rollouts import MESSAGES, Rollout, plain_text
from grposcope.core.text import percent, visible

OPENING = re.compile(r"\s*(<[A-Za-z][\w-]{1,30}>|\[?[A-Z][A-Za-z ]{2,24}\]?:)")
"""How what an environment answers begins: a tag, or a word with a colon."""

MOST = 0.9
"""Share of the answers of the environment that begin alike, from which on this is how they begin."""

FEW, SHARE = 20, 0.05
"""Rollouts that write such a beginning themselves, at least, and their share of the rollouts in the tenth of the steps
that has most."""


REMEDY = (
    "give the beginning of the environment's answers to the sampler as a stop string, or cut a turn there before the "
    "tool is asked, tokens and mask alike, so that nothing behind it is trained on or read by later turns"
)


def written(rows: Sequence[Rollout]) -> Finding | None:
    """That rollouts have inside the policy's own turns what the environment's answers begin with; None where they do
    not, or where these begin in no one way."""
    several = [row for row in rows if not row.dropped and any(_of_environment(row))]
    begins = Counter(match[1] if (match := OPENING.match(text)) else "" for row in several
                     for text in _of_environment(row))  # fmt: skip
    opening, count = begins.most_common(1)[0] if begins else ("", 0)
    if not opening or count < MOST * begins.total():
        return None
    inside = re.compile(rf"(?m)^\s*{re.escape(opening)}" if opening.endswith(":") else re.escape(opening))
    own = np.array([any(inside.search(text) for text in _of_policy(row)) for row in several])
    order = np.argsort([row.step for row in several], kind="stable")
    tenth = max(1, len(several) // 10)
    first, last = (float(own[order][rows_of].mean()) for rows_of in (slice(tenth), slice(-tenth, None)))
    if own.sum() < FEW or max(first, last) < SHARE:
        return None
    shown = visible(opening, 30)
    steps = f"; {percent(first)} in the first tenth of them, {percent(last)} in the last"
    because = (
        f"{own.sum():,} of {len(several):,} rollouts have “{shown}”, which the answers of the environment begin with, "
        f"in turns of the policy{steps if len({row.step for row in several}) > 1 else ''}: it makes up what it is "
        "answered and goes on from that, and is trained on it unless a mask leaves it out"
    )
    where = several[int(np.argmax(own))].where
    evidence = (Sign(f"share with “{shown}” in turns of the policy", float(own.mean()), where=where),)
    brief = f"{percent(float(own.mean()))} of rollouts write “{shown}” themselves"
    return fact(True, because, evidence, fault="invented observations", brief=brief, remedy=REMEDY)


def _messages(row: Rollout) -> Sequence[Mapping[str, Any]]:
    """The messages of a completion, those kept beside its text too; what is none is left out."""
    kept = row.messages or row.columns.get(MESSAGES, ())
    return [message for message in kept if isinstance(message, Mapping)] if isinstance(kept, list | tuple) else ()


def _of_environment(row: Rollout) -> Iterator[str]:
    """The texts of messages behind a turn of the policy that are not its own."""
    behind = False
    for message in _messages(row):
        if message.get("role") == "assistant":
            behind = True
        elif behind:
            yield plain_text([dict(message)])


def _of_policy(row: Rollout) -> Iterator[str]:
    """The texts of the policy's own turns."""
    return (plain_text([dict(message)]) for message in _messages(row) if message.get("role") == "assistant")
