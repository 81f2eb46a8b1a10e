"""The bench of trained faults: its logs in other words, what it counts, and a remedy that makes the sign go."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from grposcope import read
from grposcope.faults.catalogue import faults
from grposcope.signs.ladder import RUNGS

BENCH = str(Path(__file__).parents[2] / "benchmarks" / "faults")


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [BENCH, *sys.path])


def record(folder: Path) -> Path:
    """A made-up training in the files that the dialects read."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = ("reward", "reward_std", "dead_fraction", "entropy", "kl", "length", "truncated", "loss", "grad_norm",
             "clip_low", "clip_high", "lr")  # fmt: skip
    steps = [{"step": k + 1, **dict(zip(names, rng.random(len(names)).tolist(), strict=True))} for k in range(12)]
    noted = [{"step": k + 1, "reward_max": 1.0, "reward_min": 0.0, "advantage_max": 1.0, "advantage_min": -1.0,
              "reward_std_batch": 0.4, "length_max": 20.0, "length_min": 2.0} for k in range(12)]  # fmt: skip
    groups = [{"step": k + 1, "problem": f"p{k}"} for k in range(12)]
    evals = [{"step": step, "pass@1": {"value": step / 100}} for step in (0, 6, 12)]
    for name, rows in {"steps": steps, "noted": noted, "groups": groups, "evals": evals}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("name", ["trl", "verl", "slime", "skyrl", "prime-rl", "nemo-rl", "roll", "ms-swift"])
def test_a_training_in_the_words_of_a_trainer_is_read_as_that_trainers_with_its_values(
    name: str, tmp_path: Path
) -> None:
    import dialects

    folder, path = record(tmp_path / "run"), tmp_path / "log.jsonl"
    dialects.write(folder, name, path)
    run, rows = read(path), dialects.rows_of(folder)
    assert run.meta.engine == name
    for metric in ("reward", "grad_norm", "lr", "length"):
        np.testing.assert_allclose(run.table[metric][-12:], [row[metric] for row in rows])
    held_out = dialects.EVALUATIONS.get(name)
    assert bool(len(run.evaluations)) == (held_out is not None)
    known = {key for keys in dialects.TRAINERS[name].keys.values() for key in keys}
    written = set().union(*(json.loads(line) for line in path.read_text().splitlines()))
    assert written - {"step", held_out} <= known


def test_every_name_that_is_right_is_in_the_catalogue_or_a_rung() -> None:
    import trained_faults

    names = {name for fault in trained_faults.FAULTS for name in fault.right}
    assert {name for name in names if not name.startswith("rung ")} <= set(faults())
    assert len(RUNGS) == 8
    assert {fault.sound for fault in trained_faults.FAULTS} <= set(trained_faults.SOUND)


def test_weights_put_the_sign_of_the_fault_first_and_count_as_the_table_says() -> None:
    import trained
    from worlds import none

    def judged(name: str, causes: tuple[str, ...], faulty: bool = True) -> trained.Judged:
        return trained.Judged(trained.Training(name, 0, none, {}, faulty), "trl", causes, (), bool(causes), True, "")

    logs = [judged("rate 0", ("starved", "zero learning rate"))] * 5
    logs += [judged("grader pays nothing", ("starved", "never paid"))] * 5 + [judged("base", (), faulty=False)] * 5
    assert trained.rights(logs[0], 2)
    assert not trained.rights(logs[0], 1)
    ranks, weights = trained.weighted(logs, logs)[-3:-1]
    assert "0 of 10 (0%) | 10 of 10" in ranks
    assert "10 of 10 (100%) | 10 of 10" in weights
    assert "| all | 0 of 10 (0%) | 10 of 10 (100%) | 0 | 0 of 5 (0%) | 0 |" in trained.table(logs, "Made up")


@pytest.mark.slow
def test_the_remedy_of_the_catalogue_makes_the_sign_of_a_temperature_of_0_go(tmp_path: Path) -> None:
    import trained
    from trained_faults import FAULTS

    fault = next(fault for fault in FAULTS if fault.name == "temperature 0")
    assert "temperature 1" in faults()[fault.right[0]].remedy
    before, after = trained.of_fault(fault, 5, steps=40), trained.remedied(fault, 5)
    trained.make([before, trained.replace(after, settings={**after.settings, "steps": 40})], tmp_path)
    assert trained.judge(before, "grposcope", tmp_path).causes[0] == "greedy sampling"
    assert not set(trained.judge(after, "grposcope", tmp_path).causes) & set(fault.right)
