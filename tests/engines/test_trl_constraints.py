"""Constraints and aggregations of GRPOscopeTrainer: advantages are those of our loop, multipliers outlive a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.core.files import write_json
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.engines.trl.constraining import CHECKPOINT, TrainerConstraints
from grposcope.engines.trl.scored_batch import Scored
from grposcope.instruments.rewards import source
from grposcope.lab.objectives import several
from grposcope.lab.objectives.objective import _combined
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.tasks import load
from grposcope.lab.train.constrain import RunConstraints
from grposcope.logs import read
from grposcope.maths.aggregation import METHODS, Aggregation
from grposcope.maths.constraints import Dual, parse_all

SIZE = {"per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 16}
BOTH = [tiny_trl.reward_letters, tiny_trl.reward_length]
TEXTS = ["length<=3", "reward_letters>=0.5", "reward>=0.4"]
WEIGHTS = [1.0, -0.5]


class Seen(GRPOscopeTrainer):
    """Keeps every batch, its rewards and lengths, and the advantages that it was trained with."""

    batches: list[tuple[torch.Tensor, list[int], torch.Tensor]]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rewards, lengths = self._kept
        self.batches = [*getattr(self, "batches", []), (rewards, lengths, out["advantages"].clone())]
        return out

    def _calculate_rewards(self, *given: Any, **more: Any) -> Any:
        rewards = super()._calculate_rewards(*given, **more)
        assert self._scope_batch is not None
        self._kept = rewards.clone(), [len(ids) for ids in self._scope_batch.ids]
        return rewards


def made(folder: Path, reward: Any = None, kind: Any = Seen, **given: Any) -> Any:
    names = ("constraints", "dual_rate", "dual_damping", "aggregation", "advantage", "probe_every", "credit")
    ours = {name: given.pop(name) for name in names if name in given}
    options = {**SIZE, "max_steps": 3, **given}
    return tiny_trl.trainer(folder, [], reward=reward or BOTH, kind=kind, ours=ours, **options)


def expected(trainer: Any, how: Aggregation, dual: Dual) -> list[torch.Tensor]:
    """The advantages of our own loop on the rewards of the batches."""
    limits, found = RunConstraints(dual), []
    for rewards, lengths, _ in trainer.batches:
        parts = rewards.double().reshape(4, 4, -1)
        mask = torch.arange(16) < torch.tensor(lengths)[:, None]
        none = torch.zeros(mask.shape)
        total = parts @ torch.tensor(WEIGHTS, dtype=torch.float64)
        batch = RolloutBatch(none[:, :1].long(), mask[:, :1], none.long(), mask, none, none, mask[:, 0], total, parts)
        own = _combined(batch, WEIGHTS, how).reshape(-1)

        def values(name: str, batch: RolloutBatch = batch) -> torch.Tensor:
            return several.constrained_values(batch, ("reward_letters", "reward_length"), name)

        found.append(own + limits.penalties(values).reshape(-1))
        limits.learn(values, lambda line: None)
    return found


SLOW = pytest.mark.slow


@pytest.mark.parametrize("method", [METHODS[3], *(pytest.param(method, marks=SLOW) for method in METHODS[:3])])
def test_advantages_are_those_of_our_own_loop(tmp_path: Path, method: Any) -> None:
    """Each way of combining, with three constraints of which two bind from the second batch on."""
    given = {"constraints": TEXTS, "dual_rate": 0.5, "dual_damping": 0.2}
    trainer = made(tmp_path, aggregation=method, reward_weights=WEIGHTS, **given)
    trainer.train()
    dual = Dual(parse_all(TEXTS), 0.5, 0.2)
    for ours, (_, _, theirs) in zip(expected(trainer, Aggregation(method), dual), trainer.batches, strict=True):
        torch.testing.assert_close(theirs, ours.to(theirs), rtol=1e-5, atol=2e-5)
    assert sum(multiplier > 0 for multiplier in dual.multipliers) >= 2
    assert trainer._scope_limits.run.dual.multipliers == pytest.approx(dual.multipliers, rel=1e-6)
    rows = [json.loads(line) for line in (tmp_path / "grposcope" / "steps.jsonl").read_text().splitlines()]
    lengths = [float(np.mean(lengths)) for _, lengths, _ in trainer.batches]
    assert [row["constraint/length<=3/cost"] for row in rows] == pytest.approx(lengths)
    assert rows[0]["constraint/length<=3/multiplier"] == 0 < rows[1]["constraint/length<=3/multiplier"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["normalize_then_sum", "sum_then_normalize"])
def test_an_aggregation_of_both_is_that_of_trl(tmp_path: Path, method: Any) -> None:
    """What TRL would have made of the same rollouts by its own option."""
    theirs = made(tmp_path / "theirs", reward_weights=WEIGHTS, multi_objective_aggregation=method)
    ours = made(tmp_path / "ours", reward_weights=WEIGHTS, aggregation=method)
    for one in (theirs, ours):
        torch.manual_seed(3)
        one.train()
    torch.testing.assert_close(ours.batches[0][2], theirs.batches[0][2], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param(
            {"per_device_train_batch_size": 2, "num_iterations": 2, "gradient_accumulation_steps": 2}, marks=SLOW
        ),
    ],
)
def test_a_resumed_run_goes_on_with_its_multipliers(tmp_path: Path, options: dict[str, Any]) -> None:
    """Bit for bit, at the end of a batch's use."""
    shape = {"per_device_train_batch_size": 4, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    given = {"constraints": TEXTS, **shape, **options}
    whole, again = made(tmp_path, **given), made(tmp_path, **given)
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for text in TEXTS:
        for part in ("multiplier", "violation"):
            name = f"constraint/{text}/{part}"
            found = [[row[name] for row in one.state.log_history if name in row] for one in (whole, again)]
            assert len(found[0]) == (2 if options else 4)
            assert found[0] == found[1]
    assert whole._scope_limits.run.state() == again._scope_limits.run.state()
    assert max(whole._scope_limits.run.dual.multipliers) > 0


@pytest.mark.slow
def test_within_the_use_of_a_batch_the_multipliers_before_it_are_kept(tmp_path: Path) -> None:
    """TRL answers its prompts again, so that the violation must not count twice."""
    given = {"constraints": "length<=1", "num_iterations": 2, "max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    whole = made(tmp_path, **given)
    whole.train()
    kept = [json.loads((tmp_path / f"checkpoint-{n}" / CHECKPOINT).read_text())["dual"] for n in (1, 2, 3)]
    assert kept[0]["multipliers"] == [0.0]
    assert kept[1]["multipliers"][0] > 0
    assert kept[2] == kept[1]
    again = made(tmp_path / "again", **given)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert len(again.batches) == 1  # for steps 2 and 3
    rows = [row for row in again.state.log_history if "constraint/length<=1/violation" in row]
    assert rows[-1]["constraint/length<=1/multiplier"] == 0
    assert again._scope_limits.run.dual.multipliers == [0.05 * rows[-1]["constraint/length<=1/violation"]]


def test_lengths_are_those_before_trl_masks_and_rewards_of_none_count_nowhere() -> None:
    class Alone:
        is_main_process = True

        @staticmethod
        def gather(own: torch.Tensor) -> torch.Tensor:
            return own

    nan = float("nan")
    rewards = torch.tensor([[1.0, 0.5], [0.0, nan], [nan, nan], [1.0, 0.5]])
    batch = Scored(rewards, [{}] * 4, ["x"] * 4, ["y"] * 4, [[1] * n for n in (2, 6, 9, 4)])
    limits = TrainerConstraints(Dual(parse_all(["length<=2", "b>=1"]), 1.0), ("a", "b"), 2, 1)
    _, metrics = limits.take(batch, torch.ones(2), Alone())
    assert metrics["constraint/length<=2/cost"] == 4  # of 2, 6 and 4
    assert metrics["constraint/b>=1/cost"] == -0.5
    penalties, _ = limits.take(batch, torch.ones(2), Alone())
    z = np.array([2.0, 6.0]) - 4
    first = -(4 / 2 - 1) * z / (z.std(ddof=1) + 1e-4)
    assert penalties.tolist() == pytest.approx([*first, 0.0, 0.0], rel=1e-9)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"constraints": ["form>=1"]}, "no reward 'form'; choose among reward_letters, reward_length, length, reward"),
        ({"constraints": "length<=5; length>=9"}, "cannot both hold"),
        ({"constraints": ["length<5"]}, "cannot be read"),
        ({"constraints": ["length<=5"], "dual_rate": float("nan")}, "must be 0 or more"),
        ({"aggregation": "both"}, "unknown aggregation 'both'; use one of sum_then_normalize"),
        ({"aggregation": "gdpo_tokens", "multi_objective_aggregation": "normalize_then_sum"},
         "aggregation gdpo_tokens needs .*multi_objective_aggregation=normalize_then_sum compares"),
        ({"aggregation": "gdpo_tokens", "advantage": "centered"}, "aggregation gdpo_tokens compares every reward"),
        ({"aggregation": "gdpo_tokens", "reward_weights": [0.0, 0.0]}, "all weights of the rewards are 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        made(tmp_path, **given)


def test_what_cannot_be_resumed_is_one_line(tmp_path: Path) -> None:
    given = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    made(tmp_path, constraints="length<=2", **given).train()
    path = tmp_path / "checkpoint-1" / CHECKPOINT
    content = json.loads(path.read_text())
    with pytest.raises(UserError, match="was written with the constraints length<=2, and this run has length<=3"):
        made(tmp_path, constraints="length<=3", **given).train(resume_from_checkpoint=True)
    write_json(path, {**content, "dual": {"integral": [0.0], "multipliers": ["x"]}})
    with pytest.raises(UserError, match="multipliers is not a number for each constraint"):
        made(tmp_path, constraints="length<=2", **given).train(resume_from_checkpoint=True)
    path.unlink()
    with pytest.raises(UserError, match="the multipliers that its constraints continue from"):
        made(tmp_path, constraints="length<=2", **given).train(resume_from_checkpoint=True)


@pytest.mark.slow
def test_credit_per_token_has_the_penalty_on_every_token(tmp_path: Path) -> None:
    given = {"credit": "prefix", "constraints": "length<=2", "dual_rate": 1.0, "max_steps": 2}
    trainer = made(tmp_path, **given)
    parts: list[Any] = []
    take = TrainerConstraints.take

    def spy(self: Any, *given: Any) -> Any:
        parts.append(take(self, *given))
        return parts[-1]

    plain = made(tmp_path / "plain", credit="prefix", max_steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainerConstraints, "take", spy)
        for one in (trainer, plain):
            torch.manual_seed(5)
            one.train()
    assert torch.equal(trainer.batches[0][2], plain.batches[0][2])  # the first batch has no penalty yet
    penalty, (_, lengths, given_then) = parts[1][0], trainer.batches[1]
    assert penalty.abs().max() > 0.1
    for row, length in enumerate(lengths):
        assert (given_then[row, length:] == 0).all()


PAY = """
def right(completions, answer, **_):
    return [float(a in c) for a, c in zip(answer, completions)]
def form(completions, **_):
    return [min(c.count("="), 2) / 2 for c in completions]
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A short training in TRL on two rewards under a constraint."""
    (tmp_path / "pay.py").write_text(PAY)
    lines = [
        json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in load("arithmetic").problems("train")[:16]
    ]
    (tmp_path / "sums.jsonl").write_text("\n".join(lines))
    return [
        "train", "--engine", "trl", "--task", f"jsonl:{tmp_path / 'sums.jsonl'}", "--reward",
        f"{tmp_path / 'pay.py'}:right,form=0.5", "--prompts", "4", "--group", "4", "--max-tokens", "20",
        "--eval-problems", "0", "--threads", "1", "--schedule", "constant", "--constraint", "length<=8",
        "--dual-rate", "0.5",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_of_trl_keeps_its_rewards_apart(tmp_path: Path, words: list[str]) -> None:
    folder = tmp_path / "run"
    how = ["--aggregation", "standardized_components"]
    assert cli.main([*words, *how, "--steps", "2", "--checkpoint-every", "1", "--out", str(folder)]) == 0
    run = read(folder)
    assert {"right", "form"} <= set(run.groups.components)
    found = source.of_run(run)
    assert found is not None
    assert (found.how.method, found.weights.tolist(), found.known) == ("standardized_components", [1, 0.5], True)
    np.testing.assert_allclose(run.groups.rewards, run.groups.components["right"] + run.groups.components["form"] / 2)
    multipliers = run.table["constraint/length<=8/multiplier"]
    assert multipliers.tolist() == [0, pytest.approx(0.5 * run.table["constraint/length<=8/violation"][0])]
    assert multipliers[1] > 0
    assert (folder / "trl" / "checkpoint-2" / CHECKPOINT).exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--constraint", "fork<=1"], "there is no reward 'fork'; choose among right, form, length, reward"),
        (["--recipe", "dapo", "--constraint", "reward>=0.5"], "name one of the rewards, or use engine grposcope"),
        (["--trl", "multi_objective_aggregation=normalize_then_sum"], "the setting aggregation decides it"),
        (["--trl", "reward_weights=[1,2]"], "the rewards of the task have theirs"),
    ],
)
def test_what_a_run_of_trl_refuses(more: list[str], said: str, words: list[str], capsys: Any) -> None:
    assert cli.main([*words, *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_trl_goes_on_with_its_multipliers(tmp_path: Path, words: list[str]) -> None:
    folder = tmp_path / "run"
    given = ["--steps", "4", "--checkpoint-every", "2", "--keep-checkpoints", "9", "--out", str(folder)]
    assert cli.main([*words, *given, "--aggregation", "normalize_then_sum"]) == 0
    before = read(folder)
    (folder / "summary.json").unlink()
    (folder / "trl" / "checkpoint-4" / CHECKPOINT).unlink()
    assert cli.main(["train", "--resume", str(folder)]) == 0
    after = read(folder)
    for name in ("step", "reward", "constraint/length<=8/multiplier", "constraint/length<=8/cost"):
        assert after.table[name].tolist() == before.table[name].tolist()
    assert after.table["constraint/length<=8/multiplier"].max() > 0
