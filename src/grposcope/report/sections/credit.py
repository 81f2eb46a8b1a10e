"""Section on what finer credit would save and cost, as `grposcope credit` measured it."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.facts import credit
from grposcope.report.charts import credit as charts
from grposcope.report.elements import PageTable, Section
from grposcope.runs.run import Run


def section(runs: Sequence[Run]) -> Section | None:
    """The last comparison of each run: what is said of it, the frontier and the table of one, a table of several."""
    found = credit.latest(runs)
    if not found:
        return None
    numbers = {label: record.summary() | {"verdict": credit.verdict(record)} for label, _, record in found}
    if len(found) > 1:
        text = [f"{label}: {credit.verdict(record)}" for label, _, record in found]
        return Section("credit", "What finer credit would save", text=text, numbers=numbers)
    _, _, record = found[0]
    said = credit.sentences(record)
    table = PageTable("Sources of credit", credit.HEADER, credit.rows(record), credit.MEANING)
    drawn = [one for one in (charts.savings(record), charts.frontier(record)) if one is not None]
    return Section(
        "credit", "What finer credit would save", text=[said[0], credit.about(record), *said[1:]],
        figures=drawn, tables=[table], numbers=numbers,
    )  # fmt: skip
