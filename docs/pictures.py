"""Take the pictures of the page that README.md and page.md show, with a headless Chromium and its driver.

python docs/pictures.py    # verdict.png of example.jsonl, page-light.png, page-dark.png and page-narrow.png of a run

Needs selenium, and Chromium with chromedriver. The pages are made anew, of example.jsonl.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from selenium import webdriver

HERE = Path(__file__).parent
SHOTS = {
    "verdict": (1120, 760, "light"),
    "page-light": (1280, 1600, "light"),
    "page-dark": (1280, 1600, "dark"),
    "page-narrow": (390, 1600, "light"),
}
"""Name of a picture -> width and height in pixels, and the theme."""


def main() -> None:
    """Make the page of example.jsonl and take every picture of it."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with TemporaryDirectory() as folder, webdriver.Chrome(options=options, service=service) as browser:
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "grposcope", "report", str(HERE / "example.jsonl"), "--out", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name, (width, height, scheme) in SHOTS.items():
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            browser.get(page.as_uri())
            while browser.execute_script("return document.documentElement.dataset.drawn") != "yes":
                time.sleep(0.1)
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            (HERE / "pictures" / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
