"""What another doctor of logs says of the runs of the bench: rldoctor, from the log alone.

    python benchmarks/faults/peers.py RLDOCTOR [--keep FOLDER] [--results FILE]

RLDOCTOR: the command of rldoctor 0.2.0, in an environment of its own. Rows of our record are given under TRL's keys.
Detected: a detector warns that does not warn of the clean twin. rlprobe 0.1.0 reads its own recordings only, and
martingale 0.2.0 its own store of tokens and revisions, written by its own client while a run is served: neither reads
what these runs leave.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import run
from catalogue import FAULTS

KEYS = {
    "reward": "reward", "reward_std": "reward_std", "dead_fraction": "frac_reward_zero_std", "entropy": "entropy",
    "kl": "kl", "length": "completions/mean_length", "truncated": "completions/clipped_ratio", "loss": "loss",
    "grad_norm": "grad_norm", "lr": "learning_rate", "step": "step",
}  # fmt: skip


def main() -> None:
    """Ask of each run, and add the answers to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("--keep", type=Path, default=Path("build/faults"))
    parser.add_argument("--results", type=Path, default=run.HERE / "results.json")
    given = parser.parse_args()
    results = json.loads(given.results.read_text())
    for fault in FAULTS:
        if fault.key in results:
            twin = warned(given.command, given.keep / run._named(run.twin_key(fault)))
            results[fault.key]["rldoctor"] = sorted(warned(given.command, given.keep / run._named(fault.key)) - twin)
    run.write_json(given.results, results)
    print(sum(bool(one.get("rldoctor")) for one in results.values()), "of", len(results), "faults seen by rldoctor")


def warned(command: str, folder: Path) -> set[str]:
    """Detectors that warn of a run."""
    states = sorted((folder / "trl").glob("checkpoint-*/trainer_state.json"), key=lambda p: int(p.parent.name[11:]))
    if states:
        rows = json.loads(states[-1].read_text())["log_history"]
    else:
        lines = map(json.loads, (folder / "steps.jsonl").read_text().splitlines())
        rows = [{KEYS[key]: value for key, value in row.items() if key in KEYS and value != "NaN"} for row in lines]
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log.jsonl"
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = subprocess.run([command, "diagnose", str(log), "--format", "json"], capture_output=True, text=True)
    return {
        one["detector"] for one in json.loads(done.stdout)["findings"] if one["severity"] in ("WARNING", "CRITICAL")
    }


if __name__ == "__main__":
    main()
