"""What the gradient is made of, as `grposcope probe` measured it: the verdicts in words, then charts and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.facts import geometry as probed
from grposcope.facts.geometry import at, estimate, ranged
from grposcope.facts.learning import interval
from grposcope.formatting import number, percent, visible
from grposcope.records import Estimate
from grposcope.report.charts import geometry as charts
from grposcope.report.charts import geometry_over_steps as steps
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs import probe as probes
from grposcope.runs.run import Floats, Probed, Run, labels

SHOWN = {
    "stable": "stable",
    "participation": "participation",
    "entropy_sq": "entropy σ²",
    "energy_90": "90% energy",
    "threshold_0.1": "σ ≥ σ₁/10",
}
"""Ranks of the tables and their headings."""

ROWS = 300
"""Rows of the table of layers."""


def section(runs: Sequence[Run]) -> Section | None:
    """The last probe of each run in words; charts of one, curves over steps of all."""
    found = probed.latest(runs)
    if not found:
        return None
    drawn: list[Figure | None] = []
    tables: list[PageTable] = []
    text = []
    if len(found) == 1:
        (label, _, probe), notes = found[0], []
        try:
            sizes = token_sizes(probe)
        except UserError as error:
            sizes, notes = (np.empty(0), np.empty(0)), [f"{error}."]
        text += [*([f"{label}:"] if len(runs) > 1 else []), *verdicts(probe), *notes]
        parts = (("score norm²", sizes[0] ** 2), ("credit |w| × score norm", sizes[1]))
        drawn += [charts.spectra(probe), charts.ranks(probe), charts.settings(probe),
                  charts.tokens(parts, "How few tokens carry it", _TOKENS), charts.baseline(probe)]  # fmt: skip
        tables += [table for table in (_settings(probe), _layers(probe)) if table is not None]
    else:
        text += [f"{label}: {probed.subject(probe)}. {_brief(probe)}" for label, _, probe in found]
        tables.append(_compared(found))
        drawn.append(charts.compared_ranks([(label, probe) for label, _, probe in found], labels(runs)))
        drawn.append(_compared_tokens(found, labels(runs)))
    return Section(
        "geometry", "Geometry of the gradient", text=text,
        figures=[*(figure for figure in drawn if figure is not None), *steps.curves(runs)],
        tables=tables, numbers=_numbers(found),
    )  # fmt: skip


_WEIGHED = ", and of what they weigh in the gradient"
_TOKENS = (
    f"Share held by the largest tokens: of the squared score norms ‖e_y − π‖² at the logits{_WEIGHED}. The axis of "
    "tokens is logarithmic."
)


def verdicts(probe: Probed) -> list[str]:
    """What a probe found, a paragraph each; "cannot tell" with the reason where it did not."""
    content = probe.content
    said = [
        f"{probed.subject(probe)}, {probed.solved(probe)}; objective {visible(str(content.get('recipe')))}. In "
        "brackets: 95% intervals.",
        _rank(probe),
        _classes(probe),
        dead(probe),
        _tokens(probe),
        _parameters(probe),
        _baseline(probe),
    ]
    if content.get("complete") is False:
        said.append("The probe was interrupted: it knows some of the layers only.")
    if left := content.get("left_out"):
        share = percent(estimate(content, "share_left_out").value, 1)
        said.append(f"Not measured: {', '.join(visible(str(name), 60) for name in left[:5])} ({share} of parameters).")
    said += [f"Skipped {visible(str(name))}: {visible(str(why))}." for name, why in content.get("skipped", {}).items()]
    return said


def _rank(probe: Probed) -> str:
    stable = probed.rank(probe, "stable")
    if not math.isfinite(stable.value):
        return f"Rank: cannot tell ({stable.flag or 'not finite'})."
    others = ", ".join(
        f"{name} {number(probed.rank(probe, key).value)}"
        for key, name in {"participation": "participation ratio", "entropy_sq": "entropy of σ²"}.items()
    )
    text = (
        f"Rank: the gradient of a weight matrix has a stable rank Σσ²/σ₁² of {ranged(stable)}, mean and spread over "
        f"{stable.n} matrices. Other definitions give other numbers: {others}; "
        f"{number(probed.rank(probe, 'energy_90').value)} directions hold 90% of its squared norm."
    )
    control = probed.rank(probe, "stable", "nll")
    if math.isfinite(control.value):
        text += (
            f" Control: with the same weight on every rollout, reward or not, the stable rank is {ranged(control)}, so "
            "compare before reading a low rank as the reward's doing."
        )
    return text


def _classes(probe: Probed) -> str:
    plain, reduced, distinct = (estimate(probe.content, "two_classes", k) for k in ("plain", "reduced", "distinct"))
    if not math.isfinite(plain.value):
        return f"Two classes: cannot tell ({plain.flag})."
    text = (
        f"Two classes: the mean scores of successes and failures hold {ranged(_bounded(plain), _fine)} of the squared "
        f"norm of a live group's gradient, over {plain.n} groups; {_fine(reduced.value)} once rollouts are weighed as "
        "the objective does"
    )
    if distinct.value > plain.value + 1e-6:
        return f"{text}. A class per distinct reward holds {_fine(distinct.value)}."
    return f"{text} (1 by algebra, for rewards of two values and any group size)."


def dead(probe: Probed) -> str:
    """Dead groups beside the share if all prompts were equally hard."""
    seen, alike = estimate(probe.content, "groups", "dead"), estimate(probe.content, "groups", "dead_if_alike")
    low, high = interval(seen)
    text = (
        f"Dead groups: {percent(seen.value)} ({percent(low)} to {percent(high)}) of {seen.n} groups had equal rewards"
    )
    if not math.isfinite(alike.value):
        return f"{text}; what to expect cannot be told, since rewards are not 0 and 1."
    text += f"; p^G + (1−p)^G at the mean success rate is {percent(alike.value)}"
    if low <= alike.value <= high:
        return f"{text}, which is within the interval."
    return f"{text}: {'more' if seen.value > alike.value else 'fewer'} than if all prompts were equally hard."


def _tokens(probe: Probed) -> str:
    content = probe.content
    top20, top5, gini = (estimate(content, "token_sparsity", name).value for name in ("top_20", "top_5", "gini"))
    shared, common, cancelled = (estimate(content, "credit", n).value for n in ("shared", "common", "cancelled"))
    return (
        f"Tokens: of {estimate(content, 'tokens').value:,.0f} tokens the top 5% hold {percent(top5)} of the squared "
        f"score norms and the top 20% {percent(top20)} (Gini {number(gini)}; 0 all alike, 1 one holds all). "
        f"{percent(shared)} of the credit lies on text that rollouts of a group share, {percent(common)} on text "
        f"common to all of it; {percent(cancelled)} cancels between rollouts of the same text."
    )


def _parameters(probe: Probed) -> str:
    measured = at(probe.content, "parameter_sparsity") or {}
    if not measured:
        return "Parameters: cannot tell, the entries of the gradient were not measured."
    gini, hoyer = (estimate(measured, name).value for name in ("gini", "hoyer"))
    text = f"Parameters: Gini {number(gini)} and Hoyer {number(hoyer)} of the gradient's entries. "
    adam, sgd = (estimate(measured, name) for name in ("visible_adam", "visible_sgd"))
    if not math.isfinite(adam.value):
        return text + "How many weights kept in bfloat16 a step would change cannot be told without a learning rate."
    return text + (
        f"Kept in bfloat16, a step of this learning rate would change {percent(adam.value, 1)} of the weights by "
        f"Adam (its first step) and {percent(sgd.value, 2)} by plain descent."
    )


def _baseline(probe: Probed) -> str:
    content = probe.content
    verdict = visible(str(at(content, "baseline", "verdict") or "cannot tell: not measured"), 400)
    mean, best, gap, excess, none = (
        estimate(content, "baseline", name) for name in ("mean", "optimal", "covariance", "excess_mean", "excess_none")
    )
    if not math.isfinite(gap.value):
        return f"Baseline: {verdict}."
    return (
        f"Baseline: {verdict}. Best constant {ranged(best)}, group mean {ranged(mean)}, difference {ranged(gap)}, "
        f"over {gap.n} prompts with unequal rewards. Excess variance over the best: {ranged(excess, percent)} for the "
        f"group mean, {ranged(none, percent)} for none." + (f" Note: {gap.flag}." if gap.flag else "")
    )


def token_sizes(probe: Probed) -> tuple[Floats, Floats]:
    """Score norms and |weight| × score norm of all tokens, (tokens,) each; empty without tokens.jsonl."""
    rows = probes.rollouts(probe)
    try:
        found = [np.array([v for row in rows for v in row.get(name, ())], float) for name in ("norm", "mass")]
    except (TypeError, ValueError):
        path = probe.folder / "tokens.jsonl"
        raise UserError(f"{path}: norm and mass must be lists of numbers; make it again with grposcope probe") from None
    return found[0][np.isfinite(found[0])], found[1][np.isfinite(found[1])]


def _brief(probe: Probed) -> str:
    stable, top5 = probed.rank(probe, "stable"), estimate(probe.content, "token_sparsity", "top_5")
    verdict = visible(str(at(probe.content, "baseline", "verdict") or "cannot tell"), 400)
    return f"Stable rank {ranged(stable)}; the top 5% of tokens hold {percent(top5.value)}; baseline: {verdict}."


def _settings(probe: Probed) -> PageTable | None:
    names = list(probe.content.get("settings", {}))
    rows = []
    for name in names:
        ranks = {key: probed.rank(probe, key, name) for key in SHOWN}
        cells = [ranged(value) if key == "stable" else number(value.value) for key, value in ranks.items()]
        others = [estimate(probe.content, "settings", name, kind, "stable").value for kind in ("rollout", "token")]
        rows.append((visible(name), *cells, *(number(v) if math.isfinite(v) else "not measured" for v in others)))
    header = ("gradient", *SHOWN.values(), "rollouts, stable", "tokens, stable")
    text = (
        "Ranks of the layers' gradients, mean over matrices, and of the matrices with a row per rollout and per token."
    )
    return PageTable("Ranks of every gradient", header, rows, text, folded=True) if rows else None


def _layers(probe: Probed) -> PageTable | None:
    found = charts.layers(probe)
    rows = []
    for one in found[:ROWS]:
        spectrum = one["spectra"][probe.content["recipe"]]
        cells = [number(spectrum["ranks"][key]) for key in SHOWN]
        shape = " × ".join(map(str, one["shape"]))
        rows.append((visible(one["name"]), shape, *cells, percent(spectrum["left_out"], 1), number(one["score_norm"])))
    header = ("matrix", "shape", *SHOWN.values(), "not enclosed", "score norm")
    left = f" {len(found) - ROWS} further matrices are in probe.json." if len(found) > ROWS else ""
    text = (
        f"Not enclosed: share of the squared norm outside the singular values computed, whose ranks are bounds.{left}"
    )
    return PageTable("Ranks of every matrix", header, rows, text, folded=True) if rows else None


def _compared_tokens(found: Sequence[tuple[str, Run, Probed]], order: Sequence[str]) -> Figure | None:
    sizes = []
    for label, _, probe in found:
        try:
            sizes.append((label, token_sizes(probe)[0] ** 2))
        except UserError:
            continue  # the viewer of rollouts says why
    return charts.tokens(sizes, "How few tokens carry it", _TOKENS.replace(_WEIGHED, ""), order)


def _compared(found: Sequence[tuple[str, Run, Probed]]) -> PageTable:
    rows = []
    for label, _, probe in found:
        content, step = probe.content, probes.step(probe)
        rows.append((
            label, "" if step is None else f"{step:,}", probed.solved(probe),
            ranged(probed.rank(probe, "stable")), ranged(probed.rank(probe, "participation")),
            percent(estimate(content, "groups", "dead").value),
            percent(estimate(content, "token_sparsity", "top_5").value),
            ranged(estimate(content, "baseline", "covariance")),
        ))  # fmt: skip
    header = (
        "probe",
        "step",
        "rewards",
        "stable rank",
        "participation",
        "dead groups",
        "top 5% of tokens",
        "b* − mean",
    )
    return PageTable("The last probe of each run", header, rows, "In brackets: 95% intervals.")


def _numbers(found: Sequence[tuple[str, Run, Probed]]) -> dict[str, Any]:
    """Everything but the single layers and prompts, which probe.json has."""
    return {
        label: {
            "probe": str(probe.folder),
            "step": probes.step(probe),
            **{k: v for k, v in probe.content.items() if k not in ("layers", "baselines", "step")},
        }
        for label, _, probe in found
    }


def _bounded(share: Estimate) -> Estimate:
    """The same without an interval that leaves [0, 1] for a value at its edge."""
    return Estimate(share.value, share.se if share.value + 2 * share.se <= 1 else math.nan, share.n, share.flag)


_fine = partial(percent, digits=2)
