"""rldoctor, rlprobe and rlwatch on the runs of `labelled_curves`: what they warn of, next to the verdicts here.

    PYTHONPATH=FOLDER python benchmarks/labelled_peers.py --seeds 10000 20 --phi 0.3 0.9 --out RESULTS.json

FOLDER holds the three packages (pip install --target FOLDER --no-deps rldoctor==0.2.0 rlprobe==0.1.0 rlwatch==0.5.1).
rldoctor reads the same files through its own command line. The other two read no logs: they are given the same rows
as their callbacks for TRL would give them. Counted are warnings and worse (rlprobe: any finding). RIGHT says which of
their names count as the right mode; where a peer has none, it cannot win. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labelled_curves import NULLS, SCENARIOS, Made, make
from labelled_files import FORMS, rows
from labelled_suite import diagnosed

RIGHT: dict[str, dict[str, tuple[str, ...]]] = {
    "no learning": {"rldoctor": ("plateau",)},
    "starved": {"rldoctor": ("advantage_collapse",), "rlprobe": ("DEGENERATE_GROUPS", "REWARD_STD_DEATH")},
    "saturated": {"rldoctor": ("advantage_collapse",), "rlprobe": ("DEGENERATE_GROUPS", "REWARD_STD_DEATH")},
    "entropy collapse": {
        "rldoctor": ("entropy_collapse",), "rlprobe": ("ENTROPY_COLLAPSE",), "rlwatch": ("entropy_collapse",),
    },
    "reward hacking": {
        "rldoctor": ("reward_hacking", "reward_composition"), "rlprobe": ("REWARD_HACK_LENGTH", "FORMAT_GAMING"),
        "rlwatch": ("reward_hacking",),
    },
    "length": {"rldoctor": ("length_pathology",), "rlprobe": ("REWARD_HACK_LENGTH", "TRUNCATION_STARVE")},
    "kl blow-up": {"rldoctor": ("kl_drift",), "rlprobe": ("KL_BLOWUP",), "rlwatch": ("kl_explosion",)},
    "gradient spikes": {
        "rldoctor": ("gradient_pathology",), "rlprobe": ("GRAD_PATHOLOGY",), "rlwatch": ("gradient_norm_spike",),
    },
}  # fmt: skip


def rldoctor(made: Made, form: str, seed: int) -> set[str]:
    """Names of the detectors of rldoctor that warn about the file."""
    from rl_doctor import cli

    with tempfile.TemporaryDirectory() as folder:
        path = FORMS[form](Path(folder), made, seed)
        if path.is_dir():
            path = next(path.glob("checkpoint-*/trainer_state.json"))
        target = Path(folder) / "peer.json"
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            cli.main(["diagnose", str(path), "--format", "json", "--output", str(target)])
        answer = json.loads(target.read_text())
    entries = answer.get("findings", answer.get("diagnoses", []))
    bad = ("WARN", "WARNING", "CRITICAL", "CRIT")
    return {str(e.get("detector") or e.get("id")) for e in entries if str(e.get("severity", "")).upper() in bad}


def rlprobe(made: Made, form: str, seed: int) -> set[str]:
    """Names of the signatures that rlprobe finds."""
    from rlprobe.doctor.engine import diagnose_view
    from rlprobe.doctor.runview import RunView
    from rlprobe.schemas import RunManifest, StepRecord

    records = [
        StepRecord(
            step=step, reward_mean=row["reward"], reward_std=row["reward_std"], kl_mean=row["kl"],
            entropy_mean=row["entropy"], clip_fraction=row["clip_low"] + row["clip_high"],
            zero_variance_group_frac=row["dead_fraction"], grad_norm=row["grad_norm"], lr=row["lr"], loss=row["loss"],
            completion_len_mean=row["length"], truncation_rate=row["truncated"],
            reward_components={
                name.partition("/")[2]: value for name, value in row.items() if name.startswith("component/")
            } or {"right": row["reward"]},
        )
        for step, row, _ in rows(made)
    ]  # fmt: skip
    manifest = RunManifest(run_id="x", created_at="2026-01-01T00:00:00", algorithm="grpo")
    return {str(finding.signature_id) for finding in diagnose_view(RunView(manifest, records))}


def rlwatch(made: Made, form: str, seed: int) -> set[str]:
    """Names of the detectors of rlwatch that alert at any step."""
    from rlwatch.config import RLWatchConfig
    from rlwatch.detectors import DetectorSuite

    suite, alerting = DetectorSuite(RLWatchConfig()), set()
    for step, row, _ in rows(made):
        alerts = suite.check_step(
            step, entropy=row["entropy"], kl_divergence=row["kl"], reward_mean=row["reward"],
            reward_std=row["reward_std"], rewards=None, advantage_std=None, loss=row["loss"],
            grad_norm=row["grad_norm"],
        )  # fmt: skip
        alerting |= {str(alert.detector) for alert in alerts}
    return alerting


def grposcope_modes(made: Made, form: str, seed: int) -> set[str]:
    """Modes that `diagnose` flags."""
    return {finding.fault for finding in diagnosed(made, form, seed) if finding.status == "present"}


TOOLS: dict[str, Callable[[Made, str, int], set[str]]] = {
    "grposcope": grposcope_modes, "rldoctor": rldoctor, "rlprobe": rlprobe, "rlwatch": rlwatch,
}  # fmt: skip


def right(tool: str, mode: str) -> tuple[str, ...]:
    """Names of this tool that count as the mode."""
    return (mode,) if tool == "grposcope" else RIGHT.get(mode, {}).get(tool, ())


def main() -> None:
    """Run all tools on the same runs and print detection, then false alarms."""
    parser = argparse.ArgumentParser(description="Other tools on the labelled suite.")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FIRST", "COUNT"), help="default: 0 20")
    parser.add_argument("--phi", type=float, nargs="+", default=(0.3, 0.9), help="default: 0.3 0.9")
    parser.add_argument(
        "--form", choices=list(FORMS), default="trl", help="form of the logs that are read (default: trl)"
    )
    parser.add_argument("--out", type=Path, help="write the counts here")
    options = parser.parse_args()
    first, count = options.seeds
    versions = {name: version(name) for name in TOOLS}
    print(versions)
    counts: dict[str, Any] = {}
    for phi in options.phi:
        for name in SCENARIOS:
            for tool, check in TOOLS.items():
                said: Counter[str] = Counter()
                hit = 0
                for seed in range(first, first + count):
                    warned = check(make(name, seed, phi), options.form, seed)
                    said.update(warned)
                    said["any"] += bool(warned)
                    hit += bool(warned & set(right(tool, SCENARIOS[name][1])))
                counts[f"{phi:g} | {name} | {tool}"] = {"right": hit, **said}
            if options.out:
                options.out.write_text(json.dumps({"versions": versions, "form": options.form, "counts": counts}))
    print(f"\nnamed as the right mode, of {count} ({options.form} files); –: the tool has no name for it")
    for title, names in (("failure", [n for n in SCENARIOS if n not in NULLS or n == "flat null"]), ("null", NULLS)):
        print(f"\n| {title} | φ | " + " | ".join(TOOLS) + " |\n|---|---|" + "---|" * len(TOOLS))
        for name in names:
            for phi in options.phi:
                cells = []
                for tool in TOOLS:
                    cell = counts[f"{phi:g} | {name} | {tool}"]
                    if title == "null":
                        whole = {key: value for key, value in cell.items() if key not in ("right", "any")}
                        cells.append(", ".join(f"{key} {value}" for key, value in sorted(whole.items())) or "0")
                    else:
                        cells.append(str(cell["right"]) if right(tool, SCENARIOS[name][1]) else "–")
                print(f"| {name} | {phi:g} | " + " | ".join(cells) + " |")
    print(json.dumps({"versions": versions, "counts": counts}))


if __name__ == "__main__":
    main()
