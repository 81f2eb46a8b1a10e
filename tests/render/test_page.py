"""The page as a file: whole, self-contained, and nothing of a run is code in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import synthetic
import vega_script

from grposcope import runs_page
from grposcope.core.errors import UserError
from grposcope.logs import read
from grposcope.render import page


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "</script><b>name {{DATA}} {{SCRIPTS}}"
    folder = folder.parent / folder.name.replace("/", "\u2215")
    return page.html(runs_page.document([read(synthetic.make(folder, steps=20, texts=synthetic.HOSTILE))]))


def test_the_page_is_small(text: str) -> None:
    assert len(text.encode()) < 1_600_000


@pytest.mark.needs("runs")
def test_nothing_of_the_run_is_markup(text: str) -> None:
    """Between the data block's tags there is no character that could end it, and none of it stands elsewhere."""
    start = text.index('<script type="application/json" id="data">') + 42
    data = text[start : text.index("</script>", start)]
    assert not set("<>&\u2028\u2029") & set(data)
    content = json.loads(data)
    completions = [
        "".join(one.get("tokens", []))
        for step in next(s for s in content["sections"] if s["name"] == "rollouts")["data"]["runs"][0]["steps"]
        for problem in step["problems"]
        for one in problem["rollouts"]
    ]
    assert synthetic.HOSTILE[0] in completions
    assert "onerror" not in text.replace(data, "").split("<script>")[0]
    assert text.count("{{SCRIPTS}}") == data.count("{{SCRIPTS}}") > 0
    assert len(re.findall("<script", text)) == 11


def test_the_policy_names_the_scripts_and_allows_no_connection(text: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy[1]
    assert "unsafe-inline" not in policy[1].split("style-src")[0]
    for script in re.findall(r"<script>(.*?)</script>", text, re.S):
        assert page._digest(script) in policy[1]


def test_the_page_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = runs_page.document([read(synthetic.make(tmp_path / "run", steps=4))])
    target = tmp_path / "pages" / "page.html"
    assert page.write(content, target) == target.stat().st_size
    old = target.read_text()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left on device"):
        page.write(content, target)
    assert target.read_text() == old
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    content = runs_page.document([read(synthetic.make(tmp_path / "run", steps=4))])
    with pytest.raises(UserError, match="is a folder; name a file"):
        page.write(content, tmp_path)


@pytest.mark.slow
def test_the_charts_script_is_that_of_vl_convert() -> None:
    assert vega_script.SCRIPT.read_text() == vega_script.bundle()
    assert "Copyright" in vega_script.LICENSE.read_text()
