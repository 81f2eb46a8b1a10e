"""The page about one or several runs: the top, and whatever any instrument has to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grposcope.core.answer import HEADLINE, Answer
from grposcope.core.run import Run, labels
from grposcope.core.text import listed
from grposcope.faults import judge_answers
from grposcope.instruments import all_instruments, ask, unavailable
from grposcope.render.page import Document, write
from grposcope.runs_page import axes
from grposcope.runs_page.arrangement import arranged


def document(runs: Sequence[Run]) -> Document:
    """Content of the page about these runs: the top, and the answers of every instrument that has some."""
    answers = tuple(answer for instrument in all_instruments() for answer in ask(instrument, runs))
    if len(runs) == 1 and not unavailable("diagnosis"):
        from grposcope.instruments.diagnosis.verdict import findings_of

        answers = tuple(judge_answers.graded(answer, findings_of(runs[0])) for answer in answers)
    first = _top(runs)
    sections = arranged(answers, first if len(runs) == 1 else None)
    return Document(tuple(labels(runs)), first, sections, tuple(map(axes.of_run, runs)), _identity(runs))


def _identity(runs: Sequence[Run]) -> tuple[str, ...]:
    """Lines that say which run this is; none for several, which the table of runs names."""
    if len(runs) > 1 or unavailable("overview"):
        return ()
    from grposcope.instruments.runs import identity

    return identity.of_run(runs[0])


def _top(runs: Sequence[Run]) -> Answer:
    """The first things to know; only the names of the runs where the overview cannot tell."""
    if not unavailable("overview"):
        from grposcope.instruments.runs import overview

        return overview.top(runs)
    return Answer("headline", HEADLINE, sentence=listed(labels(runs)))


def report(runs: Run | Sequence[Run], path: str | Path) -> Path:
    """Write the page about one or several runs, one self-contained HTML file; its path.

    UserError where it cannot be written.
    """
    several = [runs] if isinstance(runs, Run) else list(runs)
    write(document(several), Path(path))
    return Path(path)
