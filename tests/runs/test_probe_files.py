"""Folders of `grposcope probe`, alone and in a run: their order, their numbers, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import synthetic
import synthetic_probe
from grposcope.errors import UserError
from grposcope.runs import probe as probes
from grposcope.runs import read


def test_a_runs_probes_come_by_step(tmp_path: Path) -> None:
    """A step in probe.json goes before that of the name; those without any come first."""
    run = synthetic.make(tmp_path / "run", steps=5)
    one = synthetic_probe.make(tmp_path / "one", prompts=2)
    for name in ("step-100", "step-000020", "final", "other"):
        shutil.copytree(one, run / "probes" / name)
    synthetic_probe.edit(run / "probes" / "other", step=50)
    (run / "probes" / "notes").mkdir()
    found = read(run).probes
    assert [probe.step for probe in found] == [None, 20, 50, 100]


def test_a_probe_alone_is_a_run_without_steps(tmp_path: Path) -> None:
    found = read(synthetic_probe.make(tmp_path / "one", prompts=2))
    assert (found.steps, found.meta.engine, found.meta.status) == (0, "grposcope probe", "finished")
    assert found.config["model"] == "tiny"
    assert "layers" not in found.config
    assert len(found.probes) == 1


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
    first = probes.read_rollouts(place)[0]
    assert first.tokens[2] == "NaN"
    assert math.isnan(first.norm[0])
    assert first.norm[2] == math.inf


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not valid JSON"), ('{"a": 1}', "not written by grposcope probe"), ('{"format": 9}', "upgrade grposcope")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "probe.json").write_text(content)
    with pytest.raises(UserError, match=says):
        read(tmp_path)


def test_loading_needs_no_arrow() -> None:
    """`plan` answers in a moment: what it needs does not bring the libraries of tables."""
    code = "import sys, grposcope.runs.probe; sys.exit('pyarrow' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
