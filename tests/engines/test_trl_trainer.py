"""GRPOscopeTrainer: its probes are of the gradient that TRL takes, and its credit reaches TRL's loss row by row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.engines import distributed
from grposcope.engines.trl import GRPOscopeCallback, GRPOscopeMixin, GRPOscopeTrainer
from grposcope.engines.trl import trainer as module
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient.backward import Refusal
from grposcope.lab.credit.steps import steps as credit_of_steps
from grposcope.lab.objectives import advantages
from grposcope.lab.objectives.advantages import Advantage
from grposcope.logs import read

SIZE = {"per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 6}


def make(folder: Path, kind: Any = GRPOscopeTrainer, callbacks: Any = (), **given: Any) -> Any:
    """A trainer of 4 prompts × 4 rollouts; arguments of ours, and of GRPOConfig."""
    names = ("probe_every", "probe_prompts", "credit", "advantage", "step_rewards", "peft_config")
    ours = {name: given.pop(name) for name in names if name in given}
    return tiny_trl.trainer(folder, list(callbacks), kind=kind, ours=ours, **{**SIZE, **given})


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "grposcope" / "steps.jsonl").read_text().splitlines()]


def vowels(completions: list[str], **_: Any) -> list[list[tuple[int, float]]]:
    """Step rewards: every second letter closes a step, worth 1 if it is one of the first six letters."""
    return [[(end, float(text[end - 1] < "g")) for end in range(2, len(text) + 1, 2)] for text in completions]


def gradient_norm(folder: Path, step: int = 0) -> float:
    """‖Σ u_i s_i‖ from a recorded probe alone: the weights of its rollouts and the Gram matrix of their scores."""
    record = probes.read(folder / "grposcope" / "probes" / f"step-{step:06d}")
    u = np.array([rollout.loss_weights[0] if len(rollout.loss_weights) else 0.0 for rollout in record.read_rollouts()])
    return math.sqrt(u @ record.read_gram().gram @ u)


LOSSES: list[dict[str, Any]] = [
    {"loss_type": "grpo"},
    {"loss_type": "dapo", "temperature": 0.7},
    {"loss_type": "dr_grpo", "scale_rewards": "none"},
    {"loss_type": "bnpo", "scale_rewards": "batch"},
    {"loss_type": "cispo", "epsilon_high": 0.5},
    {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "mask_truncated_completions": True,
        "max_completion_length": 24,
    },
    {"loss_type": "sapo"},
    {"loss_type": "vespo"},
    {"loss_type": "grpo", "advantage": "leave_one_out"},
    {"loss_type": "grpo", "gradient_accumulation_steps": 2, "per_device_train_batch_size": 8},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_the_probe_is_of_the_gradient_that_trl_takes(tmp_path: Path, options: dict[str, Any]) -> None:
    """TRL logs the norm of its gradient before clipping; ours comes from the probe's weights and Gram matrix."""
    trainer = make(tmp_path, probe_every=1, max_steps=1, **options)
    trainer.train()
    (row,) = rows(tmp_path)
    assert row["grad_norm"] > 1e-3
    assert gradient_norm(tmp_path) == pytest.approx(row["grad_norm"], rel=1e-4)
    assert row["geometry/self_check"] < 1e-4


def test_under_autocast_the_probe_computes_in_the_precision_of_the_weights(tmp_path: Path) -> None:
    """TRL trains in bfloat16 by default where a GPU has it, with weights in float32."""
    make(tmp_path, probe_every=1, max_steps=1, bf16=True).train()
    (row,) = rows(tmp_path)
    assert row["geometry/self_check"] < 1e-5
    assert gradient_norm(tmp_path) == pytest.approx(row["grad_norm"], rel=0.01)


def test_the_probe_of_rloo_is_of_its_gradient(tmp_path: Path) -> None:
    from trl import RLOOConfig, RLOOTrainer

    class Mine(GRPOscopeMixin, RLOOTrainer):
        """A trainer of one's own."""

    make(tmp_path, Mine, config=RLOOConfig, beta=0.0, probe_every=1, max_steps=1).train()
    (row,) = rows(tmp_path)
    assert gradient_norm(tmp_path) == pytest.approx(row["grad_norm"], rel=1e-4)
    assert probes.read(tmp_path / "grposcope" / "probes" / "step-000000").recipe == "rloo"


@pytest.mark.slow
def test_a_run_is_the_same_with_probes_as_without(tmp_path: Path) -> None:
    """Weights, modes and random numbers; TRL checkpoints activations by default, and adapters have dropout here."""
    from peft import LoraConfig

    ends = {}
    for name, every in (("probed", 2), ("plain", 0)):
        adapters = LoraConfig(r=2, lora_dropout=0.3, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
        trainer = make(tmp_path / name, probe_every=every, peft_config=adapters, max_steps=3)
        torch.manual_seed(5)
        trainer.train()
        ends[name] = (
            weights(trainer),
            torch.get_rng_state(),
            {m: (x.training, getattr(x, "gradient_checkpointing", None)) for m, x in trainer.model.named_modules()},
        )
    (one, random, left), (other, *rest) = ends["probed"], ends["plain"]
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert torch.equal(random, rest[0])
    assert left == rest[1]
    assert [row["step"] for row in rows(tmp_path / "probed") if "geometry/rollout_stable" in row] == [1, 3]
    assert not any(key.startswith("geometry") for row in rows(tmp_path / "plain") for key in row)
    record = probes.read(tmp_path / "probed" / "grposcope" / "probes" / "step-000000")
    assert all("lora_" in layer.name for layer in record.layers)  # what is trained is what is measured


@pytest.mark.slow
def test_the_record_has_the_probes_and_every_reader_finds_them(tmp_path: Path, capsys: Any) -> None:
    trainer = make(tmp_path, probe_every=2, probe_prompts=3, max_steps=4)
    trainer.train()
    folder = tmp_path / "grposcope"
    run = read(folder)
    assert [np.isfinite(v) for v in run.table["geometry/rollout_stable"]] == [True, False, True, False]
    assert run.table["geometry/dead"][0] == run.table["dead_fraction"][0]
    assert run.table["seconds_probe"][0] > 0
    first, second = probes.in_folder(folder)
    assert (first.step, second.step, first.prompts, first.group) == (0, 2, 3, 4)
    assert first.recipe == "grpo, dapo loss"
    names = {layer.name for layer in first.layers}
    assert "lm_head.weight" in names  # TRL's loss uses the head's weights without calling it
    assert first.read_gram().layers is None
    (rollout, *_) = first.read_rollouts()
    assert rollout.completion == "".join(token for token in rollout.tokens if not token.startswith("<"))
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "What is the gradient made of?" in page
    assert "How many rollouts per prompt" in page
    assert main(["plan", str(folder)]) == 0
    assert "rollouts of the trainer after step 2" in capsys.readouterr().out


def test_credit_follows_its_rollout_through_shuffling_and_splitting(tmp_path: Path) -> None:
    """TRL permutes the rows of a batch and splits it into steps; each row keeps the credit of its own tokens."""
    trainer = make(tmp_path, credit="steps", step_rewards=vowels, steps_per_generation=4,
                   per_device_train_batch_size=4, max_steps=1)  # fmt: skip
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    inner = trainer._generate_and_score_completions

    def outer(inputs: Any) -> Any:
        out = inner(inputs)
        seen.append((out["completion_ids"].clone(), out["completion_mask"].bool(), out["advantages"].clone()))
        return out

    trainer._generate_and_score_completions = outer
    trainer.train()
    ((tokens, mask, credit),) = seen
    rewards, ends = torch.zeros(tokens.shape, dtype=torch.float64), torch.zeros(tokens.shape, dtype=torch.bool)
    for row, ids in enumerate(tokens[k][mask[k]].tolist() for k in range(16)):
        texts = [trainer.processing_class.decode(ids[: t + 1], skip_special_tokens=True) for t in range(len(ids))]
        for end, reward in vowels(texts[-1:])[0]:
            place = next(t for t, text in enumerate(texts) if len(text) >= end)
            rewards[row, place] += reward
            ends[row, place] = True
    expected = credit_of_steps(rewards, ends, mask, 4)
    torch.testing.assert_close(credit, expected.float())
    assert float(credit.abs().max()) > 0
    shuffled = trainer._buffered_inputs
    assert len(shuffled) == 4
    order = []
    for part in shuffled:
        for ids, given in zip(part["completion_ids"], part["advantages"], strict=True):
            places = [k for k in range(16) if torch.equal(tokens[k], ids) and torch.equal(credit[k], given)]
            assert places
            order += places[:1]
    assert order != sorted(order)  # it was shuffled


def test_credit_per_token_changes_what_is_learned(tmp_path: Path) -> None:
    """The gradient of TRL's own loss with our (B, T) credit is that of our weights: norm as logged by TRL."""
    trainer = make(tmp_path, credit="steps", step_rewards=vowels, probe_every=1, max_steps=1, loss_type="dr_grpo")
    trainer.train()
    (row,) = rows(tmp_path)
    record = probes.read(tmp_path / "grposcope" / "probes" / "step-000000")
    assert len({w for rollout in record.read_rollouts() for w in rollout.loss_weights.tolist()}) >= 8
    squares = sum(layer.spectra[record.recipe].frobenius ** 2 for layer in record.layers)
    assert math.sqrt(squares) == pytest.approx(row["grad_norm"], rel=0.02)  # without the vectors of norms


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leave_one_out", "whitened", "none"])
def test_advantages_of_ours_reach_the_loss_and_the_table(tmp_path: Path, name: str) -> None:
    trainer = make(tmp_path, advantage=name, max_steps=1, log_completions=True)
    trainer.train()
    table = pq.read_table(tmp_path / "completions" / "completions_00001.parquet").to_pydict()
    rewards = torch.tensor(table["reward_letters"], dtype=torch.float64).reshape(4, 4)
    expected = advantages.ALL[name].function(rewards).reshape(-1)
    assert table["advantage"] == pytest.approx(expected.tolist(), abs=1e-5)
    trained = torch.cat([part["advantages"] for part in trainer._buffered_inputs])
    assert sorted(trained.tolist()) == pytest.approx(sorted(expected.tolist()), abs=1e-5)


def test_a_new_advantage_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(advantages.ALL, "toy", Advantage(lambda rewards: rewards - rewards.median(-1, True).values))
    trainer = make(tmp_path, advantage="toy", probe_every=1, max_steps=1)
    trainer.train()
    record = probes.read(tmp_path / "grposcope" / "probes" / "step-000000")
    assert record.recipe.partition(",")[0] == "toy"


def test_a_group_with_a_rollout_that_nobody_scored_gets_nothing(tmp_path: Path) -> None:
    calls: list[int] = []

    def some(completions: list[str], **_: Any) -> list[float | None]:
        calls.append(1)
        return [None if k == 5 else float(len(text) + k) for k, text in enumerate(completions)]

    trainer = make(tmp_path, reward=some, advantage="leave_one_out", probe_every=1, max_steps=1)
    seen: list[torch.Tensor] = []
    whole = module._assigned

    def spied(*given: Any) -> torch.Tensor:
        seen.append(whole(*given))
        return seen[-1]

    module._assigned = spied
    try:
        trainer.train()
    finally:
        module._assigned = whole
    (given,) = seen
    assert given[4:8].tolist() == [0.0] * 4
    assert torch.isfinite(given).all()
    assert (given.reshape(4, 4)[[0, 2, 3]] != 0).any(-1).all()
    assert probes.read(tmp_path / "grposcope" / "probes" / "step-000000").prompts == 3


def test_a_probe_that_fails_is_said_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(module.probing, "measure", fail)
    trainer = make(tmp_path, probe_every=1, max_steps=2)
    trainer.train()
    assert "step 1: no geometry: RuntimeError: no room" in capsys.readouterr().err
    assert [row["step"] for row in rows(tmp_path)] == [1, 2]


def test_a_failure_in_a_sharded_model_ends_the_training_and_a_refusal_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Another rank may wait in a collective of FSDP2, and the training's next one would answer it."""
    raised: list[Exception] = [Refusal("no room"), RuntimeError("such and such")]

    def fail(*_: Any, **__: Any) -> None:
        raise raised.pop(0)

    monkeypatch.setattr(module.probing, "measure", fail)
    monkeypatch.setattr(distributed, "sharded", lambda model: [model])
    trainer = make(tmp_path, probe_every=1, max_steps=2)
    with pytest.raises(UserError, match=r"step 2: the probe failed: RuntimeError: such and such; .*resume from the"):
        trainer.train()
    assert "step 1: no geometry: no room" in capsys.readouterr().err


def test_evaluation_has_the_advantages_of_trl(tmp_path: Path) -> None:
    trainer = make(tmp_path, credit="steps", step_rewards=vowels, probe_every=1, max_steps=2,
                   eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=8)  # fmt: skip
    trainer.train()
    assert len((tmp_path / "grposcope" / "evals.jsonl").read_text().splitlines()) == 2


def test_a_callback_that_is_given_is_the_one_that_records(tmp_path: Path) -> None:
    mine = GRPOscopeCallback(tmp_path / "elsewhere")
    trainer = make(tmp_path, callbacks=[mine], probe_every=5, max_steps=1)
    assert [c for c in trainer.callback_handler.callbacks if isinstance(c, GRPOscopeCallback)] == [mine]
    trainer.train()
    assert (tmp_path / "elsewhere" / "probes" / "step-000000" / "gram.npz").exists()
    assert not (tmp_path / "grposcope").exists()
