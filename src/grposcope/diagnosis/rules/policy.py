"""Rules about the policy: concentration, distance from its start, length of its completions."""

from __future__ import annotations

import math

from grposcope.diagnosis.findings import Evidence, Rule, Verdict, unknown
from grposcope.diagnosis.quantities import SHORT, Series, View
from grposcope.diagnosis.rules.dead_groups import DEAD
from grposcope.diagnosis.rules.no_learning import small
from grposcope.timeseries import level as levels
from grposcope.timeseries.change import EARLY, LATE
from grposcope.timeseries.noise import Array

COLLAPSED = 0.2
"""Entropy below this share of its early mean has collapsed."""

EXPLODED = 3.0
"""Entropy above this multiple of its early mean has exploded."""

FAR, VERY_FAR = 0.5, 3.0
"""Nats of KL per token: far if it also grows steeply, and far however it got there."""

STEEP = 5.0
"""Mean KL of the last tenth over that of the first half; 3.8 if it grows linearly."""

CUT = 0.25
"""Share of truncated completions that starves the reward."""

LONGER, SHORTER = 1.5, 0.2
"""Late over early length: longer without reward for it, or shrunk to a stub."""

GREW = 1.2
"""Late over early length from which completions that are cut have grown into the limit."""

UNPAID = 0.05
"""A gain of reward below this share of its range is not worth a longer completion."""


def entropy(view: View) -> Verdict:
    """Entropy late against early: collapsed below COLLAPSED ×, exploded above EXPLODED ×."""
    found = view.get("entropy", SHORT)
    if found is None:
        return unknown(view.lacks("entropy", SHORT), "entropy")
    if found.logs is None:
        return unknown("the entropy is not positive, so it is that of a continuous policy or a loss term", "entropy")
    early, late = _typical(found.logs, EARLY), _typical(found.logs, LATE)
    low = levels.change(found.logs, EARLY, LATE, minus=math.log(COLLAPSED)).p_down
    high = levels.change(found.logs, EARLY, LATE, minus=math.log(EXPLODED)).p_up
    evidence = (
        Evidence(f"{found.name}, first {EARLY[1]:.0%}", *early),
        Evidence(f"{found.name}, last {1 - LATE[0]:.0%}", *late, f"collapsed below {COLLAPSED:g} × early"),
    )
    because = f"entropy went from {early[0]:.3g} to {late[0]:.3g} nats"
    if high < low:
        return Verdict(
            min(1.0, 2 * high), because, evidence, found.onset(), "entropy explosion",
            "lower the learning rate or the entropy bonus; look at completions for gibberish",
        )  # fmt: skip
    p = min(1.0, 2 * low)
    return Verdict(p, because, evidence, found.onset() if p < 0.5 else None)


def kl(view: View) -> Verdict:
    """KL to the start: the last tenth above FAR and STEEP × the first half, or above VERY_FAR."""
    found = view.get("kl", SHORT)
    if found is None:
        return unknown(view.lacks("kl", SHORT), "kl")
    half, tail = (0.0, 0.5), (0.9, 1.0)
    if found.logs is not None:
        early, late = _typical(found.logs, half), _typical(found.logs, tail)
        far, very = (levels.level(found.logs, tail, math.log(limit)).p_up for limit in (FAR, VERY_FAR))
        steep = levels.change(found.logs, half, tail, minus=math.log(STEEP)).p_up
    else:
        first, last = found.level(half), found.level(tail)
        early, late = (first.value, first.se), (last.value, last.se)
        far, very = (found.level(tail, limit).p_up for limit in (FAR, VERY_FAR))
        steep = levels.change(found.values, half, tail, STEEP).p_up
    p = min(1.0, 2 * min(max(far, steep), very))
    evidence = (
        Evidence(f"{found.name}, first half", *early),
        Evidence(f"{found.name}, last tenth", *late, f"{FAR:g} and {STEEP:g} × the first half, or {VERY_FAR:g}"),
    )
    because = f"KL to the start went from {early[0]:.3g} to {late[0]:.3g} nats per token"
    return Verdict(p, because, evidence, found.onset() if p < 0.5 else None)


def _typical(logs: Array, span: levels.Span) -> tuple[float, float]:
    """Geometric mean over a window and its standard error, from logarithms."""
    level = levels.level(logs, span)
    value = math.exp(level.value)
    return value, value * level.se


def length(view: View) -> Verdict:
    """Truncated completions above CUT; or LONGER × without reward for it; or shrunk below SHORTER ×.

    Groups die of it where nearly all completions are cut, so that all are paid alike, or where they grew.
    """
    found, cut = view.get("length", SHORT), view.get("truncated", SHORT)
    tests: list[tuple[float, str, str, int | None]] = []
    evidence: list[Evidence] = []
    if cut is not None:
        over = cut.level(LATE, CUT)
        evidence.append(Evidence(f"{cut.name}, last {1 - LATE[0]:.0%}", over.value + CUT, over.se, f"limit {CUT:g}"))
        tests.append((
            over.p_up, f"{over.value + CUT:.0%} of completions are cut at the token limit",
            "raise the token limit, penalise or mask truncated completions (overlong filtering)", cut.first_above(CUT),
        ))  # fmt: skip
    if found is not None and found.logs is not None:
        early, late = _typical(found.logs, EARLY), _typical(found.logs, LATE)
        evidence += [
            Evidence(f"{found.name}, first {EARLY[1]:.0%}", *early),
            Evidence(f"{found.name}, last {1 - LATE[0]:.0%}", *late, f"{LONGER:g} × early, unpaid"),
        ]
        because = f"completions went from {early[0]:.0f} to {late[0]:.0f} tokens"
        tests.append((
            levels.change(found.logs, EARLY, LATE, minus=math.log(SHORTER)).p_down, because + ", a stub",
            "read the late completions; a loss or reward that pays for brevity shrinks them (try Dr. GRPO, DAPO)",
            None,
        ))  # fmt: skip
        reward, margin = view.get("reward", SHORT), small(view, UNPAID)
        if reward is not None and margin is not None:
            gain = levels.change(reward.values, EARLY, LATE)
            unpaid = levels.change(reward.values, EARLY, LATE, minus=margin).p_down
            tests.append((
                max(levels.change(found.logs, EARLY, LATE, minus=math.log(LONGER)).p_up, unpaid),
                because + f", while reward changed by {gain.value:+.2g}",
                "drop the division by each completion's own length (Dr. GRPO, DAPO), or add an overlong penalty", None,
            ))  # fmt: skip
    if not tests:
        return unknown("neither lengths nor truncation are logged", "length", "truncated")
    p, because, advice, onset = min(tests)
    p = min(1.0, p * len(tests))
    if p < 0.5 and found is not None and (onset is None or _grew(found, GREW)):
        onset = found.onset() if onset is None else min(found.onset(), onset)
    deadly = (cut is not None and cut.level(LATE, DEAD).p_up < 0.5) or (found is not None and _grew(found, LONGER))
    return Verdict(
        p, because, tuple(evidence), onset, advice=advice, missing=() if found is not None else ("length",),
        explains=("saturated", "starved") if deadly else (),
    )  # fmt: skip


def _grew(found: Series, ratio: float) -> bool:
    """Whether lengths are late clearly above `ratio` × early."""
    return found.logs is not None and levels.change(found.logs, EARLY, LATE, minus=math.log(ratio)).p_up < 0.01


RULES = (
    Rule(
        "kl blow-up", ("kl",),
        "mean log KL of the last tenth against limits and against the first half",
        f"> {FAR:g} nats and > {STEEP:g} × the first half, or > {VERY_FAR:g} nats; the error shrinks with n",
        "ours; Gao, Schulman & Hilton 2022 (arXiv:2210.10760) for reward against KL",
        "raise the KL coefficient or lower the learning rate; go back to a checkpoint before the onset", kl,
    ),
    Rule(
        "entropy collapse", ("entropy",),
        "mean log entropy, late − early − log ρ",
        f"late < {COLLAPSED:g} × early (collapse) or > {EXPLODED:g} × early (explosion)",
        "theory: policy concentration; the ratios are ours",
        "raise the upper clip (clip-higher, DAPO), add an entropy bonus or KL, or lower the learning rate", entropy,
    ),
    Rule(
        "length", ("length", "truncated"),
        "late truncated share; mean log length, late − early − log ρ, together with the change of reward",
        f"truncated > {CUT:g}; or > {LONGER:g} × longer and reward up < {UNPAID:g} of its range; or < {SHORTER:g} ×",
        "ours; Liu et al. 2025 (arXiv:2503.20783) for the length bias of the loss",
        "see the completions", length,
    ),
)  # fmt: skip
