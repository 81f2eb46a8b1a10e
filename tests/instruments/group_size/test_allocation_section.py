"""The page's section on allocation."""

from __future__ import annotations

import json
from pathlib import Path

import synthetic

from grposcope.instruments.group_size.dead_groups_answer import _allocation_section
from grposcope.logs import read


def test_it_shows_whose_gradient_it_is_and_how_the_promise_was_kept(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "run", steps=30)
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    for step in steps:
        step |= {"allocation/live": 0.6, "allocation/live_promised": 0.5 + 0.01 * (step["step"] % 2)}
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["allocate"] = "filter:dead=0.5"
    (folder / "config.json").write_text(json.dumps(config))
    shown = _allocation_section([read(folder)])
    assert shown is not None
    assert len(shown.figures) == 2
    text = shown.sentence
    assert text.startswith("Allocated by filter:dead=0.5: skipped problems count only as often as")
    assert "60% were live; the forecast was 50% (difference 9.5% ± 0.2%)" in text


def test_it_is_absent_without_allocation(tmp_path: Path) -> None:
    assert _allocation_section([read(synthetic.make(tmp_path / "run", steps=5))]) is None
