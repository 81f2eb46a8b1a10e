"""Tokens of the tiny model under checkpoints, and `grposcope verify --model`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from asked import call, last_json

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.instruments.verify import judge, scoring
from grposcope.instruments.verify.claim import ClaimResult
from grposcope.instruments.verify.evidence import PipelineEvidence
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling


def noisy(size: float) -> Policy:
    """The tiny model with noise on every weight, `size` in units of each tensor's spread."""
    policy, random = policies.load("tiny"), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in policy.model.parameters():
            one.add_(size * one.std(correction=0) * torch.randn(one.shape, generator=random))
    return policy


def drawn(policy: Policy, step: int, prompts: int = 8, sampling: Sampling | None = None) -> list[Rollout]:
    task = tasks.load("arithmetic", None)
    given = (task, task.problems("train"), recipes.GRPO, sampling or Sampling(12), (prompts, 8), step, 0)
    batch = collect(policy, *given).rollouts
    rows = zip(batch.prompt_ids, batch.prompt_mask, batch.tokens, batch.mask, batch.logp, strict=True)
    return [
        Rollout(f"row {i}", step, str(i // 8), prompt_ids=prompt[seen].numpy(), completion_ids=ids[kept].numpy(),
                    sampler=logp[kept].double().numpy())
        for i, (prompt, seen, ids, kept, logp) in enumerate(rows)
    ]  # fmt: skip


def test_scores_are_what_the_sampler_drew_with() -> None:
    policy = policies.load("tiny")
    rows = drawn(policy, 1, sampling=Sampling(12, temperature=1.3))
    found = scoring.score(policy, rows, 1.3)
    for one, row in zip(found.logp, rows, strict=True):
        assert one == pytest.approx(row.sampler, abs=1e-4)
    some = scoring.score(policy, [replace(rows[3], completion_ids=None), rows[5]], 1.3)
    assert np.isnan(some.logp[0]).all()
    assert len(some.logp[0]) == len(rows[3].sampler)
    assert some.logp[1] == pytest.approx(found.logp[5], abs=1e-5)


def test_text_is_encoded_again_and_said_so() -> None:
    policy = policies.load("tiny")
    row = drawn(policy, 1, prompts=1)[0]
    assert row.prompt_ids is not None
    assert row.completion_ids is not None
    ended = int(row.completion_ids[-1]) in policy.eos.tolist()
    text = replace(
        row, prompt_ids=None, completion_ids=None, prompt=policy.tokenizer.decode(row.prompt_ids),
        completion=policy.tokenizer.decode(row.completion_ids, skip_special_tokens=True), truncated=not ended,
    )  # fmt: skip
    (made,), notes = scoring.with_ids([text], policy)
    assert made.completion_ids is not None
    assert made.prompt_ids is not None
    assert made.completion_ids.tolist() == row.completion_ids.tolist()
    assert made.prompt_ids.tolist() == row.prompt_ids.tolist()
    assert "tokenized again from the text" in notes[0]
    (_, absent), notes = scoring.with_ids([row, Rollout("x")], policy)
    assert absent.completion_ids is None
    assert "were not scored" in notes[0]


def test_tokens_that_the_model_does_not_have() -> None:
    policy = policies.load("tiny")
    row = replace(drawn(policy, 1, prompts=1)[0], completion_ids=np.array([5, 4000]))
    with pytest.raises(UserError, match="row 0: token id 4000 of the completion is not among the"):
        scoring.with_ids([row], policy)
    long = replace(row, completion_ids=np.full(policy.context + 1, 5))
    with pytest.raises(UserError, match="but the context of tiny is 512"):
        scoring.score(policy, [long])


def written(folder: Path, rows: list[Rollout]) -> Path:
    """A file of the rows, the first of the sampler's log-probabilities of each left out."""
    objects = [
        {
            "step": 1, "group": row.group, "rollout_logprobs": [None, *row.sampler[1:].tolist()],
            "prompt_ids": row.prompt_ids.tolist(), "completion_ids": row.completion_ids.tolist(),
        }
        for row in rows
        if row.prompt_ids is not None and row.completion_ids is not None and row.sampler is not None
    ]  # fmt: skip
    path = folder / "rollouts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def of_claims(policies_: list[Policy], rows: list[Rollout]) -> dict[str, ClaimResult]:
    scored = tuple(scoring.score(one, rows, 1.0, f"step {k}", k) for k, one in enumerate(policies_))
    return {one.claim.name: one for one in judge.judge(PipelineEvidence("tiny", rows=tuple(rows), scored=scored))}


@pytest.mark.slow
def test_faults_of_the_sampler_are_found_and_named() -> None:
    trained = [noisy(0.0), noisy(0.06), noisy(0.12)]

    def rows(writers: tuple[int, ...], sampling: Sampling | None = None, prompts: int = 32) -> list[Rollout]:
        return [row for k, j in enumerate(writers) for row in drawn(trained[j], k + 1, prompts, sampling)]

    clean = of_claims(trained, rows((0, 1, 2)))
    assert not [one for one in clean.values() if one.status == "broken"]
    for precision in ("bfloat16", "int8"):
        rounded = of_claims(trained, rows((0, 1, 2), Sampling(12, precision=precision)))
        assert not [one for one in rounded.values() if one.status == "broken"], precision
    frozen = of_claims(trained, rows((0, 0, 0), prompts=48))
    assert frozen["checkpoints"].told[0].fault == "frozen sampler"
    assert frozen["checkpoints"].status == "broken"
    for sampling, fault in ((Sampling(12, 0.8), "temperature"), (Sampling(12, top_k=2), "top-k truncation"),
                            (Sampling(12, top_p=0.95), "nucleus truncation")):  # fmt: skip
        found = of_claims(trained, rows((0, 1, 2), sampling))["sampling"]
        assert (found.status, found.told[0].fault) == ("broken", fault)


@pytest.mark.slow
def test_adapters_that_never_reached_the_sampler_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(policies.load("tiny").model, config)
    adapted.peft_config["default"].base_model_name_or_path = "tiny"
    adapted.save_pretrained(tmp_path / "adapters")
    path = written(tmp_path, drawn(policies.load("tiny"), 1, 16))
    status = call("verify", str(path), "--model", str(tmp_path / "adapters"), "--sampler-weights", "tiny")
    claims = {one["claim"]: one for one in last_json(capsys)[0]["claims"]}
    assert status == 1
    for name in ("weights", "checkpoints", "arrived"):
        assert claims[name]["status"] == "broken", name
    assert "the base model without adapters" in claims["checkpoints"]["tests"][0]["evidence"]
    assert claims["arrived"]["tests"][0]["fault"] == "attention and mlp not arrived"
    assert "from before training" in claims["arrived"]["tests"][0]["evidence"]


def test_the_command_scores_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, drawn(policies.load("tiny"), 1))
    assert call("verify", str(path), "--model", "tiny", "--sampler-weights", "tiny", "--json") == 0
    said, _ = last_json(capsys)
    status = {one["claim"]: one["status"] for one in said["claims"]}
    assert (status["weights"], status["sampling"]) == ("holds", "holds")
    assert status["arrived"] == "cannot tell"  # equal as they are, nothing says that training moved them
    assert status["checkpoints"] == "cannot tell"
    assert any("64 log-probabilities of the sampler are NaN" in note for note in said["notes"])
    for flags, error in (
        (("--model", "tiny", "--temperature", "0"), "must be above 0"),
        (("--sampler-weights", "tiny"), "needs --model"),
        (("--model", "tiny", "--sampler-precision", "int3"), "is unknown; use one of"),
    ):
        with pytest.raises(UserError, match=error):
            call("verify", str(path), *flags)
