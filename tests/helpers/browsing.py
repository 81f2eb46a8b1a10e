"""A headless Chromium with the few things that tests of the page ask of it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
DRIVER = shutil.which("chromedriver")

needed = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver (apt install chromium chromium-driver)"
)


class Browser:
    """A headless Chromium."""

    def __init__(self) -> None:
        webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.driver.set_script_timeout(60)

    def run(self, code: str, *arguments: Any) -> Any:
        """What `code` returns in the page."""
        return self.driver.execute_script(code, *arguments)

    def look(self, width: int, scheme: str = "light", medium: str = "screen") -> None:
        """Set the width of the window, the colours and the medium."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme_feature = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": scheme_feature})
        time.sleep(0.3)  # charts follow the width

    def open(self, path: Path, folded: bool = False) -> None:
        """Load a page and wait until it is drawn, with nothing from before in the logs. folded: as it opens."""
        self.requests(), self.complaints()
        self.driver.get(path.as_uri())
        self.drawn()
        if not folded:
            self.run("document.querySelectorAll('.tools button')[1].click()")
            self.drawn()

    def drawn(self) -> None:
        """Wait until every chart that is not folded away is drawn."""
        until = time.monotonic() + 120
        while self.run("return document.documentElement.dataset.drawn") != "yes":
            assert time.monotonic() < until, "the page was not drawn"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def until(self, code: str, *arguments: Any) -> None:
        """Wait until `code` is true in the page."""
        end = time.monotonic() + 20
        while not self.run(code, *arguments):
            assert time.monotonic() < end, code
            time.sleep(0.05)

    def choose(self, selector: str, value: str) -> None:
        """Take an option of a list, or put text into a field."""
        change = "for (const event of ['input', 'change']) e.dispatchEvent(new Event(event));"
        self.run(f"const e = document.querySelector(arguments[0]); e.value = arguments[1]; {change}", selector, value)
        self.drawn()

    def requests(self) -> list[str]:
        """Every address asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Warnings and errors of the console since the last call."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
