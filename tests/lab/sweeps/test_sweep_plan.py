"""A plan is checked whole before anything starts, and names what is wrong, where, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.lab.sweeps import plan as plans
from grposcope.lab.sweeps.plan import SweepPlan

GOOD = """
seeds: [3, 1]
base: {steps: 10, lr: 1e-4, prompts: 4}
grid:
  group: [2, 4]
  recipe: [grpo, rloo]
cells:
  - {name: wide, group: 16, prompts: 1}
baseline: {group: 4, recipe: rloo}
metric: reward
"""


def read(text: str, folder: Path) -> SweepPlan:
    (folder / "sweep.yaml").write_text(text)
    return plans.read(folder / "sweep.yaml", folder / "out")


def test_a_grid_is_crossed_and_cells_are_added(tmp_path: Path) -> None:
    plan = read(GOOD, tmp_path)
    names = [cell.name for cell in plan.cells]
    assert names == [
        "group=2, recipe=grpo",
        "group=2, recipe=rloo",
        "group=4, recipe=grpo",
        "group=4, recipe=rloo",
        "wide",
    ]
    assert plan.baseline == "group=4, recipe=rloo"
    assert plan.metric == "reward"
    assert {cell.config.lr for cell in plan.cells} == {1e-4}
    wide = plan.cells[-1].config
    assert (wide.group, wide.prompts, wide.steps) == (16, 1, 10)
    runs = plan.runs
    assert len(runs) == 10
    assert [run.seed for run in runs] == [3] * 5 + [1] * 5  # every cell has its first seed early
    assert len({run.folder for run in runs}) == 10
    assert runs[0].folder == tmp_path / "out" / "group=2_recipe=grpo" / "seed-3"
    assert (runs[0].config.seed, runs[0].config.out) == (3, str(runs[0].folder))


def test_a_whole_number_stands_for_a_text(tmp_path: Path) -> None:
    plan = read("grid:\n  staleness: [0, 4, 0-8]\n", tmp_path)
    assert [cell.config.staleness for cell in plan.cells] == ["0", "4", "0-8"]


def test_more_seeds_leave_the_folders_of_the_others_alone(tmp_path: Path) -> None:
    few = read(GOOD, tmp_path)
    more = read(
        GOOD.replace("seeds: [3, 1]", "seeds: 5").replace("recipe: [grpo, rloo]", "recipe: [rloo, grpo, dapo]"),
        tmp_path,
    )
    assert {run.folder for run in few.runs} <= {run.folder for run in more.runs}


def test_the_first_cell_is_the_baseline_and_a_plan_without_a_grid_has_one(tmp_path: Path) -> None:
    assert read("grid: {group: [4, 2]}\n", tmp_path).baseline == "group=4"
    (cell,) = read("seeds: 2\n", tmp_path).cells
    assert cell.name == "all"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 3\n", "line 1: a sweep has no key seed; the nearest is seeds"),
        ("setings: {lr: 1}\n", "a sweep has no key setings; use one of name, seeds, base"),
        ("grid:\n  G: [2]\n", "line 2: there is no setting G; the nearest is group"),
        ("grid:\n  N: [2]\n", "there is no setting N; the nearest is interval"),
        ("base:\n  stesp: 3\n", "line 2: there is no setting stesp; the nearest is steps"),
        ("base: {learning_rate: 1e-3}\n", "the nearest is lr"),
        ("base: {seed: 3}\n", "the sweep sets seed of each run itself"),
        ("grid:\n  group: [2, eight]\n", "line 2: group is 'eight'; it must be a whole number"),
        ("base: {lr: fast}\n", "lr is 'fast'; it must be a number"),
        ("base: {checkpointing: 1}\n", "checkpointing is 1; it must be true or false"),
        ("base: {group: 2.5}\n", "group is 2.5; it must be a whole number"),
        ("grid:\n  group: [4, 1]\n", "line 1: cell group=1: recipe grpo needs groups of 2 or more rollouts"),
        ("grid: {recipe: [grop]}\n", "cell recipe=grop: unknown recipe 'grop'"),
        ("grid: {group: [4, 4]}\n", "group has a value twice"),
        ("grid: {group: []}\n", "group has no values"),
        ("grid: [1]\n", "is not a mapping of settings"),
        ("cells: 3\n", "cells is not a list"),
        ("cells:\n- {group: 4}\n- {group: 4}\n", "are called group=4"),
        ("seeds: 0\n", "seeds is 0; give how many"),
        ("seeds: [1, 1]\n", "give how many, such as 8, or a list of different seeds"),
        ("seeds: true\n", "seeds is True"),
        ("grid: {group: [2, 4]}\nbaseline: {group: 8}\n", "line 2: 0 settings are {'group': 8}; name one of them: "
        "group=2"),
        ("grid: {group: [2, 4]}\nbaseline: {recipe: grpo}\n", "2 settings are"),
        ("metric: loss\n", "metric is 'loss'; use one of pass@1, reward"),
        ("base: {eval_problems: 0}\n", "without held-out problems there is no pass@1"),
        ("seeds: 20000\n", "more than 10,000 runs"),
        ("- 1\n", "not a mapping; write seeds, base and grid"),
        ("grid: {group: [2\n", "not valid YAML"),
        ("grid: {a: 1}\ngrid: {b: 1}\n", "line 2: grid is given twice, first in line 1"),
    ],
)  # fmt: skip
def test_a_bad_plan_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read(text, tmp_path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_plan_from_python(tmp_path: Path) -> None:
    plan = plans.of({"seeds": 2, "grid": {"group": [2, 4]}}, tmp_path)
    assert len(plan.runs) == 4
    with pytest.raises(UserError, match=r"^sweep, grid\.G: there is no setting G"):
        plans.of({"grid": {"G": [2]}}, tmp_path)


def test_names_become_folders_that_every_system_takes() -> None:
    assert plans._folder_name("task=jsonl:/a b/c, group=2") == "task=jsonl_a_b_c_group=2"
    assert plans._folder_name("../..") == "cell"
