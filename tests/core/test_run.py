"""Reading the record: equal to a plain reading line by line, at any moment of a run, and clear about what is broken."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.core.files import dumps
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Groups
from grposcope.logs import read
from grposcope.logs.native import reader
from grposcope.logs.native.reader import Lines
from grposcope.logs.native.schema import RunConfig
from grposcope.logs.native.writer import RunWriter

PLAIN = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.make(tmp_path_factory.mktemp("runs") / "healthy", steps=30)


def plainly(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def number(value: Any) -> float:
    return PLAIN[value] if isinstance(value, str) else float(value)


def minimal(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"format": 2, "settings": {}}')
    for name, text in files.items():
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_columns_equal_the_lines(folder: Path) -> None:
    run, rows = read(folder), plainly(folder / "steps.jsonl")
    assert run.steps == 30
    assert list(run.table) == list(rows[0])
    for name, column in run.table.items():
        np.testing.assert_array_equal(column, [number(row[name]) for row in rows], err_msg=name)
        assert column.dtype == np.float64
    assert run.nonfinite == {}, "kl is not defined in this run"


def test_groups_equal_the_lines(folder: Path) -> None:
    groups, rows = read(folder).groups, plainly(folder / "groups.jsonl")
    assert len(groups) == len(rows) == 240
    for i, row in enumerate(rows):
        part = slice(groups.offsets[i], groups.offsets[i + 1])
        assert groups.step[i] == row["step"]
        assert groups.problems[groups.problem[i]] == row["problem"]
        assert groups.rewards[part].tolist() == row["rewards"]
        assert groups.truncated is not None
        assert groups.truncated[part].tolist() == row["truncated"]


def test_evaluations_equal_the_lines(folder: Path) -> None:
    evaluations, rows = read(folder).evaluations, plainly(folder / "evals.jsonl")
    assert evaluations.metrics == ("pass@1", "pass@2", "pass@4")
    first = evaluations.of("pass@2")
    assert first.step.tolist() == [row["step"] for row in rows]
    assert first.value.tolist() == [row["pass@2"]["value"] for row in rows]
    assert first.se.tolist() == [row["pass@2"]["se"] for row in rows]
    assert first.n.tolist() == [200] * len(rows)


def test_rollouts_are_loaded_when_asked_for(folder: Path) -> None:
    run = read(folder)
    assert list(run.rollouts) == [10, 20, 30]
    rollouts = run.rollouts[20]
    assert len(rollouts) == 24
    one = rollouts[9]
    assert (one.problem, one.prompt, one.index) == ("train-1", "41-1+20=", 1)
    assert one.completion == "".join(one.tokens)
    assert len(one.sampler) == len(one.entropy) == len(one.tokens)
    assert one.loss_weights is not None
    assert (one.sampler < 0).all()


def test_rollouts_may_lack_weights(tmp_path: Path) -> None:
    table = pa.parquet.read_table(synthetic.make(tmp_path / "run", steps=10) / "rollouts" / "step-000010.parquet")
    pa.parquet.write_table(table.drop_columns("weight"), tmp_path / "run" / "rollouts" / "step-000010.parquet")
    assert read(tmp_path / "run").rollouts[10][0].loss_weights is None


def test_a_broken_rollout_file_is_named(tmp_path: Path) -> None:
    run = read(synthetic.make(tmp_path / "run", steps=10))
    (tmp_path / "run" / "rollouts" / "step-000010.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(UserError, match=r"step-000010\.parquet"):
        run.rollouts[10]


def test_the_first_format_is_read(tmp_path: Path) -> None:
    run = read(synthetic.make(tmp_path / "old", steps=12, version=1))
    assert run.steps == 12
    assert run.groups.truncated is None
    assert len(run.groups) == 96
    assert "truncated" not in run.table
    assert run.phase is None
    assert run.meta.status == "finished"
    assert not run.rollouts


def test_what_the_writer_writes_is_read(tmp_path: Path) -> None:
    row = {"step": 1, "reward": 0.5, "kl": math.nan, "grad_norm": math.inf, "probe_stable_rank": 1.9}
    logp, entropy, weight = np.array([-0.5, -1.5]), np.array([0.1, 0.2]), np.array([0.0, -0.25])
    sample = Rollout(
        problem="p", prompt="1+1=", index=0, completion="2\x1b", reward=1.0, truncated=False, tokens=("2", "\x1b"),
        sampler=logp, entropy=entropy, loss_weights=weight,
    )  # fmt: skip
    with RunWriter.create(tmp_path / "run", RunConfig(settings={"steps": 1})) as record:
        record.phase("sampling", 0, 1)
        assert read(tmp_path / "run").meta.status == "running"
        record.step(row)
        record.group([{"step": 1, "problem": 'is "x" = \\ é?', "rewards": [0.0, math.nan], "truncated": [True, False]}])
        record.evaluation({"step": 1, "pass@1": {"value": 0.5, "se": math.nan, "n": 1, "flag": "one value"}})
        record.rollouts(1, [sample])
        record.phase("finished", 1, 1)
    run = read(tmp_path / "run")
    table = {name: column[0] for name, column in run.table.items() if name not in ("kl", "time")}
    assert table == {name: value for name, value in row.items() if name != "kl"}
    assert run.nonfinite == {"grad_norm": 1}
    assert run.groups.problems == ('is "x" = \\ é?',)
    np.testing.assert_array_equal(run.groups.rewards, [0.0, math.nan])
    assert math.isnan(run.evaluations.se[0])
    assert run.meta.status == "finished"
    (one,) = run.rollouts[1]
    assert (one.problem, one.completion, one.tokens) == ("p", "2\x1b", ("2", "\x1b"))
    assert (one.sampler.tolist(), one.loss_weights.tolist()) == ([-0.5, -1.5], [0.0, -0.25])


values = st.one_of(st.floats(width=64), st.integers(-(2**53), 2**53), st.booleans())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b ", "NaN?", "é", "a,b", "c:d", 'q"t']), values, max_size=5), max_size=12
    )
)
def test_any_table_survives(rows: list[dict[str, float]]) -> None:
    """Any columns, in some lines or in all, are read back as they were written, bit for bit."""
    rows = [{"step": i, **row} for i, row in enumerate(rows)]
    data = "".join(dumps(row) + "\n" for row in rows).encode()
    table = reader.columns(Lines(Path("steps.jsonl"), data))
    assert set(table) == {name for row in rows for name in row}
    for name, column in table.items():
        expected = np.array([float(row.get(name, math.nan)) for row in rows])
        np.testing.assert_array_equal(column, expected, err_msg=name)


texts = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), texts, st.lists(st.tuples(st.floats(), st.booleans()), max_size=4))),
    st.booleans(),
)
def test_any_groups_survive(table: list[tuple[int, str, list[tuple[float, bool]]]], flags: bool) -> None:
    """Any problem id, any rewards, ragged or not, with and without flags, are read back as they were written."""
    rows = []
    for step, problem, outcomes in table:
        row: dict[str, Any] = {"step": step, "problem": problem, "rewards": [r for r, _ in outcomes]}
        rows.append({**row, "truncated": [t for _, t in outcomes]} if flags else row)
    lines = Lines(Path("groups.jsonl"), "".join(dumps(row) + "\n" for row in rows).encode())
    groups = reader.read_groups(lines)
    np.testing.assert_array_equal(groups.rewards, np.array([r for row in rows for r in row["rewards"]], float))
    assert groups.sizes.tolist() == [len(row["rewards"]) for row in rows]
    assert [groups.problems[i] for i in groups.problem] == [row["problem"] for row in rows]
    assert groups.step.tolist() == [row["step"] for row in rows]
    assert (groups.truncated is not None) == (flags and bool(rows))


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_unfinished_last_line_is_left_out(folder: Path, tmp_path: Path, cut: int) -> None:
    """A run is read while it is written: whatever part of the last lines is there."""
    whole = {name: (folder / f"{name}.jsonl").read_bytes() for name in ("steps", "groups", "evals")}
    minimal(tmp_path)
    for name, data in whole.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data[:-cut])
    run = read(tmp_path)
    finished = cut == 1  # only the newline is missing
    assert run.steps == (30 if finished else 29)
    assert len(run.groups) == (240 if finished else 239)
    assert len(run.meta.notes) == (0 if finished else 3)


def test_a_run_that_has_hardly_begun_is_empty(tmp_path: Path) -> None:
    run = read(minimal(tmp_path))
    assert run.steps == 0
    assert len(run.groups) == len(run.evaluations) == len(run.rollouts) == 0
    assert run.meta.status == "unknown"
    (tmp_path / "steps.jsonl").write_text('{"step": 1, "rew')
    (tmp_path / "phase.json").write_text('{"step": 1, "pha')
    assert read(tmp_path).steps == 0


def test_zeros_after_a_crash_are_no_line(tmp_path: Path) -> None:
    (minimal(tmp_path) / "steps.jsonl").write_bytes(b'{"step": 1}\n' + bytes(4096))
    assert read(tmp_path).steps == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("steps", '{"step": 1}\n{"step": 2, "rew\n{"step": 3}\n', r"steps\.jsonl, line 2: not valid JSON"),
        ("steps", '{"step": 1}\n[2]\n', "line 2: a JSON list, not an object"),
        ("steps", '{"step": 1}\n{"reward": 2}\n', "line 2: no step number"),
        ("steps", '{"step": 1, "reward": 1}\n{"step": 2, "reward": "many"}\n', "line 2: reward is not a number"),
        ("steps", '{"step": 2}\n\n{"step": 1}\n', "line 3: step 1 follows step 2"),
        ("steps", '{"step": 1}\n{"step": 1}\n', "line 2: step 1 follows step 1"),
        ("groups", '{"step": 1, "problem": "a", "rewards": [0.0}\n' * 2, r"groups\.jsonl, line 1: not valid JSON"),
        (
            "groups",
            '{"step": 1, "problem": "a", "rewards": 1}\n',
            "line 1: rewards, truncated and the columns beside them",
        ),
        (
            "groups",
            '{"step": 1, "problem": "a", "rewards": [1], "truncated": []}\n',
            "line 1: rewards, truncated and the columns beside them",
        ),
        ("groups", '{"step": 1, "problem": 3, "rewards": [1]}\n', "line 1: no step number or no problem id"),
        ("evals", '{"step": 1, "pass@1": {"value": 1}}\n', "line 1: pass@1 lacks value, se or n"),
        ("evals", '{"pass@1": {"value": 1}}\n', "line 1: no step number"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        read(minimal(tmp_path, **{name: text}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('{"format": 3}', "has record format 3, and this grposcope reads formats up to 2; upgrade"),
        ('{"form', "not valid JSON"),
        ('{"model_type": "llama"}', "grposcope train did not write its config.json"),
        ("[]", "did not write its config.json"),
    ],
)
def test_other_configurations_are_refused(tmp_path: Path, config: str, words: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(UserError, match=words):
        read(tmp_path)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"has no config\.json and no log that can be read"):
        read(tmp_path)
    with pytest.raises(UserError, match="is empty"):
        read(tmp_path / "file")
    with pytest.raises(UserError, match="there is no"):
        read(tmp_path / "nowhere")


def test_an_unreadable_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: Any) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=r"cannot read .*config\.json: Permission denied; change its permissions"):
        read(folder)


@pytest.mark.parametrize(
    ("phase", "status"), [("sampling", "running"), ("finished", "finished"), ("failed", "failed"), (None, "unknown")]
)
def test_status(tmp_path: Path, phase: str | None, status: str) -> None:
    minimal(tmp_path)
    if phase:
        (tmp_path / "phase.json").write_text(json.dumps({"phase": phase, "step": 1}).ljust(200))
    assert read(tmp_path).meta.status == status


def test_the_rooms_import_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, grposcope.logs; print([m for m in ('pyarrow', 'torch', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_groups_know_their_sizes() -> None:
    empty = np.zeros(2, np.int64)
    assert Groups(empty, empty, ("a",), np.zeros(5), np.array([0, 2, 5])).sizes.tolist() == [2, 3]
