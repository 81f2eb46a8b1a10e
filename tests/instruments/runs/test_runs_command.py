"""All runs of a folder: the table in the terminal, the page with a page for each, and what cannot be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import synthetic
from asked import asked
from places import ROOT

from grposcope.cli import main
from grposcope.instruments.runs import run_lines, table
from grposcope.instruments.runs.command_runs import _small_curve
from grposcope.logs import Hints
from grposcope.logs.find import find


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two records of our own, one below the other's sibling, a log of another trainer, and files that are no runs."""
    synthetic.make(tmp_path / "a", steps=40, settings={"recipe": "grpo"})
    synthetic.make(tmp_path / "deep" / "er" / "b", steps=60, settings={"recipe": "rloo"})
    rng = np.random.default_rng(0)
    rows = [{"step": i + 1, "reward": 0.2 + 0.01 * i + rng.normal(0, 0.02), "kl": 0.001 * i} for i in range(50)]
    (tmp_path / "deep" / "log #1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "data.jsonl").write_text('{"prompt": "1 + 1"}\n{"prompt": "2 + 2"}\n')
    (tmp_path / "notes.txt").write_text("nothing here\n")
    (tmp_path / "a" / "checkpoints").mkdir(exist_ok=True)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[list[str], dict]:
    status, document = asked(*words)
    assert status == 0
    return capsys.readouterr().out.splitlines(), document


def test_runs_are_found_whoever_wrote_them(folder: Path) -> None:
    found = [one.path.relative_to(folder).as_posix() for one in find(folder, Hints())]
    assert found == ["a", "deep/log #1.jsonl", "deep/er/b"]


def test_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, document = call(capsys, "runs", folder, "--sort", "steps")
    assert lines[0].startswith("3 runs: ")
    assert [line.split()[0] for line in lines[3:]] == ["deep/er/b", "deep/log", "a"]
    assert {"run", "verdict", "held-out", "recipe"} <= set(lines[2].split())
    assert [one["name"] for one in document["runs"]] == ["deep/er/b", "deep/log #1.jsonl", "a"]
    rising = document["runs"][1]["curve"]
    assert len(rising) == run_lines.POINTS
    assert rising[-1] - rising[0] == pytest.approx(0.48, abs=0.1)


@pytest.mark.slow
def test_every_run_of_a_log_has_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"step": i + 1, "reward": 0.2 + 0.01 * i} for _ in range(2) for i in range(30)]
    (folder / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, document = call(capsys, "report", folder)
    assert {"two.jsonl#1", "two.jsonl#2"} <= {one["name"] for one in document["runs"]}
    assert (folder / "two.jsonl#2.html").stat().st_size > 100_000


def test_a_broken_record_is_named_and_the_others_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a" / "config.json").write_text("{")
    assert main(["runs", str(folder)]) == 0
    said = capsys.readouterr()
    assert "2 runs: " in said.out
    assert "1 more cannot be read" in said.out
    assert f"not read: {folder / 'a' / 'config.json'} cannot be read" in said.err


@pytest.mark.slow
def test_a_folder_of_runs_gets_a_page_that_links_to_theirs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = call(capsys, "report", folder)
    assert document["page"] == str(folder / "runs.html")
    for page in ("a/page.html", "deep/er/b/page.html", "deep/log #1.jsonl.html"):
        assert (folder / page).stat().st_size > 100_000
    text = (folder / "runs.html").read_text()
    assert '"page":"deep/log%20%231.jsonl.html"' in text.replace('": "', '":"')
    assert len(text) < 100_000, "the table needs no chart library"


def test_a_folder_of_one_run_gets_its_page_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.make(tmp_path / "only", steps=20)
    _, document = call(capsys, "report", tmp_path)
    assert document["page"] == str(tmp_path / "only" / "page.html")
    assert not (tmp_path / "runs.html").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [(Path.mkdir, "holds no run"), (Path.touch, "is not a folder"), (str, "is not a folder")],
)
def test_where_there_is_nothing(make, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "place")
    assert main(["runs", str(tmp_path / "place")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_small_curves() -> None:
    curve = _small_curve(np.array([np.nan, 1.0, 2.0, np.inf, 4.0]))
    assert curve == (1.0, 2.0, 4.0)


@pytest.mark.slow
def test_files_that_are_not_listed_are_counted_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "loss.jsonl").write_text("".join(json.dumps({"step": i, "kl": 0.1 * i}) + "\n" for i in range(40)))
    (folder / "header.csv").write_text("step,reward\n")
    (folder / "data.jsonl").unlink()
    (folder / "notes.txt").unlink()
    assert main(["runs", str(folder)]) == 0
    (said,) = capsys.readouterr().err.splitlines()
    _, document = call(capsys, "runs", folder)
    assert len(document["runs"]) == 3
    first, second = document["left_out"]
    assert first.startswith(f"{folder / 'header.csv'} has a header (step, reward) and no row below it")
    assert first in said
    assert second.startswith(f"{folder / 'loss.jsonl'}: no key is named as a reward")
    assert said.startswith("2 files not listed: 1 with an open question, such as which column is the reward (")
    assert f"grposcope diagnose {folder / 'loss.jsonl'} says more" in said
    main(["report", str(folder)])
    assert "2 files not listed: " in capsys.readouterr().err


def test_nothing_is_said_where_every_file_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "data.jsonl").unlink()
    (folder / "notes.txt").unlink()
    assert main(["runs", str(folder)]) == 0
    assert capsys.readouterr().err == ""


def test_grades_and_modes_have_columns_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.make(tmp_path / "well", steps=40)
    shutil.copy(ROOT / "docs" / "example.jsonl", tmp_path)
    lines, _ = call(capsys, "runs", tmp_path)
    heads = lines[2]
    grade, mode, scores = (heads.index(f" {word} ") + 1 for word in ("verdict", "failure", "held-out"))
    cells = {line.split()[0]: (line[grade:mode].strip(), line[mode:scores].strip()) for line in lines[3:5]}
    assert cells["example.jsonl"] == ("failing", "reward hacking")
    assert all(word in ("failing", "warning", "healthy", "cannot tell") for word, _ in cells.values())


def test_names_that_differ_in_their_end_alone_are_told_apart() -> None:
    names = [f"a-long-name-of-a-sweep-over-many-settings-seed-{seed}" for seed in (1, 2)]
    shown = [table._shortened(name, 40) for name in names]
    assert [len(name) for name in shown] == [40, 40]
    assert shown[0] != shown[1]
    assert shown[0].startswith("a-long-name")
    assert shown[0].endswith("-seed-1")
    assert table._shortened("short", 40) == "short"
