"""The page's section on allocation, from the record of a run with forecasts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import synthetic
from grposcope.report.sections import allocation
from grposcope.runs import read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose groups carry forecasts that come true."""
    folder = synthetic.make(tmp_path_factory.mktemp("runs") / "run", steps=30)
    rng = np.random.default_rng(0)
    p = rng.beta(1, 1, 900)
    lines = []
    for i in range(900):
        rewards = (rng.random(2 + i % 7) < p[i]).astype(float).tolist()
        said = {"forecast": float(p[i]), "base": 0.5, "difficulty": float(0.3 + 0.4 * p[i]), "weight": 1.0}
        lines.append({"step": 1 + i // 30, "problem": f"x{i % 300}", "rewards": rewards, **said})
    (folder / "groups.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    for step in steps:
        step |= {"allocation/live": 0.6, "allocation/live_promised": 0.5 + 0.01 * (step["step"] % 2)}
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["allocate"] = "optimal"
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_it_shows_where_rollouts_went_and_whether_forecasts_came_true(folder: Path) -> None:
    run = read(folder)
    shown = allocation.section([run])
    assert shown is not None
    names = [figure.name for figure in shown.figures]
    assert names[:2] == ["allocation_spent", "allocation_reliability"]
    text = " ".join(shown.text)
    assert "every problem counts the same" in text
    assert "60% were live" in text
    assert "they are calibrated" in text
    rollouts = [s for s, k in zip(*(shown.figures[0].data["bins"][c] for c in ("share", "kind")), strict=True)
                if k == "rollouts"]  # fmt: skip
    assert sum(rollouts) == pytest.approx(1, abs=1e-3)


def test_it_is_absent_without_allocation(tmp_path: Path) -> None:
    assert allocation.section([read(synthetic.make(tmp_path / "run", steps=5))]) is None
