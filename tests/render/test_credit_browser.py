"""A comparison of credit in a real browser: the frontier, and completions shaded by two sources beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from browsing import Browser, needed

from grposcope import runs_page
from grposcope.core.rollouts import Rollout
from grposcope.instruments.credit import record as credit
from grposcope.instruments.credit.error import BASE, EXACT, Ranged
from grposcope.instruments.credit.record import CreditRecord, SourceRecord
from grposcope.logs import read
from grposcope.render import page

pytestmark = needed

HOSTILE = synthetic.HOSTILE[0]
"""The name of a source, and a token."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison of three sources, one with a hostile name, on two rollouts of one problem."""
    folder = tmp_path_factory.mktemp("credit") / "compared"
    one = Ranged(1.0, 1.0, 1.0)
    sources = [
        SourceRecord(name, "i", name != EXACT, True, one, Ranged(1 / s, 0.9 / s, 1.1 / s), Ranged(s, s / 1.1, s / 0.9),
                     one, Ranged(0.0, 0.0, 0.1), log_error=0.05, effective=30.0)
        for name, s in ((BASE, 1.0), (EXACT, 2.0), (HOSTILE, 0.5))
    ]  # fmt: skip
    record = CreditRecord(model="tiny", task="t", prompts=1, group=2, sources=tuple(sources))
    tokens = ("1+1", "=", HOSTILE)
    given = {BASE: np.full(3, 0.5), EXACT: np.array([0.0, 1.0, -1.0]), HOSTILE: np.array([-1.0, 0.0, 1.0])}
    other = {name: -values for name, values in given.items()}
    rollouts = [
        Rollout(problem="p", prompt="1+1", completion="".join(tokens), reward=reward, tokens=tokens, measures=values)
        for reward, values in ((1.0, given), (0.0, other))
    ]
    credit.write(folder, record, rollouts)
    path = folder.parent / "page.html"
    page.write(runs_page.document([read(folder)]), path)
    return path


def shades(browser: Browser, completion: int = 0) -> list[list[str]]:
    """Of a completion, for every source that is shown, the colour of each token."""
    found: list[list[str]] = browser.run(
        "return [...document.querySelectorAll('.answer')[arguments[0]].querySelectorAll('.sources .text')]"
        ".map(text => [...text.querySelectorAll(':scope > span')].map(s => s.style.background))",
        completion,
    )
    return found


def signs(colours: list[str]) -> list[int]:
    """1 for a token that is raised, −1 for one that is lowered, 0 for one without a colour."""
    return [("--plus" in colour) - ("--minus" in colour) for colour in colours]


def take(browser: Browser, label: str, index: int) -> Any:
    """Take an option of the list with this label, and return its text."""
    return browser.run(
        "const box = [...document.querySelectorAll('.viewer label')].find(l => l.textContent.startsWith(arguments[0]))"
        ".querySelector('select'); box.selectedIndex = arguments[1]; const said = box.value;"
        "box.dispatchEvent(new Event('change')); return said;",
        label,
        index,
    )


def test_tokens_are_shaded_by_the_source_that_is_chosen(browser: Browser, compared: Path) -> None:
    browser.look(1280)
    browser.open(compared)
    assert [signs(one) for one in shades(browser)] == [[1, 1, 1]]
    assert [signs(one) for one in shades(browser, 1)] == [[-1, -1, -1]]
    assert take(browser, "credit", 1) == EXACT
    assert [signs(one) for one in shades(browser)] == [[0, 1, -1]]
    assert [signs(one) for one in shades(browser, 1)] == [[0, -1, 1]]
    assert browser.complaints() == []


def test_two_sources_stand_side_by_side(browser: Browser, compared: Path) -> None:
    browser.look(1280)
    browser.open(compared)
    take(browser, "credit", 1)
    take(browser, "beside credit", 3)  # none, then the sources
    assert [signs(one) for one in shades(browser)] == [[0, 1, -1], [-1, 0, 1]]
    names = browser.run(
        "return [...document.querySelector('.answer').querySelectorAll('.note')].map(n => n.textContent)"
    )
    assert names[0] == EXACT
    assert names[1].startswith(HOSTILE[:20])
    lefts = browser.run(
        "return [...document.querySelector('.sources').children].map(d => d.getBoundingClientRect().left)"
    )
    assert lefts[0] < lefts[1]
    take(browser, "beside credit", 0)
    assert [signs(one) for one in shades(browser)] == [[0, 1, -1]]


def test_the_frontier_is_drawn_and_hostile_names_stay_text(browser: Browser, compared: Path) -> None:
    browser.look(1280)
    browser.open(compared)
    take(browser, "beside credit", 3)
    drawn = "return document.querySelectorAll(`#chart-${arguments[0]} svg .mark-symbol path`).length"
    assert browser.run(drawn, "credit_frontier") >= 3
    assert browser.run(drawn, "credit_savings") >= 3
    heading = (
        "return document.querySelector('#credit, [data-section=credit]')?.textContent || document.body.textContent"
    )
    assert "with exact credit the gradient would need 2 × fewer rollouts" in browser.run(heading)
    assert browser.run("return document.querySelector('.answer .text').textContent").endswith(HOSTILE)
    assert "pwned" not in browser.run("return document.title")
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    assert browser.complaints() == []
