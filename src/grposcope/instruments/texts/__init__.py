"""What the policy writes: what of it is paid, what changes over the steps and since when, and which five to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Command, Instrument
from grposcope.instruments.texts.question import NAME, QUESTION

if TYPE_CHECKING:
    from grposcope.core.answer import Answer

INSTRUMENT = Instrument(
    NAME,
    QUESTION,
    answers="grposcope.instruments.texts.answer",
    commands=(
        Command(
            "texts",
            "look at a run",
            "read the completions: what of them is paid, since when, and which five to read",
            "grposcope.instruments.texts.command",
        ),
    ),
)


def _texts(source: str | Path | Sequence[Mapping[str, Any]], truth: str = "", since: int | None = None) -> Answer:
    """What the texts of a run, of a file of rollouts, or of rollouts as mappings do that is paid.

    truth: the name of the score that is meant to count, such as "right"; empty to take one by its name. since: first
    step that is read. UserError where there are no texts.
    """
    from grposcope.core.rollouts import Rollout
    from grposcope.instruments.texts import answer
    from grposcope.logs import read_rollouts
    from grposcope.logs.rollout_columns import spelled
    from grposcope.logs.rollout_rows import row_of
    from grposcope.signs.texts import reading, sample

    rows: Sequence[Rollout]
    if isinstance(source, str | Path):
        rows = read_rollouts.rollouts(Path(source)).rows
    else:
        rows = [row_of(spelled(row), f"rollouts, row {number}") for number, row in enumerate(source, 1)]
    return answer.of_reading(reading.read(sample.of_rollouts(rows, truth, since)))
