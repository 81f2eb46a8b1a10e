"""Calls of every command on hostile files, by the thousand: how many, what went wrong, the slowest, the largest.

    python benchmarks/hostile_calls.py --calls 20000 --seed 1
    python benchmarks/hostile_calls.py --again 1234567 others         a call anew, with all that it said

The calls are those of tests/test_cli_fuzz.py, on inputs of tests/helpers/hostile.py and hostile_inputs.py. Batches run
in processes of their own, with a limit of memory. Wrong is: another exit status than 0, 1 or 2, a traceback or a
warning, JSON that is none, over 20 s of the processor or 60 s of the clock, over 4 GB, "healthy" of a file without a
number or an evaluation that can be read. Pipes that bring nothing are given up after 1 s here, not 10 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "helpers"), str(Path(__file__).parents[1] / "tests")]

if TYPE_CHECKING:
    from test_cli_fuzz import Outcome

BATCH = 1000
"""Calls of a process."""

LIMIT = 12 << 30
"""Bytes that a process may ask for, so that a bomb ends it and not the machine."""


def _prepare(home: Path) -> None:
    """Make what inputs are made of, once: sound records, large files, a trained run."""
    import hostile
    import hostile_inputs
    from small_runs import config, start

    from grposcope.lab.policies import load

    hostile.bases(home / "sound")
    hostile_inputs.prepared(home / "large")
    (home / "trained").mkdir()
    saves = {"checkpoint_every": 2, "keep_checkpoints": 2, "rollouts_every": 1}
    start(config(load("tiny"), home / "trained", steps=4, eval_problems=0, threads=1, **saves))


def _called(home: Path, number: int, kind: str) -> Outcome:
    """The call of a number, in the working folder."""
    import test_cli_fuzz as fuzz
    from grposcope.core import files

    files._PATIENCE = 1.0
    large = {path.name: path for path in sorted((home / "large").iterdir())}
    sound = [home / "sound" / name for name in ("first", "second", "short")]
    commands = {"files": fuzz.COMMANDS, "others": fuzz.OTHERS, "models": fuzz.OF_MODELS}
    return fuzz.outcome(number, Path.cwd(), fuzz.Inputs(sound, home / "trained" / "run", large), commands[kind])


def _batch(home: Path, seed: int, calls: int, models: float) -> None:
    """Make calls, and print the counts of every hundred as JSON. models: the share of calls that load models."""
    import numpy as np
    import transformers  # noqa: F401  # what takes seconds to import is not what an input takes

    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    rng = np.random.default_rng(seed)
    table: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for call in range(1, calls + 1):
        number, chance = int(rng.integers(2**32)), rng.random()
        kind = "models" if chance < models else "others" if chance < 0.6 else "files"
        made = _called(home, number, kind)
        row = table[made.arguments[0]]
        row[:] = row[0] + 1, row[1] + bool(made.fault), max(row[2], made.seconds), max(row[3], made.bytes)
        if made.fault or made.seconds > 8 or made.bytes > 2.5e9:
            what = f"WRONG {made.fault}" if made.fault else "SLOW"
            used = f"{made.seconds:.1f} s {made.bytes / 1e9:.1f} GB"
            print(f"{what}: {used}: {number} {kind} {made.arguments}: {made.said[-900:]}", flush=True)
        if call % 100 == 0 or call == calls:
            print(json.dumps(table), flush=True)
            table.clear()


def _print_table(lines: list[str]) -> None:
    """Counts by command, of all lines of JSON that batches printed."""
    table: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for line in lines:
        for command, (calls, wrong, seconds, used) in json.loads(line).items():
            row = table[command]
            row[:] = row[0] + calls, row[1] + wrong, max(row[2], seconds), max(row[3], used)
    print("| command | calls | wrong | slowest, s | peak, GB |\n|---|---|---|---|---|")
    for command, row in [*sorted(table.items()), ("all", [sum(c) for c in zip(*table.values(), strict=True)][:2])]:
        print(
            f"| {command} | {row[0]:,} | {row[1]} |" + (f" {row[2]:.1f} | {row[3] / 1e9:.2f} |" if row[2:] else " | |")
        )


def _main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / "hostile")
    options.add_argument("--calls", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--models", type=float, default=0.01)
    options.add_argument("--again", nargs=2, metavar=("NUMBER", "KIND"))
    options.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    own = options.parse_args()
    if not (own.home / "trained").exists():
        own.home.mkdir(exist_ok=True)
        _prepare(own.home)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if own.again:
            made = _called(own.home, int(own.again[0]), own.again[1])
            print(made.arguments, made.fault or "nothing wrong", f"{made.seconds:.1f} s", made.said, sep="\n")
        elif own.batch:
            _batch(own.home, own.seed, own.calls, own.models)
        if own.again or own.batch:
            return
    tables: list[str] = []
    for number in range(-(-own.calls // BATCH)):
        values = {
            "home": own.home, "calls": min(BATCH, own.calls - number * BATCH), "seed": own.seed * 100_000 + number,
            "models": own.models,
        }  # fmt: skip
        line = [sys.executable, __file__, "--batch", *(f"--{name}={value}" for name, value in values.items())]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            for said in process.stdout or ():
                print(said, end="", flush=True)
                tables += [said] if said.startswith('{"') else []
        if process.returncode:
            print(f"BATCH {number} ended with {process.returncode}", flush=True)
    _print_table(tables)


if __name__ == "__main__":
    _main()
