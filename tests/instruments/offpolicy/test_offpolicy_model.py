"""`grposcope offpolicy` from a model: rollouts of another sampler, and of a file whose trainer is a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from asked import asked, call, last_json
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import answer, from_model
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.maths.corrections import ALL


@pytest.fixture(scope="module")
def trained() -> tuple[Policy, RolloutBatch, Tensor]:
    """The tiny model, rollouts that a noisy copy of it drew, and the trainer's log-probabilities of them."""
    policy, sampler = policies.load("tiny"), policies.load("tiny")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in sampler.model.parameters():
            one.add_(0.005 * one.std(correction=0) * torch.randn(one.shape, generator=generator))
    task = tasks.load("arithmetic", None)
    batch = collect(sampler, task, task.problems("train"), recipes.GRPO, Sampling(6), (16, 4), 0, 0).rollouts
    batch = replace(batch, rewards=torch.rand(16, 4, generator=generator, dtype=torch.float64))
    return policy, batch, frozen_logprobs(policy.model, batch, 1.0, 16)


def rows_of(batch: RolloutBatch) -> list[dict[str, object]]:
    rewards = batch.rewards.flatten().tolist()
    return [
        {
            "prompt_ids": batch.prompt_ids[i][batch.prompt_mask[i]].tolist(),
            "completion_ids": batch.tokens[i][batch.mask[i]].tolist(),
            "sampling_logprobs": batch.logp[i][batch.mask[i]].double().tolist(),
            "reward": rewards[i], "group": i // batch.groups[1],
        }
        for i in range(len(batch.mask))
    ]  # fmt: skip


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_distance_is_of_the_trainer_and_the_sampler(trained: tuple[Policy, RolloutBatch, Tensor]) -> None:
    policy, batch, trainer = trained
    drawn, found = from_model.measure(policy.model, [batch], 16)
    logs = (trainer - batch.logp)[batch.mask].double().numpy()
    assert np.concatenate(drawn.log_ratios) == pytest.approx(logs)
    assert found.distance.k1.value == pytest.approx(-logs.mean())
    assert found.errors is not None
    assert list(found.errors) == [one.name for one in ALL]
    assert found.errors["full"].bias2.value == pytest.approx(0.0, abs=1e-12)
    assert found.errors["token_ratio"].variance.value > 0


@pytest.mark.slow
def test_batches_are_pooled_and_those_without_a_gradient_left_out(trained: tuple[Policy, RolloutBatch, Tensor]) -> None:
    policy, batch, _ = trained
    halves = [batch.take(torch.arange(start, start + 8)) for start in (0, 8)]
    dead = replace(halves[0], rewards=torch.ones_like(halves[0].rewards))
    _, one = from_model.measure(policy.model, halves, 16)
    drawn, other = from_model.measure(policy.model, [*halves, dead], 16)
    alone = [from_model.measure(policy.model, [half], 16)[1] for half in halves]
    assert one.errors is not None
    assert other.errors is not None
    assert other.errors["none"].variance.value == pytest.approx(one.errors["none"].variance.value)
    assert len(drawn.log_ratios) == 64
    for quantity in ("bias2", "variance"):
        each = [getattr(half.errors["none"], quantity).value for half in alone if half.errors is not None]
        assert np.isfinite(each).all()
        assert getattr(one.errors["none"], quantity).value == pytest.approx(np.mean(each))
    with pytest.raises(UserError, match="equal rewards"):
        from_model.measure(policy.model, [dead], 16)


@pytest.mark.slow
def test_a_file_without_the_trainer_is_answered_from_a_checkpoint(
    trained: tuple[Policy, RolloutBatch, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, batch, _ = trained
    path = written(tmp_path / "rollouts.jsonl", rows_of(batch))
    assert call("offpolicy", str(path), "--model", "tiny", "--threads", "1") == 0
    found, text = last_json(capsys)
    due = from_model.measure(policy.model, [batch], 16)[1]
    assert found["distance"]["k1"]["value"] == pytest.approx(due.distance.k1.value, abs=1e-6)
    assert due.errors is not None
    for name, one in found["errors"].items():
        assert one["variance"]["value"] == pytest.approx(due.errors[name].variance.value, rel=1e-3, nan_ok=True)
    assert "Error of the gradient" in text
    assert "prefix_ratio" in text


def test_files_that_do_not_fit(trained: tuple[Policy, RolloutBatch, Tensor], tmp_path: Path) -> None:
    rows = rows_of(trained[1])
    first = rows[0]
    for change, said in (
        ({"completion_ids": [5]}, r"differ in length \(sampler \d, completion_ids 1\)"),
        ({"completion_ids": [10**6] * len(first["completion_ids"])}, "no tokens of the completion"),
        ({"group": None, "prompt_ids": None}, "no group"),
        ({"reward": None}, "no reward"),
        ({"group": "of its own"}, "groups have 1, 3, 4"),
    ):
        bad = written(tmp_path / "bad.jsonl", [{**first, **change}, *rows[1:]])
        with pytest.raises(UserError, match=said):
            asked("offpolicy", bad, "--model", "tiny")
    with pytest.raises(UserError, match="fewer than a batch"):
        asked("offpolicy", written(tmp_path / "good.jsonl", rows), "--model", "tiny", "--prompts", "100")


def test_flags_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="would be the same"):
        asked("offpolicy", "tiny")
    with pytest.raises(UserError, match="--group 1"):
        asked("offpolicy", "tiny", "--sampler-precision", "int8", "--group", "1")
    with pytest.raises(UserError, match="--gram"):
        asked("offpolicy", "tiny", "--gram", "x.npy")


@pytest.mark.slow
def test_a_rounded_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("offpolicy", "tiny", "--sampler-precision", "int8", "--prompts", "8", "--threads", "1") == 0
    found, _ = last_json(capsys)
    assert found["rollouts"] == 64
    assert found["distance"]["k3"]["value"] < 1e-2


def test_a_truncated_sampler_keeps_the_mass_of_its_tokens(trained: tuple[Policy, RolloutBatch, Tensor]) -> None:
    """ρ of a token is the probability of the two likeliest at its place."""
    policy, _, _ = trained
    task = tasks.load("arithmetic", None)
    sampling = Sampling(4, top_k=2, processed=True)
    batch = collect(policy, task, task.problems("train"), recipes.GRPO, sampling, (8, 4), 0, 0).rollouts
    generator = torch.Generator().manual_seed(1)
    batch = replace(batch, rewards=torch.rand(8, 4, generator=generator, dtype=torch.float64))
    drawn, found = from_model.measure(policy.model, [batch], 16, check=False, cut="the 2 likeliest tokens")
    ids, seen = torch.cat((batch.prompt_ids, batch.tokens), 1), torch.cat((batch.prompt_mask, batch.mask), 1)
    places = (seen.long().cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = policy.model(input_ids=ids, attention_mask=seen.long(), position_ids=places).logits
    mass = logits[:, batch.prompt_ids.shape[1] - 1 : -1].softmax(-1).topk(2).values.sum(-1)[batch.mask]
    assert np.exp(np.concatenate(drawn.log_ratios)) == pytest.approx(mass.double().numpy(), rel=1e-4)
    assert float(mass.min()) < 0.99
    said = answer.of_drawn(drawn, found)
    assert f"the 2 likeliest tokens, which have {100 * float(mass.mean()):.1f}% of the trainer's" in said.because
    assert "before processing" not in said.do


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("tiny", "--top-k", "0"), "--top-k 0 must be at least 1"),
        (("tiny", "--top-p", "1.5"), "--top-p 1.5 must be above 0 and at most 1"),
        (("tiny", "--top-p", "1"), "would be the same; .* --top-k 20"),
        (("rollouts.jsonl", "--model", "tiny", "--top-k", "5"), "not to ROLLOUTS; leave them out"),
    ],
)
def test_cuts_that_cannot_be_are_refused(flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        asked("offpolicy", *flags)
