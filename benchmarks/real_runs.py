"""Verdicts on real runs next to what their curves show: the table of benchmarks/real_runs.md.

    python benchmarks/real_runs.py [--runs ../shared/data/runs] [--markdown FILE]

OUTCOMES says what can be read off each file (not an author's claim), and which headlines agree with it. Without the
folder the script says so and stops. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

HEALTHY = "healthy"
UNTOLD = "cannot tell"
NOTHING = "no failure found"


@dataclass(frozen=True)
class Known:
    """What a file shows, and the headlines that agree with it. rules: modes that must be flagged as well."""

    outcome: str
    agrees: tuple[str, ...]
    rules: tuple[str, ...] = ()


OUTCOMES = {
    "verl/healthy-growth.log": Known("rising throughout, entropy halves", (HEALTHY,)),
    "verl/growth-plateau.log": Known("growth, then plateau; length × 4, entropy hump", (HEALTHY,)),
    "verl/length-collapse.log": Known(
        "near step 30 length 970 → 10, gradient 0.7 → 15; score falls while the reward after KL rises",
        ("length", "reward hacking"), ("length",),
    ),
    "verl/degrade.log": Known("score −0.51 → −0.89, entropy and length × 4", ("length", "reward decline"), ("length",)),
    "verl/short-healthy.log": Known("rising; every tenth reward cut off", (HEALTHY,)),
    "verl/short-healthy.wandb": Known("rising", (HEALTHY,)),
    "trl/llama3.1-8b.trainer_state.json": Known("0 → 2.54 at best → 1.33", (HEALTHY, "reward decline")),
    "trl/gemma3.trainer_state.json": Known("0.43 → 1.5, 25 rows", (HEALTHY, UNTOLD)),
    "unsloth/unslothai__notebooks__llama3.2-3b-advanced.ipynb": Known("sigmoid, then saturation", (HEALTHY,)),
    "unsloth/unslothai__notebooks__qwen2.5-3b.ipynb": Known("flat for 75 steps, then a rise", (HEALTHY,)),
    "unsloth/unslothai__notebooks__mistral-v0.3-7b.ipynb": Known("early plateau", (HEALTHY, NOTHING)),
    "unsloth/unslothai__notebooks__llama3.1-8b.ipynb": Known("rising", (HEALTHY,)),
    "unsloth/unslothai__notebooks__ministral3-3b-sudoku.ipynb": Known("strong rise", (HEALTHY,)),
    "unsloth/unslothai__notebooks__qwen3-4b-base.ipynb": Known("swings", (NOTHING, "oscillation")),
    "unsloth/unslothai__notebooks__gpt-oss-20b-kernel.ipynb": Known(
        "noise; 60 % of completions cut at the limit", ("length", NOTHING, "no learning")
    ),
    "unsloth/unslothai__notebooks__llama3.2-1b-fp8.ipynb": Known(
        "noise; 70 % of completions cut at the limit", ("length", NOTHING, "no learning")
    ),
    "tinker/rohunagrawal__reward-hacking-entropy__llama3.2-1b-easy-compilable.jsonl": Known(
        "proxy rises, true score stays 0", ("reward hacking",)
    ),
    "tinker/rohunagrawal__reward-hacking-entropy__llama3.2-3b-hard-compilable.jsonl": Known(
        "proxy rises, true score stays 0", ("reward hacking",)
    ),
    "tinker/rohunagrawal__reward-hacking-entropy__llama3.2-3b-easy-100f_g.jsonl": Known(
        "the true score is rewarded; 35 noisy rows", (HEALTHY, NOTHING)
    ),
    "tinker/rohunagrawal__reward-hacking-entropy__llama3.2-3b-hard-llmjudge.jsonl": Known(
        "weak; 29 rows after restarts", (UNTOLD, NOTHING)
    ),
}  # fmt: skip
"""What each file shows, and which verdicts agree with it."""


def judged(path: Path, known: Known) -> dict[str, Any]:
    """The verdict on one file and whether it agrees: right, wrong or cannot tell."""
    try:
        run = read(path)
    except UserError as error:
        return {
            "verdict": str(error),
            "head": "refused",
            "agrees": "wrong",
            "evidence": "",
            "onset": None,
            "present": [],
        }
    findings = diagnose(run)
    flagged = [f for f in findings if f.status == "present"]
    said = verdict(run, findings)
    head = said.fault or said.word
    modes = [f.fault for f in flagged]
    right = head in known.agrees and set(known.rules) <= set(modes)
    return {
        "rows": run.steps,
        "verdict": str(said),
        "head": head,
        "present": modes,
        "onset": flagged[0].onset if flagged else None,
        "evidence": said.line,
        "agrees": UNTOLD if head == UNTOLD else "right" if right else "wrong",
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The judged files as a Markdown table."""
    lines = ["| file | what it shows | verdict | first line | since step | |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        short = name.replace("unslothai__notebooks__", "").replace("rohunagrawal__reward-hacking-entropy__", "")
        others = [mode for mode in row["present"] if mode != row["head"]]
        head = row["head"] + (f" (also {', '.join(others)})" if others else "")
        since = "" if row["onset"] is None else row["onset"]
        lines.append(f"| {short} | {OUTCOMES[name].outcome} | {head} | {row['evidence']} | {since} | {row['agrees']} |")
    return "\n".join(lines)


def main() -> None:
    """Judge all files that are there, and print the table."""
    parser = argparse.ArgumentParser(description="Verdicts on real runs next to their known outcomes.")
    parser.add_argument("--runs", type=Path, default=Path("../shared/data/runs"), help="folder with the logs")
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    given = parser.parse_args()
    if not given.runs.is_dir():
        raise SystemExit(f"no folder {given.runs}: the logs are not part of the project; name it with --runs")
    here = {name: known for name, known in OUTCOMES.items() if (given.runs / name).exists()}
    rows = {name: judged(given.runs / name, known) for name, known in here.items()}
    text = table(rows)
    print(text)
    if given.markdown:
        given.markdown.write_text(text + "\n")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
