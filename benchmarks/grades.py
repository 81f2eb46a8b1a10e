"""How often runs that learn are called failing, and failing ones healthy.

    python benchmarks/grades.py --seeds 10000 100 --rows 106 300

The runs are those of tests/helpers/graded_runs.py. Rates have 95 % Wilson intervals. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import graded_runs as graded

from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.maths.intervals import wilson

WORDS = ("failing", "warning", "healthy", "cannot tell")


def words(name: str, seeds: range, rows: int) -> tuple[Counter[str], str]:
    """First words of the verdicts on the runs of one kind, and the first verdict."""
    make = {**graded.HEALTHY, **graded.FAILING, "flat": graded.flat}[name]
    said: Counter[str] = Counter()
    first = ""
    for seed in seeds:
        run = graded.run(make, seed, rows)
        judged = verdict(run, diagnose(run))
        said[judged.word] += 1
        first = first or str(judged)
    return said, first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FIRST", "COUNT"))
    parser.add_argument("--rows", type=int, nargs="+", default=[106, 300])
    parser.add_argument("--only", nargs="+", default=[*graded.HEALTHY, *graded.FAILING, "flat"])
    arguments = parser.parse_args()
    first, count = arguments.seeds
    counts: dict[str, dict[str, int]] = {}
    print(f"| run | rows | {' | '.join(WORDS)} | first verdict |\n|---|---|{'---|' * (len(WORDS) + 1)}")
    for name in arguments.only:
        for rows in arguments.rows:
            said, example = words(name, range(first, first + count), rows)
            counts[f"{name}, {rows}"] = dict(said)
            print(f"| {name} | {rows} | {' | '.join(str(said[word]) for word in WORDS)} | {example} |", flush=True)
    for kinds, word, title in ((graded.HEALTHY, "failing", "healthy called failing"),
                               (graded.FAILING, "healthy", "failing called healthy")):  # fmt: skip
        chosen = [said for key, said in counts.items() if key.split(",")[0] in kinds]
        of, wrong = sum(sum(said.values()) for said in chosen), sum(said.get(word, 0) for said in chosen)
        low, high = wilson(wrong / max(of, 1), max(of, 1))
        print(f"{title}: {wrong} of {of} ({low:.1%} to {high:.1%})")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
