"""What came out of the papers' statements, as one Answer and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from grposcope.core.answer import Answer, DrawnLater, Figure, Table
from grposcope.instruments.claims.claim import Derived, Drawing, PaperClaim
from grposcope.render import charts
from grposcope.render.page import Document

PAPERS: Mapping[str, str] = {
    "pg": "On the Policy Gradient Foundations of GRPO (arXiv:2606.29238)",
    "u": "Demystifying GRPO: Its Policy Gradient is a U-Statistic (arXiv:2603.01162)",
    "d": "Predictable GRPO: A Closed-Form Model of Training Dynamics (arXiv:2606.30789)",
}

Found = Sequence[tuple[PaperClaim, Derived]]


def of(derived: Found) -> Answer:
    """The statements with their verdicts."""
    counts = {
        verdict: sum(result.verdict == verdict for _, result in derived) for verdict in ("holds", "does not hold")
    }
    between = len(derived) - sum(counts.values())
    return Answer(
        name="claims",
        question="Which statements of the papers hold?",
        sentence=f"{counts['holds']} of {len(derived)} statements hold, {counts['does not hold']} do not, and "
        f"{between} hold in part or are undecided.",
        text=tuple(_told(claim, result) for claim, result in derived),
        tables=tuple(_table(paper, derived) for paper in PAPERS if any(claim.paper == paper for claim, _ in derived)),
        figures=DrawnLater(lambda: _figures(derived)),
        document={"claims": [_document(claim, result) for claim, result in derived]},
    )


def page(derived: Found) -> Document:
    """The page of the statements."""
    whole = of(derived)
    top = Answer("headline", whole.question, sentence=whole.sentence)
    return Document(("claims",), top, (whole,))


def _table(paper: str, derived: Found) -> Table:
    rows = [
        (claim.name, result.verdict, claim.says, claim.stated, "exact" if claim.exact else "measured")
        for claim, result in derived
        if claim.paper == paper
    ]
    return Table(PAPERS[paper], ("name", "verdict", "statement", "in the paper", "here"), rows)


def _told(claim: PaperClaim, result: Derived) -> str:
    full = f" At full scale: experiments/{claim.script}." if claim.script else ""
    return f"{claim.name} ({result.verdict}): {result.found}. Tested on {result.on}.{full}"


def _figures(derived: Found) -> Iterator[Figure]:
    for claim, result in derived:
        if result.drawing is not None:
            yield _figure(claim, result.drawing)


def _figure(claim: PaperClaim, drawing: Drawing) -> Figure:
    data: dict[str, list[Any]] = {
        "series": [series for series, *_ in drawing.points],
        "x": [x for _, x, _, _ in drawing.points],
        "y": [y for *_, y, _ in drawing.points],
        "low": [y - 1.96 * se for *_, y, se in drawing.points],
        "high": [y + 1.96 * se for *_, y, se in drawing.points],
    }
    kind: Literal["log", "linear"] = "log" if drawing.log else "linear"
    x = alt.X("x:Q").title(drawing.x).scale(type=kind, zero=False, nice=False)
    y = alt.Y("y:Q").title(drawing.y).scale(type=kind, zero=False)
    colours = charts.colours("series", charts.palette(list(dict.fromkeys(data["series"]))))
    points = charts.dataset("points").encode(x, y, colours)
    layers = [points.mark_line(strokeWidth=1.5), points.mark_circle(size=30)]
    if any(se for *_, se in drawing.points):
        layers.append(points.mark_rule().encode(alt.Y("low:Q"), alt.Y2("high")))
    caption = f"{drawing.y[:1].upper()}{drawing.y[1:]} against {drawing.x}."
    return charts.figure(claim.name, claim.says, layers, {"points": data}, unit=drawing.y, caption=caption, height=200)


def _document(claim: PaperClaim, result: Derived) -> dict[str, object]:
    return {
        "name": claim.name, "paper": claim.paper, "says": claim.says, "criterion": claim.criterion,
        "verdict": result.verdict, "found": result.found, "on": result.on, "exact": claim.exact, "stated": claim.stated,
        "script": claim.script,
    }  # fmt: skip
