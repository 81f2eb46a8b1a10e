"""Length: completions cut at the token limit, grown without reward for it, or shrunk to a stub."""

from __future__ import annotations

import math
from dataclasses import replace

from grposcope.diagnosis.findings import (
    Evidence,
    Rule,
    RuleResult,
    cannot_tell,
    early_level,
    late_level,
    least_of,
    moved,
)
from grposcope.diagnosis.quantities import SHORT, MetricSeries, Quantities
from grposcope.diagnosis.rules.dead_groups import DEAD
from grposcope.timeseries.change import EARLY, LATE

CUT = 0.25
"""Share of truncated completions that starves the reward."""

LONGER, SHORTER = 1.5, 0.2
"""Late over early length: longer without reward for it, or shrunk to a stub."""

GREW = 1.2
"""Late over early length from which completions that are cut have grown into the limit."""

UNPAID = 0.05
"""A gain of reward below this share of its range is not worth a longer completion."""


def check(quantities: Quantities) -> RuleResult:
    """Truncated completions above CUT; or LONGER × without reward for it; or below SHORTER ×.

    This explains dead groups where nearly all completions are cut, so that all are paid alike, or where they grew.
    """
    length, cut = quantities.get("length", SHORT), quantities.get("truncated", SHORT)
    tests: list[RuleResult] = []
    evidence: list[Evidence] = []
    if cut is not None:
        over = cut.level(LATE, CUT)
        evidence.append(late_level(cut.name, over.value + CUT, over.se, f"limit {CUT:g}"))
        tests.append(RuleResult(
            over.p_up, f"{over.value + CUT:.0%} of completions are cut at the token limit", onset=cut.first_above(CUT),
            advice="raise the token limit, penalise or mask truncated completions (overlong filtering)",
        ))  # fmt: skip
    if length is not None and length.logs is not None:
        early, late = length.geometric_mean(EARLY), length.geometric_mean(LATE)
        limit = f"{LONGER:g} × early, unpaid"
        evidence += [early_level(length.name, *early), late_level(length.name, *late, limit)]
        because = f"completions went from {early[0]:.0f} to {late[0]:.0f} tokens"
        tests.append(RuleResult(
            length.logs.change(EARLY, LATE, minus=math.log(SHORTER)).p_down, because + ", a stub",
            advice="read the late completions; a loss or reward that pays for brevity shrinks them (try Dr. GRPO, "
            "DAPO)",
        ))  # fmt: skip
        reward, margin = quantities.get("reward", SHORT), quantities.reward_margin(UNPAID)
        if reward is not None and margin is not None:
            gain, unpaid = reward.change(EARLY, LATE), reward.change(EARLY, LATE, minus=margin).p_down
            longer = length.logs.change(EARLY, LATE, minus=math.log(LONGER)).p_up
            tests.append(RuleResult(
                max(longer, unpaid), because + f", while the reward {moved(gain.value)}",
                advice="drop the division by each completion's own length (Dr. GRPO, DAPO), or add an overlong penalty",
            ))  # fmt: skip
    if not tests:
        seen = [name for name in ("length", "truncated") if quantities.logged(name)]
        because = "; ".join(quantities.absence(name, SHORT) for name in seen)
        return cannot_tell(because or "neither lengths nor truncation are logged", "length", "truncated")
    result = least_of(tests)
    onset = result.onset
    if result.p < 0.5 and length is not None and (onset is None or _grew(length, GREW)):
        onset = length.onset() if onset is None else min(length.onset(), onset)
    nearly_all_cut = cut is not None and cut.level(LATE, DEAD).p_up < 0.5
    kills_groups = nearly_all_cut or (length is not None and _grew(length, LONGER))
    return replace(
        result, evidence=tuple(evidence), onset=onset, missing=() if length is not None else ("length",),
        explains=("saturated", "starved") if kills_groups else (),
    )  # fmt: skip


def _grew(length: MetricSeries, ratio: float) -> bool:
    """Whether late lengths are clearly above `ratio` × early ones."""
    return length.logs is not None and length.logs.change(EARLY, LATE, minus=math.log(ratio)).p_up < 0.01


RULE = Rule(
    mode="length",
    needs=("length", "truncated"),
    statistic="late truncated share; mean log length, late − early − log ρ, together with the change of reward",
    threshold=f"truncated > {CUT:g}; or > {LONGER:g} × longer and reward up < {UNPAID:g} of its range; or < "
    f"{SHORTER:g} ×",
    source="method of this project; Liu et al. 2025 (arXiv:2503.20783) for the length bias of the loss",
    advice="see the completions",
    check=check,
    limit=True,
    beside="warning",
)
