"""What the gradient is made of, as probes measured it: what they found in words, numbers, tables and charts.

Charts of one probe: spectra, ranks by layer and by weighting, how few tokens carry the credit, the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.metrics import GEOMETRY
from grposcope.core.outline import outline
from grposcope.core.run import Floats, Run, labels
from grposcope.core.text import listed, number, percent, span, visible
from grposcope.instruments.gradient import INSTRUMENT, turn_answer
from grposcope.instruments.gradient import figures_over_steps as steps
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient.findings import ANY, RANK, TITLES, ranged, solved, subject
from grposcope.instruments.gradient.probe_record import LayerRecord, ProbeRecord
from grposcope.instruments.gradient.rollout_source import RolloutSource
from grposcope.maths.intervals import Z, interval
from grposcope.maths.turn_moments import TurnSavings
from grposcope.render import charts as base
from grposcope.render.curves import of_metrics
from grposcope.render.thinning import columns, rounded

SHOWN = {
    "stable": "stable",
    "participation": "participation",
    "entropy_sq": "entropy σ²",
    "energy_90": "90% energy",
    "energy_99": "99% energy",
    "threshold_0.1": "σ ≥ σ₁/10",
}
"""Ranks of the tables and their headings."""

COURSE = f"{GEOMETRY}layer_stable"
"""Metric of the rank whose course is told in words."""

ROWS = 300
"""Rows of the table of layers."""


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What the last probe of each run measured, and what probes within training did."""
    return [one for one in (_section(runs), _while_training(runs)) if one is not None]


def _section(runs: Sequence[Run]) -> Answer | None:
    """What the last probe of each run found, with charts, and curves over the probes of all steps."""
    probes = _latest(runs)
    if not probes:
        return None
    result = of_probe(probes[0][2]) if len(probes) == 1 else _compared(probes)
    text = [f"It is the probe of {probes[0][0]}.", *result.text] if len(probes) == 1 < len(runs) else result.text
    drawn, notes = _of_one(probes[0][2]) if len(probes) == 1 else (_of_several(probes, labels(runs)), [])
    return replace(
        result, text=[*text, *notes],
        figures=[*(figure for figure in drawn if figure is not None), *steps.curves(runs)],
        document=_numbers(probes),
    )  # fmt: skip


def of_probe(record: ProbeRecord) -> Answer:
    """What one probe found, without charts: what `grposcope probe` prints, and the page shows of its run."""
    turns = None if record.turns is None else _turn_table(record.turns)
    tables = (_weightings(record), turns, _statistics(record), _layers(record))
    return Answer(
        "geometry", INSTRUMENT.question, sentence=geometry.conclusion(record),
        text=[_about(record), *_taken(record), *(fact.sentence for fact in geometry.facts(record)),
              *([] if record.turns is None else turn_answer.sentences(record.turns))],
        numbers=geometry.numbers(record), tables=[table for table in tables if table is not None],
        missing=_missing_statistics(record), document=record.summary() | {"intervals": _intervals(record)},
    )  # fmt: skip


def _turn_table(turns: TurnSavings) -> Table:
    """The noise of each credit, and the share of each turn."""
    rows = [
        (name, _shown(noise), number(turns.ratio[name].value), _interval(turns.interval, name))
        for name, noise in turns.noise.items()
    ]
    rows += [(f"of that, turn {turn}", percent(share.value), "", "") for turn, share in enumerate(turns.share, 1)]
    header = ("credit", "noise ± s.e.", "÷ the first", "95%")
    text = f"Squared error of the gradient of a prompt with groups of {turns.group}, over {turns.prompts} prompts."
    return Table("Credit for turns", header, rows, text, folded=True)


def _shown(estimate: Estimate) -> str:
    return f"{number(estimate.value)} ± {number(estimate.se)}" if math.isfinite(estimate.se) else number(estimate.value)


def _interval(intervals: Mapping[str, tuple[float, float]], name: str) -> str:
    low, high = intervals[name]
    return "" if math.isnan(low) else span(low, high)


def _compared(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> Answer:
    """The last probes of several runs, a sentence and a row each."""
    ranks = [f"{ranged(record.rank('stable'), possible=RANK)} in {label}" for label, _, record in probes]
    return Answer(
        "geometry", INSTRUMENT.question, sentence=f"The gradients have mean stable ranks of {listed(ranks)}.",
        text=[f"{label}: {geometry.brief(record)}" for label, _, record in probes], tables=[_rows(probes)],
    )  # fmt: skip


def _of_one(record: ProbeRecord) -> tuple[list[Figure | None], list[str]]:
    """Charts of a probe, and a note where its tokens cannot be read."""
    try:
        (norms, masses), notes = _token_sizes(record), []
    except UserError as error:
        norms, masses, notes = np.empty(0), np.empty(0), [f"{error}."]
    parts = (("score norm²", norms**2), ("credit |w| × score norm", masses))
    drawn = [_spectra_chart(record), _ranks_chart(record), _weightings_chart(record),
             _tokens_chart(parts, "How few tokens carry the gradient", _TOKENS), _baseline_chart(record)]  # fmt: skip
    return drawn, notes


def _of_several(probes: Sequence[tuple[str, Run, ProbeRecord]], order: Sequence[str]) -> list[Figure | None]:
    """Charts that compare probes. order: all names of the page."""
    return [
        _compared_ranks_chart([(label, record) for label, _, record in probes], order),
        _compared_tokens(probes, order),
    ]


_WEIGHED = ", and of the credit |w| × score norm"
_TOKENS = (
    f"Share that the largest tokens hold of the squared score norms ‖e_y − π‖² at the logits{_WEIGHED}. The axis of "
    "tokens is logarithmic."
)


def _token_sizes(record: ProbeRecord) -> tuple[Floats, Floats]:
    """Score norms and |weight| × score norm of all tokens, (tokens,) each; empty without tokens.jsonl."""
    rows = record.read_rollouts()
    norms, masses = (np.array([v for row in rows for v in row.measures[name]], float) for name in ("norm", "mass"))
    return norms[np.isfinite(norms)], masses[np.isfinite(masses)]


def _weightings(record: ProbeRecord) -> Table | None:
    rows = []
    for name, ranks in record.weightings.items():
        cells = [
            ranged(ranks.layer[key], possible=RANK) if key == "stable" else number(ranks.layer[key].value)
            for key in SHOWN
        ]
        others = [kind["stable"] if kind else math.nan for kind in (ranks.rollout, ranks.token)]
        rows.append((visible(name), *cells, *(number(v) if math.isfinite(v) else "not measured" for v in others)))
    header = ("gradient", *SHOWN.values(), "rollouts, stable", "tokens, stable")
    text = (
        "Mean ranks of the weight matrices' gradients, and ranks of the matrices with a row per rollout and per token."
    )
    return Table("Ranks of every gradient", header, rows, text, folded=True) if rows else None


def _layers(record: ProbeRecord) -> Table | None:
    layers = _layers_chart(record)
    rows = []
    for layer in layers[:ROWS]:
        spectrum = layer.spectra[record.recipe]
        cells = [number(spectrum.ranks[key]) for key in SHOWN]
        shape = " × ".join(map(str, layer.shape))
        of_group = [number(layer.group_rank[key]) for key in ("rank", "top", "rank_of_two")]
        rows.append((
            visible(layer.name), shape, *cells, percent(spectrum.left_out, 1), number(layer.score_norm), *of_group
        ))  # fmt: skip
    header = (
        "matrix", "shape", *SHOWN.values(), "not computed", "score norm", "group's rows", "top-1 share", "cut at two"
    )  # fmt: skip
    further = f" {len(layers) - ROWS} further matrices are in probe.json." if len(layers) > ROWS else ""
    text = (
        "Not computed: share of the squared norm outside the singular values that were computed; above 0% the "
        "ranks are bounds. Group's rows: (Σσ)²/Σσ² of the rows advantage × score of a group, mean over live groups, "
        f"with the share σ₁²/Σσ² and the same after all but two singular values are dropped.{further}"
    )
    return Table("Ranks of every matrix", header, rows, text, folded=True) if rows else None


def _statistics(record: ProbeRecord) -> Table | None:
    rows = [
        (visible(name.lstrip("_")), visible(statistic), ranged(value, possible=_range(name, record)), f"{value.n:,}")
        for name, estimates in record.statistics.items()
        for statistic, value in estimates.items()
    ]
    header = ("statistic", "of", "value", "n")
    return Table("Further statistics", header, rows, geometry.BRACKETS, folded=True) if rows else None


def _range(statistic: str, record: ProbeRecord) -> geometry.Range:
    """The range of a statistic, by its name."""
    if "rank" not in statistic:
        return ANY
    return _rank_of_rows(record) if "group_rank" in statistic else RANK


def _rank_of_rows(record: ProbeRecord) -> geometry.Range:
    """The range of the rank of a group's rows, of which there are as many as rollouts in a group."""
    return 1.0, float(record.group or math.inf)


def _intervals(record: ProbeRecord) -> dict[str, Any]:
    """The 95 % interval of each number that is told with one, by the name of its field."""
    best, shares, rows = record.baseline, record.class_means, record.group_rank
    share, excess = geometry.SHARE, geometry.EXCESS
    paid = share if math.isfinite(record.groups.dead_if_alike) else ANY
    measured: dict[str, tuple[Estimate, geometry.Range]] = {
        "stable": (record.rank("stable"), RANK),
        "group_rank.rank": (rows.rank, _rank_of_rows(record)),
        "group_rank.top": (rows.top, (1 / (record.group or 1), 1.0)),
        "class_means.plain": (shares.plain, share),
        "baseline.mean": (best.mean, paid), "baseline.optimal": (best.optimal, paid),
        "baseline.covariance": (best.covariance, ANY), "baseline.saving": (best.saving, share),
        "baseline.excess_mean": (best.excess_mean, excess), "baseline.excess_none": (best.excess_none, excess),
        **{f"{name}.{of}": (value, _range(name, record))
           for name, estimates in record.statistics.items() for of, value in estimates.items()},
    }  # fmt: skip
    return {name: list(value.within(*possible)[1:]) for name, (value, possible) in measured.items()
            if math.isfinite(value.value) and math.isfinite(value.se)} | {
        "groups.dead": list(interval(record.groups.dead))}  # fmt: skip


def _compared_tokens(probes: Sequence[tuple[str, Run, ProbeRecord]], order: Sequence[str]) -> Figure | None:
    sizes = []
    for label, _, record in probes:
        try:
            sizes.append((label, _token_sizes(record)[0] ** 2))
        except UserError:
            continue  # the viewer of rollouts says why
    return _tokens_chart(sizes, "How few tokens carry the gradient", _TOKENS.replace(_WEIGHED, ""), order)


def _rows(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> Table:
    rows = [
        (
            label, "" if record.step is None else f"{record.step:,}", geometry.solved(record),
            ranged(record.rank("stable"), possible=RANK), ranged(record.rank("participation"), possible=RANK),
            percent(record.groups.dead.value),
            percent(record.token_sparsity["top_5"]), ranged(record.baseline.covariance),
        )
        for label, _, record in probes
    ]  # fmt: skip
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
    return Table("The last probe of each run", header, rows, geometry.BRACKETS)


def _latest(runs: Sequence[Run]) -> list[tuple[str, Run, ProbeRecord]]:
    """The label, the run and its last probe, of each run that has one."""
    return [
        (label, run, probes.of_run(run)[-1])
        for label, run in zip(labels(runs), runs, strict=True)
        if probes.of_run(run)
    ]


def _taken(record: ProbeRecord) -> list[str]:
    """Where rollouts that were not drawn for the probe are from, how their tokens were found, and whether they are the
    policy's own; nothing for those that were drawn for it."""
    source = record.source
    if source is None:
        return []
    said = [_where(source, record.step)]
    weights = ", ".join(f"{number(weight)} × {visible(name, 60)}" for name, weight in source.weights.items())
    if len(source.weights) > 1:
        said.append(f"The reward is {weights}.")
    said += [_encoded(source), _fit(source)]
    return said + [f"{visible(note, 300)[:1].upper()}{visible(note, 300)[1:]}." for note in source.notes]


def _where(source: RolloutSource, model_step: int | None) -> str:
    engine = TITLES.get(source.engine, visible(source.engine, 40))
    what = f"Rollouts: written by {engine} at step {source.step} ({visible(source.path, 200)})"
    if model_step is None or source.step is None:
        return f"{what}."
    updates = model_step + 1 - source.step
    if updates == 0:
        return f"{what}, drawn from the weights after step {model_step} if every batch is used once."
    when = "later" if updates > 0 else "earlier"
    by = f"{abs(updates)} update{'s' * (abs(updates) > 1)} {when}"
    return f"{what}; the model is the checkpoint after step {model_step}, {by}."


def _encoded(source: RolloutSource) -> str:
    forms = ", ".join(f"{count} as {form}" for form, count in source.forms.items())
    text = f"Tokens: tokenized again from text (prompts: {forms})"
    changed = [
        f"{count} {what}" for count, what in
        ((source.changed_prompts, "prompts"), (source.changed_completions, "completions")) if count
    ]  # fmt: skip
    text += (
        f"; {' and '.join(changed)} change when decoded again"
        if changed
        else "; every text is the same when decoded again"
    )
    if math.isfinite(source.length_logged):
        text += f"; {source.length:.2f} tokens per completion, and the trainer logged {source.length_logged:.2f}"
        if abs(source.length - source.length_logged) > 0.01 * source.length_logged:
            text = f"CAUTION: these are not the tokens that were trained on. {text}"
    return f"{text}; {source.truncated} completions are at the token limit and count as truncated."


def _fit(source: RolloutSource) -> str:
    excess = source.excess
    if not math.isfinite(source.z):
        return f"Whether the rollouts are the model's own: cannot tell ({excess.flag or 'not finite'})."
    measured = f"log π(y) + H is {number(excess.value)} ± {number(excess.se)} nats per token, z = {source.z:.1f}"
    if not source.foreign:
        return f"The rollouts are consistent with the model: {measured}."
    if source.z < 0:
        return (
            f"CAUTION: this model did not draw these rollouts ({measured}): the weights, prompts or template "
            "differ, or the temperature was higher. The numbers describe these texts under this model, not a "
            "training step."
        )
    return (
        f"CAUTION: these rollouts are likelier than the model's own ({measured}): they were drawn at a "
        "lower temperature or with top-k or top-p. Give the temperature of the run."
    )


def _missing_statistics(record: ProbeRecord) -> list[str]:
    """A sentence for each thing that the probe did not measure."""
    said = []
    if not record.complete:
        said.append(
            f"The probe was interrupted: {len(record.layers)} weight matrices were measured, the others are missing."
        )
    if record.left_out:
        names = ", ".join(visible(name, 60) for name in record.left_out[:5])
        said.append(f"Not measured: {names} ({percent(record.share_left_out, 1)} of parameters).")
    return said + [f"Skipped {visible(name)}: {visible(why)}." for name, why in record.skipped.items()]


def _about(record: ProbeRecord) -> str:
    """What was measured: the subject of a probe, its share of solved rollouts, its objective, and the self-check."""
    parts = [f"{subject(record)}, {solved(record)}; objective {visible(record.recipe)}."]
    if record.tokens is not None and math.isfinite(record.truncated):
        parts.append(f"{record.tokens:,} tokens, {percent(record.truncated)} of completions truncated.")
    if math.isfinite(record.self_check):
        parts.append(f"Self-check: the layers' gradients differ from autograd's by {record.self_check:.1e}.")
    return " ".join([*parts, geometry.BRACKETS])


def _numbers(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> dict[str, Any]:
    """Everything but the single layers and prompts, which probe.json has."""
    return {
        label: record.summary() | {"probe": str(record.folder), "step": record.step, "intervals": _intervals(record)}
        for label, _, record in probes
    }


def _while_training(runs: Sequence[Run]) -> Answer | None:
    """Curves of what probes within a training run measured of the gradient."""
    probed = [_probed(run) for run in runs]
    recorded = tuple(dict.fromkeys(name for run in probed for name in run.table if name.startswith(GEOMETRY)))
    section = of_metrics("geometry_curves", "How did the gradient change while training?", recorded)(probed)
    if section is None:
        return None
    named = zip(labels(probed), probed, strict=True)
    steps = ", ".join(f"{run.steps} steps of {label}" for label, run in named if run.steps)
    lead = (
        f"Measured before the update on {steps}, each time on a few prompts of the batch, so single "
        "points are noisy. Policy gradient only, without KL term and entropy bonus."
    )
    return replace(section, sentence=_course(probed), text=[lead, *section.text])


def _course(probed: Sequence[Run]) -> str:
    """How the stable rank of a layer's gradient went; empty where fewer than two probes within training could tell."""
    parts = []
    for label, run in zip(labels(probed), probed, strict=True):
        course = outline(run.table.get(COURSE, np.empty(0)))
        if course.steps - course.not_finite > 1:
            first, last = number(course.first_tenth.value), number(course.last_tenth.value)
            where = f" in {label}" if len(probed) > 1 else ""
            parts.append(f"from {first} in the first tenth of the probes to {last} in the last{where}")
    return f"During training the stable rank of a layer's gradient went {listed(parts)}." if parts else ""


def _probed(run: Run) -> Run:
    """The run with its probed steps only, so that the steps between them are no gaps."""
    rows = np.zeros(run.steps, bool)
    for name, column in run.table.items():
        if name.startswith((GEOMETRY, "seconds_probe")):
            rows |= np.isfinite(column)
    return replace(run, table={name: column[rows] for name, column in run.table.items()})


ORDER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Projections as the data flows; others follow as they come."""

LINES = 72
"""Spectra in a chart; of deeper models some blocks are left out."""

LEAST = 1e-3
"""Singular values below this share of the largest are not drawn."""

DEFINITIONS = {
    "stable": "stable",
    "participation": "participation",
    "entropy_sq": "entropy",
    "energy_90": "90% of energy",
}
"""Ranks that are drawn by weighting, and their short names."""

OUTSIDE = "none"


def _layers_chart(probe: ProbeRecord) -> list[LayerRecord]:
    """The matrices with a spectrum of the probe's own gradient, first blocks first."""
    measured = [layer for layer in probe.layers if probe.recipe in layer.spectra]
    return sorted(measured, key=lambda layer: math.inf if layer.depth is None else layer.depth)


def _spectra_chart(probe: ProbeRecord) -> Figure | None:
    """Singular values of every matrix's gradient over the largest one."""
    measured = _layers_chart(probe)
    blocks = sorted({layer.depth for layer in measured if layer.depth is not None})
    every = max(1, math.ceil(len(measured) / LINES))
    shown = {*blocks[::every], *blocks[-1:]}
    rows = []
    for layer in measured:
        spectrum = layer.spectra[probe.recipe]
        if (layer.depth is None or layer.depth in shown) and spectrum.values and spectrum.values[0] > 0:
            labels = (visible(layer.name), visible(layer.role), _block(layer), number(spectrum.ranks["stable"]))
            for k in _thinned(len(spectrum.values)):
                share = spectrum.values[k - 1] / spectrum.values[0]
                if share >= LEAST:
                    rows.append((*labels, k, *rounded([share], 4)))
    if not rows:
        return None
    data = {"values": columns(("layer", "projection", "block", "rank", "k", "share"), rows)}
    x = alt.X("k:Q").axis(title="k", values=[1, 2, 4, 8, 16, 32, 64], format="d").scale(type="log", base=2, nice=False)
    y = alt.Y("share:Q").axis(values=[0.001, 0.01, 0.1, 1], format="~g").scale(type="log", domain=[LEAST, 1])
    colours = base.colours("projection", base.palette(_roles(measured)), alt.Legend(symbolType="stroke", columns=4))
    values = base.dataset("values").encode(x, y, colours)
    tips = base.tooltips(layer="layer", k="k", share="σ_k / σ₁", rank="stable rank")
    drawn = [
        values.mark_line(strokeWidth=1.3, opacity=0.65).encode(alt.Detail("layer:N")),
        values.mark_point(filled=True, size=90, opacity=0).encode(tooltip=tips),
    ]
    text = (
        "Singular values of the gradient of each weight matrix, relative to the largest; one line per "
        f"matrix. A steep line means a gradient with few directions. Values below {LEAST:g} are not drawn"
    )
    if probe.tier != "exact":
        text += "; only the leading values are computed (fast tier), but ranks include the rest of the energy"
    text += f"; {len(shown)} of {len(blocks)} blocks are drawn." if len(shown) < len(blocks) else "."
    return base.figure("geometry_spectra", "Singular values by layer", drawn, data, unit="σ_k / σ₁", caption=text,
                       height=260)  # fmt: skip


def _ranks_chart(probe: ProbeRecord) -> Figure | None:
    """Stable rank by block and projection."""
    measured = _layers_chart(probe)
    rows = []
    for layer in measured:
        by_name = layer.spectra[probe.recipe].ranks
        stable = by_name["stable"]
        if math.isfinite(stable):
            others = ", ".join(f"{name} {number(by_name[key])}" for key, name in list(DEFINITIONS.items())[1:])
            labels = (visible(layer.name), visible(layer.role), _block(layer), f"{stable:.1f}", others)
            rows.append((*labels, float(f"{stable:.4g}")))
    if not rows:
        return None
    data = columns(("layer", "projection", "block", "shown", "others", "rank"), rows)
    blocks = list(dict.fromkeys(data["block"]))
    least, largest = min(data["rank"]), max(data["rank"])
    x = alt.X("block:O", sort=blocks).axis(title="block", grid=False, labelAngle=0, labelFlush=False)
    y = alt.Y("projection:N", sort=_roles(measured)).axis(grid=False)
    darkness = alt.Opacity("rank:Q", legend=None, scale=alt.Scale(domain=[1, largest], range=[0.06, 0.75], clamp=True))
    tips = base.tooltips(layer="layer", rank="stable rank", others="other ranks")
    cells = base.dataset("cells").encode(x, y)
    drawn = [cells.mark_rect(color="var(--run-1)").encode(darkness, tooltip=tips)]
    if len(blocks) <= 12:
        drawn.append(cells.mark_text(fontSize=11, color="var(--ink)").encode(alt.Text("shown:N")))
    text = (
        f"Stable rank Σσ²/σ₁² of each matrix's gradient, from {number(least)} to {number(largest)}; darker is higher. "
        "Point at a cell for other definitions."
    )
    height = max(200, 26 * len(set(data["projection"])))
    return base.figure("geometry_ranks", "Rank by depth and projection", drawn, {"cells": data}, caption=text,
                       height=height)  # fmt: skip


def _compared_ranks_chart(probes: Sequence[tuple[str, ProbeRecord]], order: Sequence[str]) -> Figure | None:
    """Mean stable rank over the matrices of each block, a line per probe; `order`: all names of the page."""
    rows = []
    for label, probe in probes:
        by_block: dict[int, list[float]] = {}
        for layer in _layers_chart(probe):
            if layer.depth is not None:
                by_block.setdefault(layer.depth, []).append(layer.spectra[probe.recipe].ranks["stable"])
        for block, values in by_block.items():
            mean = Estimate.mean([v for v in values if math.isfinite(v)])
            if math.isfinite(mean.value):
                rows.append((label, block, mean.value, ranged(mean, possible=RANK)))
    if not rows:
        return None
    x = alt.X("block:Q").axis(title="block", format="d", tickMinStep=1)
    y = alt.Y("rank:Q").scale(zero=False)
    shades = base.palette([label for label, _ in probes], order)
    points = base.dataset("blocks").encode(x, y, base.colours("run", shades))
    tips = base.tooltips(run="probe", block="block", shown="stable rank (95%)")
    drawn = [base.dotted_line(points), base.on_hover(points.encode(tooltip=tips))]
    data = {"blocks": columns(("run", "block", "rank", "shown"), rows)}
    text = "Mean stable rank of the gradients of each block's weight matrices, one line per probe."
    return base.figure("geometry_blocks", "Rank by depth", drawn, data, caption=text)


def _weightings_chart(probe: ProbeRecord) -> Figure | None:
    """Ranks of each weighting: recipes, group sizes, controls. None for the recipe alone."""
    names = list(probe.weightings)
    if len(names) < 2:
        return None
    rows = []
    for name in names:
        for definition, short in DEFINITIONS.items():
            rank = probe.rank(definition, name)
            if math.isfinite(rank.value):
                ends = rank.within(*RANK) if math.isfinite(rank.se) else (rank.value,) * 3
                rows.append((visible(name), short, *rounded(list(ends)), ranged(rank, possible=RANK)))
    if not rows:
        return None
    data = {"ranks": columns(("setting", "definition", "value", "low", "high", "shown"), rows)}
    x = alt.X("value:Q").axis(title="rank", format="~g", grid=True, tickCount=5).scale(type="log", base=2, nice=False)
    y = alt.Y("setting:N", sort=[visible(name) for name in names]).axis(grid=True, labelLimit=110)
    colours = base.colours("definition", base.palette(list(DEFINITIONS.values())), alt.Legend(columns=2))
    points = base.dataset("ranks").encode(x, y, colours)
    tips = base.tooltips(setting="setting", definition="definition", shown="rank (95%)")
    drawn = [
        points.mark_rule(strokeWidth=1.5, opacity=0.6).encode(alt.X("low:Q"), alt.X2("high")),
        points.mark_point(filled=True, size=55, opacity=1).encode(tooltip=tips),
    ]
    text = (
        "Four definitions of rank for each gradient of the same rollouts, mean over matrices with 95% bars over "
        "matrices (not over batches). G=… uses the first rollouts of every group. Controls: shuffled permutes "
        "advantages in groups; random_tokens gives every token a random one; no_baseline uses the bare rewards, nll "
        "advantage 1, steps a reward per step."
    )
    height = max(200, 22 * len(names) + 20)
    return base.figure("geometry_settings", "Rank by setting", drawn, data, caption=text, height=height)


def _tokens_chart(
    sizes: Sequence[tuple[str, Floats]], title: str, text: str, order: Sequence[str] = ()
) -> Figure | None:
    """Share held by the largest tokens, a line per (name, non-negative numbers of all tokens).

    order: all names of the page, where the lines are runs.
    """
    rows = []
    for name, values in sizes:
        if not values.sum() > 0:
            continue
        shares = np.cumsum(np.sort(values)[::-1]) / values.sum()
        for k in np.unique(np.geomspace(1, len(shares), 120).round().astype(int)):
            shown = f"{percent(shares[k - 1], 1)} in {percent(k / len(shares), 1)} of tokens"
            rows.append((name, *rounded([k / len(shares)], 4), round(float(shares[k - 1]), 5), shown))
    if not rows:
        return None
    data = {"tokens": columns(("kind", "tokens", "held", "shown"), rows)}
    kinds = list(dict.fromkeys(data["tokens"]["kind"]))
    legend = alt.Legend(symbolType="stroke", columns=1) if len(kinds) > 1 else None
    x = (
        alt.X("tokens:Q")
        .axis(title="share of tokens, largest first", format="~%", tickCount=4)
        .scale(type="log", nice=False)
    )
    points = base.dataset("tokens").encode(
        x, base.share("held"), base.colours("kind", base.palette(kinds, order), legend)
    )
    tips = base.tooltips(kind="of", shown="held")
    drawn = [points.mark_line(strokeWidth=2), base.on_hover(points.encode(tooltip=tips))]
    return base.figure("geometry_tokens", title, drawn, data, caption=text)


def _baseline_chart(probe: ProbeRecord) -> Figure | None:
    """b* − V of every prompt and pooled, with intervals."""
    gaps = [
        (prompt, baseline)
        for prompt, baseline in enumerate(probe.baselines, 1)
        if math.isfinite(baseline.covariance.value) and math.isfinite(baseline.covariance.se)
    ]
    pooled = probe.baseline.covariance
    if not gaps or not math.isfinite(pooled.se):
        return None
    gaps.sort(key=lambda pair: pair[1].covariance.value)
    rows = [
        (group, prompt, *rounded([baseline.covariance.value, *baseline.covariance.interval(Z)]),
         ranged(baseline.covariance),
         number(baseline.mean.value), number(baseline.optimal.value))
        for group, (prompt, baseline) in enumerate(gaps, 1)
    ]  # fmt: skip
    data = {
        "prompts": columns(("place", "prompt", "gap", "low", "high", "shown", "mean", "best"), rows),
        "pooled": columns(("gap", "low", "high"), [rounded([pooled.value, *pooled.interval(Z)])]),
        "zero": {"gap": [0]},
    }
    x = alt.X("place:Q").axis(title="prompts, by gap", labels=False).scale(domain=[0.3, len(gaps) + 0.7], nice=False)
    y = alt.Y("gap:Q")
    tips = base.tooltips(prompt="prompt", shown="b* − mean", mean="group mean", best="b*")
    band, zero = base.dataset("pooled").encode(y), base.dataset("zero").encode(y)
    prompts = base.dataset("prompts").encode(x, y)
    drawn = [
        band.mark_rect(color="var(--run-2)", opacity=0.18).encode(alt.Y("low:Q"), alt.Y2("high")),
        band.mark_rule(color="var(--run-2)", strokeWidth=2),
        zero.mark_rule(color="var(--muted)", strokeDash=[3, 3]),
        prompts.mark_rule(color="var(--run-1)", opacity=0.55).encode(alt.Y("low:Q"), alt.Y2("high")),
        prompts.mark_point(filled=True, size=45, color="var(--run-1)", opacity=1).encode(tooltip=tips),
    ]
    text = (
        "b* − V: how far the best constant baseline lies above (below) the group mean, for each prompt "
        "whose rewards differ, and over all prompts (orange, band), with 95% intervals. At 0 (dashed) "
        "the group mean is the best constant baseline."
    )
    return base.figure("geometry_baseline", "Is the group mean the best baseline?", drawn, data, caption=text)


def _roles(layers: Sequence[LayerRecord]) -> list[str]:
    """Projections in the order of the data flow, then the others."""
    have = list(dict.fromkeys(layer.role for layer in layers))
    return [visible(role) for role in [*(r for r in ORDER if r in have), *(r for r in have if r not in ORDER)]]


def _block(layer: LayerRecord) -> str:
    return OUTSIDE if layer.depth is None else str(layer.depth)


def _thinned(count: int) -> list[int]:
    """1, 2, … 16 and then ever fewer up to `count`."""
    few = range(1, min(count, 16) + 1)
    return sorted({*few, *map(int, np.geomspace(16, count, 12))}) if count > 16 else list(few)
