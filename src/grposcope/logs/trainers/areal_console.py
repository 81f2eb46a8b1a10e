"""What AReaL prints on a console: that a step is done, and a table of its metrics, several of them in a line.

    (AReaL) 20260814-01:00:00.000 StatsLogger INFO: Epoch 1/3 Step 1/200 Train step 1/600 done.
    ╒═══════════════════════════╤════════════╤════════════════╤════════════╕
    │ ppo_actor/task_reward/avg │ 2.6204e-01 │ rollout/reward │ 2.6204e-01 │

Where a step has several tables, one for each of its updates, a row has the mean of each metric. Tables before the first
such line, or without any, are numbered from 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grposcope.core.errors import UserError
from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints

_DONE = re.compile(r"Train step (?P<step>\d{1,12})/\d{1,12} done")
_KEY = re.compile(r"[A-Za-z_][\w./+-]{0,120}")
_BAR = "│"


def _read(file: LogFile, hints: Hints) -> RawLog:
    """A row per step with the metrics of its tables; UserError where no table has a number."""
    left_out, tables = LeftOut(), list[tuple[int, float, dict[str, float]]]()
    step, inside = 0.0, False
    for line, text, ended in file.lines():
        cleaned = clean(text)
        if (done := _DONE.search(cleaned)) is not None:
            step, inside = float(done["step"]), False
        elif values := _cells(cleaned if ended else ""):
            if not inside or not values.keys().isdisjoint(tables[-1][2]):
                tables.append((line, step, {}))
            tables[-1][2].update(values)
            inside = True
        elif text.strip() and not (inside and set(cleaned.strip()) <= set("├┼┤─╞═╪╡╘╧╛╒╤╕│ ")):
            inside = False
            left_out.add(line, text)
    if not tables:
        raise UserError(f"{file.path}: no table of AReaL has a number; give the log of the training")
    rows = ColumnBuilder()
    for line, number, values in _by_step(tables):
        rows.row(line, {**values, "step": number})
    return RawLog(file.path, rows, "areal", notes=file.notes, left_out=left_out)


def _by_step(
    tables: Sequence[tuple[int, float, dict[str, float]]],
) -> list[tuple[int, float, dict[str, float]]]:
    """The line, the step and the values of each step: means over its tables, and one step for each without number."""
    rows: list[tuple[int, float, list[dict[str, float]]]] = []
    for count, (line, step, values) in enumerate(tables, 1):
        if step and rows and rows[-1][1] == step:
            rows[-1][2].append(values)
        else:
            rows.append((line, step or float(count), [values]))
    return [(line, step, _means(several)) for line, step, several in rows]


def _means(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the tables that have it; of one table its values as they are."""
    if len(tables) == 1:
        return tables[0]
    keys = dict.fromkeys(key for values in tables for key in values)
    told = {key: [values[key] for values in tables if key in values] for key in keys}
    return {key: sum(numbers) / len(numbers) for key, numbers in told.items()}


def _cells(text: str) -> dict[str, float]:
    """The pairs of a line of a table: a name and a number in cells beside each other."""
    cells = [cell.strip() for cell in text.partition(_BAR)[2].split(_BAR)]
    pairs = {key: printed_number(value) for key, value in zip(cells[::2], cells[1::2], strict=False)
             if _KEY.fullmatch(key)}  # fmt: skip
    return {key: value for key, value in pairs.items() if value is not None}


KIND = LogKind(
    _read, printed=re.compile(f"{_BAR} *(?:ppo_actor|rollout|timeperf)/[^{_BAR}\n]*{_BAR} *[-+\\d.n]".encode())
)
"""A text is AReaL's where a table has a name of its metrics beside a number."""
