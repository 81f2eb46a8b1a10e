"""The picture of a page with three rewards and a constraint: a run of `rewards_pareto.py` under form >= 0.9, probed.

    python experiments/rewards_page.py OUT docs/pictures/rewards-page.png      trains where OUT/run is not there

Needs Chromium, chromedriver and selenium.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rewards_pareto import LONGEST, lesson, problems

SECTIONS = ("rewards", "constraints")
FUNCTIONS = Path(__file__).resolve().parent / "rewards_pareto.py"


def run(out: Path) -> Path:
    """The record of the run, which is trained where it is not there."""
    from grposcope.lab.train import loop
    from grposcope.lab.train.config import TrainConfig

    folder = out / "run"
    if not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        loop.train(TrainConfig(
            model=str(lesson(out)), task=f"jsonl:{problems(out)}", reward=f"{FUNCTIONS}:right,form=0.5,short=0.5",
            aggregation="standardized_components", constraint="form>=0.9", dual_rate=0.2, dual_damping=0.2, steps=60,
            prompts=16, group=8, max_tokens=LONGEST, lr=4e-4, warmup=5, schedule="constant", eval_problems=0,
            checkpoint_every=0, rollouts_every=0, probe_every=5, probe_prompts=8, threads=1, out=str(folder),
        ))  # fmt: skip
    return folder


def shot(page: Path, picture: Path, sections: Sequence[str] = SECTIONS) -> None:
    """Photograph these sections of the page, one below the other."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        size = {"width": 1000, "height": 2400, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.as_uri())
        end = time.monotonic() + 60
        while driver.execute_script("return document.documentElement.dataset.drawn") != "yes":
            if time.monotonic() > end:
                raise SystemExit("the page was not drawn")
            time.sleep(0.1)
        kept = "const kept = arguments[0]; document.querySelectorAll('section').forEach(s => { s.hidden = "
        driver.execute_script(kept + "!kept.includes(s.id); })", list(sections))
        driver.find_element("css selector", "main").screenshot(str(picture))
    finally:
        driver.quit()


def main() -> None:
    """Train, write the page, and photograph it."""
    from grposcope.cli import main as command

    out, picture = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder = run(out)
    command(["report", str(folder), "--out", str(out / "page.html")])
    shot(out / "page.html", picture)


if __name__ == "__main__":
    main()
