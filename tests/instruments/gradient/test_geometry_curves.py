"""The curves of `--probe-every` on the page: probed steps only, every metric, files that can be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic

from grposcope.instruments.gradient import answer as gradient
from grposcope.logs import Run, read
from grposcope.render import charts as base
from grposcope.runs_page import document


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 40 steps, probed every fourth; at step 9 it could not tell, and one number never changes."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    synthetic.make(folder, steps=40, prompts=4)
    path = folder / "steps.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[::4]:
        value = "NaN" if row["step"] == 9 else 1.0 + row["step"] / 10
        row |= {"geometry/layer_stable": value, "geometry/dead": 0.25, "seconds_probe": 0.1 * row["step"]}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(folder)


def test_probed_steps_are_drawn_and_others_are_no_gaps(run: Run) -> None:
    section = gradient._while_training([run])
    assert section is not None
    (figure,) = section.figures
    assert figure.name == "geometry_layer_stable"
    assert figure.data["thick"]["step"] == list(range(1, 41, 4))
    assert "gaps" not in figure.data
    assert "No value at 1 step" in figure.caption
    assert "10 steps of one" in section.text[0]
    assert section.text[1] == "Dead groups of the batch: 0.25 at every step."
    found = section.document["one"]["geometry/layer_stable"]
    assert (found.steps, found.not_finite) == (10, 1)
    assert found.largest == pytest.approx(4.7)


def test_they_are_in_their_own_section_alone(run: Run) -> None:
    sections = {section.name: section for section in document([run]).sections}
    assert "geometry_curves" in sections
    assert not any("geometry" in figure.name for figure in sections["other"].figures)


def test_a_run_without_probes_has_no_such_section(run: Run) -> None:
    plain = Run(run.meta, run.config, {n: c for n, c in run.table.items() if "geometry" not in n}, run.groups,
                run.evaluations)  # fmt: skip
    assert gradient._while_training([plain]) is None
    both = gradient._while_training([plain, run])
    assert both is not None
    figure = both.figures[0]
    assert len(set(figure.data["thick"]["run"])) == 1
    assert figure.spec["layer"][0]["encoding"]["color"]["scale"]["domain"].index(figure.data["thick"]["run"][0]) == 1


def test_the_charts_can_be_exported(run: Run, tmp_path: Path) -> None:
    section = gradient._while_training([run])
    assert section is not None
    assert base.export(section.figures, tmp_path / "out", "svg")[0].is_file()
