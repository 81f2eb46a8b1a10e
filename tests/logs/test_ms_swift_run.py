"""A run of ms-swift 4.6.0's GRPO: 24 steps of a model of two layers on a CPU, two reward functions, three evaluations.

`swift rlhf --rlhf_type grpo --reward_funcs letters digits --reward_weights 1 0.5 --num_generations 4 --max_steps 24
--eval_steps 8 --log_completions true --log_entropy true --beta 0.04`; args.json is shortened to what judges a run.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from grposcope.core.errors import UserError
from grposcope.faults.judge import diagnose
from grposcope.instruments.verify import judge
from grposcope.instruments.verify.read import evidence
from grposcope.logs import read
from grposcope.logs.trainers import ms_swift_completions

FOLDER = ROOT / "tests" / "fixtures" / "ms_swift"
ROWS = [json.loads(line) for line in (FOLDER / "logging.jsonl").read_text().splitlines()]
TRAINED = [row for row in ROWS if "reward" in row]
EVALUATED = [row for row in ROWS if "eval_reward" in row]


@pytest.mark.parametrize("name", ["", "logging.jsonl", "console.log"])
def test_every_row_of_training_and_evaluation(name: str) -> None:
    """Rows of training and of evaluation at one step differ in the speed that they report, and are no restarts."""
    run = read(FOLDER / name)
    digits = 5e-4 if name == "console.log" else 1e-9  # printed with four digits
    assert (len(TRAINED), len(EVALUATED), len(run.segments)) == (24, 3, 0)
    assert run.table["step"].tolist() == list(range(1, 25))
    for metric, key in {
        "reward": "reward", "length": "completions/mean_length", "entropy": "entropy/mean", "kl": "kl", "lr":
        "learning_rate", "grad_norm": "grad_norm", "dead_fraction": "frac_reward_zero_std",
        "component/Digits": "rewards/Digits/mean", "truncated": "completions/clipped_ratio",
    }.items():  # fmt: skip
        np.testing.assert_allclose(run.table[metric], [row[key] for row in TRAINED], rtol=digits, err_msg=metric)
    scores = run.evaluations.of("reward")
    assert scores.step.tolist() == [8, 16, 24]
    np.testing.assert_allclose(scores.value, [row["eval_reward"] for row in EVALUATED], rtol=digits)
    assert run.meta.engine == "ms-swift"
    assert diagnose(run)


def test_the_arguments_are_the_settings() -> None:
    settings = read(FOLDER / "logging.jsonl").config["settings"]
    known = {"group": 4, "kl": 0.04, "clip_low": 0.2, "lr": 1e-3, "max_tokens": 16, "scale_rewards": "group"}
    assert {name: settings[name] for name in known} == known


def test_a_log_without_its_arguments(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "logging.jsonl", tmp_path)
    run = read(tmp_path)
    assert "group" not in run.config["settings"]
    assert any("scale_rewards" in note for note in run.meta.notes)


def test_the_completions_are_the_groups() -> None:
    run = read(FOLDER)
    assert len(run.groups) == 48
    assert set(run.groups.sizes.tolist()) == {4}
    for row in TRAINED:
        step = int(row["global_step/max_steps"].split("/")[0])
        here = np.repeat(run.groups.step == step, run.groups.sizes)
        assert run.groups.rewards[here].mean() == pytest.approx(row["reward"], abs=1e-6)
        means = {name: column[here].mean() for name, column in run.groups.components.items()}
        assert means == pytest.approx({name: row[f"rewards/{name}/mean"] for name in ("Letters", "Digits")}, abs=1e-6)
    assert len(run.rollouts[7]) == 8


def test_nothing_is_broken() -> None:
    """Advantages, groups, rewards and metrics are those of the settings, in an engine that we did not write."""
    found = {one.claim.name: one for one in judge.judge(evidence(FOLDER))}
    assert found["advantages"].status == found["groups"].status == "holds"
    assert "weighted sum" in found["rewards"].told[0].held  # which were not graded again
    assert not [name for name, one in found.items() if one.status == "broken"]


def test_an_advantage_that_is_not_that_of_its_group(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "run")
    path = tmp_path / "run" / "completions.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[3]["advantages"][2] += 0.2
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {one.claim.name: one.status for one in judge.judge(evidence(tmp_path / "run"))}
    assert found["advantages"] == "broken"


@pytest.mark.parametrize(("change", "words"), [
    ({"completion": ["a"]}, "line 2: columns of one step differ in length"),
    ({"step": ["x"] * 8}, "line 2: step is x; give a whole number"),
    ({"Letters": ["?"] * 8}, r"line 2: Letters is \?; give a number"),
    ({"advantages": None}, "line 2: no list 'advantages'"),
    ({"completion": ["a"] * 8, "More": [1.0] * 8}, None),
])  # fmt: skip
def test_bad_completions(tmp_path: Path, change: dict[str, object], words: str | None) -> None:
    rows = [json.loads(line) for line in (FOLDER / "completions.jsonl").read_text().splitlines()[:3]]
    rows[1] |= change
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if words is None:  # a column behind the advantages is none of the rewards
        assert {name for one in ms_swift_completions.rollouts(path) for name in one.rewards} == {"Letters", "Digits"}
    else:
        with pytest.raises(UserError, match=words):
            list(ms_swift_completions.rollouts(path))


def test_steps_that_were_done_again(tmp_path: Path) -> None:
    """Of a resumed run the last attempt counts, of a step with an evaluation the training."""
    row = json.loads((FOLDER / "completions.jsonl").read_text().splitlines()[0])
    path = tmp_path / "completions.jsonl"
    steps, marks = (1, 2, 2, 3, 2, 3, 3), "abcdefg"
    path.write_text("".join(
        json.dumps({**row, "step": [str(step)] * 8, "completion": [mark] * 8}) + "\n"
        for step, mark in zip(steps, marks, strict=True)
    ))  # fmt: skip
    assert [(one.step, one.completion) for one in ms_swift_completions.rollouts(path)][::8] == [
        (1, "a"), (2, "e"), (3, "f"),
    ]  # fmt: skip
