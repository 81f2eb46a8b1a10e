"""What the gradient is made of, as probes measured it: what they found in words, numbers, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.errors import UserError
from grposcope.core.metrics import GEOMETRY
from grposcope.core.outline import outline
from grposcope.core.run import Floats, Run, labels
from grposcope.core.text import listed, number, percent, visible
from grposcope.instruments.gradient import INSTRUMENT, turn_answer
from grposcope.instruments.gradient import figures as charts
from grposcope.instruments.gradient import figures_over_steps as steps
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient.findings import ranged
from grposcope.instruments.gradient.probe_record import ProbeRecord
from grposcope.render.curves import of_metrics

SHOWN = {
    "stable": "stable",
    "participation": "participation",
    "entropy_sq": "entropy σ²",
    "energy_90": "90% energy",
    "energy_99": "99% energy",
    "threshold_0.1": "σ ≥ σ₁/10",
}
"""Ranks of the tables and their headings."""

RANK = f"{GEOMETRY}layer_stable"
"""Metric of the rank whose course is told in words."""

ROWS = 300
"""Rows of the table of layers."""


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What the last probe of each run measured, and what probes within training did."""
    return [one for one in (_section(runs), _while_training(runs)) if one is not None]


def _section(runs: Sequence[Run]) -> Answer | None:
    """What the last probe of each run found, with charts, and curves over the probes of all steps."""
    probes = geometry.latest(runs)
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
    turns = None if record.turns is None else turn_answer.table(record.turns)
    tables = (_weightings(record), turns, _statistics(record), _layers(record))
    return Answer(
        "geometry", INSTRUMENT.question, sentence=geometry.conclusion(record),
        text=[geometry.about(record), *geometry.taken(record), *(fact.sentence for fact in geometry.facts(record)),
              *([] if record.turns is None else turn_answer.sentences(record.turns))],
        numbers=geometry.numbers(record), tables=[table for table in tables if table is not None],
        missing=geometry.missing(record), document=record.summary(),
    )  # fmt: skip


def _compared(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> Answer:
    """The last probes of several runs, a sentence and a row each."""
    ranks = [f"{ranged(record.rank('stable'))} in {label}" for label, _, record in probes]
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
    drawn = [charts.spectra(record), charts.ranks(record), charts.weightings(record),
             charts.tokens(parts, "How few tokens carry the gradient", _TOKENS), charts.baseline(record)]  # fmt: skip
    return drawn, notes


def _of_several(probes: Sequence[tuple[str, Run, ProbeRecord]], order: Sequence[str]) -> list[Figure | None]:
    """Charts that compare probes. order: all names of the page."""
    return [
        charts.compared_ranks([(label, record) for label, _, record in probes], order),
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
        cells = [ranged(ranks.layer[key]) if key == "stable" else number(ranks.layer[key].value) for key in SHOWN]
        others = [kind["stable"] if kind else math.nan for kind in (ranks.rollout, ranks.token)]
        rows.append((visible(name), *cells, *(number(v) if math.isfinite(v) else "not measured" for v in others)))
    header = ("gradient", *SHOWN.values(), "rollouts, stable", "tokens, stable")
    text = (
        "Mean ranks of the weight matrices' gradients, and ranks of the matrices with a row per rollout and per token."
    )
    return Table("Ranks of every gradient", header, rows, text, folded=True) if rows else None


def _layers(record: ProbeRecord) -> Table | None:
    layers = charts.layers(record)
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
        "matrix", "shape", *SHOWN.values(), "not enclosed", "score norm", "group's rows", "top-1 share", "cut at two"
    )  # fmt: skip
    further = f" {len(layers) - ROWS} further matrices are in probe.json." if len(layers) > ROWS else ""
    text = (
        "Not enclosed: share of the squared norm outside the computed singular values; the ranks of such "
        "matrices are bounds. Group's rows: (Σσ)²/Σσ² of the rows advantage × score of a group, mean over live groups, "
        f"with the share σ₁²/Σσ² and the same after all but two singular values are dropped.{further}"
    )
    return Table("Ranks of every matrix", header, rows, text, folded=True) if rows else None


def _statistics(record: ProbeRecord) -> Table | None:
    rows = [
        (visible(name), visible(statistic), ranged(value), f"{value.n:,}")
        for name, estimates in record.statistics.items()
        for statistic, value in estimates.items()
    ]
    header = ("statistic", "of", "value", "n")
    return Table("Further statistics", header, rows, "In brackets: 95% intervals.", folded=True) if rows else None


def _compared_tokens(probes: Sequence[tuple[str, Run, ProbeRecord]], order: Sequence[str]) -> Figure | None:
    sizes = []
    for label, _, record in probes:
        try:
            sizes.append((label, _token_sizes(record)[0] ** 2))
        except UserError:
            continue  # the viewer of rollouts says why
    return charts.tokens(sizes, "How few tokens carry the gradient", _TOKENS.replace(_WEIGHED, ""), order)


def _rows(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> Table:
    rows = [
        (
            label, "" if record.step is None else f"{record.step:,}", geometry.solved(record),
            ranged(record.rank("stable")), ranged(record.rank("participation")), percent(record.groups.dead.value),
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
    return Table("The last probe of each run", header, rows, "In brackets: 95% intervals.")


def _numbers(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> dict[str, Any]:
    """Everything but the single layers and prompts, which probe.json has."""
    return {label: record.summary() | {"probe": str(record.folder), "step": record.step} for label, _, record in probes}


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
        course = outline(run.table.get(RANK, np.empty(0)))
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
