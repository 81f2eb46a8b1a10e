"""What `grposcope plan` prints for people: tables and sentences from the numbers of `ustat`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grposcope.records import Estimate
from grposcope.runs.probe import ProbeGram
from grposcope.ustat import dead_groups, mse, planning
from grposcope.ustat.moments import Moments
from grposcope.ustat.planning import Allocation, Plan

MEANING = {
    "sigma1": "Σ₁   variance per rollout if V were known",
    "delta": "Δ    price of not knowing V",
    "prompt_variance": "V_p  how gradients differ between prompts",
    "g2": "E‖g‖²  mean square of a prompt's gradient",
    "mean2": "‖E g‖²  square of the gradient itself",
}


def heading(about: Mapping[str, Any], probe: ProbeGram) -> str:
    """What was probed."""
    prompts, group = probe.rewards.shape
    after = f" after step {about['step']}" if about.get("step") is not None else ""
    what = f"{about.get('model', 'a model')} on {about.get('task', 'its task')}{after}"
    cut = f"; {probe.truncated.mean():.1%} of rollouts truncated" if probe.truncated.any() else ""
    return f"probe: {what}, {prompts} prompts × {group} rollouts{cut}"


def moments(found: Moments, values: Mapping[str, Mapping[str, Any]]) -> str:
    """The moments with their standard errors and intervals."""
    rows = [("", "value ± s.e.", "95 % interval", "")]
    for name, value in values.items():
        shown = plus_minus(value["value"], value["se"])
        rows.append((MEANING[name], shown, span(value["low"], value["high"]), value["flag"]))
    score = found.estimate(lambda s: s.score2 / s.norm)
    rows.append(("‖E s‖²/E‖s‖²  0 for true scores", f"{score.value:.2g} ± {score.se:.2g}", "", _doubt(score)))
    return table(rows)


def _doubt(score: Estimate) -> str:
    if abs(score.value) > 4 * score.se and abs(score.value) > 0.01:
        return "scores do not average to 0: top-p, top-k or dropped rollouts? Rows that need it are off"
    return ""


def curve(plan: Plan, probe: ProbeGram) -> str:
    """What each group size loses."""
    most = max((p.loss for p in plan.curve if math.isfinite(p.loss)), default=0.0)
    rows = [("G", "budget × MSE", "more budget needed", "95 % interval", "÷ oracle", "dead groups", "")]
    beyond = False
    for point in plan.curve:
        dead = dead_groups.expected(probe.rewards, point.group)
        beyond |= dead.flag == dead_groups.EXTRAPOLATED
        rows.append((
            str(point.group), plus_minus(point.cost_mse.value, point.cost_mse.se), f"{point.loss:+.1%}",
            span(100 * point.loss_interval[0], 100 * point.loss_interval[1], " %"), f"{point.efficiency.value:.3f}",
            f"{dead.value:.1%}{'*' if dead.flag == dead_groups.EXTRAPOLATED else ''}", _bar(point.loss, most),
        ))  # fmt: skip
    note = "\n* beyond the probe's group: success rates taken as beta-distributed" if beyond else ""
    return "what you lose at each group size (budget to reach the same error as at the best)\n" + table(rows) + note


def verdict(plan: Plan) -> str:
    """The best group size in a sentence."""
    interval = span(*plan.interval)
    if not plan.integer:
        return (
            f"no finite best group: {plan.continuous.flag}. 95 % interval {interval}. "
            f"G = {plan.safe} risks least: its loss is smallest in the worse draws of the bootstrap"
        )
    if math.isinf(plan.interval[1]):
        return (
            f"cannot tell the best group size: G* = {plan.continuous.value:.3g}, but its 95 % interval {interval} has "
            f"no end; probe more prompts. Until then G = {plan.safe} risks least: its loss is smallest in the worse "
            "draws of the bootstrap"
        )
    near = f"any G from {plan.near[0]} to {plan.near[1]} needs at most 5 % more budget" if plan.near[0] else ""
    note = f" [{plan.continuous.flag}]" if plan.continuous.flag else ""
    return f"best G = {plan.integer}  (G* = {plan.continuous.value:.3g}, 95 % interval {interval}){note}; {near}"


def batch(found: Moments, bought: Allocation, budget: float, errors: Mapping[str, Estimate]) -> str:
    """What the budget buys, where its error comes from, and other kinds of gradient."""
    split = mse.budget(found, bought.prompts, bought.group)
    total = split.total.value
    parts = {"drawing prompts": split.prompts, "rollouts of an oracle": split.oracle, "not knowing V": split.residual}
    shares = ", ".join(f"{name} {part.value / total:.0%}" for name, part in parts.items())
    rows = [("gradient", "MSE ± s.e.", "÷ leave-one-out", "")]
    for name, error in errors.items():
        rows.append((name, plus_minus(error.value, error.se), f"{error.value / total:.3f}", error.flag))
    return (
        f"a budget of {budget:g} buys {bought.prompts} prompts × {bought.group} rollouts (cost {bought.cost:g})\n"
        f"where the error comes from: {shares}\n{table(rows)}"
    )


def dead(found: Moments, probe: ProbeGram, group: int) -> str:
    """Dead groups at the chosen size, and what replacing them would do."""
    share = dead_groups.expected(probe.rewards, group)
    if math.isnan(share.value):
        return f"dead groups at G = {group}: cannot tell, {share.flag}"
    gain = planning.resampling_gain(found, group, share.value)
    cost = 1 / (1 - share.value) if share.value < 1 else math.inf
    return (
        f"dead groups at G = {group}: {share.value:.1%} ± {share.se:.1%}. Replacing them (DAPO) draws {cost:.3g} × the "
        f"rollouts; at equal draws the relative error is {1 / gain:.3f} × that of keeping them"
    )


def layers(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The best group size of each layer by itself."""
    rows: list[tuple[str, ...]] = [("layer", "E‖s‖²", "Σ₁", "Δ", "V_p", "G*", "95 % interval")]
    for name, one in found.items():
        values = [plus_minus(one[m].value, one[m].se, 3) for m in ("norm", "sigma1", "delta", "prompt_variance")]
        rows.append((name, *values, number(one["best"]), span(*one["interval"])))
    return "by layer (Σ₁, Δ and V_p add up to the whole where the layers do)\n" + table(rows)


def rewards_alone(folder: Path, document: Mapping[str, Any], mean: float) -> str:
    """What the rewards of a run say of each group size, and what they do not."""
    rows = [("G", "dead groups", "live groups per 1,000 rollouts", "drawn per kept with resampling", "")]
    for point in document["curve"]:
        share, live = point["dead"], point["live_per_rollout"]
        cells = (
            f"{share.value:.1%} ± {share.se:.1%}",
            f"{1000 * live.value:.1f} ± {1000 * live.se:.1f}",
            f"{point['draws'].value:.3g}",
        )
        rows.append((str(point["group"]), *cells, share.flag))
    first, last = document["steps"]
    return (
        f"run: {document['groups']} groups of steps {first} to {last}, mean reward {mean:.3f}\n\n{table(rows)}\n\n"
        "cannot tell from rewards: the error of the gradient, and so the best group size. That takes the sizes and "
        f"directions of gradients:\n  grposcope probe --model {folder}\n  grposcope plan {folder}"
    )


def plus_minus(value: float, error: float, digits: int = 4) -> str:
    """A value with its standard error, both without powers of ten below 10,000."""
    return f"{value:.{digits}g} ± {error:.0f}" if 100 <= error < 1e4 else f"{value:.{digits}g} ± {error:.2g}"


def number(value: float) -> str:
    """Three digits; ∞ and ? for what is infinite or unknown."""
    return "∞" if math.isinf(value) else "?" if math.isnan(value) else f"{value:.3g}"


def span(low: float, high: float, unit: str = "") -> str:
    """An interval."""
    return f"[{number(low)}, {number(high)}]{unit}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows with their columns aligned, the first of them a header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _bar(value: float, most: float) -> str:
    return "▇" * round(20 * value / most) if most > 0 and math.isfinite(value) else ""
