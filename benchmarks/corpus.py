"""Verdicts on the graded public runs of benchmarks/corpus.json, read without any option.

    python benchmarks/corpus.py --runs FOLDER [--json]

FOLDER holds the logs as corpus.json names them under `file`; benchmarks/corpus.md says how they were graded. What is
counted: logs read without options, first and last reward as in the log, grades within what was expected (the grade or
one that is also acceptable), failing runs that are called healthy, and the length of first lines. With --json the last
line is the whole as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read
from grposcope.maths.intervals import wilson

CORPUS = Path(__file__).with_name("corpus.json")
GRADES = ("failing", "warning", "healthy", "cannot tell")
REFUSED = "not read"
NEAR = 0.02
"""Share of the spread of a run's rewards by which a first or last reward may differ from the one in the log."""


def rewards_of(run: Run) -> np.ndarray:
    """The mean rewards that were read, without gaps, (n,); empty where none was found."""
    column = run.table.get("reward", np.empty(0))
    return column[np.isfinite(column)]


def agrees(read_rewards: np.ndarray, first: float | None, last: float | None) -> bool:
    """Whether the first and the last reward read are those in the log, within NEAR of the spread."""
    if first is None or last is None:
        return len(read_rewards) == 0
    if not len(read_rewards):
        return False
    room = NEAR * float(np.ptp(np.append(read_rewards, [first, last]))) + 1e-12
    return bool(abs(read_rewards[0] - first) <= room and abs(read_rewards[-1] - last) <= room)


def judged(path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """What is said of one log, next to what was graded."""
    wanted = {"expected": entry["grade"], "also_acceptable": entry["also_acceptable"]}
    try:
        run = read(path)
    except UserError as error:
        return wanted | {"grade": REFUSED, "line": str(error), "reward_agrees": False, "within": False, "rows": 0}
    said = verdict(run, diagnose(run))
    rewards = rewards_of(run)
    return wanted | {
        "grade": said.word,
        "line": str(said).partition("\n")[0],
        "rows": run.steps,
        "reward": [float(rewards[0]), float(rewards[-1])] if len(rewards) else None,
        "reward_agrees": agrees(rewards, entry["reward_first"], entry["reward_last"]),
        "within": said.word in (entry["grade"], *entry["also_acceptable"]),
    }


def present(folder: Path, entries: Sequence[dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The entries whose log lies in the folder as it was graded, and the names of those whose log does not."""
    here, left = {}, []
    for entry in entries:
        path = folder / entry["file"]
        same = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
        if same:
            here[entry["file"]] = entry
        else:
            left.append(entry["file"])
    return here, left


def rate(right: int, n: int) -> str:
    """A share with its 95 % Wilson interval."""
    low, high = wilson(right / max(n, 1), max(n, 1))
    return f"{right} of {n} ({right / max(n, 1):.0%}; {low:.0%} to {high:.0%})"


def matrix(rows: Sequence[dict[str, Any]]) -> str:
    """Expected grades down, given ones across, as a Markdown table."""
    given = (*GRADES, REFUSED)
    counts = Counter((row["expected"], row["grade"]) for row in rows)
    lines = [f"| expected | {' | '.join(given)} |", "|---|" + "---|" * len(given)]
    lines += [f"| {name} | {' | '.join(str(counts[name, word]) for word in given)} |" for name in GRADES]
    return "\n".join(lines)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts that the script is run for; lengths are those of first lines of logs that were read."""
    lengths = [len(row["line"]) for row in rows if row["grade"] != REFUSED]
    return {
        "logs": len(rows),
        "read": len(lengths),
        "reward_agrees": sum(row["reward_agrees"] for row in rows),
        "within": sum(row["within"] for row in rows),
        "failing_called_healthy": sum(row["expected"] == "failing" and row["grade"] == "healthy" for row in rows),
        "healthy_called_failing": sum(row["expected"] == "healthy" and row["grade"] == "failing" for row in rows),
        "line_median": float(np.median(lengths)) if lengths else None,
        "line_longest": max(lengths, default=None),
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """A row per log: what was expected, what was said, and whether it is within what was expected."""
    lines = ["| log | expected | said | within | reward | first line |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        expected = " / ".join((row["expected"], *row["also_acceptable"]))
        marks = ["yes" if row[key] else "no" for key in ("within", "reward_agrees")]
        line = row["line"].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {name} | {expected} | {row['grade']} | {marks[0]} | {marks[1]} | {line} |")
    return "\n".join(lines)


def main() -> None:
    """Judge all logs that are there and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder with the logs that corpus.json names")
    parser.add_argument("--json", action="store_true", help="end with everything as one line of JSON")
    given = parser.parse_args()
    if not given.runs.is_dir():
        raise SystemExit(f"no folder {given.runs}: the logs are not part of the project; name it with --runs")
    here, left = present(given.runs, json.loads(CORPUS.read_text()))
    rows = {name: judged(given.runs / name, entry) for name, entry in here.items()}
    said = summary(list(rows.values()))
    print(table(rows), matrix(list(rows.values())), sep="\n\n")
    print(f"\nread without options: {rate(said['read'], said['logs'])}")
    print(f"reward as in the log: {rate(said['reward_agrees'], said['logs'])}")
    print(f"grade within what was expected: {rate(said['within'], said['logs'])}")
    print(f"failing called healthy: {said['failing_called_healthy']}")
    print(f"healthy called failing: {said['healthy_called_failing']}")
    print(f"first lines: median {said['line_median']}, longest {said['line_longest']} characters")
    if left:
        print(f"not there, or other than graded: {', '.join(left)}")
    if given.json:
        print(json.dumps(said | {"runs": rows}))


if __name__ == "__main__":
    main()
