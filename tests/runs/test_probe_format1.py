"""A probe written before its record was typed (format 1): it opens with the same values, is drawn and is planned."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope import cli
from grposcope.files import dumps
from grposcope.records import Estimate
from grposcope.report.page import document
from grposcope.runs import probe as probes
from grposcope.runs import read

FOLDER = Path(__file__).parent.parent / "fixtures" / "probe_format1"
"""`grposcope probe --prompts 4 --group 4 --sweep-group 2,3 --seed 2 --out …`, of the shipped model."""

STABLE, SIGMA1 = 1.5512217038, 541.5267042395756
"""Mean stable rank, and Σ₁ of `grposcope plan`, as they were printed then."""


@pytest.fixture(scope="module")
def record() -> probes.ProbeRecord:
    return probes.read(FOLDER)


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((FOLDER / "probe.json").read_text())
    return whole


def test_every_value_is_that_of_the_file(record: probes.ProbeRecord, content: dict[str, Any], tmp_path: Path) -> None:
    """Written again it is the same file, but for what format 1 did not have."""
    gram, rollouts = record.read_gram(layers=True), record.read_rollouts()
    probes.write(tmp_path, record, gram, rollouts)
    again = json.loads((tmp_path / "probe.json").read_text())
    assert again.pop("statistics") == {}
    assert again == content
    assert (tmp_path / "tokens.jsonl").read_text() == (FOLDER / "tokens.jsonl").read_text()
    with np.load(tmp_path / "gram.npz") as new, np.load(FOLDER / "gram.npz") as old:
        assert set(new.files) == set(old.files)
        assert all(np.array_equal(new[name], old[name]) for name in old.files)


def test_values(record: probes.ProbeRecord, content: dict[str, Any]) -> None:
    assert (record.model, record.task, record.seed, record.step) == ("tiny", "arithmetic", 2, None)
    assert (record.prompts, record.group, record.rollouts, record.complete) == (4, 4, 16, True)
    assert record.solved == content["solved"]
    assert set(record.weightings) == {"grpo", "grpo, G=3"}
    assert record.rank("stable") == Estimate(**content["settings"]["grpo"]["layer"]["stable"])
    assert record.rank("stable").value == pytest.approx(STABLE)
    assert record.weightings["grpo, G=3"].token is None
    assert set(record.skipped) == {"grpo, G=2"}
    assert record.groups.dead_at[2] == Estimate(**content["groups"]["dead_at"]["2"])
    assert record.class_means.plain.value == content["two_classes"]["plain"]["value"]
    assert record.baseline.covariance.se == content["baseline"]["covariance"]["se"]
    assert record.credit.cancelled == content["credit"]["cancelled"]
    assert record.token_sparsity["top_5"] == content["token_sparsity"]["top_5"]
    assert record.parameter_sparsity["visible_adam"].n == content["parameter_sparsity"]["visible_adam"]["n"]
    assert [layer.name for layer in record.layers] == [layer["name"] for layer in content["layers"]]
    assert len(record.baselines) == 4


def test_what_it_lacks_is_not_measured(record: probes.ProbeRecord) -> None:
    assert record.statistics == {}
    for value in (record.rank("stable", "nll"), record.rank("no such rank"), record.parameter_sparsity["new"]):
        assert math.isnan(value.value)
        assert value.flag == "not measured"
    assert math.isnan(record.token_sparsity["new"])


def test_it_is_drawn(record: probes.ProbeRecord) -> None:
    page = document([read(FOLDER)])
    sections = {section.name: section for section in page.sections}
    assert {"geometry", "group_size", "rollouts", "settings"} <= sections.keys()
    figures = {figure.name for figure in page.figures}
    assert {"geometry_spectra", "geometry_ranks", "geometry_settings", "geometry_tokens", "group_size"} <= figures
    assert f"stable rank of {STABLE:.3g}" in page.top.title
    numbers = json.loads(dumps(page.numbers))["geometry"]["probe_format1"]
    assert numbers["settings"] == json.loads((FOLDER / "probe.json").read_text())["settings"]


def test_it_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(FOLDER)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    plan = json.loads(last)
    assert plan["probe"]["self_check"] == pytest.approx(9.8e-9, rel=0.05)
    assert plan["moments"]["sigma1"]["value"] == pytest.approx(SIGMA1, rel=1e-9)


def test_a_probe_without_most_entries_opens(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text('{"format": 1, "model": "tiny", "layers": [{"depth": 1}], "solved": "many"}')
    record = probes.read(tmp_path)
    assert (record.task, record.prompts, record.layers[0].depth) == ("", None, 1)
    assert record.baseline.covariance.flag == record.groups.dead.flag == "not measured"
    assert math.isnan(record.solved)
    assert record.scalars() == {"format": 1, "model": "tiny", "complete": True}
    assert record.read_rollouts() == ()
    document([read(tmp_path)])
