"""The corpus of graded public runs: its entries are whole, and its script counts what it says it counts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import corpus
import numpy as np

ENTRIES = json.loads(corpus.CORPUS.read_text())


def test_entries_are_whole_and_from_many_sources() -> None:
    files = [entry["file"] for entry in ENTRIES]
    counts = Counter(entry["grade"] for entry in ENTRIES)
    assert len(set(files)) == len(files) >= 40
    assert set(counts) == set(corpus.GRADES)
    assert counts["failing"] >= 14
    assert min(counts["warning"], counts["cannot tell"]) >= 6
    assert len({entry["source"] for entry in ENTRIES}) >= 15
    for entry in ENTRIES:
        assert (len(entry["sha256"]), len(entry["commit"]), bool(entry["what"])) == (64, 40, True), entry["file"]
        assert set(entry["also_acceptable"]) <= {*corpus.GRADES} - {entry["grade"]}, entry["file"]
        assert (entry["grade"] in ("failing", "warning")) == (entry["cause"] is not None), entry["file"]


def test_first_lines_by_hand_begin_with_the_grade_and_are_short() -> None:
    lines = [(entry["hand_line"], entry["grade"]) for entry in ENTRIES if entry["hand_line"]]
    assert len(lines) >= 25
    assert all(line.startswith(f"{grade}: ") and len(line) <= 110 for line, grade in lines)


def test_a_reward_agrees_within_a_fiftieth_of_its_spread() -> None:
    read = np.array([0.0, 1.0, 0.5])
    assert json.dumps(corpus.agrees(read, 0.019, 0.5)) == "true"
    assert not corpus.agrees(read, 0.03, 0.5)
    assert not corpus.agrees(read, 0.0, 0.53)
    assert corpus.agrees(np.empty(0), None, None)
    assert not corpus.agrees(read, None, None)
    assert not corpus.agrees(np.empty(0), 0.0, 1.0)


def test_only_the_bytes_that_were_graded_are_judged(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("as graded")
    (tmp_path / "b.log").write_text("other than graded")
    digest = hashlib.sha256(b"as graded").hexdigest()
    entries = [{"file": name, "sha256": digest} for name in ("a.log", "b.log", "c.log")]
    here, left = corpus.present(tmp_path, entries)
    assert (list(here), left) == (["a.log"], ["b.log", "c.log"])


def test_a_log_that_cannot_be_read_is_within_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("{}")
    entry = {"grade": "cannot tell", "also_acceptable": [], "reward_first": None, "reward_last": None}
    said = corpus.judged(path, entry)
    assert (said["grade"], said["within"], said["reward_agrees"]) == (corpus.REFUSED, False, False)


def test_the_summary_counts_grades_and_lengths() -> None:
    row = {"reward_agrees": True, "also_acceptable": []}
    unread = {"expected": "warning", "grade": corpus.REFUSED, "line": "x" * 900}
    rows = [
        row | {"expected": "failing", "grade": "healthy", "within": False, "line": "x" * 10},
        row | {"expected": "healthy", "grade": "failing", "within": False, "line": "x" * 20},
        row | {"expected": "healthy", "grade": "healthy", "within": True, "line": "x" * 60},
        row | unread | {"within": False, "reward_agrees": False},
    ]
    assert corpus.summary(rows) == {
        "logs": 4, "read": 3, "reward_agrees": 3, "within": 1, "failing_called_healthy": 1,
        "healthy_called_failing": 1, "line_median": 20.0, "line_longest": 60,
    }  # fmt: skip
    assert "| failing | 0 | 0 | 1 | 0 | 0 |" in corpus.matrix(rows)
    assert "| warning | 0 | 0 | 0 | 0 | 1 |" in corpus.matrix(rows)
