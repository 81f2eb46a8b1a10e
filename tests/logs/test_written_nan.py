"""NaN that a trainer wrote, told from a value that it did not write, through every reader to the verdict."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import synthetic_series
import trainer_logs

from grposcope.core.files import WRITTEN_NAN, dumps
from grposcope.core.finding import Finding
from grposcope.core.not_finite import is_written_nan
from grposcope.core.run import Run
from grposcope.faults.record.non_finite import LASTS, OF_BACKWARD, OF_REWARD
from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import Hints, read
from grposcope.logs.formats.log_file import json_row
from grposcope.logs.native.schema import RunConfig
from grposcope.logs.native.writer import RunWriter
from grposcope.logs.tail import Pace
from grposcope.watch.alarms import Alarms
from grposcope.watch.follow import Watcher

Table = Mapping[str, list[Any]]

ROWS = 100
METRICS = ("loss", "grad_norm", "kl", "entropy", "reward")
SHARES = (1, 5, 10, 20, 55, 70, 90)


def healthy(seed: int = 0) -> dict[str, list[Any]]:
    """Columns of a healthy run, its steps first."""
    columns = synthetic_series.healthy(seed, ROWS)
    return {"step": list(range(1, ROWS + 1)), **{name: column.tolist() for name, column in columns.items()}}


def broken(metric: str, rows: list[int], value: float = math.nan) -> dict[str, list[Any]]:
    """The healthy run with the value in these rows of the metric."""
    table = healthy()
    for row in rows:
        table[metric][row] = value
    return table


def at_the_end(share: int) -> list[int]:
    return list(range(ROWS - share, ROWS))


def scattered(share: int) -> list[int]:
    """Rows at no regular distance, the last and the first not among them."""
    return sorted(random.Random(share).sample(range(1, ROWS - 1), share))


def json_lines(table: Table, word: str) -> bytes:
    lines = (json.dumps(row).replace("NaN", word) for row in hostile.rows_of(table))  # type: ignore[arg-type]
    return "".join(f"{line}\n" for line in lines).encode()


def csv_table(table: Table) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return out.getvalue().encode()


def key_values(table: Table) -> bytes:
    rows = hostile.rows_of(table)  # type: ignore[arg-type]
    return "".join(", ".join(f"{key}: {value}" for key, value in row.items()) + "\n" for row in rows).encode()


def of(make: Callable[..., bytes]) -> Callable[[Path, Table], bytes]:
    return lambda folder, table: make(folder, np.random.default_rng(1), table)


FORMS: dict[str, Callable[[Path, Table], bytes]] = {
    "literal.jsonl": lambda folder, table: json_lines(table, "NaN"),
    "string.jsonl": lambda folder, table: json_lines(table, '"NaN"'),
    "lower.jsonl": lambda folder, table: json_lines(table, '"nan"'),
    "bare.jsonl": lambda folder, table: json_lines(table, "nan"),
    "document.json": lambda folder, table: json.dumps(table).encode(),
    "table.csv": lambda folder, table: csv_table(table),
    "values.log": lambda folder, table: key_values(table),
    "trainer_state.json": of(hostile.as_trainer_state),
    "trl.log": of(hostile.as_printed),
    "verl.log": of(hostile.as_verl_console),
    "verl.jsonl": of(hostile.as_verl_lines),
    "openrlhf.log": of(hostile.as_openrlhf),
    "run-1.wandb": of(hostile.as_wandb),
    "events.out.tfevents.1": of(hostile.as_events),
    "train.ipynb": of(hostile.as_notebook),
}


def written(folder: Path, form: str, table: Table) -> Run:
    """The run in a log of this form."""
    if form == "our own record":
        with RunWriter.create(folder / "run", RunConfig()) as record:
            for row in hostile.rows_of(table):  # type: ignore[arg-type]
                record.step(row)
        return read(folder / "run")
    path = folder / form
    path.write_bytes(FORMS[form](folder, table))
    return read(path)


def lost(run: Run) -> Finding:
    """What the rule of values that are not finite finds."""
    return next(finding for finding in diagnose(run) if finding.source and finding.fault == "non-finite")


@pytest.mark.parametrize("form", [*FORMS, "our own record"])
@pytest.mark.parametrize("metric", METRICS)
def test_every_reader_keeps_a_written_nan(tmp_path: Path, form: str, metric: str) -> None:
    table = broken(metric, at_the_end(10))
    table["length"][50] = None
    finding = lost(written(tmp_path, form, table))
    assert (finding.status, finding.onset) == ("present", ROWS - 9)
    assert finding.grade == "failing"
    assert "on 10 rows" in finding.because


@pytest.mark.parametrize("form", [*FORMS, "our own record"])
def test_a_healthy_log_with_gaps_is_not_flagged(tmp_path: Path, form: str) -> None:
    table = healthy()
    for name, row in itertools.product(("kl", "entropy"), (20, 41, 42, 99)):
        table[name][row] = "" if form.endswith((".csv", ".ipynb")) else None
    assert lost(written(tmp_path, form, table)).status == "excluded"


@pytest.mark.slow
@pytest.mark.parametrize("where", [at_the_end, scattered])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("metric", METRICS)
def test_any_share_of_nan_is_flagged(
    tmp_path: Path, metric: str, share: int, where: Callable[[int], list[int]]
) -> None:
    rows = where(share)
    finding = lost(written(tmp_path, "literal.jsonl", broken(metric, rows)))
    assert (finding.status, finding.onset) == ("present", rows[0] + 1)
    lasting = where is at_the_end and (share > 1 or metric in ("loss", "grad_norm", "reward"))
    assert finding.grade == ("failing" if lasting else "warning")


@pytest.mark.slow
def test_watch_fails_at_the_first_row(tmp_path: Path) -> None:
    """A log of another trainer and a record of our own, row by row; no row is waited for."""
    for metric, first in itertools.product(("loss", "grad_norm", "reward"), (5, 70)):
        rows = hostile.rows_of(broken(metric, list(range(first, ROWS))))
        place = tmp_path / f"{metric}-{first}"
        with RunWriter.create(place, RunConfig()) as record:
            watcher, alarms = Watcher(place), []
            for row in rows[: first + 3]:
                record.step(row)
                alarms += [alarm for alarm in watcher.look(0.0) if alarm.fault == "non-finite"]
        assert [(alarm.seen, alarm.onset, alarm.grade) for alarm in alarms] == [(first + 1, first + 1, "failing")]
        log = place.with_suffix(".jsonl")
        watcher, alarms = Watcher(log), []
        watcher._pace = Pace(1.0)
        for end in range(first - 2, first + 3):
            log.write_text("".join(json.dumps(row) + "\n" for row in rows[:end]))
            alarms += [alarm for alarm in watcher.look(0.0) if alarm.fault == "non-finite"]
        assert [(alarm.seen, alarm.onset, alarm.grade) for alarm in alarms] == [(first + 1, first + 1, "failing")]


def test_lost_entropy_warns_at_once_and_fails_once_it_lasts(tmp_path: Path) -> None:
    rows, alarms, looks = hostile.rows_of(broken("entropy", list(range(70, ROWS)))), Alarms(), []
    for end in range(65, ROWS):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[:end]))
        run = read(path)
        if alarms.urgent(run) or alarms.due(run.steps):
            looks += [(alarm.seen, alarm.grade) for alarm in alarms.look(run) if alarm.fault == "non-finite"]
    assert looks[0] == (71, "warning")
    assert looks[1][1] == "failing"


def twinkle_events(folder: Path, lost: Callable[[dict[str, Any]], object]) -> Run:
    """A run of Twinkle in lines of several kinds, of which the updates alone count steps; `lost` changes the last."""
    path, lines = folder / "metrics.jsonl", []
    for step in range(1, 61):
        update = {
            "loss": f"{0.01 * (step % 5):.4f}", "grad_norm": f"{0.02 + 0.001 * (step % 7):.6f}", "optimizer_step": step,
            "learning rate(param group 1)": "1.7e-05", "reward": 0.4 + 0.005 * step + 0.01 * (step % 3),
        }  # fmt: skip
        if step > 46:
            lost(update)
        for event, metrics in (("rollout_done", {"output_tokens": 1672}), ("train_step_done", update)):
            lines.append(json.dumps({"event": event, "policy_version": step - 1, "metrics": metrics}))
    path.write_text("\n".join(lines) + "\n")
    return read(path, Hints(columns={"step": "metrics/optimizer_step"}))


def test_a_key_that_is_no_longer_in_the_rows_is_no_nan(tmp_path: Path) -> None:
    run = twinkle_events(tmp_path, lambda update: update.pop("grad_norm"))
    assert (run.steps, run.nonfinite) == (60, {})
    assert lost(run).status == "excluded"
    assert lost(twinkle_events(tmp_path, lambda update: update.update(grad_norm=None))).grade == "failing"
    assert lost(twinkle_events(tmp_path, lambda update: update.update(grad_norm="nan"))).grade == "failing"


def test_a_null_is_no_nan_where_no_value_is_due(tmp_path: Path) -> None:
    """Nulls in rows of other kinds, and between rows at a regular interval."""
    table = healthy()
    table["grad_norm"] = [value if step % 5 == 0 else None for step, value in enumerate(table["grad_norm"])]
    assert lost(written(tmp_path, "literal.jsonl", table)).status == "excluded"
    table = broken("grad_norm", at_the_end(20))
    table["grad_norm"] = [None if math.isnan(value) else value for value in table["grad_norm"]]
    finding = lost(written(tmp_path, "literal.jsonl", table))
    assert (finding.status, finding.onset) == ("present", ROWS - 19)


def test_a_metric_that_is_nan_from_the_start_is_not_measured(tmp_path: Path) -> None:
    for metric in ("kl", "entropy"):
        assert lost(written(tmp_path, "string.jsonl", broken(metric, list(range(ROWS))))).status == "excluded"
    for metric in ("loss", "grad_norm", "reward"):
        assert lost(written(tmp_path, "string.jsonl", broken(metric, list(range(ROWS))))).grade == "failing"


def test_a_metric_at_a_regular_interval_with_nan_between(tmp_path: Path) -> None:
    table = broken("kl", [row for row in range(ROWS) if row % 10])
    assert lost(written(tmp_path, "table.csv", table)).status == "excluded"
    table["kl"][60:] = [math.nan] * 40
    assert lost(written(tmp_path, "table.csv", table)).grade == "failing"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_reward_that_is_not_finite_has_its_own_advice(tmp_path: Path, value: float) -> None:
    table = broken("reward", [50], value)
    assert lost(written(tmp_path, "literal.jsonl", table)).remedy == OF_REWARD
    table["grad_norm"][51:] = [math.nan] * 49
    assert lost(written(tmp_path, "literal.jsonl", table)).remedy == OF_REWARD
    table["grad_norm"][49] = math.nan
    first = lost(written(tmp_path, "literal.jsonl", table)).remedy
    assert first == OF_BACKWARD + LASTS, "the gradient was first"


def trl_state(folder: Path, rows: Mapping[int, Mapping[str, Any]]) -> Path:
    """A state of TRL of 40 rows, of which these have other values."""
    return trainer_logs.trainer_state(
        folder / "state.json", [trainer_logs.trl_row(step, **rows.get(step, {})) for step in range(1, 41)]
    )


def test_metrics_of_trl_without_a_term_are_excepted(tmp_path: Path) -> None:
    """As TRL writes them: no completion ended, one in a group, no token that counts, a function without a reward."""
    never = {
        "completions/mean_terminated_length": math.nan, "clip_ratio/low_mean": math.nan, "reward_std": math.nan,
        "rewards/right/mean": math.nan, "rewards/right/std": math.nan,
    }  # fmt: skip
    no_token = {"completions/clipped_ratio": 1.0, "loss": 0.0, "kl": math.nan, "entropy": math.nan}
    path = trl_state(tmp_path, {7: never, 12: no_token, 40: {**never, **no_token}})
    assert lost(read(path)).status == "excluded"
    lost_kl = trl_state(tmp_path, {12: {"kl": math.nan}})
    assert lost(read(lost_kl)).status == "present"
    assert lost(read(lost_kl, {"kl": 0.0})).status == "excluded", "no KL with beta = 0"
    garbage = {step: {**no_token, "loss": math.nan, "grad_norm": math.nan} for step in range(30, 41)}
    finding = lost(read(trl_state(tmp_path, garbage)))
    assert (finding.grade, finding.onset) == ("failing", 30)


def test_rows_of_one_step_keep_what_was_written(tmp_path: Path) -> None:
    """A value wins over NaN in parts of a row; of micro-batches, one NaN makes the mean one."""
    path = tmp_path / "log.jsonl"
    parts = [{"step": s, name: v} for s in range(1, 41) for name, v in (("reward", 0.5 + 0.01 * (s % 7)), ("kl", 0.1))]
    parts[-1]["kl"], parts[20]["kl"] = math.nan, None
    parts[21] = {"step": 11, "kl": math.nan}
    parts[22], parts[23] = {"step": 12, "kl": math.nan}, {"step": 12, "kl": 0.2, "reward": 0.5}
    path.write_text("".join(json.dumps(row) + "\n" for row in parts))
    run = read(path)
    assert np.flatnonzero(is_written_nan(run.table["kl"])).tolist() == [10, 39]
    assert run.table["kl"][11] == 0.2
    assert not is_written_nan(run.table["reward"]).any()
    draws = np.random.default_rng(0).normal(size=(40, 4))
    batches = [{"step": s + 1, "reward": draws[s, k], "kl": 0.1} for s in range(40) for k in range(4)]
    batches = [{name: v for name, v in row.items() if name != "kl" or k % 2 == 0} for k, row in enumerate(batches)]
    batches[30]["kl"] = math.nan
    path.write_text("".join(json.dumps(row) + "\n" for row in batches))
    run = read(path)
    assert run.steps == 40
    assert np.flatnonzero(is_written_nan(run.table["kl"])).tolist() == [7]


def test_the_record_says_nan_again(tmp_path: Path) -> None:
    """JSON of a table has the same words for it, whichever of the two a NaN is."""
    assert dumps([WRITTEN_NAN, math.nan]) == '["NaN", "NaN"]'
    assert math.isnan(WRITTEN_NAN)
    assert is_written_nan(np.array([WRITTEN_NAN, math.nan, 1.0, -math.nan, math.inf])).tolist() == [True] + 4 * [False]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": nan, "b": [-nan, 1]}', {"a": math.nan, "b": [math.nan, 1]}),
        ('{"a": -inf, "b":inf,"c": +Infinity }', {"a": -math.inf, "b": math.inf, "c": math.inf}),
        ('{"a": nano}', None),
        ('{"a": "x, nan, y"}', {"a": "x, nan, y"}),
        ('{"a": [nan', None),
    ],
)
def test_bare_words_in_lines_of_json(text: str, values: dict[str, Any] | None) -> None:
    assert str(json_row(text.encode())) == str(values)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_rewards_of_rollouts_alone(tmp_path: Path, value: float) -> None:
    """Logs of verl's rollouts, of which the metrics are made: one lost score loses the reward of its step."""
    for step in range(1, 6):
        scores = [0.0, 1.0, value if step == 4 else 0.5, 1.0]
        rows = [{"input": f"p{k // 2}", "output": "x", "score": scores[k], "step": step} for k in range(4)]
        (tmp_path / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    finding = lost(read(tmp_path))
    assert (finding.onset, finding.remedy, finding.grade) == (4, OF_REWARD, "warning")


def test_completions_of_trl_without_a_reward_of_one_function(tmp_path: Path) -> None:
    """NaN is how TRL writes that a function returned None; infinity is infinity."""
    rewards = np.array([0.0, 1.0, 0.5, 1.0])
    columns = {"prompt": ["a", "a", "b", "b"], "completion": ["x"] * 4, "advantage": [0.1] * 4, "form": [0.5] * 4}
    path = tmp_path / "completions_00001.parquet"
    for value, status in ((math.nan, "excluded"), (math.inf, "present")):
        rewards[2] = value
        pyarrow.parquet.write_table(pa.table({"step": [1] * 4, **columns, "right": rewards}), path)
        assert lost(read(path)).status == status
