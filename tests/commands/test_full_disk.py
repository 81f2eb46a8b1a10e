"""A disk that fills up, in whatever writes a file: one line that names it, what was there before, and no scraps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pipelines
import pytest
import synthetic
import synthetic_probe

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.instruments.autopilot import events
from grposcope.instruments.autopilot.alarm import explained, fall
from grposcope.instruments.autopilot.pilot import Decision
from grposcope.instruments.credit import record as credit_record
from grposcope.instruments.gradient import probe_record
from grposcope.instruments.verify import read, row_file
from grposcope.logs.native import step_arrays
from grposcope.watch import alarm_file

ALARM = fall("heldout", 3, 4.6, None, 0.6, 0.5, 0.3)
DECISION = Decision(3, why=explained(ALARM, "c"), action="rollback", to=1, interval=1, factor=0.5, done=True)
EVIDENCE = read.of_rows(pipelines.Pipeline(steps=1, prompts=2, group=2).rows(), {"num_generations": 2})


@contextmanager
def full() -> Iterator[None]:
    """Nothing more goes to the disk but three bytes of the first line that is appended."""
    with pytest.MonkeyPatch.context() as patch:
        written, write = [0], os.write

        def fills(file: int, data: bytes) -> int:
            written[0] += 1
            if written[0] == 1:
                return write(file, data[:3])
            raise OSError(28, "No space left on device")

        def synced(number: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "write", fills)
        patch.setattr(os, "fsync", synced)
        yield


WRITERS: dict[str, Callable[[Path], Any]] = {
    "rows of a batch": lambda folder: row_file.write(folder, 1, EVIDENCE.rows),
    "what settings state": lambda folder: row_file.write_stated(folder, EVIDENCE.stated),
    "claims": lambda folder: row_file.append_claims(folder, {"step": 2, "claims": {}}),
    "arrays of a step": lambda folder: step_arrays.write(folder / "arrays", 1, {"a": np.ones(3)}),
    "decisions": lambda folder: events.append(folder, DECISION),
    "decisions that are cut back": lambda folder: events.cut_back(folder, 1),
    "alarms": lambda folder: alarm_file.append(folder, [ALARM]),
    "alarms that are cut back": lambda folder: alarm_file.cut_back(folder, 1),
    "claims that are cut back": lambda folder: row_file.cut_back(folder, 9),
    "a probe": lambda folder: probe_record.write(
        folder / "probe", probe_record.read(folder / "sound"), probe_record.read_gram(folder / "sound"), ()
    ),
    "a comparison of credit": lambda folder: credit_record.write(folder / "credit", credit_record.CreditRecord(), ()),
}


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_says_that_the_disk_is_full(writer: str, tmp_path: Path) -> None:
    synthetic_probe.make(tmp_path / "sound", prompts=3, group=4)
    row_file.write(tmp_path, 9, EVIDENCE.rows)
    row_file.append_claims(tmp_path, {"step": 12, "claims": {}})
    events.append(tmp_path, DECISION)
    alarm_file.append(tmp_path, [ALARM])
    before = written(tmp_path)
    with full(), pytest.raises((UserError, OSError), match=r"No space left on device.*(make room|/)"):
        WRITERS[writer](tmp_path)
    assert written(tmp_path) == before
    WRITERS[writer](tmp_path)
    assert written(tmp_path) != before


@pytest.mark.parametrize(
    "command",
    [
        ("diagnose", "RUN", "--html", "OUT"), ("report", "RUN", "--out", "OUT"), ("texts", "ROLLOUTS", "--html", "OUT"),
        ("compare", "RUN", "OTHER", "--html", "OUT"), ("fit", "RUN", "--figures", "FOLDER"),
        ("report", "RUN", "--figures", "FOLDER"),
    ],
)  # fmt: skip
def test_a_command_says_that_the_disk_is_full(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.make(tmp_path / "run", steps=40, group=2)
    other = synthetic.make(tmp_path / "other", steps=40, group=2, seed=1)
    rows = [f'{{"step": {i}, "prompt": "p", "completion": "x", "reward": {i % 2}}}\n' for i in range(8)]
    (tmp_path / "rollouts.jsonl").write_text("".join(rows))
    before = written(tmp_path)
    words = {
        "RUN": run, "OTHER": other, "OUT": tmp_path / "page.html", "FOLDER": tmp_path / "figures",
        "ROLLOUTS": tmp_path / "rollouts.jsonl",
    }  # fmt: skip
    with full():
        status = main([str(words.get(word, word)) for word in command])
    assert status == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("grposcope: error: cannot write")
    assert "No space left on device" in said
    assert written(tmp_path) == before
