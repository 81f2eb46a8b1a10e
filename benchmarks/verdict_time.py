"""Seconds from the shell to the verdict: `grposcope diagnose` of a log of 300 rows, each time in a process of its own.

    python benchmarks/verdict_time.py [--runs 9] [--rows 300] [--rollouts 10000]

The log has ten metrics as TRL writes them, of a run that learns. The interpreter's own start and the import of NumPy
are measured in turn with it. Run it with the interpreter of a light installation (`pip install grposcope`) to see what
a user of logs waits for. With --rollouts also of the folder that such a run leaves: the state of its last checkpoint,
and a table of completions per step, in groups of eight. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def log(path: Path, rows: int) -> None:
    """Write a log in the form of TRL's, whose reward rises from 0.2 to 0.8."""
    random = np.random.default_rng(0)
    progress = 1 / (1 + np.exp(-(np.arange(rows) - rows / 2) / (rows / 10)))
    with path.open("w") as file:
        for step, share in enumerate(progress, 1):
            reward = float(0.2 + 0.6 * share + 0.03 * random.normal())
            file.write(json.dumps({
                "step": step, "epoch": step / rows, "loss": float(0.01 * random.normal()), "learning_rate": 1e-6,
                "grad_norm": float(np.exp(0.2 * random.normal())), "reward": reward, "reward_std": 0.4,
                "completions/mean_length": float(120 + 5 * random.normal()), "entropy": float(0.8 - 0.3 * share),
                "kl": float(0.02 * share), "frac_reward_zero_std": float(0.3 * share),
            }) + "\n")  # fmt: skip


def folder(place: Path, log: Path, rollouts: int) -> Path:
    """Write the output folder of TRL of the run whose log it is, with so many completions of some twenty words."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [json.loads(line) for line in log.read_text().splitlines()]
    state = place / f"checkpoint-{len(rows)}"
    state.mkdir(parents=True)
    (state / "trainer_state.json").write_text(json.dumps({"global_step": len(rows), "log_history": rows}))
    (place / "completions").mkdir()
    random = np.random.default_rng(1)
    words = np.array([f"word{k}" for k in range(500)])
    size = max(8, rollouts // len(rows) // 8 * 8)
    for step in range(1, len(rows) + 1):
        rewards = (random.random(size) < rows[step - 1]["reward"]).astype(float)
        groups = rewards.reshape(-1, 8)
        advantages = (groups - groups.mean(1, keepdims=True)) / (groups.std(1, ddof=1, keepdims=True) + 1e-4)
        table = {
            "step": [step] * size,
            "prompt": [f"question {step * 1000 + k // 8}" for k in range(size)],
            "completion": [" ".join(random.choice(words, 20)) for _ in range(size)],
            "right": rewards.tolist(),
            "advantage": advantages.reshape(-1).tolist(),
        }
        pq.write_table(pa.table(table), place / "completions" / f"completions_{step:05d}.parquet")
    return place


def seconds(command: list[str]) -> float:
    """Wall-clock seconds of a process."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=dict(os.environ))
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--rollouts", type=int, default=0, help="also diagnose a folder with so many completions")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "log.jsonl"
        log(path, given.rows)
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "numpy": [sys.executable, "-c", "import numpy"],
            "diagnose": [sys.executable, "-m", "grposcope", "diagnose", str(path)],
        }
        if given.rollouts:
            output = folder(Path(scratch) / "output", path, given.rollouts)
            commands["folder"] = [sys.executable, "-m", "grposcope", "diagnose", str(output)]
        answer = subprocess.run(commands["diagnose"], capture_output=True, text=True, check=False)
        if answer.returncode not in (0, 1):
            sys.exit(answer.stderr)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(given.runs):
            for name, command in commands.items():
                times[name].append(seconds(command))
    for name, measured in times.items():
        print(f"{name:9} {statistics.median(measured):.2f} s ({min(measured):.2f}-{max(measured):.2f}), n {given.runs}")
    print(json.dumps({name: statistics.median(measured) for name, measured in times.items()}))


if __name__ == "__main__":
    main()
