"""The folder of a probe: records of every format, order in a run, Gram matrices, tokens, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import synthetic_probe
from places import TESTS

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient.probe_record import ProbeGram, read_gram, write_gram
from grposcope.logs import read
from grposcope.maths import moments
from grposcope.runs_page import document

FORMAT_1 = TESTS / "fixtures" / "probe_format1"
"""`grposcope probe --prompts 4 --group 4 --sweep-group 2,3 --seed 2 --out …`, of the shipped model."""

STABLE, SIGMA1 = 1.5512217038, 541.5267042395756
"""Mean stable rank, and Σ₁ of `grposcope plan`, as they were printed then."""


def test_a_runs_probes_come_by_step(tmp_path: Path) -> None:
    """A step in probe.json goes before that of the name; those without any come first."""
    run = synthetic.make(tmp_path / "run", steps=5)
    one = synthetic_probe.make(tmp_path / "one", prompts=2)
    for name in ("step-100", "step-000020", "final", "other"):
        shutil.copytree(one, run / "probes" / name)
    synthetic_probe.edit(run / "probes" / "other", step=50)
    (run / "probes" / "notes").mkdir()
    records = probes.of_run(read(run))
    assert [probe.step for probe in records] == [None, 20, 50, 100]


def test_a_probe_alone_is_a_run_without_steps(tmp_path: Path) -> None:
    run = read(synthetic_probe.make(tmp_path / "one", prompts=2))
    assert (run.steps, run.meta.engine, run.meta.status) == (0, "grposcope probe", "finished")
    assert run.config["model"] == "tiny"
    assert "layers" not in run.config
    assert len(probes.of_run(run)) == 1


def test_numbers_that_json_lacks_are_numbers_again(tmp_path: Path) -> None:
    place = synthetic_probe.make(tmp_path / "one", prompts=2, solved=math.nan, self_check=-math.inf)
    assert '"NaN"' in (place / "probe.json").read_text()
    record = probes.read(place)
    assert math.isnan(record.solved)
    assert record.self_check == -math.inf


def test_tokens_are_text_and_the_rest_numbers(tmp_path: Path) -> None:
    place = synthetic_probe.make(tmp_path / "one", prompts=1, texts=("NaN",))
    rows = [json.loads(line) for line in (place / "tokens.jsonl").read_text().splitlines()]
    rows[0] |= {"norm": ["NaN", 1.0, "Infinity"]}
    (place / "tokens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = probes._read_rollouts(place)[0]
    assert first.tokens[2] == "NaN"
    assert math.isnan(first.measures["norm"][0])
    assert first.measures["norm"][2] == math.inf


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not valid JSON"), ('{"a": 1}', "not written by grposcope probe"), ('{"format": 9}', "upgrade grposcope")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "probe.json").write_text(content)
    with pytest.raises(UserError, match=says):
        probes.of_run(read(tmp_path))


# A probe of format 1, written before its record was typed


@pytest.fixture(scope="module")
def record() -> probes.ProbeRecord:
    return probes.read(FORMAT_1)


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((FORMAT_1 / "probe.json").read_text())
    return whole


def test_every_value_is_that_of_the_file(record: probes.ProbeRecord, content: dict[str, Any], tmp_path: Path) -> None:
    """Written again it is the same file, but for what format 1 did not have."""
    gram, rollouts = record.read_gram(layers=True), record.read_rollouts()
    probes.write(tmp_path, record, gram, rollouts)
    again = json.loads((tmp_path / "probe.json").read_text())
    assert (again.pop("statistics"), again.pop("comparison")) == ({}, "")
    assert again.pop("group_rank")["rank"]["flag"] == "not measured"
    assert [layer.pop("group_rank") for layer in again["layers"]] == [{}] * len(again["layers"])
    assert {one.pop("saving")["flag"] for one in (again["baseline"], *again["baselines"])} == {"not measured"}
    assert again == content
    assert (tmp_path / "tokens.jsonl").read_text() == (FORMAT_1 / "tokens.jsonl").read_text()
    with np.load(tmp_path / "gram.npz") as new, np.load(FORMAT_1 / "gram.npz") as old:
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


@pytest.mark.needs("runs", "diagnosis", "group_size")
def test_it_is_drawn(record: probes.ProbeRecord) -> None:
    page = document([read(FORMAT_1)])
    sections = {section.name: section for section in page.sections}
    assert {"geometry", "group_size", "rollouts", "settings"} <= sections.keys()
    figures = {figure.name for figure in page.figures}
    assert {"geometry_spectra", "geometry_ranks", "geometry_settings", "geometry_tokens"} <= figures
    assert f"stable rank of {STABLE:.3g}" in page.top.sentence
    numbers = json.loads(dumps(page.numbers))["geometry"]["probe_format1"]
    assert numbers["settings"] == json.loads((FORMAT_1 / "probe.json").read_text())["settings"]


@pytest.mark.needs("group_size")
def test_it_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(FORMAT_1), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
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


# gram.npz


def gram_arrays(prompts: int = 3, group: int = 4) -> dict:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(prompts * group, 5))
    return {
        "gram": scores @ scores.T,
        "rewards": (rng.random((prompts, group)) < 0.5).astype(float),
        "truncated": rng.random((prompts, group)) < 0.2,
        "layers": np.stack([scores[:, :2] @ scores[:, :2].T, scores[:, 2:] @ scores[:, 2:].T]),
        "layer_names": ("first", "second"),
    }


def test_a_gram_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = gram_arrays()
    path = write_gram(tmp_path / "probe", ProbeGram(**given))
    assert path == tmp_path / "probe" / "gram.npz"
    again = read_gram(tmp_path / "probe", layers=True)
    for name in ("gram", "rewards", "truncated", "layers"):
        assert np.array_equal(getattr(again, name), given[name])
    assert again.layer_names == given["layer_names"]
    assert read_gram(tmp_path / "probe").layers is None
    assert sorted(p.name for p in path.parent.iterdir()) == ["gram.npz"]


def test_truncated_may_be_left_out(tmp_path: Path) -> None:
    given = gram_arrays()
    np.savez(tmp_path / "gram.npz", gram=given["gram"], rewards=given["rewards"])
    assert not read_gram(tmp_path).truncated.any()


def test_a_single_text_is_no_list_of_layers(tmp_path: Path) -> None:
    given = gram_arrays()
    np.savez(tmp_path / "gram.npz", **{**given, "layer_names": np.array("one")})
    with pytest.raises(UserError, match=r"layer_names has shape \(\)"):
        read_gram(tmp_path, layers=True)


def test_without_truncated_equals_never_drawn(tmp_path: Path) -> None:
    given = gram_arrays(3, 8)
    given["truncated"][:] = np.arange(8) >= 6
    write_gram(tmp_path, ProbeGram(**given))
    kept = read_gram(tmp_path, layers=True).without_truncated()
    inside = (np.arange(24) % 8) < 6
    expected = moments.from_gram(given["gram"][inside][:, inside], given["rewards"][:, :6])
    assert moments.from_gram(kept.gram, kept.rewards).sigma1.value == pytest.approx(expected.sigma1.value, rel=1e-10)
    assert kept.layers is not None
    assert not kept.layers[:, ~inside].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gram": np.eye(11)}, r"gram has shape \(11, 11\)"),
        ({"rewards": np.ones(12)}, r"rewards has shape \(12,\)"),
        ({"truncated": np.ones((2, 2), bool)}, "truncated has shape"),
        ({"layer_names": ("only",)}, "layers has shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_before_writing(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_gram(tmp_path, ProbeGram(**{**gram_arrays(), **change}))
    assert not list(tmp_path.iterdir())


def test_a_damaged_gram_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is missing"):
        read_gram(tmp_path)
    path = tmp_path / "gram.npz"
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(UserError, match="cannot be read"):
        read_gram(tmp_path)
    np.savez(path, rewards=np.ones((2, 2)))
    with pytest.raises(UserError, match="no array 'gram'"):
        read_gram(tmp_path)
    np.savez(path, rewards=np.ones((2, 2)), gram=np.array([[object()] * 4] * 4))
    with pytest.raises(UserError, match="cannot be read"):
        read_gram(tmp_path)
    np.savez(path, rewards=np.ones((2, 2)), gram=np.eye(4, dtype=int))
    with pytest.raises(UserError, match="not floating-point"):
        read_gram(tmp_path)
