"""A run in a notebook: what is shown, and that nothing of a log becomes markup."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import synthetic
import synthetic_probe
import synthetic_series as made

from grposcope.core.run import Run
from grposcope.core.text import capitalised
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.instruments.runs import notebook
from grposcope.logs import read


class Parts(HTMLParser):
    """The elements of a piece of HTML, its text, and what is open at its end."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read(synthetic.make(tmp_path_factory.mktemp("runs") / "mine"))


def test_a_card_says_the_verdict_and_draws_the_reward(run: Run) -> None:
    parts = Parts(notebook.card(run))
    assert parts.open == []
    assert parts.tags.count("img") == 1
    said = verdict(run, findings_of(run))
    assert said.line.lower() in parts.text.lower()
    assert "optimiser steps" in parts.text
    assert notebook._text(run) == f"mine: {capitalised(said.line)}"


def test_what_a_log_says_stays_text(run: Run) -> None:
    hostile = replace(run, meta=replace(run.meta, name=synthetic.HOSTILE[0], engine='"><script>x</script>'))
    parts = Parts(notebook.card(hostile))
    assert set(parts.tags) <= {"div", "ul", "li", "table", "tr", "td", "br", "b", "small", "img"}
    assert parts.tags.count("img") == 1
    assert "<script>x</script>" in parts.text


def test_a_run_without_anything_and_a_probe_have_a_card(tmp_path: Path) -> None:
    empty = made.run({"reward": np.empty(0)})
    assert "img" not in Parts(notebook.card(empty)).tags
    probe = read(synthetic_probe.make(tmp_path / "probe"))
    assert "stable rank" in Parts(notebook.card(probe)).text


@pytest.mark.slow
def test_the_extension_tells_ipython_of_runs(run: Run) -> None:
    """In a process of its own, as in a notebook."""
    pytest.importorskip("IPython")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as I; from grposcope.logs import read; "
        f"shell = I(); shell.run_line_magic('load_ext', 'grposcope'); data, _ = "
        f"shell.display_formatter.format(read({str(run.meta.source)!r})); print(*data); print(data['text/plain'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    kinds, plain = done.stdout.splitlines()
    assert sorted(kinds.split()) == ["text/html", "text/plain"], done.stderr
    assert plain == notebook._text(run)
