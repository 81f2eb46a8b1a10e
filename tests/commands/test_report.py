"""`grposcope report` as a user meets it: the page, the figures, the numbers, and one line for what is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import synthetic
from asked import asked
from places import ROOT

from grposcope.cli import parser
from grposcope.core.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.make(tmp_path_factory.mktemp("runs") / "one", steps=20)


def call(*arguments: str | Path) -> int:
    given = parser(["report"]).parse_args(["report", *map(str, arguments)])
    return int(given.run(given))


def test_the_page_is_written_into_the_run(folder: Path, capsys: pytest.CaptureFixture) -> None:
    status, said = asked("report", folder)
    assert status == 0
    out = capsys.readouterr().out.splitlines()
    assert said["page"] == str(folder / "page.html")
    assert said["bytes"] == (folder / "page.html").stat().st_size
    assert out[0] == said["headline"]


@pytest.mark.needs("runs", "diagnosis", "group_size")
def test_numbers_without_a_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "none.html"
    assert call(folder, "--json", "--out", out) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1], parse_constant=lambda name: pytest.fail(name))
    assert {"headline", "learning", "dead_groups", "policy", "time", "rollouts"} <= said["sections"].keys()
    assert said["sections"]["policy"]["one"]["kl"]["least"] == "NaN"
    assert not out.exists()


def test_figures_are_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(folder, "--json", "--figures", tmp_path / "pictures", "--format", "svg") == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted(said["figures"]) == sorted(str(path) for path in (tmp_path / "pictures").iterdir())
    assert len(said["figures"]) > 5


@pytest.mark.needs("runs", "diagnosis")
def test_a_run_in_progress_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = synthetic.make(tmp_path / "run", steps=20, phase="sampling")
    steps = run / "steps.jsonl"
    steps.write_text(steps.read_text()[:-40])
    assert call(run, "--out", tmp_path / "page.html") == 0
    out = capsys.readouterr().out
    assert "was still in progress" in out
    assert "steps.jsonl: the last line is unfinished" in (tmp_path / "page.html").read_text()


@pytest.mark.needs("runs", "diagnosis")
def test_what_is_wrong_is_one_line(folder: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "config.json").write_text('{"format": 99}')
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ([tmp_path / "empty"], "no run|empty"),
        ([newer], "record format 99"),
        ([folder, "--out", tmp_path / "file" / "page.html"], "cannot write .*choose another --out"),
        ([folder, "--out", "/proc/page.html"], "cannot write /proc/page.html"),
        ([folder, "--figures", "/proc/pictures"], "cannot write to /proc/pictures.*; choose another --figures"),
    ):
        with pytest.raises(UserError, match=words) as error:
            call(*arguments)
        assert "\n" not in str(error.value)


def test_a_log_from_standard_input_has_a_page_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (ROOT / "docs" / "example.jsonl").read_bytes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert asked("report", "-")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
