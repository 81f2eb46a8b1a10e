"""`grposcope diagnose` through its own parser."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.commands import diagnose
from grposcope.errors import UserError


def log(path: Path, collapse: bool = False, rows: int = 80) -> Path:
    """A JSONL log of a made-up trainer."""
    lines = []
    for i, wobble in enumerate(0.01 * np.random.default_rng(0).normal(size=rows)):
        entropy = 0.8 * (0.001 if collapse and i > rows // 2 else 1) * (1 + wobble)
        lines.append(json.dumps({"step": i + 1, "reward": 0.3 + 0.005 * i + wobble, "entropy": entropy}))
    path.write_text("\n".join(lines) + "\n")
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, dict[str, Any]]:
    top = argparse.ArgumentParser()
    diagnose.add(top.add_subparsers())
    given = top.parse_args(["diagnose", *map(str, arguments)])
    status = given.run(given)
    out = capsys.readouterr().out
    return status, out, json.loads(out.splitlines()[-1])


def test_healthy_first_line_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, document = call(capsys, log(tmp_path / "a.jsonl"), "--fail-on", "flagged")
    assert status == 0
    assert out.startswith("healthy: ")
    assert document["flagged"] == []
    assert "not logged:" in out


def test_failing_and_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl", collapse=True)
    status, out, document = call(capsys, path, "--fail-on", "flagged")
    assert status == 1
    assert out.startswith("failing: entropy collapse, since step ")
    assert "; do: " in out.splitlines()[0]
    assert "entropy collapse" in document["flagged"]
    assert call(capsys, path, "--fail-on", "entropy collapse")[0] == 1
    assert call(capsys, path, "--fail-on", "kl blow-up")[0] == 0
    assert call(capsys, path)[0] == 0


def test_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, document = call(capsys, log(tmp_path / "a.jsonl"), "--json")
    assert len(out.splitlines()) == 1
    assert {"statistic", "threshold", "needs"} == set(document["rules"]["length"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--fail-on", "nonsense"], "no mode"), (["--level", "2"], "no probability"), (["--set", "group"], "NAME=VALUE")],
)
def test_what_the_user_can_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        call(capsys, log(tmp_path / "a.jsonl"), *flags)


def test_settings_given_by_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "misconfiguration" in call(capsys, log(tmp_path / "a.jsonl"), "--set", "group=1")[2]["flagged"]
