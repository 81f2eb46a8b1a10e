"""How often each failure is found, under its right name, and how often a run without it is called failing.

    python benchmarks/labelled_suite.py measure --phi 0.3 --seeds 10000 60 --out RESULTS/0.3.json
    python benchmarks/labelled_suite.py tables RESULTS/*.json

Runs of `labelled_curves` are written by `labelled_files` in the shapes of TRL, verl and OpenRLHF, read back by
`grposcope.runs.read` and diagnosed, as a user would. `measure` does one φ and can go on where it was stopped;
`--forms` and `--scenarios` restrict it. Seeds below 10,000 are for tuning; figures in docs/diagnosis.md use
others. Rates have 95 % Wilson intervals. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from labelled_curves import NULLS, PHI, ROWS, SCENARIOS, make
from labelled_files import FORMS, GROUPED, given

from grposcope.diagnosis import diagnose
from grposcope.runs import read

Cell = dict[str, Any]
"""Of one form and scenario: runs; modes flagged after Holm, modes with p < 0.05 alone, headlines, untold: counts."""


def cell(form: str, name: str, phi: float, seeds: range, rows: int) -> Cell:
    """Write, read and diagnose one run per seed."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in ("flagged", "single", "headline", "untold")}
    false = 0
    for seed in seeds:
        made = make(name, seed, phi, rows)
        with tempfile.TemporaryDirectory() as folder:
            findings = diagnose(read(FORMS[form](Path(folder), made, seed), given(made)))
        flagged = [f.mode for f in findings if f.status == "flagged"]
        counts["flagged"].update(flagged)
        counts["headline"][flagged[0] if flagged else "-"] += 1
        counts["single"].update(f.mode for f in findings if f.p < 0.05)
        counts["untold"].update(f.mode for f in findings if f.status == "cannot tell")
        false += any(mode != "no learning" or name != "flat null" for mode in flagged)
    return {"runs": len(seeds), "any": false, **counts}


def measure(phi: float, seeds: range, rows: int, forms: list[str], names: list[str], out: Path) -> dict[str, Any]:
    """All cells of one φ; those that `out` already has are kept."""
    head = {"phi": phi, "seeds": [seeds.start, len(seeds)], "rows": rows}
    document = {**head, "cells": {}}
    if out.exists():
        document = json.loads(out.read_text())
        if {key: document[key] for key in head} != head:
            raise SystemExit(f"{out} is of another φ, seeds or rows; give another file")
    for form in forms:
        for name in names:
            key = f"{form} | {name}"
            if key in document["cells"] or (form == "trl groups" and name not in GROUPED):
                continue
            document["cells"][key] = cell(form, name, phi, seeds, rows)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(document))
        print(f"  {form} done", file=sys.stderr, flush=True)
    return document


def wilson(count: int, of: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, share = 1.959964, count / of
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def percent(count: int, of: int) -> str:
    """A share with its interval, in per cent."""
    low, high = wilson(count, of)
    return f"{100 * count / of:.1f} [{100 * max(low, 0):.0f}, {100 * min(high, 1):.0f}]"


def tables(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Print detection by scenario and form and false alarms by rule and form, and return them as a document."""
    found = {d["phi"]: d for d in documents}
    phis = sorted(found)
    result: dict[str, Any] = {"detection": {}, "single": {}, "flagged": {}, "any": {}, "headlines": {}}
    forms = [form for form in FORMS if any(f"{form} | healthy" in d["cells"] for d in documents)]
    print("flagged as the right mode, % [95 % interval]; headline: it is the first line\n")
    print("| failure | log |" + "".join(f" φ = {phi:g} |" for phi in phis) + " headline |")
    print("|---|---|" + "---|" * (len(phis) + 1))
    for name, (_, mode) in SCENARIOS.items():
        for form in forms if mode else ():
            cells = [found[phi]["cells"].get(f"{form} | {name}") for phi in phis]
            if any(c is None for c in cells):
                continue
            counts = [(c["flagged"].get(mode, 0), c["runs"]) for c in cells]
            untold = [c["untold"].get(mode, 0) for c in cells]
            first = sum(c["headline"].get(mode, 0) for c in cells)
            texts = [
                "cannot tell" if cannot > of / 2 else percent(k, of)
                for (k, of), cannot in zip(counts, untold, strict=True)
            ]
            print(f"| {name} | {form} | " + " | ".join(texts) + f" | {first}/{sum(of for _, of in counts)} |")
            result["detection"][f"{name} | {form}"] = [counts, first]
            result["headlines"][f"{name} | {form}"] = sum((Counter(c["headline"]) for c in cells), Counter())
    for kind, title in (("single", "p < 0.05 of the rule alone"), ("flagged", "flagged after Holm")):
        print(f"\nfalse alarms on {', '.join(NULLS)}, %: {title}; rules that are not listed had none\n")
        print("| rule | log |" + "".join(f" φ = {phi:g} |" for phi in phis))
        print("|---|---|" + "---|" * len(phis))
        for form in forms:
            nulls = {phi: {n: found[phi]["cells"][f"{form} | {n}"] for n in NULLS} for phi in phis}
            modes = sorted({m for cells in nulls.values() for c in cells.values() for m in c[kind]})
            for mode in modes:
                names = [n for n in NULLS if SCENARIOS[n][1] != mode]
                counts = [
                    (sum(nulls[phi][n][kind].get(mode, 0) for n in names), sum(nulls[phi][n]["runs"] for n in names))
                    for phi in phis
                ]
                if any(k for k, _ in counts):
                    print(f"| {mode} | {form} | " + " | ".join(percent(*c) for c in counts) + " |")
                    result[kind][f"{mode} | {form}"] = counts
            if kind == "flagged":
                whole = [
                    (sum(c["any"] for c in nulls[p].values()), sum(c["runs"] for c in nulls[p].values())) for p in phis
                ]
                print(f"| any | {form} | " + " | ".join(percent(*c) for c in whole) + " |")
                result["any"][form] = whole
    return result


def main() -> None:
    """Measure or print."""
    parser = argparse.ArgumentParser(description="The labelled suite: detection and false alarms of `diagnose`.")
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("measure", help="diagnose the runs of one φ")
    one.add_argument("--phi", type=float, required=True, help=f"AR(1) coefficient, of {PHI} for the tables")
    one.add_argument("--seeds", type=int, nargs=2, default=(0, 60), metavar=("FIRST", "COUNT"), help="default: 0 60")
    one.add_argument("--rows", type=int, default=ROWS, help=f"steps of a run (default: {ROWS})")
    one.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS), help="shapes (default: all)")
    one.add_argument("--scenarios", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="default: all")
    one.add_argument("--out", type=Path, required=True, help="file for the counts")
    other = commands.add_parser("tables", help="tables of measured files")
    other.add_argument("files", type=Path, nargs="+")
    given_ = parser.parse_args()
    if given_.command == "tables":
        document = tables([json.loads(path.read_text()) for path in given_.files])
    else:
        first, count = given_.seeds
        seeds = range(first, first + count)
        document = measure(given_.phi, seeds, given_.rows, given_.forms, given_.scenarios, given_.out)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
