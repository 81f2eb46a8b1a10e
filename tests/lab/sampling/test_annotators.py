"""What models supply for credit: Σπ², a teacher's and the told policy's log-probabilities, against plain passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from random_batch import batch
from small_runs import config, rows, start, weights
from torch import Tensor

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen
from grposcope.lab.policies import Policy, encode
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.annotation import AnnotationContext
from grposcope.lab.sampling.annotators import annotator
from grposcope.lab.tasks import Problem

PROBLEMS = [Problem(f"p{i}", f"{i}+1=", answer=str(i + 1)) for i in range(3)]


def plain(policy: Policy, rollouts: RolloutBatch, row: int, temperature: float) -> Tensor:
    """log π of every token of the vocabulary, at each token of one rollout, (length, V)."""
    written = rollouts.tokens[row][rollouts.mask[row]]
    ids = torch.cat([rollouts.prompt_ids[row][rollouts.prompt_mask[row]], written])[None]
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0]
    return (logits[-len(written) - 1 : -1] / temperature).log_softmax(-1)


def picked(every: Tensor, rollouts: RolloutBatch, row: int) -> Tensor:
    return every.gather(-1, rollouts.tokens[row][rollouts.mask[row]][:, None])[:, 0]


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_sums_of_squares(family: str, make_policy: Callable[[str], Policy]) -> None:
    policy = make_policy(family)
    rollouts = batch()
    made = annotator(chosen("token_baseline"), AnnotationContext(policy, 0.7, 4))
    assert made is not None
    given = made(rollouts, PROBLEMS).token_annotations["collision"]
    assert given is not None
    for row in range(len(rollouts.mask)):
        squares = plain(policy, rollouts, row, 0.7).exp().square().sum(-1)
        torch.testing.assert_close(given[row, : len(squares)], squares, atol=2e-5, rtol=1e-4)
        assert not given[row, len(squares) :].any()


def test_a_teacher_reads_the_same_tokens(make_policy: Callable[[str], Policy], tmp_path: Path) -> None:
    policy, teacher = make_policy("llama"), make_policy("gpt_neox")
    teacher.model.save_pretrained(tmp_path)
    teacher.tokenizer.save_pretrained(tmp_path)
    rollouts = batch()
    made = annotator(chosen(f"teacher:model={tmp_path}"), AnnotationContext(policy, 0.7, 4))
    assert made is not None
    given = made(rollouts, PROBLEMS).token_annotations["other_logp"]
    assert given is not None
    for row in range(len(rollouts.mask)):
        expected = picked(plain(teacher, rollouts, row, 0.7), rollouts, row)
        torch.testing.assert_close(given[row, : len(expected)], expected, atol=2e-5, rtol=1e-4)


def test_the_policy_is_told_the_answer(policy: Policy) -> None:
    rollouts = batch()
    made = annotator(chosen("feedback"), AnnotationContext(policy, 1.0, 4))
    assert made is not None
    given = made(rollouts, PROBLEMS).token_annotations["other_logp"]
    assert given is not None
    for row in range(len(rollouts.mask)):
        ids, mask = encode(policy, [f"The answer is {row // 2 + 1}.\n{row // 2}+1="])
        told = replace(rollouts, prompt_ids=ids.expand(6, -1), prompt_mask=mask.expand(6, -1))
        expected = picked(plain(policy, told, row, 1.0), told, row)
        torch.testing.assert_close(given[row, : len(expected)], expected, atol=2e-5, rtol=1e-4)
    with pytest.raises(UserError, match="problem b has none"):
        made(rollouts, [PROBLEMS[0], Problem("b", "?"), PROBLEMS[1]])


def test_a_teacher_of_another_tokenizer_is_refused(
    make_policy: Callable[[str], Policy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = make_policy("llama")
    teacher.tokenizer.add_tokens(["<think>"])
    teacher.model.resize_token_embeddings(len(teacher.tokenizer))
    teacher.model.save_pretrained(tmp_path / "teacher")
    teacher.tokenizer.save_pretrained(tmp_path / "teacher")
    capsys.readouterr()
    command = ["train", "--out", str(tmp_path / "run"), "--credit", f"teacher:model={tmp_path / 'teacher'}"]
    assert cli.main(command) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "has another tokenizer than tiny ('<think>' is token 99 there and unknown here)" in told[0]
    assert not (tmp_path / "run").exists()


def test_a_teacher_without_numbers_is_named_with_the_token(policy: Policy, tmp_path: Path) -> None:
    broken = config(policy, tmp_path)  # saves the policy in tmp_path/model
    with torch.no_grad():
        policy.model.lm_head.weight[5:].fill_(torch.nan)
    policy.model.save_pretrained(tmp_path / "broken")
    policy.tokenizer.save_pretrained(tmp_path / "broken")
    with pytest.raises(UserError, match=r"the teacher .*broken gives nan for token 1 \('.+'\) of rollout 1"):
        start(replace(broken, credit=f"teacher:model={tmp_path / 'broken'}"))


@pytest.mark.slow
@pytest.mark.parametrize("credit", ["token_baseline", "teacher:model=MODEL,outcome=1", "placebo:of=token_baseline"])
def test_a_run_learns_by_it(credit: str, policy: Policy, tmp_path: Path) -> None:
    settings = config(policy, tmp_path, steps=2, eval_problems=0, probe_every=1, probe_prompts=2, rollouts_every=1)
    start(replace(settings, credit=credit.replace("MODEL", str(tmp_path / "model"))))
    assert weights(tmp_path / "run") != weights(tmp_path)
    assert all(row["grad_norm"] > 0 and row["geometry/layer_stable"] >= 1 for row in rows(tmp_path / "run"))


@pytest.mark.slow
def test_a_probe_asks_for_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = ["probe", "--prompts", "3", "--group", "4", "--json"]
    for credit in ("token_baseline", "feedback", "teacher:model=tiny,outcome=1"):
        assert cli.main([*probe, "--credit", credit]) == 0
    capsys.readouterr()


def test_trl_does_not_make_further_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl", minversion="1.16")
    for words in (["--recipe", "ppo_critic"], ["--credit", "token_baseline"]):
        assert cli.main(["train", "--engine", "trl", "--out", str(tmp_path / "run"), *words]) == 2
        assert (
            "needs a further pass of a model over every batch, and engine trl does not make it; use"
            in capsys.readouterr().err
        )
