"""The tables that AReaL prints, as its StatsLogger writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.core.text import plain
from grposcope.logs import read

TOP, BETWEEN, BOTTOM = "╒════╤════╤════╤════╕", "├────┼────┼────┼────┤", "╘════╧════╧════╧════╛"


def table(reward: float, entropy: float) -> list[str]:
    """A table of four metrics in two columns."""
    return [
        TOP,
        f"│ ppo_actor/task_reward/avg     │  {reward:.4e} │ ppo_actor/update/grad_norm │ 2.0000e-01 │",
        BETWEEN,
        f"│ ppo_actor/update/entropy/avg  │ {entropy:.4e} │ timeperf/step/total        │ 8.8992e+01 │",
        BOTTOM,
    ]


def log(folder: Path, steps: int, tables: int = 1, head: bool = True, prefix: str = "") -> Path:
    """A console of AReaL in which each step has so many tables."""
    lines = ["20260814-01:00:00.000 Launcher INFO: starting"]
    for step in range(1, steps + 1):
        if head:
            lines.append(f"\x1b[92m(AReaL) 20260814-01:00:00.000 StatsLogger INFO: Epoch 1/3 Step {step}/20 "
                         f"Train step {step}/60 done.\x1b[0m")  # fmt: skip
        for part in range(tables):
            lines.append(f"20260814-01:00:00.000 StatsLogger INFO: Stats ({part + 1}/{tables}):")
            lines += table(0.1 * step + part, 0.4)
        lines.append("[FSDPEngine Rank 0] INFO: Microbatch #tokens (rank 0): [100]")
    path = folder / "main.log"
    path.write_text("\n".join(prefix + line for line in lines) + "\n")
    return path


@pytest.mark.parametrize("prefix", ["", "\x1b[36m(MasterWorker pid=11559)\x1b[0m "])
def test_a_row_per_step_with_all_columns_of_its_table(tmp_path: Path, prefix: str) -> None:
    run = read(log(tmp_path, 12, prefix=prefix))
    assert run.meta.engine == "areal"
    assert run.table["step"].tolist() == list(range(1, 13))
    np.testing.assert_allclose(run.table["reward"], 0.1 * np.arange(1, 13), rtol=1e-4)
    assert run.table["grad_norm"].tolist() == [0.2] * 12
    assert run.table["entropy_loss"].tolist() == [0.4] * 12
    assert run.table["seconds_step"].tolist() == [88.992] * 12


def test_several_tables_of_a_step_are_one_row_of_means(tmp_path: Path) -> None:
    run = read(log(tmp_path, 9, tables=2))
    np.testing.assert_allclose(run.table["reward"], 0.1 * np.arange(1, 10) + 0.5, rtol=1e-4)


def test_tables_without_steps_are_counted(tmp_path: Path) -> None:
    run = read(log(tmp_path, 9, head=False))
    assert run.table["step"].tolist() == list(range(1, 10))


def test_a_step_that_was_resumed_and_one_that_is_being_written(tmp_path: Path) -> None:
    path = log(tmp_path, 9)
    path.write_text(path.read_text() + "Train step 10/60 done.\n" + TOP + "\n│ ppo_actor/task_reward/avg │ 9.0")
    assert read(path).table["step"].tolist() == list(range(1, 10))


def test_tables_of_words_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    path.write_text("│ rollout/policy │ none │\n" * 9)
    with pytest.raises(UserError) as caught:
        read(path)
    assert "main.log" in plain(str(caught.value))
