"""Small sweeps of the shipped model, runs that take a second or two, and what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from grposcope.lab.sweeps import plan as plans
from grposcope.lab.sweeps.plan import SweepPlan

BASE: dict[str, Any] = {
    "steps": 2,
    "prompts": 2,
    "group": 2,
    "max_tokens": 4,
    "eval_problems": 4,
    "eval_samples": 1,
    "eval_every": 0,
    "rollouts_every": 0,
    "checkpoint_every": 1,
    "device": "cpu",
}


def small(out: Path, seeds: int = 1, recipes: tuple[str, ...] = ("grpo", "rloo"), **changes: Any) -> SweepPlan:
    """A plan of a cell per recipe; changes: of the base."""
    return plans.of({"seeds": seeds, "base": {**BASE, **changes}, "grid": {"recipe": list(recipes)}}, out)


def phase(folder: Path) -> dict[str, Any]:
    """phase.json of a run; empty where there is none."""
    try:
        return json.loads((folder / "phase.json").read_text())
    except (OSError, ValueError):
        return {}


def killed_at(folder: Path, step: int) -> threading.Thread:
    """A thread that kills the process of a run, as a fault of the machine would, once it is at a step; started."""

    def watch() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            now = phase(folder)
            if now.get("step", 0) >= step and now.get("phase") in ("sampling", "update"):
                os.kill(now["pid"], signal.SIGKILL)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def gone(pid: int, seconds: float = 60) -> bool:
    """Whether a process ends within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False
