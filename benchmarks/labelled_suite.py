"""How often each failure is detected under its right name, and how often a run without it raises a false alarm.

    python benchmarks/labelled_suite.py measure --phi 0.3 --seeds 10000 60 --out RESULTS/0.3.json
    python benchmarks/labelled_suite.py tables RESULTS/*.json

Runs of `labelled_curves` are written by `labelled_files` in the shapes of TRL, verl and OpenRLHF, read back by
`grposcope.logs.read` and diagnosed, as a user would. `measure` does one φ and can go on where it was stopped;
`--forms` and `--scenarios` restrict it. Seeds below 10,000 are for tuning; figures in benchmarks/diagnosis.md use
others. Rates have 95 % Wilson intervals. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from labelled_curves import NULLS, PHI, ROWS, SCENARIOS, Made, make
from labelled_files import FORMS, GROUPED, flag_settings

from grposcope.instruments.diagnosis import Finding, diagnose
from grposcope.logs import read
from grposcope.maths.intervals import wilson

Cell = dict[str, Any]
"""Counts for one form and scenario: runs, and per mode how often it was flagged, below p = 0.05, first, or untold."""


def diagnosed(made: Made, form: str, seed: int) -> tuple[Finding, ...]:
    """Write the run in one form, read the file back, and diagnose it."""
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(read(FORMS[form](Path(folder), made, seed), flag_settings(made)))


def cell(form: str, name: str, phi: float, seeds: range, rows: int) -> Cell:
    """Diagnose one run per seed and count the verdicts."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in ("present", "single", "headline", "untold")}
    false = 0
    for seed in seeds:
        findings = diagnosed(make(name, seed, phi, rows), form, seed)
        flagged = [f.fault for f in findings if f.status == "present"]
        counts["present"].update(flagged)
        counts["headline"][flagged[0] if flagged else "-"] += 1
        counts["single"].update(f.fault for f in findings if f.p < 0.05)
        counts["untold"].update(f.fault for f in findings if f.status == "cannot tell")
        false += any(mode != "no learning" or name != "flat null" for mode in flagged)
    return {"runs": len(seeds), "any": false, **counts}


def measure(phi: float, seeds: range, rows: int, forms: list[str], names: list[str], out: Path) -> dict[str, Any]:
    """Count all cells of one φ into the file `out`; cells that it already holds are not measured again."""
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


def percent(count: int, of: int) -> str:
    """A share with its 95 % interval, in per cent."""
    low, high = wilson(count / of, of)
    return f"{100 * count / of:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def arguments(description: str, seeds: int, print_command: str) -> tuple[argparse.ArgumentParser, Any]:
    """A parser with the commands `measure` (of one φ) and `print_command` (of measured files), and that of `measure`.

    seeds: how many are measured by default.
    """
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("measure", help="diagnose the runs of one φ")
    one.add_argument("--phi", type=float, required=True, help=f"AR(1) coefficient, of {PHI} for the tables")
    one.add_argument(
        "--seeds", type=int, nargs=2, default=(0, seeds), metavar=("FIRST", "COUNT"), help=f"default: 0 {seeds}"
    )
    one.add_argument("--out", type=Path, required=True, help="file for the results")
    commands.add_parser(print_command, help="tables of measured files").add_argument("files", type=Path, nargs="+")
    return parser, one


def tables(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Print detection by scenario and form and false alarms by rule and form, and return them as a document."""
    by_phi = {d["phi"]: d for d in documents}
    phis = sorted(by_phi)
    result: dict[str, Any] = {"detection": {}, "single": {}, "present": {}, "any": {}, "headlines": {}}
    forms = [form for form in FORMS if any(f"{form} | healthy" in d["cells"] for d in documents)]
    print("flagged as the right mode, % [95 % interval]; headline: it is the first line\n")
    print("| failure | log |" + "".join(f" φ = {phi:g} |" for phi in phis) + " headline |")
    print("|---|---|" + "---|" * (len(phis) + 1))
    for name, (_, mode) in SCENARIOS.items():
        for form in forms if mode else ():
            cells = [by_phi[phi]["cells"].get(f"{form} | {name}") for phi in phis]
            if any(c is None for c in cells):
                continue
            counts = [(c["present"].get(mode, 0), c["runs"]) for c in cells]
            untold = [c["untold"].get(mode, 0) for c in cells]
            first = sum(c["headline"].get(mode, 0) for c in cells)
            texts = [
                "cannot tell" if cannot > of / 2 else percent(k, of)
                for (k, of), cannot in zip(counts, untold, strict=True)
            ]
            print(f"| {name} | {form} | " + " | ".join(texts) + f" | {first}/{sum(of for _, of in counts)} |")
            result["detection"][f"{name} | {form}"] = [counts, first]
            result["headlines"][f"{name} | {form}"] = sum((Counter(c["headline"]) for c in cells), Counter())
    for kind, title in (("single", "p < 0.05 of the rule alone"), ("present", "flagged after Holm")):
        print(f"\nfalse alarms on {', '.join(NULLS)}, %: {title}; rules that are not listed had none\n")
        print("| rule | log |" + "".join(f" φ = {phi:g} |" for phi in phis))
        print("|---|---|" + "---|" * len(phis))
        for form in forms:
            nulls = {phi: {n: by_phi[phi]["cells"][f"{form} | {n}"] for n in NULLS} for phi in phis}
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
            if kind == "present":
                whole = [
                    (sum(c["any"] for c in nulls[p].values()), sum(c["runs"] for c in nulls[p].values())) for p in phis
                ]
                print(f"| any | {form} | " + " | ".join(percent(*c) for c in whole) + " |")
                result["any"][form] = whole
    return result


def main() -> None:
    """Measure one φ, or print the tables."""
    parser, one = arguments("The labelled suite: detection and false alarms of `diagnose`.", 60, "tables")
    one.add_argument("--rows", type=int, default=ROWS, help=f"steps of a run (default: {ROWS})")
    one.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS), help="shapes (default: all)")
    one.add_argument("--scenarios", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="default: all")
    given = parser.parse_args()
    if given.command == "tables":
        document = tables([json.loads(path.read_text()) for path in given.files])
    else:
        first, count = given.seeds
        seeds = range(first, first + count)
        document = measure(given.phi, seeds, given.rows, given.forms, given.scenarios, given.out)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
