"""What a reader does on the page: zooms, smooths, searches, unfolds, and compares completions."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from browsing import Browser, needed

from grposcope import runs_page
from grposcope.logs import read
from grposcope.render import page

pytestmark = [needed, pytest.mark.slow]

AXE = os.environ.get("GRPOSCOPE_AXE", "")
"""Path of axe.min.js (npm install axe-core), for the test of accessibility."""

PATHS = """return Object.fromEntries([...document.querySelectorAll('.chart')].filter(c => c.querySelector('svg'))
  .map(c => [c.id.slice(6), [...c.querySelectorAll('.mark-line path')].map(p => p.getAttribute('d'))]))"""
TICKS = """const labels = document.querySelectorAll(`#chart-${arguments[0]} .role-axis-label text`);
  return [...labels].map(label => label.textContent).sort()"""


def other_log(path: Path, steps: int = 40) -> Path:
    """A log in JSON lines with components of the reward and metrics that nobody knows."""
    rows = []
    for step in range(1, steps + 1):
        row: dict[str, float] = {"step": step, "reward": step / steps + step % 3 / 10, "entropy": 1 / step}
        row |= {f"component/{name}": step % (i + 2) / 3 for i, name in enumerate(("format", "accuracy"))}
        row |= {f"timing/part_{i}": 1 + step % (i + 2) for i in range(8)}
        row |= {f"memory/part_{i}": 2.0 + step % (i + 3) for i in range(6)}
        rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rollouts(folder: Path) -> Path:
    """A verl rollout_data_dir: rewards of two components, right where the answer is 4."""
    folder.mkdir()
    for step in (1, 2, 3):
        rows = []
        for problem in range(2):
            for i in range(4):
                right, form = float(i < step), float(i % 2)
                text = f"the sum is {4 if right else 5} <b>bold</b> say {synthetic.HOSTILE[0]}" + " at length" * i
                rows.append({"input": f"What is 2+{problem}?", "output": text, "score": right + form / 2,
                             "step": step, "accuracy": right, "form": form})  # fmt: skip
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {
        "run": [read(synthetic.make(folder / "run", steps=60))],
        "log": [read(other_log(folder / "log.jsonl"))],
        "rollouts": [read(rollouts(folder / "rolls"))],
    }
    for name, content in runs.items():
        page.write(runs_page.document(content), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in runs}


def test_a_drag_zooms_all_charts_and_a_double_click_shows_the_whole_run(
    browser: Browser, pages: dict[str, Path]
) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.look(1280)
    browser.open(pages["run"], folded=True)
    before, ticks = browser.run(PATHS), browser.run(TICKS, "heldout")
    chart = browser.driver.find_element("id", "chart-reward")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser.driver).move_to_element(chart).click_and_hold().move_by_offset(80, 5).release().perform()
    browser.until("return document.querySelector('.window input').value")
    start, end = (
        float(v) for v in browser.run("return [...document.querySelectorAll('.window input')].map(i => +i.value)")
    )
    assert 20 < start < end < 55
    _until(lambda: browser.run(TICKS, "heldout") != ticks)
    assert browser.run(PATHS)["heldout"] != before["heldout"]  # charts share the window
    lines = browser.run(
        "return [...document.querySelectorAll('.cursor')].filter(c => c.style.display === 'block').length"
    )
    assert lines >= 2  # and the cursor
    ActionChains(browser.driver).double_click(chart).perform()
    browser.until("return document.querySelector('.window input').value === ''")
    browser.until("return document.querySelector('.window button').disabled")
    _until(lambda: browser.run(TICKS, "heldout") == ticks)
    assert browser.complaints() == []


def test_the_window_can_be_typed(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(1280)
    browser.open(pages["run"], folded=True)
    for place, value in ((1, "20"), (2, "40")):
        browser.choose(f".window input:nth-child({place})", value)
    _until(lambda: "60" not in browser.run(TICKS, "reward"))
    steps = [float(tick) for tick in browser.run(TICKS, "reward") if tick.isdigit() and int(tick) > 1]
    assert steps
    assert min(steps) >= 20
    assert max(steps) <= 40


def test_smoothing_keeps_the_curve_as_recorded_behind_it(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(1280)
    browser.open(pages["run"], folded=True)
    before = browser.run(PATHS)
    browser.choose(".tools select", "strong")
    after = browser.run(PATHS)
    assert len(after["reward"]) == len(before["reward"]) + 1
    assert before["reward"][0] in after["reward"]  # as recorded
    rough, smooth = (_roughness(path) for path in (before["reward"][0], after["reward"][-1]))
    assert smooth < rough / 2
    assert after["heldout"] == before["heldout"]  # evaluations with intervals are left as they are
    browser.choose(".tools select", "none")
    assert browser.run(PATHS) == before


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true")


def _roughness(path: str) -> float:
    """Sum of the heights that a line goes up and down."""
    heights = [float(point.split(",")[1]) for point in path.replace("M", "L").split("L") if point]
    return sum(abs(b - a) for a, b in itertools.pairwise(heights))


def test_charts_by_tokens_and_on_a_log_axis(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(1280)
    browser.open(pages["run"])
    assert browser.run("return [...document.querySelectorAll('.tools select')[1].options].map(o => o.value)") == [
        "step", "tokens", "hours",
    ]  # fmt: skip
    title = "return document.querySelector(`#chart-${arguments[0]} .role-axis-title text`).textContent"
    browser.choose(".tools label:nth-of-type(2) select", "tokens")
    assert browser.run(title, "reward") == "tokens"
    assert any(tick.endswith("k") for tick in browser.run(TICKS, "reward"))
    assert browser.run(title, "forecast") == "step"  # what is ahead has no tokens yet
    browser.choose(".tools label:nth-of-type(2) select", "step")
    linear = browser.run(TICKS, "entropy")
    browser.run("document.querySelector('.tools input[type=checkbox]').click()")
    browser.drawn()
    assert browser.run(TICKS, "entropy") != linear
    assert browser.complaints() == []


def test_unknown_metrics_are_folded_and_found(browser: Browser, pages: dict[str, Path]) -> None:
    def shown() -> list[str]:
        return browser.run(
            "return [...document.querySelectorAll('.chart svg')].map(s => s.closest('.chart'))"
            ".filter(c => c.checkVisibility({contentVisibilityAuto: true})).map(c => c.id.slice(6))"
        )

    browser.look(1280)
    browser.open(pages["log"], folded=True)
    first = shown()
    assert {"component_format", "component_accuracy"} <= set(first)
    assert not [name for name in first if name.startswith(("timing", "memory"))]
    sections = browser.run("return [...document.querySelectorAll('section')].map(s => s.id)")
    assert sections.index("components") == sections.index("learning") + 1
    browser.choose(".tools input[type=search]", "timing part_3")
    assert shown() == ["timing_part_3"]
    assert browser.run("return document.querySelector('.tools .found').textContent") == "1 chart"
    browser.choose(".tools input[type=search]", "")
    assert sorted(shown()) == sorted(first)
    groups = browser.run("return [...document.querySelectorAll('#other .fold > summary h3')].map(h => h.textContent)")
    assert groups == ["timing", "memory"]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_view_is_short(browser: Browser, pages: dict[str, Path], width: int) -> None:
    browser.look(width)
    browser.open(pages["log"], folded=True)
    assert browser.run("return document.documentElement.scrollHeight") < 8000


def test_findings_are_cards_on_a_phone(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(390)
    browser.open(pages["run"])
    cells = browser.run(
        "return [...document.querySelectorAll('#diagnosis td[data-label=\"what was seen\"]')].map(c => {"
        "const b = c.getBoundingClientRect(); return [b.left, b.right, c.textContent.length, b.height] })"
    )
    assert len(cells) > 5
    assert all(left >= 0 and right <= 390 for left, right, *_ in cells)
    assert all(height < 60 + characters for *_, characters, height in cells)  # no blank rows
    roles = browser.run("return [...document.querySelectorAll('#diagnosis table, #diagnosis td')].map(e => e.role)")
    assert set(roles) == {"table", "cell"}


def test_completions_are_filtered_searched_and_set_beside(browser: Browser, pages: dict[str, Path]) -> None:
    def seen() -> list[str]:
        return browser.run("return [...document.querySelectorAll('.answer header b')].map(b => b.textContent)")

    browser.look(1280)
    browser.open(pages["rollouts"])
    fields = browser.run("return [...document.querySelectorAll('.answer .parts')].map(p => p.innerText.split(/\\s+/))")
    assert fields[0] == ["accuracy", "1", "form", "0"]
    kinds = browser.run("return [...document.querySelectorAll('.controls select')[2].options].map(o => o.value)")
    assert kinds == ["all", "reward above the group's mean", "reward below the group's mean", "components disagree"]
    browser.choose(".controls label:nth-of-type(3) select", "components disagree")
    assert browser.run("return document.querySelector('#viewer .found').textContent") == "16 completions at 3 steps"
    assert seen() == ["reward 1", "reward 1", "reward 0.5"]
    browser.choose(".controls label:nth-of-type(3) select", "all")
    browser.choose(".controls input[type=search]", "is 5 length")
    assert seen() == ["reward 0.5"]
    browser.choose(".controls input[type=search]", "no such words")
    assert "No completion" in browser.run("return document.querySelector('#viewer .found').textContent")
    browser.choose(".controls input[type=search]", "")
    browser.choose(".controls label:nth-of-type(5) select", "1")
    wheres = browser.run("return [...document.querySelectorAll('.where')].map(w => w.textContent.slice(0, 6))")
    assert wheres == ["Step 1", "Step 3"]
    assert browser.run("return document.querySelectorAll('.answer b b, .answer script, .answer img').length") == 0


def test_two_completions_are_compared_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.look(1280)
    browser.open(pages["rollouts"])
    for place in (2, 3):
        browser.run("document.querySelectorAll('.answer button')[arguments[0]].focus()", place)
        browser.press(Keys.ENTER)
    parts = browser.run(
        "return ['del', 'ins'].map(tag => [...document.querySelectorAll(`.difference ${tag}`)].map(e => e.textContent))"
    )
    assert parts == [["4"], ["5", " at length"]]
    looks = browser.run(
        "return ['del', 'ins'].map(tag => getComputedStyle(document.querySelector(`.difference ${tag}`)))"
        ".map(style => style.textDecorationLine)"
    )
    assert looks == ["line-through", "underline"]  # not by colour alone
    assert browser.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    assert "onerror" in browser.run("return document.querySelector('.difference').textContent")
    assert browser.run("return document.querySelectorAll('.difference script, .difference img').length") == 0
    assert "pwned" not in browser.run("return document.title")


@pytest.mark.slow
@pytest.mark.skipif(not AXE, reason="needs axe-core: GRPOSCOPE_AXE=path/of/axe.min.js")
@pytest.mark.parametrize("name", ["run", "log", "rollouts"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    browser.look(width, scheme)
    for folded in (True, False):
        browser.open(pages[name], folded)
        browser.run(Path(AXE).read_text())
        found: list[dict[str, Any]] = browser.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(r => done(r.violations.map(v => ({id: v.id, impact: v.impact,"
            "nodes: v.nodes.slice(0, 3).map(n => n.html)}))))"
        )
        assert [one for one in found if one["impact"] in ("serious", "critical")] == []
