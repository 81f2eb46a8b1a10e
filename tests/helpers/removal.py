"""What still works when one folder of instruments is not there, for the tests, and as a table.

python tests/helpers/removal.py [--tests]      prints the table as Markdown; --tests counts the tests that are skipped
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hiding
import numpy as np
import synthetic
import synthetic_probe
from imports import SOURCE, files_of, folder_of, imports, reached
from places import ROOT

from grposcope.commands import known
from grposcope.core.instrument import Instrument
from grposcope.core.rollouts import Rollout
from grposcope.instruments import FOLDERS, all_instruments, ask, instrument
from grposcope.instruments.credit import record as credit
from grposcope.instruments.credit.error import BASE, EXACT, Ranged
from grposcope.instruments.credit.record import CreditRecord, SourceRecord
from grposcope.logs import read

NEEDED = "Cannot tell: this needs the instrument"
"""How a command begins that lacks a folder of instruments."""

LINT = "from trl import GRPOConfig\nGRPOConfig(num_generations=8, beta=0.0, learning_rate=1e-6)\n"


def subject(folder: Path) -> Path:
    """A run with steps, rollouts, evaluations, a probe and a comparison of credit."""
    run = synthetic.make(folder / "runs" / "one", steps=60)
    synthetic.make(folder / "runs" / "two", steps=60, seed=1)
    synthetic_probe.make(run / "probes" / "step-000020", prompts=16)
    one = Ranged(1.0, 1.0, 1.0)
    sources = [
        SourceRecord(name, "i", name != EXACT, True, one, Ranged(1 / s, 0.9 / s, 1.1 / s), Ranged(s, s / 1.1, s / 0.9),
                     one, Ranged(0.0, 0.0, 0.1), log_error=0.05, effective=30.0)
        for name, s in ((BASE, 1.0), (EXACT, 2.0))
    ]  # fmt: skip
    record = CreditRecord(model="tiny", task="t", prompts=1, group=2, sources=tuple(sources))
    given = {BASE: np.array([0.5, 0.5]), EXACT: np.array([0.0, 1.0])}
    rollouts = [
        Rollout(problem="p", prompt="1+1=", completion="2.", reward=reward, tokens=("2", "."), measures=given)
        for reward in (1.0, 0.0)
    ]
    credit.write(run / credit.FOLDER / "step-000020", record, rollouts)
    (folder / "trl.py").write_text(LINT)
    judged = [{"group": i // 4, "rewards": {"right": i % 2, "form": i % 3}} for i in range(16)]
    (folder / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in judged))
    rows = [{"logprobs": [-1.0, -1.0 - i / 100], "rollout_logprobs": [-1.0, -1.0], "group": i // 2} for i in range(8)]
    (folder / "drawn.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def quick(folder: Path) -> dict[str, tuple[object, ...]]:
    """Commands that take no model, by name, as asked of what `subject` wrote into `folder`."""
    run = folder / "runs" / "one"
    dynamics = ("--lr", "0.1", "--momentum", "0.9", "--curvature", "0.1", "--interval", "20")
    return {
        "report": ("report", run, "--json"),
        "diagnose": ("diagnose", run, "--json"),
        "compare": ("compare", run, run.with_name("two"), "--json"),
        "fit": ("fit", run, "--json"),
        "stability": ("stability", *dynamics, "--json"),
        "plan": ("plan", run, "--json"),
        "lint": ("lint", folder / "trl.py", "--json"),
        "claims": ("claims", "u", "--list", "--json"),
        "offpolicy": ("offpolicy", folder / "drawn.jsonl", "--json"),
        "rewards": ("rewards", folder / "judged.jsonl", "--json"),
        "verify": ("verify", folder / "drawn.jsonl", "--json"),
        "advise": ("advise", run, "--json"),
        "runs": ("runs", run.parent, "--json"),
        "simulate": ("simulate", "--arms", "2", "--steps", "5", "--json"),
        "watch": ("watch", run, "--once", "--json"),
    }


def slow(folder: Path) -> dict[str, tuple[object, ...]]:
    """Commands that load a model, by name."""
    task = ("--task", "arithmetic")
    probed = ("tiny", *task, "--prompts", "4", "--group", "8")
    return {
        "probe": ("probe", *probed, "--out", folder / "probe", "--json"),
        "credit": ("credit", *probed, "--reference", "8", "--no-oracle", "--json"),
        "evaluate": ("evaluate", "tiny", *task, "--limit", "4", "--samples", "2", "--out", folder / "evaluated",
                     "--json"),
        "train": ("train", "--model", "tiny", *task, "--steps", "2", "--prompts", "2", "--group", "4", "--out",
                  folder / "trained", "--json"),
    }  # fmt: skip


@cache
def touching(hidden: str) -> frozenset[str]:
    """The instruments that lie in a folder, or that use or import something of it, under any condition."""
    return frozenset(name for name, folder in FOLDERS.items() if folder == hidden or hidden in _used(instrument(name)))


def _used(instrument: Instrument) -> frozenset[str]:
    """The folders that an instrument uses, and those that its files reach through the files of instruments."""
    files = reached(files_of(instrument), SOURCE / "instruments")
    imported = frozenset(folder_of(imported.name) for file in files for imported in imports(file))
    return imported | hiding.using(instrument.uses)


def origins(run: Path) -> dict[str, str]:
    """Name of every answer to this run -> the instrument that gives it."""
    found = {answer.name: one.name for one in all_instruments() for answer in ask(one, [read(run)])}
    return {**found, "headline": "overview"}


@dataclass(frozen=True)
class Removal:
    """What remains without a folder of instruments.

    listing: `grposcope --help`. sections: answers of the page by name, as JSON. refused: commands that say what they
    need. broken: those that end in another way than with everything in place. works: the others.
    """

    listing: str
    sections: Mapping[str, Any]
    refused: tuple[str, ...]
    broken: Mapping[str, str]
    works: tuple[str, ...]


def own_commands(folders: Collection[str]) -> set[str]:
    """Names of the commands of these folders."""
    return {name for name, (_, own) in known().items() if own is not None and FOLDERS[own.name] in folders}


def without(hidden: Collection[str], asked: Mapping[str, tuple[object, ...]]) -> Removal:
    """What remains without these folders of the commands `asked`, `report` among them."""
    listing, *ran = hiding.commands(hidden, ("--help",), *asked.values())
    gone = own_commands(hidden)
    by_name = {name: one for name, one in zip(asked, ran, strict=True) if name not in gone}
    refused = tuple(name for name, one in by_name.items() if one.status == 2 and NEEDED in one.err)
    broken = {name: one.err for name, one in by_name.items() if name not in refused and one.status != 0}
    works = tuple(name for name in by_name if name not in refused and name not in broken)
    return Removal(listing.out, json.loads(by_name["report"].out)["sections"], refused, broken, works)


def skipped(hidden: str) -> str:
    """How many tests are skipped without a folder, and how many are still run, as pytest says."""
    asked = [sys.executable, "-m", "pytest", "--hide", hidden, "--collect-only", "tests"]
    made = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    ended = re.search(r"(\d+) tests collected", made.stdout)
    counted = re.search(r"(\d+) skipped for what is hidden", made.stdout)
    assert made.returncode == 0, made.stdout[-3000:]
    assert ended is not None
    assert counted is not None
    return f"{counted[1]} of {ended[1]}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", action="store_true", help="also count the tests that are skipped, a minute each")
    arguments = parser.parse_args()
    print("| hidden | its commands | other answers that remain | commands that say what they need | tests skipped |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = subject(folder)
        whole = without((), quick(folder))
        assert not whole.broken, whole.broken
        of = origins(run)
        for hidden in sorted(set(FOLDERS.values())):
            left = without((hidden,), quick(folder))
            assert not left.broken, left.broken
            others = [name for name in whole.sections if FOLDERS[of[name]] != hidden]
            same = [name for name in others if left.sections.get(name) == whole.sections[name]]
            less = [name for name in others if name not in same]
            said = f"{len(same)} of {len(others)}" + (f"; changed: {', '.join(less)}" if less else "")
            own = ", ".join(sorted(own_commands([hidden]))) or "none"
            tests = skipped(hidden) if arguments.tests else ""
            print(f"| {hidden} | {own} | {said} | {', '.join(left.refused) or 'none'} | {tests} |", flush=True)


if __name__ == "__main__":
    main()
