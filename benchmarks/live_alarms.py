"""How often watching a run from its 30th row on raises a false alarm, and how soon a true one.

    python benchmarks/live_alarms.py measure --phi 0.3 --seeds 10000 20 --out RESULTS/0.3.json
    python benchmarks/live_alarms.py table RESULTS/*.json

Runs of `labelled_curves` grow from 30 to ROWS rows and are diagnosed whenever they have grown by a tenth, as
`grposcope watch` and the TRL callback do. Three ways to choose the level of a look are compared on the same runs:
always α = 0.05; α at scheduled looks and less between them, as `watch.alarms` does; and one look at the end.
Minor modes (no learning, zero loss) are not counted. Rates have 95 % Wilson intervals. The last line is JSON.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from labelled_curves import SCENARIOS, Made, make
from labelled_suite import arguments, percent

from grposcope.core.run import Evaluations, Meta, Run, no_groups
from grposcope.faults import catalogue
from grposcope.faults.looks import level_of_look
from grposcope.instruments.diagnosis import diagnose
from grposcope.signs.quantities import LEAST
from grposcope.watch.alarms import GROWTH

ROWS = 300
LEVEL = 0.05
NULLS = ("healthy", "healthy-plateau")
FAILURES = (
    "entropy collapse",
    "KL blow-up",
    "hacking, evaluated",
    "saturated",
    "gradient spikes",
    "growing oscillation",
)
WAYS = ("always α", "scheduled", "at the end only")

Looks = list[tuple[int, dict[str, float]]]
"""For every look the number of rows, and the adjusted p-values below LEVEL of the modes that are not minor."""


def prefix(made: Made, rows: int) -> Run:
    """The run as it was after its first `rows` rows."""
    count = int((made.at <= rows).sum())
    held = Evaluations(
        made.at[:count], ("accuracy",) * count, made.scores[:count], np.full(count, math.nan),
        np.zeros(count, np.int64), ("",) * count,
    )  # fmt: skip
    table = {name: column[:rows] for name, column in made.table.items()}
    return Run(Meta(Path("made up"), "made up", "made up", "running"), {}, table, no_groups(), held)


def looks(made: Made) -> Looks:
    """Diagnose the run whenever it has grown by a tenth, up to its last row."""
    taken, rows = [], LEAST
    while True:
        findings = diagnose(prefix(made, rows))
        flagged = [f for f in findings if f.adjusted < LEVEL and f.fault not in catalogue.minor()]
        taken.append((rows, {f.fault: f.adjusted for f in flagged}))
        if rows == ROWS:
            return taken
        rows = min(ROWS, math.ceil(GROWTH * rows))


def raised(seen: Looks, way: str) -> dict[str, int]:
    """Rows at the first alarm of every mode that is raised, if levels are chosen in this `way` (of WAYS)."""
    if way == WAYS[2]:
        seen = seen[-1:]
    first: dict[str, int] = {}
    before = 0
    for rows, modes in seen:
        level = level_of_look(before, rows) if way == WAYS[1] else LEVEL
        before = rows
        for mode, p in modes.items():
            if p < level:
                first.setdefault(mode, rows)
    return first


def measure(phi: float, seeds: range, out: Path) -> dict[str, Any]:
    """Diagnose all runs of one φ at every look into the file `out`; runs that it already holds are not made again."""
    document: dict[str, Any] = {"phi": phi, "seeds": [seeds.start, len(seeds)], "runs": {}}
    if out.exists():
        document = json.loads(out.read_text())
    for name in (*NULLS, *FAILURES):
        kept = document["runs"].setdefault(name, [])
        for seed in seeds[len(kept) : len(seeds) if name in NULLS else len(seeds) // 2]:
            kept.append(looks(make(name, seed, phi, ROWS)))
            out.write_text(json.dumps(document))
    return document


def table(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Print the rates of false alarms and of detection, and return them as a document."""
    documents = sorted(documents, key=lambda d: d["phi"])
    result: dict[str, Any] = {"false": {}, "found": {}}
    print(f"any alarm on {', '.join(NULLS)}, grown to {ROWS} rows, % [95 % interval]\n")
    print("| level of a look |" + "".join(f" φ = {d['phi']:g} |" for d in documents))
    print("|---|" + "---|" * len(documents))
    for way in WAYS:
        counts = []
        for d in documents:
            runs = [seen for name in NULLS for seen in d["runs"][name]]
            counts.append((sum(bool(raised(seen, way)) for seen in runs), len(runs)))
        print(f"| {way} | " + " | ".join(percent(*c) for c in counts) + " |")
        result["false"][way] = counts
    print(f"\nthe right mode: raised in how many runs, median rows at the alarm; all φ, {ROWS} rows\n")
    print("| failure | " + " | ".join(WAYS) + " |\n|---|" + "---|" * len(WAYS))
    for name in FAILURES:
        texts = []
        for way in WAYS:
            runs = [seen for d in documents for seen in d["runs"][name]]
            at = [rows for seen in runs if (rows := raised(seen, way).get(SCENARIOS[name][1])) is not None]
            texts.append(f"{len(at)}/{len(runs)}" + (f", {statistics.median(at):.0f}" if at else ""))
            result["found"][f"{name} | {way}"] = [at, len(runs)]
        print(f"| {name} | " + " | ".join(texts) + " |")
    return result


def main() -> None:
    """Measure one φ, or print the table."""
    parser, _ = arguments("False and true alarms of watching a run while it grows.", 20, "table")
    given = parser.parse_args()
    if given.command == "table":
        document = table([json.loads(path.read_text()) for path in given.files])
    else:
        first, count = given.seeds
        document = measure(given.phi, range(first, first + count), given.out)
        document = {"phi": given.phi, "runs": {name: len(runs) for name, runs in document["runs"].items()}}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
