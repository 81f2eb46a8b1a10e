"""The steps of TRL's console output where other bars are drawn beside the training's, or its own are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from grposcope.logs import read

EVERY, ROWS, PER_EPOCH = 10, 12, 480


def row(step: int) -> str:
    """A row as TRL prints it."""
    return str({"loss": 0.01, "grad_norm": 0.4, "reward": round(0.3 + step / 1000, 4), "kl": 0.02,
                "epoch": round(step / PER_EPOCH, 4)})  # fmt: skip


def bar(step: int, of: int) -> str:
    """A progress bar of tqdm."""
    return f"{100 * step // of:3d}%|####      | {step}/{of} [00:10<10:00,  1.25s/it]"


def steps_of(folder: Path, lines: list[str]) -> list[int]:
    (folder / "out.log").write_text("\n".join(lines) + "\n")
    return read(folder / "out.log").table["step"].astype(int).tolist()


STEPS = [EVERY * (k + 1) for k in range(ROWS)]


def test_the_bar_of_an_evaluation_is_not_that_of_the_training(tmp_path: Path) -> None:
    lines = [line for s in STEPS for line in (bar(s, 200), row(s), bar(1, 60), bar(60, 60))]
    assert steps_of(tmp_path, lines) == STEPS


def test_weights_loaded_after_the_training_do_not_count_its_steps(tmp_path: Path) -> None:
    lines = [bar(0, 120), *map(row, STEPS), bar(120, 120), "Loading weights:", bar(36, 36)]
    assert steps_of(tmp_path, lines) == STEPS


def test_bars_that_follow_their_rows_in_an_output_without_its_beginning(tmp_path: Path) -> None:
    seen = [280 + s for s in STEPS]
    lines = [line for s in seen for line in (row(s), bar(s, 400))]
    assert steps_of(tmp_path, lines) == seen


def test_rows_whose_bar_was_filtered_out_have_the_step_of_their_epoch(tmp_path: Path) -> None:
    lines = [line for s in STEPS for line in ([] if s == 70 else [bar(s, 200)]) + [row(s)]]
    assert steps_of(tmp_path, lines) == STEPS


def test_the_last_rows_of_a_run_are_not_spread_over_all_of_it(tmp_path: Path) -> None:
    late = [s + 280 for s in STEPS]
    lines = [*map(row, late), bar(1200, 1200)]
    run = steps_of(tmp_path, lines)
    assert run == list(range(1, ROWS + 1)), "12 rows of 1,200 steps do not stand for 100 each: the epochs say so"


@pytest.mark.parametrize("of", [120, 200])
def test_rows_with_a_bar_each_keep_its_step(tmp_path: Path, of: int) -> None:
    assert steps_of(tmp_path, [line for s in STEPS for line in (bar(s, of), row(s))]) == STEPS
