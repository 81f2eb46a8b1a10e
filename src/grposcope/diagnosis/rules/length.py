"""Length: completions cut at the token limit, grown without reward for it, or shrunk to a stub."""

from __future__ import annotations

import math

from grposcope.diagnosis.findings import Evidence, Rule, RuleResult, cannot_tell, moved
from grposcope.diagnosis.quantities import SHORT, MetricSeries, Quantities
from grposcope.diagnosis.rules.dead_groups import DEAD
from grposcope.timeseries import level as levels
from grposcope.timeseries.change import EARLY, LATE

CUT = 0.25
"""Share of truncated completions that starves the reward."""

LONGER, SHORTER = 1.5, 0.2
"""Late over early length: longer without reward for it, or shrunk to a stub."""

GREW = 1.2
"""Late over early length from which completions that are cut have grown into the limit."""

UNPAID = 0.05
"""A gain of reward below this share of its range is not worth a longer completion."""

Test = tuple[float, str, str, int | None]
"""p-value, reason, advice, onset."""


def check(quantities: Quantities) -> RuleResult:
    """Truncated completions above CUT; or LONGER × without reward for it; or below SHORTER ×.

    This explains dead groups where nearly all completions are cut, so that all are paid alike, or where they grew.
    """
    length, cut = quantities.get("length", SHORT), quantities.get("truncated", SHORT)
    tests: list[Test] = []
    evidence: list[Evidence] = []
    if cut is not None:
        over = cut.level(LATE, CUT)
        evidence.append(
            Evidence(f"{cut.name}, last {1 - LATE[0]:.0%}", over.value + CUT, over.se, f"limit {CUT:g}", cut.name)
        )
        tests.append((
            over.p_up, f"{over.value + CUT:.0%} of completions are cut at the token limit",
            "raise the token limit, penalise or mask truncated completions (overlong filtering)", cut.first_above(CUT),
        ))  # fmt: skip
    if length is not None and length.logs is not None:
        early, late = length.geometric_mean(EARLY), length.geometric_mean(LATE)
        evidence += [
            Evidence(f"{length.name}, first {EARLY[1]:.0%}", *early, column=length.name),
            Evidence(f"{length.name}, last {1 - LATE[0]:.0%}", *late, f"{LONGER:g} × early, unpaid", length.name),
        ]
        because = f"completions went from {early[0]:.0f} to {late[0]:.0f} tokens"
        tests.append((
            levels.change(length.logs, EARLY, LATE, minus=math.log(SHORTER)).p_down, because + ", a stub",
            "read the late completions; a loss or reward that pays for brevity shrinks them (try Dr. GRPO, DAPO)",
            None,
        ))  # fmt: skip
        reward, margin = quantities.get("reward", SHORT), quantities.reward_margin(UNPAID)
        if reward is not None and margin is not None:
            gain = levels.change(reward.values, EARLY, LATE)
            unpaid = levels.change(reward.values, EARLY, LATE, minus=margin).p_down
            tests.append((
                max(levels.change(length.logs, EARLY, LATE, minus=math.log(LONGER)).p_up, unpaid),
                because + f", while the reward {moved(gain.value)}",
                "drop the division by each completion's own length (Dr. GRPO, DAPO), or add an overlong penalty", None,
            ))  # fmt: skip
    if not tests:
        return cannot_tell("neither lengths nor truncation are logged", "length", "truncated")
    p, because, advice, onset = min(tests)
    p = min(1.0, p * len(tests))
    if p < 0.5 and length is not None and (onset is None or _grew(length, GREW)):
        onset = length.onset() if onset is None else min(length.onset(), onset)
    nearly_all_cut = cut is not None and cut.level(LATE, DEAD).p_up < 0.5
    kills_groups = nearly_all_cut or (length is not None and _grew(length, LONGER))
    return RuleResult(
        p, because, tuple(evidence), onset, advice=advice, missing=() if length is not None else ("length",),
        explains=("saturated", "starved") if kills_groups else (),
    )  # fmt: skip


def _grew(length: MetricSeries, ratio: float) -> bool:
    """Whether late lengths are clearly above `ratio` × early ones."""
    return length.logs is not None and levels.change(length.logs, EARLY, LATE, minus=math.log(ratio)).p_up < 0.01


RULE = Rule(
    mode="length",
    needs=("length", "truncated"),
    statistic="late truncated share; mean log length, late − early − log ρ, together with the change of reward",
    threshold=f"truncated > {CUT:g}; or > {LONGER:g} × longer and reward up < {UNPAID:g} of its range; or < "
    f"{SHORTER:g} ×",
    source="method of this project; Liu et al. 2025 (arXiv:2503.20783) for the length bias of the loss",
    advice="see the completions",
    check=check,
)
