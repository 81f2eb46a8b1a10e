"""Answer on how long rollouts may be reused: the check of a refresh interval, with the stability map.

Chart of which refresh intervals are stable: the stability map.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Answer, Figure, Table, Word
from grposcope.core.errors import UserError
from grposcope.core.instrument import NoSettings
from grposcope.core.run import Run, labels
from grposcope.core.text import capitalised, listed, number, percent, span
from grposcope.instruments.dynamics import STABILITY, refresh
from grposcope.instruments.dynamics.refresh import Margin
from grposcope.instruments.dynamics.stability import Stability, UpdateRule, check, from_reward
from grposcope.maths.intervals import Z
from grposcope.render import charts as base
from grposcope.render.thinning import rounded

SETTING = "this setting"
"""Name of a setting that is no run's."""

MEASURE = "The curvature along the stiffest direction is missing; grposcope stability measures it on the run's model."

DECIDES = {"refreshes": "N*", "constant lag": "K*", "published rule": "the published rule, at the oldest gradient"}
"""Which threshold applies, in the table."""

RULES = (
    "N* is for rollouts that are fresh when a batch is first used and frozen for N steps; K* for gradients that are "
    "all K steps old, as in asynchronous trainers, where N* is 1.3 × too large or more. The rule is that of "
    "arXiv:2606.30789, known second-hand."
)
"""What tells the rules apart."""

WORDS: dict[str, Word] = {
    "stable": "healthy", "stable, near the threshold": "warning", "unstable": "failing", "cannot tell": "cannot tell",
}  # fmt: skip
"""Verdict of a check -> the word of the answer."""


def answers(runs: Sequence[Run], settings: NoSettings) -> list[Answer]:
    """The checks of the runs that record their update rule and a reward; nothing where there is none."""
    checks = {}
    for label, run in zip(labels(runs), runs, strict=True):
        try:
            checks[label] = check(from_reward(run))
        except UserError:
            continue
    return [_answer(checks, {label: _numbers(check) for label, check in checks.items()})] if checks else []


def of_setting(check: Stability) -> Answer:
    """The check of one setting, whose document has its numbers at the top, κ among them without its error."""
    rule, document = check.rule, _numbers(check)
    if check.margin is None:
        document = {key: document[key] for key in ("verdict", "step", "momentum", "interval")} | {
            "reason": rule.missing
        }
    else:
        document |= asdict(check.margin) | {"curvature": rule.curvature.value, "curvature_se": rule.curvature.se}
        del document["missing"]
    return _answer({SETTING: check}, document)


def _answer(checks: Mapping[str, Stability], document: Mapping[str, Any]) -> Answer:
    several, (first, *_) = len(checks) > 1, checks.values()
    with_margin = {label: check for label, check in checks.items() if check.margin is not None}
    drawn = {label: check.rule for label, check in checks.items() if check.rule.momentum == first.rule.momentum}
    unsure = any(check.rule.source == "reward" or check.margin is None for check in checks.values())
    return Answer(
        "stability",
        STABILITY.question,
        "told" if several else _word(first),
        _counted(checks) if several else _sentence(first),
        do="" if several else _remedy(first),
        text=[f"{label}: {_sentence(check)}" for label, check in checks.items()] if several else _details(first),
        tables=[_table(with_margin)] if with_margin else [],
        figures=[_stability_map(list(drawn.values()), list(drawn))],
        missing=[MEASURE] if unsure else [],
        document=document,
    )


def _word(check: Stability) -> Word:
    """An interval within a bound from above is not called healthy."""
    return "told" if check.verdict == "stable" and check.rule.source == "reward" else WORDS[check.verdict]


def _counted(checks: Mapping[str, Stability]) -> str:
    counts = Counter(check.verdict.partition(",")[0] for check in checks.values())
    unknown = counts.pop("cannot tell", 0)
    parts = [f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in counts.items()]
    parts += [f"{unknown} unknown"] if unknown else []
    return f"Of {len(checks)} refresh intervals, {listed(parts)}."


def _sentence(check: Stability) -> str:
    """The verdict on the interval, and the largest that is stable."""
    margin, (least, most) = check.margin, check.between
    if margin is None:
        return f"Cannot tell how long rollouts may be reused: {check.rule.missing}."
    if check.applies != "refreshes" and margin.flag == "" and not math.isinf(margin.threshold):
        return _of_lag(check)
    reused = f"{margin.interval:,} optimiser step{'s' * (margin.interval > 1)} on each batch of rollouts"
    between = "" if math.isnan(least) else f" ({span(least, most)} over the 95% interval of κ)"
    beyond = f"beyond {number(margin.threshold)}{between}"
    if check.verdict == "cannot tell":
        reason = margin.flag or f"training blows up {beyond}"
        return f"Cannot tell whether training is stable with {reused}: {reason}."
    if check.verdict == "unstable":
        return f"Unstable: {reused}, and training blows up {beyond if margin.threshold else 'with every interval'}."
    no_end = math.isinf(margin.threshold)
    return f"{capitalised(check.verdict)}: {reused}; training would blow up {'at no interval' if no_end else beyond}."


def _of_lag(check: Stability) -> str:
    """The verdict on rollouts that are late when they are first trained on."""
    rule, (least, most) = check.rule, check.between
    between = "" if math.isnan(least) else f" ({span(least, most)} over the 95% interval of κ)"
    late = f"rollouts are {rule.lag:,} optimiser step{'s' * (rule.lag > 1)} old when they are first trained on"
    if check.applies == "constant lag":
        beyond = f"beyond {number(check.limit)}{between}" if check.limit >= 0 else "with current gradients too"
        if check.verdict == "cannot tell":
            return f"Cannot tell whether training is stable: {late}, and a constant lag blows up {beyond}."
        if check.verdict == "unstable":
            return f"Unstable: {late}, and a constant lag blows up {beyond}."
        return f"{capitalised(check.verdict)}: {late}; a constant lag would blow up {beyond}."
    also = f"{late}, and each batch is used for {rule.interval:,}, so that gradients are up to {rule.oldest:,} late"
    allowed = f"κη × age < 1 − β allows {number(check.limit)}{between}"
    if check.verdict == "cannot tell":
        return f"Cannot tell whether training is stable: {also}; {allowed}, and beyond it neither N* nor K* applies."
    return f"{capitalised(check.verdict)}: {also}; {allowed}."


def _remedy(check: Stability) -> str:
    if check.margin is None or check.verdict != "unstable":
        return ""
    if check.rule.lag:
        lag = max(check.limit // 2, 0)
        return f"let rollouts be at most {lag:g} steps old, or use a smaller learning rate or the importance ratio"
    half = check.margin.threshold // 2
    most = [f"reuse rollouts for at most {half:g} step{'s' * (half > 1)}"] if half >= 1 else []
    return ", or ".join([*most, "use a smaller learning rate or the importance ratio"])


def _details(check: Stability) -> list[str]:
    rule = check.rule
    curvature = f"κ {_source(rule)}"
    if check.margin is not None:
        error = f" ± {rule.curvature.se:.2g}" if math.isfinite(rule.curvature.se) else ""
        curvature = (
            f"κ (force back towards the optimum per unit of distance) {number(rule.curvature.value)}{error} "
            f"({_source(rule)})"
        )
    lines = [f"Effective step {number(rule.step)}, momentum {rule.momentum:g}, curvature {curvature}."]
    if not math.isnan(check.sampled):
        lines.append(
            f"With κ varying by {percent(check.variation)} from batch to batch, a disturbance dies out in root "
            f"mean square up to an interval of {number(check.sampled)}."
        )
    return lines


def _source(rule: UpdateRule) -> str:
    """Where the curvature comes from."""
    if rule.source == "reward":
        return (
            "from the time constant of the reward; the interval is an upper bound, as other directions may be stiffer"
        )
    if rule.source == "measured":
        return f"measured along the stiffest direction; the part renewed at every step is {rule.current}"
    return "given"


def _table(checks: Mapping[str, Stability]) -> Table:
    listed_checks = list(checks.values())
    margins = [check.margin for check in listed_checks if check.margin is not None]
    rows = [
        ("what decides", *(DECIDES[check.applies] for check in listed_checks)),
        ("largest stable refresh interval N*, steps on one batch", *(number(m.threshold) for m in margins)),
        ("largest stable constant lag K*, steps", *(number(check.lag_threshold) for check in listed_checks)),
        ("published rule κηK < 1 − β: K below, safe for both", *(number(check.published) for check in listed_checks)),
        ("rule of thumb, which assumes that rollouts are half an interval old", *(number(m.naive) for m in margins)),
        ("interval ÷ largest stable one", *(_if_fresh(check, lambda m: m.share) for check in listed_checks)),
        (
            "size of a disturbance after one refresh cycle ÷ before",
            *(_if_fresh(check, lambda m: m.radius) for check in listed_checks),
        ),
        ("from this interval on, a disturbance dies out in swings", *(number(m.onset) for m in margins)),
        (
            "from this constant lag on, a disturbance dies out in swings",
            *(number(check.lag_onset) for check in listed_checks),
        ),
        ("period, steps", *(_if_fresh(check, lambda m: m.period) for check in listed_checks)),
    ]
    return Table("The check", ("", *checks), rows, RULES)


def _if_fresh(check: Stability, value: Callable[[Margin], float]) -> str:
    """A number of the refresh cycle, where rollouts are fresh when it begins."""
    return (
        number(value(check.margin)) if check.margin is not None and check.applies == "refreshes" else "does not apply"
    )


def _numbers(check: Stability) -> dict[str, Any]:
    """All numbers by the keys of JSON; NaN where the curvature is not known."""
    rule, margin = check.rule, check.margin
    sampled = {} if math.isnan(check.sampled) else {"variation": check.variation, "threshold_sampled": check.sampled}
    return {
        "verdict": check.verdict,
        "step": rule.step,
        "momentum": rule.momentum,
        "interval": rule.interval,
        "optimizer": rule.optimizer,
        "curvature": rule.curvature,
        "source": _source(rule),
        "threshold": margin.threshold if margin else math.nan,
        "threshold_range": check.between,
        "share": margin.share if margin else math.nan,
        "onset": margin.onset if margin else math.nan,
        "lag": rule.lag,
        "applies": check.applies,
        "published_rule": check.published,
        "lag_threshold": check.lag_threshold,
        "lag_onset": check.lag_onset,
        "missing": rule.missing,
        **sampled,
    }


FLOOR = 0.7
"""Lower end of the vertical axis of the stability map."""

HEIGHT = 260


def _stability_map(settings: Sequence[UpdateRule], names: Sequence[str]) -> Figure:
    """Refresh interval against ηκ: where it is stable, where it oscillates, where it blows up, and where runs stand.

    Drawn for the momentum of the first setting; the others must share it.
    """
    momentum = settings[0].momentum
    rules = {name: s for name, s in zip(names, settings, strict=True) if math.isfinite(s.curvature.value)}
    pulls = [s.step * s.curvature.value for s in rules.values()]
    intervals = [s.interval for s in settings]
    ends = 1.9 * (1 + momentum)
    low, high = (min(pulls) / 10, min(max(pulls) * 10, ends)) if pulls else (ends / 1e5, ends)
    grid = np.geomspace(min(low, high / 100), high, 50)
    limit = np.array([refresh.threshold(1.0, momentum, float(p)) for p in grid])
    onset = np.array([refresh.onset(1.0, momentum, float(p)) for p in grid])
    top = 3 * max(float(limit.max()), *intervals)
    drawn = np.maximum(limit, FLOOR)
    data: dict[str, Mapping[str, Sequence[Any]]] = {
        "lines": {
            "pull": rounded(grid),
            "limit": rounded(drawn),
            "onset": rounded(np.minimum(onset, drawn)),
            "floor": [FLOOR] * len(grid),
            "top": [top] * len(grid),
        }
    }
    x = (
        alt.X("pull:Q")
        .axis(title="ηκ, effective step × curvature", format="~g", tickCount=4)
        .scale(type="log", nice=False)
    )
    y = (
        alt.Y("limit:Q")
        .axis(title="optimiser steps on each batch, N", format="~s", grid=False)
        .scale(type="log", domain=[FLOOR, top], nice=False)
    )
    lines = base.dataset("lines").encode(x, y)
    layers = [
        lines.mark_area(color="var(--run-3)", opacity=0.12).encode(alt.Y("floor:Q"), alt.Y2("onset")),
        lines.mark_area(color="var(--run-5)", opacity=0.12).encode(alt.Y("onset:Q"), alt.Y2("limit")),
        lines.mark_area(color="var(--alarm)", opacity=0.12).encode(alt.Y2("top")),
        lines.mark_line(color="var(--alarm)", strokeWidth=1.8),
        lines.mark_line(color="var(--run-5)", strokeWidth=1.8, strokeDash=[5, 3]).encode(alt.Y("onset:Q")),
    ]
    if rules:
        data["runs"] = _standing(rules, pulls)
        tips = [
            alt.Tooltip("run:N"),
            alt.Tooltip("pull:Q", format=".3~g", title="ηκ"),
            alt.Tooltip("interval:N", title="N"),
            alt.Tooltip("largest:N", title="largest stable N"),
        ]

        standing = base.dataset("runs").encode(x, alt.Y("interval:Q"), base.colours("run", base.palette(names)))
        layers += [
            standing.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high")),
            standing.mark_point(filled=True, size=110, opacity=1).encode(tooltip=tips),
        ]
    else:
        data["wanted"] = {"interval": intervals}
        layers.append(base.dataset("wanted").mark_rule(color="var(--ink)", strokeWidth=1.5).encode(alt.Y("interval:Q")))
    return base.figure("stability", "Stability map", layers, data, caption=_legend(momentum, bool(rules)),
                       height=HEIGHT)  # fmt: skip


def _standing(known: Mapping[str, UpdateRule], pulls: Sequence[float]) -> dict[str, list[Any]]:
    """Where runs stand on the stability map, with the 95% interval of ηκ, at most a decade to each side."""
    rules = list(known.values())
    ends = [s.step * np.array(replace(s.curvature, se=np.nan_to_num(s.curvature.se)).interval(Z)) for s in rules]
    return {
        "run": list(known),
        "pull": rounded(pulls),
        "low": rounded([max(float(e[0]), p / 10) for e, p in zip(ends, pulls, strict=True)]),
        "high": rounded([min(float(e[1]), p * 10) for e, p in zip(ends, pulls, strict=True)]),
        "interval": [s.interval for s in rules],
        "largest": [number(refresh.threshold(s.step, s.momentum, s.curvature.value)) for s in rules],
    }


def _legend(momentum: float, measured: bool) -> str:
    where = (
        "The point: this run, with the 95% interval of its curvature."
        if measured
        else "The black line: the interval of this run, whose curvature is unknown."
    )
    return (
        f"For momentum {momentum:g}, without importance ratio; a ratio allows longer intervals. Green: a "
        "disturbance dies out. Yellow, above the dashed line: it dies out in swings. Red, above the "
        f"solid line: it grows. {where}"
    )
