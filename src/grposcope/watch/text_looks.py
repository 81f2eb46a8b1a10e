"""Looks at the texts of a run while it goes: whole groups of its steps, with few features, within a budget of time.

Of each step GROUPS groups are kept, of the latest RECENT steps and of EARLIER earlier ones, evenly, with the two ends
of each text. The k-th look tests at LEVEL / (k (k + 1)), so that the chance of any alarm in a run whose rewards pay
for no habit stays below LEVEL however long it is watched (union bound, as in `alarms`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.faults import judge_texts
from grposcope.logs.tail import Pace
from grposcope.signs.texts.sample import written

LEVEL = 0.02
"""Chance of any alarm over all looks at a run whose rewards pay for no habit; beside the level of the log's alarms."""

GROUPS, RECENT, EARLIER = 4, 16, 48
"""Groups that are kept of a step; latest steps that are; and earlier ones, evenly over the run."""

END = 500
"""Characters that are kept of either end of a text."""

WORDS, DRAWS = 200, 199
"""Sequences of the run's own vocabulary that are tested at a look, and permutations."""

LEAST_STEPS, LEAST_TEXTS = 8, 64
"""Steps with texts, and texts, before the first look."""

GROWTH = 1.25
"""Steps with texts at a look over those at the look before."""

FIRST = 0.4
"""Seconds that the first look is assumed to cost."""


class TextLooks:
    """The texts of a run as it grows. findings: exploits that were present at the last look. looks: how many there
    were. seconds: that they took.

    share: largest share of the time that looks may take; at_once: whether the first need not wait for it. A run that
    goes back to an earlier step is forgotten from there on.
    """

    def __init__(self, share: float, at_once: bool = False):
        self.findings: tuple[Finding, ...] = ()
        self.looks = 0
        self.seconds = 0.0
        self._pace = Pace(share, 0.0 if at_once else FIRST / share)
        self._kept: dict[int, tuple[Rollout, ...]] = {}
        self._seen: set[int] = set()
        self._loaded: set[int] = set()
        self._at = 0

    def take(self, step: int, rows: Sequence[Rollout]) -> None:
        """Keep some whole groups of the texts that were drawn at a step."""
        if self._seen and step < max(self._seen):
            self._forget(step)
        self._keep(step, rows)

    def _keep(self, step: int, rows: Sequence[Rollout]) -> None:
        self._seen.add(step)
        self._kept[step] = tuple(_short(row, step) for row in _whole_groups(rows))
        earlier = sorted(self._kept)[:-RECENT]
        if len(earlier) > EARLIER + RECENT:
            stay = {earlier[index] for index in np.linspace(0, len(earlier) - 1, EARLIER).round().astype(int).tolist()}
            for gone in set(earlier) - stay:
                del self._kept[gone]

    def look(self, rollouts: Mapping[int, Sequence[Rollout]] | None = None, now: bool = False) -> tuple[Finding, ...]:
        """Read what is kept, if that is due, or `now`; the exploits that are present, those of the last look else.

        rollouts: by step, loaded when asked for, of which steps that were not seen are taken first.
        """
        began = time.perf_counter()
        steps = [] if rollouts is None else list(rollouts)
        grown = len(self._seen | {*steps})
        if grown < LEAST_STEPS or not (now or (self._pace.ready() and grown >= GROWTH * self._at)):
            return self.findings
        self._take_new(steps, rollouts or {})
        rows = [row for step in sorted(self._kept) for row in self._kept[step]]
        if len(rows) >= LEAST_TEXTS and grown > self._at:
            self.looks += 1
            level = LEVEL / (self.looks * (self.looks + 1))
            self.findings = judge_texts.of_rows(rows, level, DRAWS, WORDS)
            self._at = grown
        self.seconds += time.perf_counter() - began
        self._pace.spent(time.perf_counter() - began)
        return self.findings

    def _take_new(self, steps: Sequence[int], rollouts: Mapping[int, Sequence[Rollout]]) -> None:
        """Keep the steps that were not seen, of which no more are loaded than are kept. Where steps are there no more
        that were, the run went back."""
        if gone := self._loaded - {*steps}:
            self._forget(min(gone))
        self._loaded = {*steps}
        new = sorted({*steps} - self._seen)
        late, early = new[-RECENT:], new[:-RECENT]
        places = np.unique(np.linspace(0, len(early) - 1, min(EARLIER, len(early))).round().astype(int)).tolist()
        for step in [*(early[index] for index in places), *late]:
            try:
                self._keep(step, rollouts[step])
            except UserError:
                continue  # a file that is damaged, or half written
        self._seen |= {*new}

    def _forget(self, step: int) -> None:
        """Drop what is of this step or later."""
        self._seen = {own for own in self._seen if own < step}
        self._kept = {own: rows for own, rows in self._kept.items() if own < step}
        self._at = min(self._at, len(self._seen))


def _whole_groups(rows: Sequence[Rollout], most: int = GROUPS) -> list[Rollout]:
    """At most `most` whole groups of the rollouts of a step that have a text, evenly over them."""
    groups: dict[object, list[Rollout]] = {}
    for row in rows:
        if row.completion is not None and row.continuations == ():
            groups.setdefault(str(row.prompt) if row.group is None else row.group, []).append(row)
    members = list(groups.values())
    places = np.unique(np.linspace(0, len(members) - 1, min(most, len(members))).round().astype(int)).tolist()
    return [row for index in places for row in members[index]]


def _short(row: Rollout, step: int) -> Rollout:
    """What is read of a rollout, with the two ends of its text."""
    text = written(row.completion) if row.completion is not None else ""
    if len(text) > 2 * END:
        text = text[:END] + text[-END:]
    return Rollout(
        step=step, group=row.group, prompt=row.prompt, completion=text, reward=row.reward, rewards=row.rewards,
        truncated=row.truncated, stop=row.stop, columns=row.columns, environment=row.environment,
    )  # fmt: skip
