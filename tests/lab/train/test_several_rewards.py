"""Training on several rewards and under constraints: the advantages, the record, resuming, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.rewards import source
from grposcope.lab.objectives import recipes
from grposcope.lab.objectives.objective import _combined
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.tasks import load
from grposcope.lab.train import checkpoint, loop
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.constrain import _penalty
from grposcope.logs import read
from grposcope.maths.aggregation import METHODS, Aggregation, Components, combine
from grposcope.maths.constraints import _parse

REWARDS = """
def right(completions, answer, **_):
    return [float(a in c) for a, c in zip(answer, completions)]
def form(completions, **_):
    return [min(c.count("="), 2) / 2 for c in completions]
def first_bad(completions, **_):
    return [float("nan"), *[1.0] * (len(completions) - 1)]
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Settings of a short run on sums with two rewards."""
    (tmp_path / "pay.py").write_text(REWARDS)
    sums = load("arithmetic").problems("train")[:40]
    lines = [json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in sums]
    (tmp_path / "sums.jsonl").write_text("\n".join(lines))
    return {
        "task": f"jsonl:{tmp_path / 'sums.jsonl'}", "reward": f"{tmp_path / 'pay.py'}:right,form=0.5", "prompts": 4,
        "group": 4, "max_tokens": 24, "steps": 6, "eval_problems": 0, "threads": 1, "warmup": 0, "lr": 1e-3,
        "schedule": "constant", "rollouts_every": 0, "out": str(tmp_path / "run"),
    }  # fmt: skip


def rollouts(rewards: torch.Tensor, components: torch.Tensor | None) -> RolloutBatch:
    rows = rewards.numel()
    mask = torch.arange(9) < torch.arange(rows)[:, None] % 8 + 1
    none = torch.zeros(mask.shape)
    return RolloutBatch(none[:, :2].long(), mask[:, :2], none.long(), mask, none, none, mask[:, 0], rewards, components)


@pytest.mark.parametrize("method", METHODS[1:])
def test_advantages_are_those_of_the_aggregation(method: Any) -> None:
    parts = torch.rand(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total = parts.sum(-1)
    total[1, 2] = torch.nan  # left its group
    batch = rollouts(total, parts)
    how = Aggregation(method)
    found = _combined(batch, [1.0, 0.5], how)
    cut = parts.clone()
    cut[1, 2] = torch.nan
    given = Components.of_groups("ab", cut.numpy(), batch.lengths.double().numpy())
    np.testing.assert_allclose(found.reshape(-1).numpy(), combine(given, [1.0, 0.5], how).advantages)
    assert found[1, 2] == 0
    taken = batch.take(torch.tensor([2, 0]))
    assert taken.components is not None
    assert torch.equal(taken.components, parts[[2, 0]])
    single = batch.rows(slice(1, 3)).components
    assert single is not None
    assert torch.equal(single[:, 0], parts.flatten(0, 1)[1:3])


def test_a_penalty_is_the_standardized_cost_times_the_multiplier() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0, 6.0], [5.0, 5.0, 5.0, 5.0]], dtype=torch.float64)
    found = _penalty(values, _parse("x<=2"), 0.5)
    z = (values[0] - 3) / (values[0].std() + 1e-4)
    torch.testing.assert_close(found, torch.stack([-0.5 * z, torch.zeros(4, dtype=torch.float64)]))
    torch.testing.assert_close(_penalty(values, _parse("x>=2"), 0.5), -found)


@pytest.mark.slow
def test_a_run_records_its_rewards_and_constraints_and_resumes_bit_for_bit(files: dict[str, Any]) -> None:
    given = {**files, "aggregation": "standardized_components", "constraint": "length<=8; form>=0.9",
             "dual_damping": 0.1, "checkpoint_every": 3}  # fmt: skip
    loop.train(TrainConfig(**given))
    run = Path(given["out"])
    made = read(run)
    assert set(made.groups.components) == {"right", "form"}
    assert made.groups.lengths is not None
    total = made.groups.components["right"] + 0.5 * made.groups.components["form"]
    np.testing.assert_allclose(total, made.groups.rewards)
    found = source.of_run(made)
    assert found is not None
    assert (found.how.method, found.weights.tolist(), found.known) == ("standardized_components", [1, 0.5], True)
    rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    key = "constraint/length<=8/"
    integral = multiplier = 0.0
    for row in rows:
        lengths = made.groups.lengths.reshape(-1, 16)[row["step"] - 1]
        assert row[f"{key}multiplier"] == pytest.approx(multiplier)
        assert row[f"{key}cost"] == pytest.approx(lengths.mean())
        assert row[f"{key}violation"] == pytest.approx(lengths.mean() / 8 - 1)
        integral = max(integral + 0.05 * row[f"{key}violation"], 0)
        multiplier = max(integral + 0.1 * row[f"{key}violation"], 0)
    assert multiplier > 0
    assert checkpoint.read_state(run / "checkpoints/step-000006").constraints is not None

    other = run.with_name("again")
    cut = {**given, "out": str(other), "steps": 3}
    loop.train(TrainConfig(**cut))
    loop.resume(other, {"steps": 6})
    again = [json.loads(line) for line in (other / "steps.jsonl").read_text().splitlines()]
    timed = ("time", "seconds", "tokens_per")
    for first, second in zip(rows, again, strict=True):
        same = {name: value for name, value in first.items() if not name.startswith(timed)}
        assert same == {name: value for name, value in second.items() if not name.startswith(timed)}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"constraint": "fork<=1"}, "there is no reward 'fork'; choose among right, form, length, reward"),
        ({"constraint": "length>=90"}, "cannot hold: completions have 1 to 24 tokens"),
        ({"constraint": "length<=0"}, "cannot hold"),
        ({"constraint": "length<=5; length>=9"}, "cannot both hold"),
        ({"constraint": "length<=5", "group": 1, "recipe": "reinforce"}, "leave out constraint|use a group of 2"),
        ({"aggregation": "normalize_then_sum", "recipe": "dapo"}, "penalty for overlong completions"),
        ({"reward": "{}:right", "aggregation": "normalize_then_sum"}, "has one; name several reward functions"),
        ({"reward": "{}:right,fom"}, "has no 'fom'; its functions are right, form, first_bad"),
        ({"reward": "{}:right,form=x"}, "the weight 'x' is not a finite number"),
        ({"reward": "{}:right=0,form=0"}, "all weights of the rewards are 0"),
        ({"reward": "{}:right,right"}, "a name is used twice"),
        ({"reward": "{}:right,first_bad"}, r"\(first_bad\) is nan for rollout 0"),
    ],
)  # fmt: skip
def test_what_is_refused(more: dict[str, Any], said: str, files: dict[str, Any]) -> None:
    given = {**files, **more}
    given["reward"] = given["reward"].format(files["reward"].partition(":")[0])
    with pytest.raises(UserError, match=said):
        loop.train(TrainConfig(**given))


def test_weights_that_sum_to_0_and_rewards_that_fail(files: dict[str, Any]) -> None:
    """A rollout of which one function fails leaves its group with reward_errors drop."""
    place = files["reward"].partition(":")[0]
    given = {**files, "reward": f"{place}:right,first_bad=-1", "reward_errors": "drop", "steps": 1}
    loop.train(TrainConfig(**{**given, "aggregation": "standardized_components"}))
    row = json.loads((Path(given["out"]) / "steps.jsonl").read_text().splitlines()[0])
    assert row["reward_errors"] == 1
    first = json.loads((Path(given["out"]) / "groups.jsonl").read_text().splitlines()[0])
    assert first["rewards"][0] == "NaN"


def test_a_cost_that_nobody_can_change_is_told(files: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place = files["reward"].partition(":")[0]
    Path(place).write_text(REWARDS + "def never(completions, **_):\n    return [0.0] * len(completions)\n")
    loop.train(TrainConfig(**{**files, "reward": f"{place}:right,never", "constraint": "never>=0.5", "steps": 1}))
    shown = capsys.readouterr()
    assert "never>=0.5 is violated from the start, and its cost is equal" in shown.out + shown.err


def test_the_default_is_the_recipe_on_the_sum() -> None:
    parts = torch.rand(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = rollouts(parts @ torch.tensor([1.0, 0.5], dtype=torch.float64), parts)
    how = Aggregation()
    found = _combined(batch, [1.0, 0.5], how)
    torch.testing.assert_close(recipes.GRPO.rollout_advantages(batch), found)
