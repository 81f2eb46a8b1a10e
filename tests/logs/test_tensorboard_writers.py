"""Event files in folders of one run's writers are one run; those of several runs are not, and our verdict is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trainer_logs

from grposcope.core.errors import UserError
from grposcope.logs import read
from grposcope.logs.formats import tensorboard


def events(folder: Path, rows: Mapping[int, Mapping[str, float]]) -> None:
    """An event file with the scalars of each step."""
    folder.mkdir(parents=True, exist_ok=True)
    out = b""
    for step, row in rows.items():
        for name, value in row.items():
            summary = trainer_logs.message((1, name.encode()), (8, trainer_logs.message((1, 2), (6, float(value)))))
            event = trainer_logs.message((1, 1.5), (2, step), (5, trainer_logs.message((1, summary))))
            head = len(event).to_bytes(8, "little")
            out += head + tensorboard._masked(tensorboard._crc32c(head)).to_bytes(4, "little") + event + bytes(4)
    (folder / "events.out.tfevents.1").write_bytes(out)


def trained(last: int) -> dict[int, dict[str, float]]:
    return {step: {"reward": 0.01 * step, "entropy": 1.0} for step in range(1, last + 1)}


def test_a_folder_for_each_writer(tmp_path: Path) -> None:
    events(tmp_path / "train", trained(40))
    events(tmp_path / "eval", {step: {"reward": 0.5 + 0.001 * step} for step in (10, 20, 30)})
    run = read(tmp_path)
    assert run.table["step"].tolist() == list(range(1, 41))
    assert run.table["reward"].tolist() == pytest.approx([0.01 * step for step in range(1, 41)])
    assert run.evaluations.of("reward").step.tolist() == [10, 20, 30]
    assert run.evaluations.of("reward").value.tolist() == pytest.approx([0.51, 0.52, 0.53])
    assert any("2 writers of one run were joined by step: eval, train" in note for note in run.meta.notes)


@pytest.mark.parametrize("names", [("train", "other"), ("seed1", "eval"), ("a/train", "b/eval"), ("train", "Training")])
def test_folders_of_several_runs(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        events(tmp_path / name, trained(20))
    with pytest.raises(UserError, match="event files of 2 runs"):
        read(tmp_path)


def test_the_verdict_of_a_watch_is_no_run(tmp_path: Path) -> None:
    events(tmp_path, trained(20))
    events(tmp_path / tensorboard.VERDICT, {step: {"grposcope/verdict": 1.0} for step in (10, 20)})
    run = read(tmp_path)
    assert run.steps == 20
    assert "grposcope/verdict" not in run.table
