"""Files of environments beside those of the trainer and the orchestrator are of the run; others are left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from engine_logs import prime_orchestrator, prime_trainer

from grposcope.core.errors import UserError
from grposcope.logs import read
from grposcope.watch.follow import Watcher

Rows = Callable[[int], Iterator[Mapping[str, Any]]]


def write(path: Path, rows: Rows, first: int = 1, last: int = 40) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for step in range(first, last + 1) for row in rows(step)))


def split(prefix: str | None) -> Rows:
    """Rows of the orchestrator with only the keys of an environment; without any of them for None."""
    own = ("train/math/", "train/code/")

    def rows(step: int) -> Iterator[Mapping[str, Any]]:
        for row in prime_orchestrator(step):
            kept = {k: v for k, v in row.items() if (k.startswith(prefix) if prefix else not k.startswith(own))}
            if kept:
                yield {"step": step, **kept}

    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "trainer.jsonl", prime_trainer)
    write(tmp_path / "orchestrator.jsonl", split(None))
    for name in ("math", "code"):
        write(tmp_path / f"{name}.jsonl", split(f"train/{name}/"))
    return tmp_path


def note(folder: Path) -> str:
    return "; ".join(read(folder).meta.notes)


def test_environments_are_joined(folder: Path) -> None:
    run = read(folder)
    assert "4 files were joined by step" in note(folder)
    assert sorted(run.scopes) == ["code", "math"]
    assert run.table["step"].tolist() == list(range(1, 41))


def test_a_scope_that_disagrees_on_the_step_is_left_out(folder: Path) -> None:
    write(folder / "math.jsonl", split("train/math/"), 1001, 1040)
    assert "math.jsonl has other steps, and was left out" in note(folder)
    assert read(folder).table["step"].tolist() == list(range(1, 41))


def test_a_file_with_metrics_of_another_is_passed_over(folder: Path) -> None:
    write(folder / "copy.jsonl", split("train/math/"))
    assert "4 files were joined by step" in note(folder)


def test_files_of_two_runs_are_one_line(tmp_path: Path) -> None:
    """Also while they are watched: nothing is guessed, and what to do is said."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", prime_trainer)
    with pytest.raises(UserError, match=r"logs of different runs .* give one of the files") as error:
        read(tmp_path)
    assert "\n" not in str(error.value)
    watcher = Watcher(tmp_path)
    watcher.look(0.0)
    assert "logs of different runs" in watcher.state(0.0).problem
