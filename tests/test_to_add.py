"""Every row of CONTRIBUTING's table "To add a …" is executed, with an entry that could be taken for another.

Most rows have a test beside what they are about; those that have none there are here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import toy_faults
from places import ROOT

from grposcope.cli import parser
from grposcope.core.rollouts import Rollout
from grposcope.faults import catalogue
from grposcope.faults.judge_rollouts import claim_status, prove
from grposcope.instruments.group_size import size as group_size
from grposcope.lab.objectives import recipes
from grposcope.lab.train.config import TrainConfig, check
from grposcope.logs.rollout_columns import NAMES
from grposcope.logs.rollout_rows import rows_of
from grposcope.logs.trainers import rollout_files
from grposcope.logs.written_rollouts import WrittenFiles
from grposcope.render import charts
from grposcope.signs.rollouts.evidence import PipelineEvidence

HERE = "test_to_add.py"
PLUG_INS = "lab/train/test_plug_ins.py::test_an_entry_is_offered_and_trains"
EXECUTED = {
    "advantage": PLUG_INS,
    "recipe": f"{HERE}::test_a_recipe_whose_name_begins_as_another_does",
    "credit source": PLUG_INS,
    "allocator": PLUG_INS,
    "fault": "faults/test_catalogue.py::test_the_example_of_the_docs_is_a_fault_that_is_found_where_it_is",
    "check of settings": "faults/test_settings_examples.py::test_a_new_fault_is_one_file",
    "claim of a pipeline": f"{HERE}::test_a_claim_whose_name_begins_as_another_does",
    "log format": "logs/test_new_trainer.py::test_a_new_format_that_looks_like_another_is_tried_before_it",
    "trainer": "logs/test_new_trainer.py::test_a_trainer_whose_keys_share_a_prefix_is_recognised",
    "kind of rollout files": f"{HERE}::test_rollout_files_that_an_earlier_kind_would_read_too",
    "name of a rollout's column": f"{HERE}::test_a_column_whose_name_begins_as_another_does",
    "metric alias, setting, defect of a version": "logs/test_readers.py::test_a_new_trainer_is_one_entry",
    "sign": "faults/test_catalogue.py::test_the_example_of_the_docs_is_a_fault_that_is_found_where_it_is",
    "flag": "instruments/test_new_instrument.py::test_a_declaration_that_cannot_work_says_so",
    "instrument": "instruments/test_new_instrument.py::test_a_declaration_that_cannot_work_says_so",
    "task": PLUG_INS,
    "probe statistic": "instruments/gradient/test_statistics.py::test_a_toy_statistic_appears_everywhere",
    "training flag": "lab/train/test_plug_ins.py::test_a_flag_is_one_field",
    "optimizer": PLUG_INS,
    "chart theme": f"{HERE}::test_a_colour_whose_name_begins_as_another_does",
}
"""Row of the table -> the test that makes such an entry."""


def test_every_row_is_executed() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| to add a … |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([a-z][^|]*?) \|", table, re.MULTILINE) == list(EXECUTED)
    for test in EXECUTED.values():
        file, name = test.split("::")
        assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(), test


def test_a_recipe_whose_name_begins_as_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a value of the flags, its objective is its own, and no other recipe's kind of plan is taken for its."""
    monkeypatch.setitem(recipes.ALL, "grpo_2", replace(recipes.RLOO, name="grpo_2"))
    for command, dest in (("train", "recipe"), ("probe", "recipe")):
        words = [command, "--recipe", "grpo_2"]
        assert getattr(parser([command]).parse_args(words), dest) == "grpo_2"
    config = TrainConfig(recipe="grpo_2")
    check(config)
    objective = config.objective(9)
    assert (objective.name, objective.advantage) == ("grpo_2", recipes.RLOO.advantage)
    assert "grpo_2" not in group_size.KINDS
    assert TrainConfig(recipe="grpo").objective(9).advantage is recipes.GRPO.advantage


CLAIM = '''"""A toy.

What it is
    A toy.
How it shows
    At once.
What it does to the gradient
    Nothing.
What to do
    Nothing.
What decides
    Nothing.
Sources
    method of this project
"""

from collections.abc import Iterator

from grposcope.core.fault import Fault, Proof
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.signs.rollouts.evidence import PipelineEvidence


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    if not evidence.rows:
        yield cannot_tell("no rollouts", fault="toy groups")
        return
    yield fact(len(evidence.rows) > 2, "there are more than two", fault="toy groups")


PROOF = Proof("groups-2", "There are at most two rollouts", "any", _tests)
FAULT = Fault("toy groups", 0.1, "nothing", rollouts=(PROOF,))
'''


def test_a_claim_whose_name_begins_as_another_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds, is broken, or cannot be told without anything to test it with; the claim `groups` is another."""
    toy_faults.add(tmp_path, monkeypatch, "pipeline", "toy_groups", CLAIM)
    monkeypatch.setattr(catalogue, "proofs", cache(catalogue.proofs.__wrapped__))
    names = [proof.name for proof in catalogue.proofs()]
    assert names.count("groups") == names.count("groups-2") == 1
    (own,) = (proof for proof in catalogue.proofs() if proof.name == "groups-2")
    rows = tuple(Rollout(prompt="1+1=", completion="2", reward=1.0) for _ in range(3))
    for count, status in ((3, "broken"), (2, "holds"), (0, "cannot tell")):
        assert claim_status(prove(PipelineEvidence("", rows=rows[:count]), (own,))[own]) == status, count


def test_rollout_files_that_an_earlier_kind_would_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files without a step or an id; before the kinds that would take them it reads its own, and no others."""
    (tmp_path / "rollouts-toy.jsonl").write_text('{"prompt": "1+1=", "completion": "2", "reward": 1, "toys": 3}\n' * 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rollouts.jsonl").write_text('{"prompt": "1+1=", "completion": "2", "reward": 1}\n')

    def read(path: Path) -> Iterator[Rollout]:
        rows = map(json.loads, path.read_text().splitlines())
        return (Rollout(prompt=row["prompt"], completion=row["completion"], reward=row["toys"]) for row in rows)

    def find(path: Path) -> WrittenFiles | None:
        files = sorted(path.glob("rollouts-toy.jsonl"))
        return WrittenFiles("toy", files[0], read) if files else None

    assert rollout_files.find(tmp_path).engine == "generic"  # type: ignore[union-attr]
    monkeypatch.setattr(rollout_files, "FINDERS", (find, *rollout_files.FINDERS))
    written, other = rollout_files.find(tmp_path), rollout_files.find(tmp_path / "other")
    assert written is not None
    assert other is not None
    assert (written.engine, other.engine) == ("toy", "generic")
    assert [row.reward for row in written.rollouts()] == [3, 3]


def test_a_column_whose_name_begins_as_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read under its name, the other is as before, and where a row has both the first of NAMES counts."""
    row = {"prompt": "1+1=", "completion": "2"}
    monkeypatch.setitem(NAMES, "reward", (*NAMES["reward"], "reward_of_toys"))  # type: ignore[arg-type]
    told = [{"reward_of_toys": 0.25}, {"reward": 1.0}, {"reward": 1.0, "reward_of_toys": 0.25}]
    read = rows_of((f"line {number}", {**row, **more}) for number, more in enumerate(told, 1))
    assert [rollout.reward for rollout in read] == [0.25, 1.0, 1.0]


def test_a_colour_whose_name_begins_as_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chart has the theme, and an exported one the light colour of that name."""
    monkeypatch.setitem(charts.LIGHT, "run-1-toy", "#123456")
    monkeypatch.setitem(charts.THEME, "bar", {"color": "var(--run-1-toy)", "stroke": "var(--run-1)"})
    layer = {"mark": "bar", "encoding": {"x": {"field": "step", "type": "quantitative"}}, "data": {"name": "toy"}}
    figure = charts.figure("toy", "A toy", [layer], {"toy": {"step": [1.0]}})
    assert figure.spec["config"]["bar"]["color"] == "var(--run-1-toy)"
    assert charts.chart(figure).to_dict(validate=False)["config"]["bar"] == {
        "color": "#123456", "stroke": charts.LIGHT["run-1"],
    }  # fmt: skip
