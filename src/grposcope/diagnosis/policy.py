"""Rules about the policy: concentration, distance from its start, length of its completions."""

from __future__ import annotations

import math

import numpy as np

from grposcope.diagnosis import trends
from grposcope.diagnosis.findings import Evidence, Rule, Verdict, unknown
from grposcope.diagnosis.trends import EARLY, HALF_LATE, LATE, Curve
from grposcope.diagnosis.view import View

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


def entropy(view: View) -> Verdict:
    """Entropy late against early: collapsed below COLLAPSED ×, exploded above EXPLODED ×."""
    found = view.get("entropy")
    if found is None:
        return unknown(view.lacks("entropy"), "entropy")
    if found.logs is None:
        return unknown("the entropy is not positive, so it is that of a continuous policy or a loss term", "entropy")
    early, late = _typical(found.logs, EARLY), _typical(found.logs, LATE)
    low = found.log_change(EARLY, LATE, math.log(COLLAPSED))[1]
    high = found.log_change(EARLY, LATE, math.log(EXPLODED))[0]
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
    found = view.get("kl")
    if found is None:
        return unknown(view.lacks("kl"), "kl")
    tail, half = (0.9, 1.0), (0.0, 0.5)
    if found.logs is not None:
        early, late = _typical(found.logs, half), _typical(found.logs, tail)
        late_half = trends.fit(np.log(found.values[found.values > 0][len(found) // 2 :]))
        far, very = (late_half.level((0.8, 1.0), math.log(limit)).p_up for limit in (FAR, VERY_FAR))
        steep = found.log_change(half, tail, math.log(STEEP))[0]
    else:
        first, last = found.curve.level(half), found.curve.level(tail)
        early, late = (first.value, first.se), (last.value, last.se)
        far, very = (found.curve.level(tail, limit).p_up for limit in (FAR, VERY_FAR))
        steep = found.curve.change(half, tail, STEEP).p_up
    p = min(1.0, 2 * min(max(far, steep), very))
    evidence = (
        Evidence(f"{found.name}, first half", *early),
        Evidence(f"{found.name}, last tenth", *late, f"{FAR:g} and {STEEP:g} × the first half, or {VERY_FAR:g}"),
    )
    because = f"KL to the start went from {early[0]:.3g} to {late[0]:.3g} nats per token"
    return Verdict(p, because, evidence, found.onset() if p < 0.5 else None)


def _typical(logs: Curve, span: tuple[float, float]) -> tuple[float, float]:
    """Geometric mean over a window and its standard error, from the curve of the logarithm."""
    level = logs.level(span)
    value = math.exp(level.value)
    return value, value * level.se


def length(view: View) -> Verdict:
    """Truncated completions above CUT; or LONGER × without reward for it; or shrunk below SHORTER ×."""
    found, cut = view.get("length"), view.get("truncated")
    tests: list[tuple[float, str, str, int | None]] = []
    evidence: list[Evidence] = []
    if cut is not None:
        over = cut.tail.level(HALF_LATE, CUT)
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
            found.log_change(EARLY, LATE, math.log(SHORTER))[1], because + ", a stub",
            "read the late completions; a loss or reward that pays for brevity shrinks them (try Dr. GRPO, DAPO)",
            None,
        ))  # fmt: skip
        reward, margin = view.get("reward"), _margin(view)
        if reward is not None and margin is not None:
            unpaid = reward.curve.change()
            late_gain = reward.curve.change(minus=margin)
            tests.append((
                max(found.logs.change(minus=math.log(LONGER)).p_up, late_gain.p_down),
                because + f", while reward changed by {unpaid.value:+.2g}",
                "drop the division by each completion's own length (Dr. GRPO, DAPO), or add an overlong penalty", None,
            ))  # fmt: skip
    if not tests:
        return unknown("neither lengths nor truncation are logged", "length", "truncated")
    p, because, advice, onset = min(tests)
    p = min(1.0, p * len(tests))
    if p < 0.5 and onset is None and found is not None:
        onset = found.onset()
    return Verdict(p, because, tuple(evidence), onset, advice=advice, missing=() if found is not None else ("length",))


def _margin(view: View) -> float | None:
    """A reward change too small to matter: a tenth of the range, or of ten spreads within a group."""
    if view.reward_range is not None:
        return 0.1 * (view.reward_range[1] - view.reward_range[0])
    spread = view.get("reward_std")
    return None if spread is None else 0.2 * float(spread.curve.level(EARLY).value)


RULES = (
    Rule(
        "kl blow-up", ("kl",),
        "mean KL of the last tenth against limits and against the first half, AR(1) + white noise integrated out",
        f"> {FAR:g} nats and > {STEEP:g} × the first half, or > {VERY_FAR:g} nats; the error shrinks with n",
        "ours; Gao, Schulman & Hilton 2022 (arXiv:2210.10760) for reward against KL",
        "raise the KL coefficient or lower the learning rate; go back to a checkpoint before the onset", kl,
    ),
    Rule(
        "entropy collapse", ("entropy",),
        "late entropy − ρ × early entropy, AR(1) + white noise integrated out",
        f"late < {COLLAPSED:g} × early (collapse) or > {EXPLODED:g} × early (explosion)",
        "theory: policy concentration; the ratios are ours",
        "raise the upper clip (clip-higher, DAPO), add an entropy bonus or KL, or lower the learning rate", entropy,
    ),
    Rule(
        "length", ("length", "truncated"),
        "late truncated share; late − ρ × early length together with the change of reward",
        f"truncated > {CUT:g}; or > {LONGER:g} × longer with reward up less than 0.1 of its range; or < {SHORTER:g} ×",
        "ours; Liu et al. 2025 (arXiv:2503.20783) for the length bias of the loss",
        "see the completions", length,
    ),
)  # fmt: skip
