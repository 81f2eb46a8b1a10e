"""A log whose rows are kept between readings is the run that reading it whole gives, and only new bytes are read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from engine_logs import prime_orchestrator, prime_trainer
from hypothesis import given, settings
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run
from grposcope.logs import Hints, kept_rows, read, written_rollouts
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.kept_rows import GrowingHints, KeptRows
from grposcope.logs.trainers import verl_rollouts

LINES = (
    '{"step": 1, "reward": 0.1, "kl": 0.01}\n', '{"step": 2, "reward": [0.2, 0.4], "env": "math"}\n', "no json\n",
    '{"step": 3, "reward": 0.3, "deep": {"a": 1}}\n', "\n", '{"step": 4, "reward": NaN}\n',
    '{"step": 5, "reward": "0.5", "env": "code"}\n', '{"step": 6, "reward": 0.6}\n',
)  # fmt: skip


def same(one: Run, other: Run) -> None:
    assert one.table.keys() == other.table.keys()
    for name, column in one.table.items():
        np.testing.assert_array_equal(column, other.table[name], err_msg=name)
    assert one.meta == other.meta
    assert one.keys == other.keys
    assert repr(one.unknown) == repr(other.unknown)


def outcome(path: Path, hints: Hints) -> Run | str:
    """The run, or why there is none."""
    try:
        return read(path, hints)
    except UserError as error:
        return str(error)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=6, max_size=30), st.lists(st.integers(1, 90), max_size=12))
def test_any_cuts_give_the_same_run(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("kept") / "log.jsonl"
    whole, hints, at = "".join(lines).encode(), GrowingHints(), 0
    for cut in [*cuts, len(whole)]:
        with path.open("ab") as file:
            file.write(whole[at : at + cut])
        at += cut
        expected, given = outcome(path, Hints()), outcome(path, hints)
        if isinstance(expected, Run) and isinstance(given, Run):
            same(given, expected)
        else:
            assert given == expected


def test_only_new_bytes_are_read(tmp_path: Path) -> None:
    path, kept = tmp_path / "log.jsonl", KeptRows()
    rows = [json.dumps({"step": k, "reward": 0.1 * k, "kl": 0.01}) + "\n" for k in range(200)]
    for count in range(10, 201, 10):
        path.write_text("".join(rows[:count]))
        assert read(path, GrowingHints(kept=kept)).steps == count
    (file,) = kept._files.values()
    assert file.read == path.stat().st_size
    assert len(file.rows._parts["reward"]) <= 34  # pieces are put together


def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path, hints = tmp_path / "log.jsonl", GrowingHints()
    for rows in (range(1, 30), range(1, 12), range(5, 60)):
        path.write_text("".join(json.dumps({"step": k, "reward": 0.01 * k * len(rows)}) + "\n" for k in rows))
        same(read(path, hints), read(path, Hints()))


def test_what_is_not_kept_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(json.dumps({"step": k, "reward": 0.01 * k}) + "\n" for k in range(1, 30))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.jsonl").write_text(text)
    monkeypatch.setattr(kept_rows, "LARGEST", 100)
    for name in ("a.jsonl.gz", "b.jsonl"):
        kept = KeptRows()
        same(read(tmp_path / name, GrowingHints(kept=kept)), read(tmp_path / name, Hints()))
        assert not kept._files


def test_files_of_one_run_are_kept_apart(tmp_path: Path) -> None:
    hints = GrowingHints()
    for last in (20, 21, 40):
        for name, rows in (("trainer", prime_trainer), ("orchestrator", prime_orchestrator)):
            text = "".join(json.dumps(row) + "\n" for step in range(1, last + 1) for row in rows(step))
            (tmp_path / f"{name}.jsonl").write_text(text)
        run = read(tmp_path, hints)
        same(run, read(tmp_path, Hints()))
        assert run.steps == last


def dumped(folder: Path, step: int, rows: int = 8) -> None:
    """The rollouts of a step as verl dumps them, of prompts that are longer than a label; one line is none."""
    lines = [
        json.dumps(
            {
                "input": f"{'add ' * 80}{k % 2}",
                "output": f"it is {k}",
                "score": float((k * step) % 3 == 0),
                "step": step,
            }
        )
        for k in range(rows)
    ]
    (folder / f"{step}.jsonl").write_text("\n".join([*lines, "[]", ""]))


def test_dumps_of_rollouts_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_again, hints, own = list[str](), GrowingHints(), verl_rollouts.rollouts

    def counted(file: LogFile, step: int) -> Iterator[Rollout]:
        read_again.append(file.path.name)
        return own(file, step)

    for step in range(1, 13):
        dumped(tmp_path, step)
        whole = read(tmp_path, Hints())
        with monkeypatch.context() as patch:
            patch.setattr(verl_rollouts, "rollouts", counted)
            grown = read(tmp_path, hints)
        same(grown, whole)
        assert repr(grown.groups) == repr(whole.groups)
        assert repr(grown.rollouts[step]) == repr(whole.rollouts[step])  # NaN of a field is not equal to itself
        assert read_again == [f"{step}.jsonl"], step
        read_again.clear()
    dumped(tmp_path, 3, rows=4)  # written anew
    same(read(tmp_path, hints), read(tmp_path, Hints()))


def test_as_many_rollouts_are_kept_as_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_rollouts, "_KEPT", 20)
    hints = GrowingHints()
    for step in range(1, 6):
        dumped(tmp_path, step)
        same(read(tmp_path, hints), read(tmp_path, Hints()))
    assert len(hints.kept.rollouts) == 2
