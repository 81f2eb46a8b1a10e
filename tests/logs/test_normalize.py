"""The way from the rows of a log to a Run: every step returns a new table and leaves the one before as it was."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trap_logs import TRAPS

from grposcope.logs import Hints, normalize, read
from grposcope.logs.normalize import READING
from grposcope.logs.table import LogTable


def state(table: LogTable) -> dict[str, Any]:
    """All that a table holds, arrays as bytes."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tobytes()
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        return repr(value)

    return {one.name: plain(getattr(table, one.name)) for one in fields(table) if one.name != "log"}


def checked(step: Callable[[LogTable], LogTable]) -> Callable[[LogTable], LogTable]:
    """The step, which is held to leave its table alone and to add to the notes only."""

    @wraps(step)
    def held(table: LogTable) -> LogTable:
        before = state(table)
        after = step(table)
        assert state(table) == before, step.__name__
        assert after.notes[: len(table.notes)] == table.notes
        return after

    return held


@pytest.mark.parametrize("name", TRAPS)
def test_every_step_is_pure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    trap = TRAPS[name](tmp_path)
    expected = read(trap.path, Hints(run=trap.run))
    monkeypatch.setattr(normalize, "READING", tuple(map(checked, READING)))
    run = read(trap.path, Hints(run=trap.run))
    assert run.meta.notes == expected.meta.notes
    assert (np.diff(run.table["step"]) > 0).all()


def test_every_step_says_what_it_does() -> None:
    assert all((inspect.getdoc(step) or "").endswith(".") for step in READING)
    assert len({step.__name__ for step in READING}) == len(READING)
