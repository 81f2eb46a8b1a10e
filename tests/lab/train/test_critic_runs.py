"""The critic: its values are those of a plain forward pass, it learns, and a run with one resumes bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from random_batch import batch
from small_runs import config, rows, start, stopped_at, timeless, weights
from torch import Tensor

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen, per_token
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.annotation import AnnotationContext
from grposcope.lab.sampling.critic import Critic, explained_variance
from grposcope.lab.sampling.rollouts import generator
from grposcope.lab.train import checkpoint
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import resume

pytestmark = pytest.mark.slow


def critic_of(policy: Policy, **settings: Any) -> Critic:
    text = ",".join(f"{name}={value}" for name, value in settings.items())
    return Critic(AnnotationContext(policy, 1.0, 4), chosen(f"value:{text}").values)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_values_are_those_of_a_plain_forward_pass(
    family: str, trunk: str, make_policy: Callable[[str], Policy]
) -> None:
    policy = make_policy(family)
    critic, rollouts = critic_of(policy, trunk=trunk), batch()
    with torch.no_grad():
        critic.head[2].weight.normal_(generator=torch.Generator().manual_seed(3))
    given = critic(rollouts).token_annotations["values"]
    assert given is not None
    for row in range(len(rollouts.mask)):
        written = rollouts.tokens[row][rollouts.mask[row]]
        ids = torch.cat([rollouts.prompt_ids[row][rollouts.prompt_mask[row]], written])[None]
        with torch.no_grad():
            states = policy.model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
            expected = critic.head(states)[0, -len(written) - 1 : -1, 0]  # from which each token is predicted
        torch.testing.assert_close(given[row, : len(written)], expected, atol=2e-4, rtol=1e-3)
        assert not given[row, len(written) :].any()


def test_the_first_credit_is_the_reward_itself(policy: Policy) -> None:
    rollouts = critic_of(policy)(batch())
    credit = per_token("value:lambda=1", recipes.GRPO, rollouts)
    torch.testing.assert_close(credit, (rollouts.rewards.reshape(-1, 1) * rollouts.mask).float())


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_it_learns_what_decides_the_reward_and_leaves_the_policy_alone(trunk: str, policy: Policy) -> None:
    critic, rollouts = critic_of(policy, trunk=trunk, lr=3e-3, updates=3), batch(12, 4)
    before = [p.clone() for p in policy.model.parameters()]
    first = explained_variance(critic(rollouts))[0]
    for step in range(60):
        critic.learn(critic(rollouts), generator(0, "critic", step))
    after, of_group = explained_variance(critic(rollouts))
    assert (first, of_group < 0) == (0.0, True)  # nothing in the prompts decides
    assert after > 0.5
    assert all(torch.equal(p, q) for p, q in zip(policy.model.parameters(), before, strict=True))
    assert all(p.grad is None for p in policy.model.parameters())


def test_explained_variance() -> None:
    rollouts = batch()
    reward = rollouts.rewards.reshape(-1, 1) * rollouts.mask
    assert explained_variance(rollouts.annotated(values=reward))[0] == pytest.approx(1.0)
    assert explained_variance(rollouts.annotated(values=reward / 2))[0] == pytest.approx(0.75)
    assert explained_variance(rollouts.annotated(values=-reward))[0] == pytest.approx(-3.0)
    equal = replace(rollouts, rewards=torch.ones_like(rollouts.rewards)).annotated(values=reward)
    assert all(value != value for value in explained_variance(equal))


def test_a_value_that_is_no_number_is_named_with_its_token(policy: Policy) -> None:
    critic, rollouts = critic_of(policy), batch()
    with torch.no_grad():
        critic.head[2].bias.fill_(torch.nan)
    with pytest.raises(UserError, match=r"the value head gives nan for token 1 \('.'\) of rollout 1 of .* rate"):
        critic(rollouts)


@pytest.fixture
def settings(policy: Policy, tmp_path: Path) -> TrainConfig:
    return config(policy, tmp_path, steps=6, eval_problems=0, threads=1, checkpoint_every=2, recipe="ppo_critic",
                  interval=2, rollouts_every=0)  # fmt: skip


def test_the_recipe_brings_its_credit_and_its_steps() -> None:
    given = TrainConfig(recipe="ppo_critic")
    assert (given.credit, given.interval) == ("value:lambda=0.95,gamma=1,whiten=yes", 4)
    assert (TrainConfig().credit, TrainConfig().interval) == ("outcome", 1)
    own = TrainConfig(recipe="ppo_critic", credit="outcome", interval=2)
    assert (own.credit, own.interval) == ("outcome", 2)


@pytest.mark.parametrize("credit", [None, "value:trunk=shared,lambda=1,updates=2,critic_lambda=0.9"])
def test_a_resumed_run_is_the_undisturbed_one(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, credit: str | None
) -> None:
    settings = TrainConfig(**{**vars(settings), "credit": credit})
    start(replace(settings, out=str(tmp_path / "whole")))
    stopped_at(monkeypatch, settings, 6)
    resume(tmp_path / "run")
    runs = tmp_path / "run", tmp_path / "whole"
    assert weights(runs[0]) == weights(runs[1])
    assert timeless(rows(runs[0])) == timeless(rows(runs[1]))
    assert runs[0].joinpath("critic.safetensors").read_bytes() == runs[1].joinpath("critic.safetensors").read_bytes()
    fresh = [row for row in rows(runs[0]) if "critic/explained_variance" in row]
    assert [row["step"] for row in fresh] == [1, 3, 5]
    assert fresh[0]["critic/explained_variance"] == 0.0


def test_a_damaged_critic_is_named(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stopped_at(monkeypatch, settings, 6)
    file = tmp_path / "run" / "checkpoints" / "step-000004" / "critic.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"critic.safetensors has .* it was cut off; delete this folder"):
        resume(tmp_path / "run")


def test_while_it_warms_up_the_policy_stays_as_it_is(settings: TrainConfig, tmp_path: Path) -> None:
    start(replace(settings, credit="value:warmup=4", steps=4, schedule="constant", checkpoint_every=0))
    assert weights(tmp_path / "run") == weights(tmp_path)
    assert [row["rollouts_trained"] for row in rows(tmp_path / "run")] == [0] * 4
    start(replace(settings, credit="value:warmup=4", out=str(tmp_path / "longer")))
    trained = [row["rollouts_trained"] for row in rows(tmp_path / "longer")]
    assert not any(trained[:4])
    assert all(trained[4:])
    losses = [row["critic/loss"] for row in rows(tmp_path / "longer")]
    assert losses[4] < losses[0]


def test_a_probe_takes_the_critic_of_its_run(
    settings: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(settings)
    probe = ["probe", "--prompts", "2", "--group", "3", "--max-tokens", "4", "--out"]
    run = str(tmp_path / "run")
    assert cli.main([*probe, str(tmp_path / "one"), "--model", run]) == 0
    assert cli.main([*probe, str(tmp_path / "two"), "--model", run, "--checkpoint", "4"]) == 0
    (tmp_path / "run" / "critic.safetensors").unlink()
    assert cli.main([*probe, str(tmp_path / "three"), "--model", run]) == 2
    assert "critic.safetensors is not there: the run was trained without one" in capsys.readouterr().err
    assert cli.main([*probe, str(tmp_path / "four"), "--model", "tiny", "--credit", "value"]) == 2
    assert "credit value needs the critic of a run" in capsys.readouterr().err


def test_what_is_kept_is_what_was_learned(policy: Policy, tmp_path: Path) -> None:
    critic, rollouts = critic_of(policy), batch()
    critic.learn(critic(rollouts), generator(0, "critic", 0))
    again = critic_of(policy)
    again.restore({name: tensor.clone() for name, tensor in critic.state().items()})

    def ahead(one: Critic) -> Tensor:
        one.learn(one(rollouts), generator(0, "critic", 1))
        values = one(rollouts).token_annotations["values"]
        assert values is not None
        return values

    assert torch.equal(ahead(critic), ahead(again))
    with pytest.raises(UserError, match="use the credit that the run was trained with"):
        critic_of(policy, trunk="own").restore(critic_of(policy, trunk="shared").state())
    checkpoint.check_space(tmp_path, policy, "adamw", 2, critic)


def test_the_comparison_of_credit_takes_the_critic_of_its_run(
    settings: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the settings that it was trained with; without its file the source is skipped, and why is said."""
    start(replace(settings, credit="value:lambda=1", recipe="rloo"))
    given = ["credit", str(tmp_path / "run"), "--prompts", "6", "--group", "3", "--max-tokens", "4", "--reference", "4",
             "--no-oracle", "--trees", "", "--threads", "1", "--json"]  # fmt: skip
    assert cli.main([*given, "--out", str(tmp_path / "one")]) == 0
    sources = {one["name"]: one for one in json.loads(capsys.readouterr().out.splitlines()[-1])["sources"]}
    assert sources["value:lambda=1"]["kind"] == "iv"
    assert sources["value:lambda=1"]["within"]["value"] > 0
    (tmp_path / "run" / "critic.safetensors").unlink()
    assert cli.main([*given, "--out", str(tmp_path / "two")]) == 0
    skipped = json.loads(capsys.readouterr().out.splitlines()[-1])["skipped"]
    assert "needs a trained critic" in skipped["value"]
