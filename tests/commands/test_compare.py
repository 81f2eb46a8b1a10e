"""`grposcope compare`: runs that part, runs that do not, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.cli import parser
from grposcope.errors import UserError


def log(path: Path, seed: int, drift: float, first: int = 1) -> Path:
    noise = 0.02 * np.random.default_rng(seed).normal(size=100)
    rows = [{"step": i + first, "reward": 0.3 + noise[i] + drift * max(0, i - 50) / 50} for i in range(100)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, dict[str, Any]]:
    given = parser(["compare"]).parse_args(["compare", *map(str, arguments)])
    assert given.run(given) == 0
    out = capsys.readouterr().out
    return out, json.loads(out.splitlines()[-1])


def test_the_step_where_runs_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, document = call(capsys, log(tmp_path / "a.jsonl", 0, 0.0), log(tmp_path / "b.jsonl", 1, 0.5))
    (found,) = document["partings"][0]["metrics"]
    assert found["adjusted"] < 0.01
    assert found["low"] <= 53
    assert abs(found["step"] - 51) <= 10
    assert "they diverge at step" in out.splitlines()[0]


def test_same_run_does_not_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl", 0, 0.3)
    out, document = call(capsys, path, path)
    assert document["partings"][0]["metrics"][0]["p"] == 1.0
    assert "they diverge in no metric" in out


def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="two runs"):
        call(capsys, log(tmp_path / "a.jsonl", 0, 0.0))
    with pytest.raises(UserError, match="share 0 steps"):
        call(capsys, tmp_path / "a.jsonl", log(tmp_path / "b.jsonl", 1, 0.0, first=5000))


def test_side_by_side_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of different trainers: means of both, and no comparison of what only shares its name."""
    ours = log(tmp_path / "a.jsonl", 0, 0.0)
    rows = [{"step": i + 1, "reward": 0.4, "kl": 0.01, "frac_reward_zero_std": 0.5} for i in range(100)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": rows, "global_step": 100, "logging_steps": 1}))
    verl = tmp_path / "verl.log"
    keys = "critic/score/mean:0.5 - actor/kl_loss:0.02"
    verl.write_text("".join(f"step:{i} - {keys}\n" for i in range(1, 101)))
    out, document = call(capsys, state, verl, ours, "--html", tmp_path / "both.html")
    assert document["ends"]["reward"][:2] == pytest.approx([0.4, 0.5])
    assert document["ends"]["dead_fraction"] == [0.5, None, None]
    row = next(line for line in out.splitlines() if line.startswith("  reward  "))
    assert row.split()[1:3] == ["0.4", "0.5"]
    assert "not logged" in out
    _, document = call(capsys, state, verl)
    assert document["not_compared"] == ["kl: kl and kl_loss are different quantities"]
    assert "kl" not in [p["metric"] for p in document["partings"][0]["metrics"]]
    page = (tmp_path / "both.html").read_text()
    assert "Where the runs diverge" in page
    assert "trainer_state.json" in page


def test_escapes_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = log(tmp_path / "a\x1b[2J.jsonl", 0, 0.0), log(tmp_path / "b.jsonl", 1, 0.5)
    out, _ = call(capsys, one, other)
    assert "\x1b" not in out
