"""The vocabulary covers what the trainer writes, and says what every metric is."""

from __future__ import annotations

import json

import pytest
from places import ROOT

from grposcope.core import metrics
from grposcope.core.metrics import METRICS
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    folder = tmp_path_factory.mktemp("record") / "run"
    train(TrainConfig(out=str(folder), steps=1, prompts=2, group=2, eval_problems=0, probe_every=1))
    written = json.loads((folder / "steps.jsonl").read_text())
    assert "geometry/dead" in written
    return written


def test_everything_the_trainer_writes_is_in_the_vocabulary(row: dict[str, float]) -> None:
    assert set(row) <= set(METRICS)


def test_every_metric_is_defined() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.title
        assert len(metric.definition) > 10
        assert metric.direction in ("up", "down", "none")


def test_the_record_page_has_every_field_that_is_written(row: dict[str, float]) -> None:
    page = (ROOT / "docs" / "record.md").read_text()
    assert not [name for name in row if f"`{name}`" not in page]


def test_an_unknown_metric_is_itself() -> None:
    unknown = metrics.metric("probe_stable_rank")
    assert unknown.title == "probe_stable_rank"
    assert "not in the vocabulary" in unknown.definition
