"""Calls of every command on hostile files, many of them: how many of each, what went wrong, the slowest and the largest.

    python benchmarks/hostile_calls.py --calls 20000 --seed 1
    python benchmarks/hostile_calls.py --numbers 1234567 --commands others     a call anew, with all that it said

The calls are those of tests/test_cli_fuzz.py, with inputs of tests/helpers/hostile.py and hostile_inputs.py. Batches run in a process of
their own, with a limit of memory. Wrong is: another exit status than 0, 1 or 2, a traceback or a warning, JSON that is none, over 20 s, over
4 GB, and "healthy" of a file without a number that can be read. The last line of a batch is JSON.
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

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "helpers"), str(Path(__file__).parents[1] / "tests")]

BATCH = 1000
"""Calls of a process."""


def _inputs(home: Path) -> None:
    """Make what inputs are made of, once: sound records, large files, a trained run."""
    import hostile
    import hostile_inputs
    from small_runs import config, start

    from grposcope.lab.policies import load

    hostile.bases(home / "sound")
    hostile_inputs.prepared(home / "large")
    (home / "trained").mkdir()
    start(
        config(
            load("tiny"),
            home / "trained",
            steps=4,
            eval_problems=0,
            checkpoint_every=2,
            keep_checkpoints=2,
            rollouts_every=1,
            threads=1,
        )
    )


def _batch(home: Path, seed: int, calls: int, share_of_models: float) -> None:
    """Run calls, and print the counts as JSON."""
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    import numpy as np
    import test_cli_fuzz as fuzz
    import transformers  # noqa: F401  # what takes seconds to import is not what an input takes

    from grposcope.core import files

    files._PATIENCE = 1.0  # of 10 s for pipes that bring nothing, of which there are many here

    large = {path.name: path for path in (home / "large").iterdir()}
    inputs = fuzz.Inputs(
        [home / "sound" / name for name in ("first", "second", "short")], home / "trained" / "run", large
    )
    rng = np.random.default_rng(seed)
    table: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for call in range(1, calls + 1):
            number, chance = int(rng.integers(2**32)), rng.random()
            kind = "models" if chance < share_of_models else "others" if chance < 0.6 else "files"
            made = fuzz.outcome(number, Path(place), inputs, _COMMANDS(fuzz)[kind])
            row = table[made.arguments[0]]
            row[0] += 1
            row[1] += bool(made.fault)
            row[2], row[3] = max(row[2], made.seconds), max(row[3], made.bytes)
            if made.fault:
                print(f"WRONG {made.fault}: {number} {kind} {made.arguments}: {made.said[-900:]}", flush=True)
            elif made.seconds > 8 or made.bytes > 2.5e9:
                print(
                    f"SLOW {made.seconds:.1f} s {made.bytes / 1e9:.1f} GB: {number} {kind} {made.arguments}", flush=True
                )
            if call % 100 == 0 or call == calls:
                print(json.dumps(table), flush=True)
                table.clear()


def _COMMANDS(fuzz) -> dict:  # noqa: N802
    return {"files": fuzz.COMMANDS, "others": fuzz.OTHERS, "models": fuzz.OF_MODELS}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--home", type=Path, default=Path("/tmp/hostile"))
    options.add_argument("--calls", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--models", type=float, default=0.01)
    options.add_argument("--batch", action="store_true")
    a = options.parse_args()
    if a.batch:
        return _batch(a.home, a.seed, a.calls, a.models)
    if not (a.home / "trained").exists():
        a.home.mkdir()
        _inputs(a.home)
    for k in range(-(-a.calls // BATCH)):
        line = [
            sys.executable,
            __file__,
            "--home",
            str(a.home),
            "--calls",
            str(BATCH),
            "--seed",
            str(a.seed * 100_000 + k),
            "--models",
            str(a.models),
            "--batch",
        ]
        status = subprocess.run(line, check=False).returncode
        if status:
            print(f"BATCH {k} ended with {status}", flush=True)


if __name__ == "__main__":
    main()
