"""Logs whose form misleads: the steps, rewards and evaluations that a person reads are the ones that are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trap_logs
from trap_logs import TRAPS, N, lines, rewards

from grposcope.core.errors import UserError
from grposcope.logs import Hints, read
from grposcope.logs.per_step import copies
from grposcope.logs.trainers import TRAINERS


@pytest.mark.parametrize("name", TRAPS)
def test_what_a_person_reads(tmp_path: Path, name: str) -> None:
    trap = TRAPS[name](tmp_path)
    run = read(trap.path, Hints(run=trap.run))
    there = ~np.isnan(run.table["reward"])
    np.testing.assert_array_equal(run.table["step"][there], trap.steps)
    np.testing.assert_allclose(run.table["reward"][there], trap.rewards)
    assert run.evaluations.step.tolist() == list(trap.evaluated)
    assert any(trap.said in note for note in (*run.meta.notes, "")), run.meta.notes
    assert not set(trap.absent) & run.table.keys()
    if trap.run is not None:
        with pytest.raises(UserError, match="2 runs"):
            read(trap.path)


def test_the_other_run_of_a_chart(tmp_path: Path) -> None:
    trap = TRAPS["two runs side by side in a CSV"](tmp_path)
    np.testing.assert_allclose(read(trap.path, Hints(run=2)).table["reward"], rewards(seed=2))
    with pytest.raises(UserError, match="1 calm-sea-1, 2 wild-fox-2"):
        read(trap.path, Hints(run=3))


def test_either_table_of_a_notebook(tmp_path: Path) -> None:
    """Tables whose steps overlap are of different runs: the longest, or the one that is asked for."""
    head = ("Step", "Training Loss", "reward")
    long = trap_logs.html(head, [(k, "0.01", 0.5 + 0.001 * k) for k in range(1, 31)])
    short = trap_logs.html(head, [(k, "0.01", 0.1 + 0.001 * k) for k in range(1, 21)])
    path = trap_logs.notebook(tmp_path / "n.ipynb", long, short)
    assert read(path).steps == 30
    assert read(path, Hints(run=2)).steps == 20
    with pytest.raises(UserError, match="no #3"):
        read(path, Hints(run=3))


def test_each_environment_of_rows(tmp_path: Path) -> None:
    run = read(TRAPS["environments in rows"](tmp_path).path)
    assert list(run.scopes) == ["math", "code"]
    np.testing.assert_allclose(run.scopes["math"].table["reward"], rewards())
    alone = read(tmp_path / "log.jsonl", Hints(scope="code"))
    np.testing.assert_allclose(alone.table["reward"], run.scopes["code"].table["reward"])
    assert alone.table["reward"][0] > alone.table["reward"][-1]
    with pytest.raises(UserError, match="has no environment 'cod'; it has math and code"):
        read(tmp_path / "log.jsonl", Hints(scope="cod"))


@pytest.mark.parametrize("block", [2, 6, 10])
def test_copies_of_a_staircase(block: int) -> None:
    steps = np.random.default_rng(block).normal(size=16)
    column = np.repeat(steps, block)
    found = copies(column)
    assert found is not None
    np.testing.assert_array_equal(column[~found], steps)
    cut = copies(column[1:])  # the first block is cut: its first row counts
    assert cut is not None
    np.testing.assert_array_equal(column[1:][~cut], steps)


def test_what_is_no_staircase() -> None:
    """Coarse values, a metric that stands still, and a schedule keep every row."""
    rng = np.random.default_rng(0)
    wrong = sum(copies(rng.integers(0, 3, 60) / 2) is not None for _ in range(2000))
    assert wrong <= 2
    assert copies(np.full(60, 0.5)) is None
    assert copies(np.r_[np.zeros(30), np.ones(30)]) is None
    assert copies(rng.normal(size=60)) is None


def test_a_learning_rate_in_steps_is_kept(tmp_path: Path) -> None:
    rate = np.repeat(np.geomspace(1e-5, 1e-7, 12), 4)
    rows = [{"step": k + 1, "reward": r, "lr": float(a)} for k, (r, a) in enumerate(zip(rewards(), rate, strict=True))]
    assert not np.isnan(read(lines(tmp_path / "a.jsonl", rows)).table["lr"]).any()


def test_a_map_takes_keys_exactly_as_they_stand(tmp_path: Path) -> None:
    """With the prefix that all keys have, with dots, and with metrics/ in front."""
    for prefix in ("train/", "metrics/train/", "train.", "run/"):
        rows = [{"step": k, f"{prefix}quality": r, f"{prefix}loss": 0.1, f"{prefix}other": 2.0 * r, f"{prefix}kl": 0.1}
                for k, r in enumerate(rewards().tolist())]  # fmt: skip
        path = lines(tmp_path / "log.jsonl", rows)
        with pytest.raises(UserError):
            read(path)
        run = read(path, Hints(columns={"reward": f"{prefix}quality"}))
        np.testing.assert_allclose(run.table["reward"], rewards())
        assert run.keys["reward"] == f"{prefix}quality"


def test_every_trainer_says_what_it_lacks() -> None:
    for trainer in TRAINERS.values():
        assert trainer.name in ("grposcope", "tinker") or trainer.how_to_log, trainer.name


def test_last_evaluation_is_kept(tmp_path: Path) -> None:
    """One evaluation after the last row of training is that of the final weights."""
    rows = [{"step": k + 1, "reward": r} | ({"eval/reward": r} if k % 8 == 0 else {}) for k, r in enumerate(rewards())]
    rows.append({"step": N + 1, "eval/reward": 0.9})
    run = read(lines(tmp_path / "log.jsonl", rows))
    assert run.evaluations.step.tolist()[-1] == N + 1


@pytest.mark.parametrize("gap", ["missing rows", "missing values", "rows again"])
def test_a_staircase_is_seen_although_a_stair_is_broken(gap: str) -> None:
    rng = np.random.default_rng(5)
    column = np.repeat(0.4 + 0.02 * rng.normal(size=40), 3)
    if gap == "missing rows":
        column = np.delete(column, np.arange(50, 57))
    elif gap == "missing values":
        column = column.copy()
        column[[7, 40, 77]] = np.nan
    else:
        column = np.concatenate([column[:61], 1.01 * column[61:66], column[61:]])
    found = copies(column)
    assert found is not None
    kept = column[~found & ~np.isnan(column)]
    assert 37 <= len(kept) <= 43
    assert (kept[1:] != kept[:-1]).all()
    smooth = 0.4 + 0.02 * np.round(rng.normal(size=120), 1)  # rounded, so that neighbours agree by chance
    assert copies(smooth) is None
