"""The page in a real browser: drawn whole, silent, alone, usable by keyboard, and hostile text stays text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import synthetic_probe
from browsing import Browser, needed

from grposcope import runs_page
from grposcope.logs import read
from grposcope.render import page

SVGS = "document.querySelectorAll('.chart svg')"

pytestmark = [needed, pytest.mark.slow]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    hostile = synthetic.make(folder / "a <img src=x onerror=alert(1)> \u202eb", steps=120, texts=synthetic.HOSTILE)
    other = synthetic.make(folder / "other", steps=60, seed=1, settings={"recipe": "</script>"})
    probed = synthetic.make(folder / "probed", steps=60)
    for step in (20, 60):
        place = probed / "probes" / f"step-{step:06d}"
        synthetic_probe.make(place, seed=step, texts=synthetic.HOSTILE, prompts=8, task=synthetic.HOSTILE[0])
    runs = {"one": [read(hostile)], "two": [read(hostile), read(other)], "probed": [read(probed)]}
    for name, content in runs.items():
        page.write(runs_page.document(content), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in runs}


@pytest.mark.parametrize("name", ["one", "two", "probed"])
def test_every_chart_is_drawn_without_complaint_or_request(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.look(1280)
    browser.open(pages[name])
    data = browser.run("return JSON.parse(document.getElementById('data').textContent)")
    figures = [figure["name"] for section in (data["top"], *data["sections"]) for figure in section.get("figures", [])]
    assert len(figures) >= 14
    drawn = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('.chart')].map(c => [c.id, "
        "[...c.querySelectorAll('svg .mark-line path, svg .mark-rect path, svg .mark-symbol path')]"
        ".filter(p => (p.getAttribute('d') || '').length > 5).length]))"
    )
    assert drawn.keys() == {f"chart-{figure}" for figure in figures}
    assert all(marks > 0 for marks in drawn.values()), drawn
    widths = browser.run(
        "return [...document.querySelectorAll('.chart svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert all(width > 180 for width in widths), "small multiples stand four in a row"
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [pages[name].as_uri()]
    assert (
        browser.run("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length")
        == 0
    )


def test_the_policy_stops_what_is_not_ours(browser: Browser, pages: dict[str, Path]) -> None:
    """The page cannot call out nor run what was put into it, even if something tries."""
    browser.open(pages["one"])
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.injected = 1'; document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'https://example.invalid/x.png'; document.body.append(i);"
        "window.refused = ''; fetch('https://example.invalid/').catch(e => { window.refused = String(e); });"
    )
    time.sleep(0.3)
    assert browser.run("return [window.injected, typeof window.refused]") == [None, "string"]
    blocked = browser.complaints()
    for what in ("inline script", "image 'https://example.invalid", "'https://example.invalid/' violates"):
        assert any(what in m and "Content Security Policy" in m for m in blocked), blocked


def test_hostile_text_is_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(1280)
    browser.open(pages["one"])
    assert "onerror=alert(1)" in browser.run("return document.title")
    assert "pwned" not in browser.run("return document.title")
    assert browser.run("return document.querySelectorAll('main img, main script, main b b, main iframe').length") == 0
    shown = browser.run("return [...document.querySelectorAll('.answer .text')].map(t => t.textContent)")
    assert shown[0] == synthetic.HOSTILE[0]
    assert shown[1].startswith("ESC[31mredESC[0m ESC]0;titleBEL bellBEL backBSspaceNULnul")
    assert shown[2].startswith("left U+202Egnp.exeU+202C right U+2066isoU+2069 U+200BzeroU+FEFF width U+061C")
    assert shown[3] == "a" * 4000 + "cut here: the first 4,000 of 1,000,000 characters"
    assert shown[4].startswith("&lt;b&gt; & <!-- --> U+2028lineU+2029paragraph ]]> ${1+1} {{7*7}}")
    marks = browser.run("return [...document.querySelectorAll('.answer .unseen')].map(m => m.textContent)")
    assert {"ESC", "NUL", "U+202E", "U+2066", "U+200B"} <= set(marks)
    name = browser.run("return document.querySelector('.name b').textContent")
    assert name == "a <img src=x onerror=alert(1)> [U+202E]b"
    assert browser.run("return document.body.innerText.length") < 200_000


def test_the_viewer_works_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    def where() -> list[str]:
        return browser.run(
            "return [document.querySelector('.where').textContent, document.querySelector('.prompt').textContent]"
        )

    browser.look(1280)
    browser.open(pages["one"])
    browser.run("document.querySelector('nav a:last-child').focus()")
    for _ in range(100):  # it can be reached with the tab key alone
        browser.press(Keys.TAB)
        if browser.run("return document.activeElement.id") == "viewer":
            break
    assert browser.run("return document.activeElement.id") == "viewer"
    assert where()[0].startswith("Step 120, 12 of 12 shown; problem 1 of 3; 8 completions")
    browser.press(Keys.ARROW_LEFT)
    assert where()[0].startswith("Step 110, 11 of 12")
    browser.press(Keys.ARROW_DOWN)
    assert where()[0].startswith("Step 110, 11 of 12 shown; problem 2 of 3")
    assert where()[1] == "41-1+110="
    browser.press(*[Keys.ARROW_LEFT] * 15, *[Keys.ARROW_DOWN] * 5)
    assert where()[0].startswith("Step 10, 1 of 12 shown; problem 3 of 3")
    browser.press(Keys.ARROW_UP, Keys.ARROW_RIGHT)
    assert where()[0].startswith("Step 20, 2 of 12 shown; problem 2 of 3")
    viewer = browser.run(
        "const v = document.getElementById('viewer'); return [v.getAttribute('role'), v.getAttribute('aria-label'),"
        "v.tabIndex, document.querySelector('.where').getAttribute('aria-live')]"
    )
    assert viewer == ["group", viewer[1], 0, "polite"]
    assert "arrow keys" in viewer[1]

    def shading() -> list[str]:
        return browser.run("return [...document.querySelectorAll('.answer .text > span')].map(s => s.style.background)")

    looks = {"logp": shading()}
    for kind in ("entropy", "weight"):
        browser.run("document.querySelector(`.pick input[value=${arguments[0]}]`).focus()", kind)
        browser.press(Keys.SPACE)
        looks[kind] = shading()
    assert all(any(look) for look in looks.values())
    assert looks["logp"] != looks["entropy"] != looks["weight"]
    assert any("--plus" in color for color in looks["weight"])
    assert any("--minus" in color for color in looks["weight"])
    browser.run(
        "const s = document.querySelector('.controls select'); s.selectedIndex = 4;s.dispatchEvent(new Event('change'))"
    )
    assert where()[0].startswith("Step 50, 5 of 12")


def test_the_credit_of_a_probe_is_seen_and_reached_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    def tokens() -> list[list[Any]]:
        """Text, colour, classes and tooltip of the tokens of the first completion."""
        return browser.run(
            "return [...document.querySelector('.answer .text').querySelectorAll(':scope > span')]"
            ".map(s => [s.textContent, s.style.background, s.className, s.title])"
        )

    browser.look(1280)
    browser.open(pages["probed"])
    browser.run("document.querySelector('.controls select').focus()")
    assert browser.run("return document.querySelector('.key').hidden")
    assert browser.run("return document.querySelectorAll('.answer .shared, .answer .common').length") == 0
    browser.press(Keys.ARROW_DOWN)  # the list of runs: probed, then its probe
    assert browser.run("return document.activeElement.value") == "probed, probe"
    where = browser.run("return document.querySelector('.where').textContent")
    assert where.startswith("Step 60, 1 of 1 shown; problem 1 of 8; 6 completions")
    assert browser.run("return document.querySelector('.pick input:checked').value") == "credit"
    assert not browser.run("return document.querySelector('.key').hidden")
    data = browser.run("return JSON.parse(document.getElementById('data').textContent)")
    viewer = next(section for section in data["sections"] if section["name"] == "rollouts")["data"]
    first = viewer["runs"][1]["steps"][0]["problems"][0]["rollouts"][0]
    found = tokens()
    assert [kind for _, _, kind, _ in found[:3]] == ["common cancelled", "shared", ""]
    assert "written by 6 of 6, 100% of its credit cancels" in found[0][3]
    assert "written by 3 of 6" in found[1][3]
    shade = "--minus" if first["credit"][1] > 0 else "--plus"
    assert shade in found[1][1]
    browser.run("document.querySelector('.pick input[value=net]').focus()")
    browser.press(Keys.SPACE)
    left = tokens()
    assert not left[0][1]  # nothing is left of what all have written
    assert "--shade" in left[2][1]
    text = browser.run("return document.querySelector('.answer .text').textContent")
    assert text.endswith(synthetic.HOSTILE[0])
    assert "pwned" not in browser.run("return document.title")
    assert browser.run("return document.querySelectorAll('main img, main script, main b b').length") == 0
    browser.run("document.getElementById('viewer').focus()")
    browser.press(Keys.ARROW_DOWN)
    assert "problem 2 of 8" in browser.run("return document.querySelector('.where').textContent")
    browser.run("const s = document.querySelector('.controls select'); s.selectedIndex = 0;"
                "s.dispatchEvent(new Event('change'))")  # fmt: skip
    assert browser.run("return document.querySelector('.pick input:checked').value") == "logp"
    assert browser.complaints() == []


def test_charts_show_numbers_where_the_pointer_is(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.look(1280)
    browser.open(pages["two"])
    chart = browser.driver.find_element("id", "chart-reward")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser.driver).move_to_element_with_offset(chart, 5, 5).move_by_offset(20, 10).perform()
    time.sleep(0.2)
    tip = browser.run("const t = document.getElementById('tip'); return [t.style.display, t.innerText]")
    assert tip[0] == "block"
    assert "steps" in tip[1]
    assert "undefined" not in tip[1]
    assert "mean" in tip[1]
    assert browser.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark(browser: Browser, pages: dict[str, Path], scheme: str) -> None:
    """Contrast of text and lines with what is behind them, by WCAG's formula; and the button changes sides."""
    browser.look(1280, scheme)
    browser.open(pages["two"])
    colours = """
      const named = name => { const e = document.createElement('i'); e.style.color = `var(--${name})`;
        document.body.append(e); const c = getComputedStyle(e).color.match(/[\\d.]+/g).map(Number); e.remove();
        const l = c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * l[0] + .7152 * l[1] + .0722 * l[2]; };
      const contrast = (a, b) => { const [x, y] = [named(a), named(b)].sort((p, q) => q - p);
        return (x + .05) / (y + .05); };
      return Object.fromEntries(['ink', 'text', 'muted', 'alarm', 'run-1', 'run-2', 'run-3', 'run-4', 'run-5', 'run-6',
        'run-7', 'run-8', 'run-9', 'run-10'].map(n => [n, Math.min(contrast(n, 'card'), contrast(n, 'paper'))]));"""
    for _ in range(2):
        found = browser.run(colours)
        assert min(found["ink"], found["text"]) > 7
        assert found["muted"] > 4.5
        assert min(found.values()) > 3
        before = browser.run("return getComputedStyle(document.body).backgroundColor")
        stroke = "return getComputedStyle(document.querySelector('#chart-reward svg .mark-line path')).stroke"
        line = browser.run(stroke)
        assert line.startswith("rgb")
        browser.run("document.getElementById('theme').click()")
        assert browser.run("return getComputedStyle(document.body).backgroundColor") != before
        assert browser.run(stroke) != line
    browser.run("localStorage.clear()")


@pytest.mark.parametrize("name", [pytest.param("one", marks=pytest.mark.slow), "two", "probed"])
def test_it_fits_a_phone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    def fits(width: int) -> bool:
        whole, room = browser.run("const d = document.documentElement; return [d.scrollWidth, d.clientWidth]")
        widest = browser.run(f"return Math.max(...[...{SVGS}].map(s => s.getBoundingClientRect().right))")
        return whole <= room <= width and widest <= width

    browser.look(360)
    browser.open(pages[name])
    assert fits(360)
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert fits(360)
    browser.look(1000)
    assert fits(1000)
    browser.look(360)
    assert fits(360)


def test_it_can_be_printed(browser: Browser, pages: dict[str, Path]) -> None:
    """On white paper whatever the screen's colours, with every chart within the page and no controls."""
    browser.look(1280, "dark")
    browser.open(pages["one"])
    browser.look(700, "dark", medium="print")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("return getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert browser.run(f"return Math.max(...[...{SVGS}].map(s => s.getBoundingClientRect().right))") <= 700
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
    assert len(printed) > 50_000
    browser.look(1280)


@pytest.mark.parametrize(("name", "most"), [("six", 3_500), ("probed", 6_000)])
def test_a_page_is_no_longer_than_it_must_be(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, name: str, most: int
) -> None:
    """Of a log of six curves, and of a run with a probe, as they open."""
    path = pages["probed"]
    if name == "six":
        draw = np.random.default_rng(0)
        keys = ("reward", "kl", "entropy", "completion_length", "grad_norm", "clip_ratio")
        rows = [{"step": i + 1, **dict(zip(keys, draw.random(6).tolist(), strict=True))} for i in range(100)]
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        page.write(runs_page.document([read(tmp_path / "log.jsonl")]), path := tmp_path / "six.html")
    browser.look(1280)
    browser.open(path, folded=True)
    assert 1_000 < browser.run("return document.documentElement.scrollHeight") <= most
