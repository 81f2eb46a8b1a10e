"""What ART prints on a console: the bar of the rollouts of a step, the bar of its update, and that none was made.

    gather: 100%|##########| 9/9 [00:36<00:00,  4.0s/it, reward=1.19, win=0.333, completion_tokens=21.3]
    Skipping tuning as there is no suitable data. This can happen when all the trajectories in the same group …
    Advanced step from 0 to 1 (no training occurred)

A bar is drawn again and again; what it says last before the step ends is the mean over the rollouts. A step ends with
the line that says that no training occurred, or where the next rollouts begin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints

_BAR = re.compile(
    r"(?P<kind>gather|train): +\d{1,3}%\|[^|\r\n]*\| *(?P<done>\d{1,9})/(?P<of>\d{1,9}) "
    r"\[[^,\]]*,[^,\]]*(?P<rest>[^\]\r\n]*)\]"
)
_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w/.-]{0,80})=(?P<value>[^,\s\]]+)")
_SKIPPED = re.compile(r"Advanced step from \d{1,12} to (?P<step>\d{1,12}) \(no training occurred\)")

TRAINED = "trained"
"""Key that we give to what is said of an update: 1 where a bar of training was drawn, 0 where none occurred."""


def _read(file: LogFile, hints: Hints) -> RawLog:
    """A row per step: what the bars say of its rollouts and of its update, and whether there was one."""
    steps: list[tuple[int, dict[str, float]]] = []  # line of the first bar, what was said
    left_out, gathered, ended = LeftOut(), False, True
    for line, text, _ in file.lines():
        cleaned = clean(text)
        bars = list(_BAR.finditer(cleaned))
        if (skipped := _SKIPPED.search(cleaned)) is not None and not ended:
            steps[-1][1].update({"step": float(skipped["step"]), TRAINED: 0.0})
            ended = True
        elif not bars and text.strip():
            left_out.add(line, text)
        for bar in bars:
            whole = bar["done"] == bar["of"]
            if bar["kind"] == "gather":
                ended = ended or TRAINED in steps[-1][1] or (gathered and not whole)
                gathered = whole
            if values := _values(bar["rest"]):
                if ended:
                    steps.append((line, {}))
                steps[-1][1].update(values | ({TRAINED: 1.0} if bar["kind"] == "train" else {}))
                ended = False
    rows = ColumnBuilder()
    for number, (line, said) in zip(_numbers([said.get("step") for _, said in steps]), steps, strict=True):
        rows.row(line, {**said, "step": number})
    return RawLog(file.path, rows, "art", notes=file.notes, left_out=left_out)


def _numbers(told: Sequence[float | None]) -> list[float]:
    """Numbers of steps that follow one another, of which some are told: counted on, or back from the first told."""
    first = next(((index, step) for index, step in enumerate(told) if step is not None), (0, 1.0))
    numbers: list[float] = []
    for step in told:
        counted = numbers[-1] + 1 if numbers else first[1] - first[0]
        numbers.append(counted if step is None else step)
    return numbers


def _values(rest: str) -> dict[str, float]:
    """The pairs key=value behind the speed of a bar."""
    values = {pair["key"]: printed_number(pair["value"]) for pair in _PAIR.finditer(rest)}
    return {key: value for key, value in values.items() if value is not None}


KIND = LogKind(_read, printed=re.compile(rb"Advanced step from \d{1,12} to \d{1,12} \(no training occurred\)"))
"""A text is ART's where a step ended without training: its bars alone may be anybody's."""
