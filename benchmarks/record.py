"""How long a long record takes to read, its page to make, and that page to draw.

    python benchmarks/record.py                         10^5 steps, 10^6 groups of 8
    python benchmarks/record.py --steps 10000 --graded  rewards that are all different

Writes a synthetic record into a temporary folder, in the format of `grposcope train`, and measures,
each `--repeats` times in turn: reading the files' bytes, `read` of the run (in a process that has
already imported everything), the sections and the page, and the drawing in headless Chromium if it
is installed (from the start of the navigation to the last chart). Wall and processor seconds, of all
threads; on a machine that others use, the latter and the least say more. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from grposcope import runs_page
from grposcope.logs import read
from grposcope.render import page

FIELDS = ("reward", "reward_std", "dead_fraction", "entropy", "kl_old", "length", "truncated", "loss", "grad_norm",
          "clip_low", "clip_high", "lr", "seconds_sample", "seconds_grade", "seconds_update",
          "tokens_per_second")  # fmt: skip


def record(folder: Path, steps: int, per_step: int, group: int, graded: bool) -> None:
    """Write a record of `steps` steps with `per_step` groups each into the folder."""
    rng = np.random.default_rng(0)
    config = {"format": 2, "settings": {"steps": steps, "group": group, "prompts": per_step}, "task": "synthetic"}
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "steps.jsonl").open("w") as rows, (folder / "groups.jsonl").open("w") as groups:
        for step in range(1, steps + 1):
            row: dict[str, Any] = {"step": step, **dict(zip(FIELDS, rng.random(len(FIELDS)).tolist(), strict=True))}
            row |= {"kl": "NaN", "rollouts_trained": 213, "tokens": 4512, "time": 1.7e9 + step / 3}
            rows.write(json.dumps(row) + "\n")
            rewards = rng.random((per_step, group)) if graded else (rng.random((per_step, group)) < 0.4).astype(float)
            for problem, values in zip(rng.integers(0, 20_000, per_step).tolist(), rewards.tolist(), strict=True):
                line = {"step": step, "problem": f"train-{problem}", "rewards": values, "truncated": [False] * group}
                groups.write(json.dumps(line) + "\n")
    with (folder / "evals.jsonl").open("w") as rows:
        for step in range(0, steps + 1, 40):
            scores = {f"pass@{k}": {"value": min(1.0, k * 0.2), "se": 0.02, "n": 200, "flag": ""} for k in (1, 2, 4)}
            rows.write(json.dumps({"step": step, **scores}) + "\n")


def timed(repeats: int, work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Median and least wall time and least processor time in seconds, and the last result."""
    walls, processors, result = [], [], None
    for _ in range(repeats):
        result = None  # frees what the last repeat made before it is made again
        began, used = time.perf_counter(), time.process_time()
        result = work()
        walls.append(time.perf_counter() - began)
        processors.append(time.process_time() - used)
    figures = {"wall_median": statistics.median(walls), "wall_least": min(walls), "processor_least": min(processors)}
    return {name: round(value, 3) for name, value in figures.items()}, result


def drawn(path: Path, repeats: int) -> dict[str, float] | None:
    """Seconds until the last chart of the page is drawn; None without Chromium, chromedriver and selenium."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        return None
    if not (chromium and driver_path):
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    walls, busy = [], []
    try:
        driver.execute_cdp_cmd("Performance.enable", {})
        for _ in range(repeats):
            driver.get(path.as_uri())
            while driver.execute_script("return document.documentElement.dataset.drawn") != "yes":
                time.sleep(0.1)
            walls.append(driver.execute_script("return performance.getEntriesByName('drawn')[0].startTime / 1000"))
            metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            busy.append(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))
    finally:
        driver.quit()
    values = {"wall_median": statistics.median(walls), "wall_least": min(walls), "tasks_least": min(busy)}
    return {name: round(value, 3) for name, value in values.items()}


def main() -> None:
    """Write the record, measure every part, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="optimiser steps (default: 100000)")
    parser.add_argument("--prompts", type=int, default=10, help="groups per step (default: 10)")
    parser.add_argument("--group", type=int, default=8, help="rollouts per group (default: 8)")
    parser.add_argument("--graded", action="store_true", help="rewards that are all different, not 0 and 1")
    parser.add_argument("--repeats", type=int, default=5, help="how often each part is measured (default: 5)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder, given.steps, given.prompts, given.group, given.graded)
        files = {path.name: path.stat().st_size for path in folder.glob("*.jsonl")}
        results: dict[str, Any] = {"steps": given.steps, "groups": given.steps * given.prompts, "bytes": files}
        page._chart_script()
        results["bytes_only"], _ = timed(
            given.repeats, lambda: [path.read_bytes() for path in folder.glob("*.jsonl")][:0]
        )
        results["read"], run = timed(given.repeats, lambda: read(folder))
        results["sections"], content = timed(given.repeats, lambda: runs_page.document([run]))
        results["page"], size = timed(given.repeats, lambda: page.write(content, folder / "page.html"))
        results["page_bytes"] = size
        results["drawn"] = drawn(folder / "page.html", given.repeats)
    results["load"] = [round(value, 1) for value in os.getloadavg()]
    for part in ("bytes_only", "read", "sections", "page", "drawn"):
        print(f"{part:12} {results[part]}")
    print(f"page of {size / 1e6:.2f} MB; load of the machine {results['load']}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
