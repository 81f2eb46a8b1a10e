"""Real logs of other people's runs: every row that a file holds is read, counted here by other means."""

from __future__ import annotations

import json
import math
import re
import struct
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from grposcope import logs as runs
from grposcope.core.errors import UserError
from grposcope.core.metrics import LOGGED, METRICS
from grposcope.logs import Run
from grposcope.logs.hints import LAST, Hints

DATA = ROOT.parent / "shared" / "data" / "runs"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real logs at {DATA}")

LOGS = sorted((DATA / "verl").glob("*.log")) if DATA.is_dir() else []
STATES = sorted((DATA / "trl").glob("*.json")) if DATA.is_dir() else []
NOTEBOOKS = sorted((DATA / "unsloth").glob("*.ipynb")) if DATA.is_dir() else []
LINES = sorted((DATA / "tinker").glob("*.jsonl")) if DATA.is_dir() else []


@cache
def read(path: Path) -> Run:
    """The run, of a log of several the last."""
    return runs.read(path, Hints(run=LAST))


def rows_of(run: Run) -> int:
    return sum(map(len, run.segments)) or run.steps


def name(path: Path) -> str:
    return path.stem.rpartition("__")[2]


@pytest.mark.parametrize("path", [*LOGS, *STATES, *NOTEBOOKS, *LINES], ids=name)
def test_every_file_is_a_run(path: Path) -> None:
    run = read(path)
    assert run.meta.engine == {"verl": "verl", "trl": "trl", "unsloth": "trl", "tinker": "tinker"}[path.parent.name]
    assert np.isfinite(run.table["reward"]).sum() >= 20
    assert (np.diff(run.table["step"]) > 0).all()
    assert all(column.shape == (run.steps,) for column in run.table.values())


@pytest.mark.parametrize("path", LOGS, ids=name)
def test_every_line_of_verl_is_read(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line.startswith("step:")]
    training = [line for line in lines if "critic/" in line or "actor/" in line or "global_seqlen" in line]
    run = read(path)
    assert run.steps == rows_of(run) == len(training)
    for line, at in zip(training, run.table["step"], strict=True):
        assert int(line[5 : line.index(" ")]) == at
    scores = [float(m[1]) for line in lines if (m := re.search(r"critic/score/mean:(-?[\d.e-]+) - ", line))]
    np.testing.assert_array_equal(run.table["reward"][np.isfinite(run.table["reward"])], scores)
    norms = [float(m[1]) for line in lines if (m := re.search(r"actor/grad_norm:np\.float64\((.*?)\)", line))]
    np.testing.assert_array_equal(run.table["grad_norm"][np.isfinite(run.table["grad_norm"])], norms)
    checked = [line for line in lines if " val-" in line]
    assert set(run.evaluations.step) == {int(line[5 : line.index(" ")]) for line in checked}
    assert len(run.evaluations) == sum(
        len(re.findall(r" val-\S+?:(?:np\.\w+\([^)]*\)|\S+(?= ))", line)) for line in checked
    )


@pytest.mark.parametrize("path", LOGS, ids=name)
def test_cut_lines_are_named(path: Path) -> None:
    cut = [
        k
        for k, line in enumerate(path.read_text().splitlines(), 1)
        if line.startswith("step:") and len(line) in (4095, 4096)
    ]
    note = next(note for note in read(path).meta.notes if "cut off" in note)
    assert note.startswith(f"{len(cut)} lines are cut off: {', '.join(map(str, cut[:8]))}")


def test_values_of_a_cut_line_are_right_or_absent() -> None:
    """The same run twice: what the cut text file has must equal the whole .wandb file, never a shortened number."""
    text, whole = read(DATA / "verl" / "short-healthy.log"), read(DATA / "verl" / "short-healthy.wandb")
    both = np.intersect1d(text.table["step"], whole.table["step"])
    assert len(both) == 48
    here, there = np.isin(text.table["step"], both), np.isin(whole.table["step"], both)
    for key in set(text.table) & set(whole.table):
        mine, theirs = text.table[key][here], whole.table[key][there]
        had = np.isfinite(mine)
        np.testing.assert_array_equal(mine[had], theirs[had], err_msg=key)
    assert np.isnan(text.table["reward"][here]).sum() == 4
    assert np.isfinite(whole.table["reward"]).all()
    kept = {
        (s, m): v
        for s, m, v in zip(whole.evaluations.step, whole.evaluations.metric, whole.evaluations.value, strict=True)
    }
    for step, metric, value in zip(text.evaluations.step, text.evaluations.metric, text.evaluations.value, strict=True):
        assert kept.get((step, metric), value) == value


def test_the_wandb_file_by_another_reading() -> None:
    """History records counted by a search for their step item, over the file with its framing taken out."""
    path = DATA / "verl" / "short-healthy.wandb"
    data, body, at = path.read_bytes(), bytearray(), 7
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, _ = struct.unpack_from("<IHB", data, at)
        body += data[at + 7 : at + 7 + size]
        at += 7 + size
    steps = [int(m[1]) for m in re.finditer(rb"\x12\x14training/global_step\x82\x01.([0-9]+)", bytes(body), re.S)]
    run = read(path)
    assert run.table["training/global_step"].tolist() == sorted(set(steps))
    assert run.steps == 48
    assert run.config["settings"]["group"] == 16
    assert run.config["logged"]["actor_rollout_ref"]["rollout"]["n"] == 16


def test_the_wandb_file_by_the_wandb_package() -> None:
    protocol = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    from grposcope.logs.formats import wandb
    from grposcope.logs.formats.log_file import LogFile

    run = read(DATA / "verl" / "short-healthy.wandb")
    rewards = []
    for data in wandb._records(LogFile(DATA / "verl" / "short-healthy.wandb")):
        record = protocol.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            rewards += [json.loads(items["critic/score/mean"])] if "critic/score/mean" in items else []
    np.testing.assert_array_equal(run.table["reward"], rewards)


@pytest.mark.parametrize("path", STATES, ids=name)
def test_every_row_of_the_trainer_state_is_read(path: Path) -> None:
    state = json.loads(path.read_text())
    run = read(path)
    assert run.steps == len(state["log_history"])
    for key in ("reward", "grad_norm", "loss", "reward_std"):
        np.testing.assert_array_equal(run.table[key], [row[key] for row in state["log_history"]])
    assert run.window == state["logging_steps"]
    assert "kl" not in run.table, "the KL of these versions is averaged over completions"
    assert run.keys["kl_sequence"] == "kl"


class Cells(HTMLParser):
    """Texts of the cells of a table's rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        self.inside = tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1].append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_every_row_of_the_notebook_is_read(path: Path) -> None:
    longest: list[list[str]] = []
    for cell in json.loads(path.read_text())["cells"]:
        for output in cell.get("outputs", []):
            parser = Cells()
            parser.feed("".join(output.get("data", {}).get("text/html", [])))
            if parser.rows and "reward" in parser.rows[0] and len(parser.rows) > len(longest):
                longest = parser.rows
    head, *rows = longest
    run = read(path)
    assert run.steps == len(rows)
    for key, ours in (("reward", "reward"), ("Training Loss", "loss"), ("Step", "step")):
        np.testing.assert_array_equal(run.table[ours], [float(row[head.index(key)]) for row in rows])
    assert len(run.table) == len(head)


@pytest.mark.parametrize("path", LINES, ids=name)
def test_every_line_is_in_a_segment(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    starts = [k for k in range(len(rows)) if k == 0 or rows[k]["step"] <= rows[k - 1]["step"]]
    run = read(path)
    if len(starts) > 1 and starts[1] > 12:  # another run, which is asked about
        with pytest.raises(
            UserError, match="2 runs in it: 1: steps 0 to 23, from line 1; 2: steps 0 to 28, from line 25"
        ):
            runs.read(path)
        first = runs.read(path, Hints(run=1))
        assert first.table["reward"].tolist() == [row["reward/mean"] for row in rows[: starts[1]]]
        rows = rows[starts[1] :]
        starts = [start - starts[1] for start in starts[1:]]
    assert rows_of(run) == len(rows)
    assert [len(part) for part in run.segments] == ([] if len(starts) == 1 else np.diff([*starts, len(rows)]).tolist())
    together = np.concatenate([part.table["reward"] for part in run.segments] or [run.table["reward"]])
    np.testing.assert_array_equal(together, [row["reward/mean"] for row in rows])
    last = {row["step"]: row["reward/mean"] for row in rows[starts[-1] :]}
    assert dict(zip(run.table["step"].tolist(), run.table["reward"].tolist(), strict=True)) == last


@pytest.mark.parametrize("path", [*LOGS, *STATES, *LINES], ids=name)
def test_no_key_is_lost(path: Path) -> None:
    run = read(path)
    kept = {run.keys.get(key, key) for key in run.table} | set(run.evaluations.metric) | set(run.unknown)
    if path.suffix == ".log":
        there = set(re.findall(r" - ([^\s:]+):(?:np|[-\d])", path.read_text()))
        there = {key for key in there if not key.startswith("val-")}
    elif path.suffix == ".json":
        there = {key for row in json.loads(path.read_text())["log_history"] for key in row}
    else:
        there = {key for line in path.read_text().splitlines() for key in json.loads(line)}
    assert there <= kept


def test_score_and_reward_stay_apart() -> None:
    """The proxy is gamed: the score falls while the reward after the KL penalty rises."""
    table = read(DATA / "verl" / "length-collapse.log").table
    known = np.isfinite(table["reward"]) & np.isfinite(table["reward_after_kl"])
    first, last = known.nonzero()[0][:10], known.nonzero()[0][-10:]
    assert table["reward"][last].mean() < table["reward"][first].mean() - 0.1
    assert table["reward_after_kl"][last].mean() > table["reward_after_kl"][first].mean() + 1
    assert {"kl_penalty", "kl_old_k1"} <= table.keys()
    assert "kl" not in table
    assert {"reward_after_kl", "kl_penalty"} <= LOGGED.keys() - METRICS.keys()
    assert math.isfinite(table["kl_penalty"][0])
