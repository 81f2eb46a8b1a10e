"""ART's console: a row per step, and whether the trainer made an update of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grposcope import read

SKIPPED = "Skipping tuning as there is no suitable data.\nAdvanced step from {} to {} (no training occurred)\n"


def bar(kind: str, done: int, of: int, **values: float) -> str:
    pairs = "".join(f", {key}={value}" for key, value in values.items())
    return f"{kind}: {100 * done // of:3d}%|####      | {done}/{of} [00:36<00:00,  4.0s/it{pairs}]"


def test_a_row_is_what_the_bars_say_last_and_whether_there_was_an_update(tmp_path: Path) -> None:
    text = bar("gather", 1, 4, reward=0.1) + "\r" + bar("gather", 4, 4, reward=0.5, win=0.25) + "\n"
    text += SKIPPED.format(0, 1)
    text += bar("gather", 4, 4, reward=0.75, win=0.5) + "\n" + bar("train", 2, 2, loss=0.1, grad_norm=0.3) + "\n"
    text += bar("gather", 1, 4, reward=0.9) + "\r" + bar("gather", 4, 4, reward=1.0, win=0.75) + "\n"
    text += SKIPPED.format(2, 3)
    path = tmp_path / "train.log"
    path.write_text(text)
    run = read(path)
    assert run.meta.engine == "art"
    np.testing.assert_allclose(run.table["reward"], [0.5, 0.75, 1.0])
    np.testing.assert_allclose(run.table["trained"], [0, 1, 0])
    np.testing.assert_allclose(run.table["win"], [0.25, 0.5, 0.75])
    np.testing.assert_allclose(run.table["grad_norm"], [np.nan, 0.3, np.nan])
    np.testing.assert_allclose(run.steps and run.table["step"], [1, 2, 3])


def test_steps_without_a_word_about_an_update_are_not_known_to_be_trained(tmp_path: Path) -> None:
    text = "".join(
        bar("gather", 1, 2, reward=step / 10) + "\r" + bar("gather", 2, 2, reward=step) + "\n" for step in range(3)
    )
    path = tmp_path / "train.log"
    path.write_text(text + SKIPPED.format(2, 3))
    run = read(path)
    np.testing.assert_allclose(run.table["reward"], [0, 1, 2])
    np.testing.assert_allclose(run.table["trained"], [np.nan, np.nan, 0])
