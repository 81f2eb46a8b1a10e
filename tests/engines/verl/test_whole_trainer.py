"""verl's whole trainer takes our credit of steps: `main_ppo`, Ray, FSDP2, its queue, its logs, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

pytest.importorskip("verl", reason="needs the extra verl: make test-verl")

from engines.verl import reward, whole
from grposcope.engines.verl.estimators import all_estimators
from grposcope.engines.verl.token_rewards import token_rewards
from grposcope.lab.policies.load import TINY
from grposcope.logs import read

pytestmark = pytest.mark.slow

AGENT = """
- name: grposcope_steps
  _target_: grposcope.engines.verl.StepRewardLoop
"""
STEPS, LIMIT = 3, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three steps of four prompts with four rollouts each leave behind."""
    folder = tmp_path_factory.mktemp("verl")
    (folder / "agent.yaml").write_text(AGENT)
    agent = "actor_rollout_ref.rollout.agent"
    status = whole.run(
        folder,
        [
            "algorithm.adv_estimator=grposcope_steps",
            "reward.custom_reward_function.name=steps",
            f"{agent}.default_agent_loop=grposcope_steps",
            f"{agent}.agent_loop_config_path={folder / 'agent.yaml'}",
        ],
    )
    assert status == 0, (folder / "log.txt").read_text()[-3000:]
    return folder


def test_what_it_logs_is_read(folder: Path) -> None:
    logged, printed, groups = (read(folder / name) for name in ("metrics.jsonl", "log.txt", "rollouts"))
    for run in (logged, printed, groups):
        assert run.table["step"].tolist() == [1, 2, 3]
        np.testing.assert_allclose(run.table["reward"], logged.table["reward"], rtol=1e-6)
    assert groups.groups.sizes.tolist() == [4] * 4 * STEPS
    assert (logged.table["grad_norm"] > 0).all()
    np.testing.assert_allclose(printed.table["grad_norm"], logged.table["grad_norm"], rtol=1e-6)
    assert (logged.table["reward"] > 0).all()
    assert (logged.table["length"] > 1).all()


def test_the_model_that_samples_is_the_one_that_is_trained(folder: Path) -> None:
    """verl compares the probabilities of both at every step, the last two after an update of the weights."""
    rows = [json.loads(line)["data"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert max(row["training/rollout_probs_diff_max"] for row in rows) < 1e-4


def test_the_advantages_are_ours(folder: Path) -> None:
    """Credit of steps made again from the completions that verl wrote has the extremes and mean that verl logged."""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        logged = json.loads(line)
        rows = [json.loads(text) for text in (folder / "rollouts" / f"{logged['step']}.jsonl").read_text().splitlines()]
        rewards = []
        for row in rows:
            ids = [*tokenizer(row["output"]).input_ids, tokenizer.eos_token_id][:LIMIT]
            info = reward.steps("arithmetic", row["output"], row["gts"], {"problem": row["input"]})
            assert info["score"] == pytest.approx(row["score"])
            given = {"step_rewards": info["step_rewards"]}
            rewards.append(
                torch.tensor(
                    token_rewards(given, info["score"], ids, lambda i: tokenizer.decode(i, skip_special_tokens=True))
                )
            )
        mask = pad_sequence([torch.ones(len(row)) for row in rewards], True)
        uid = [row["uid"].split("_")[0] for row in rows]
        credit = all_estimators()["grposcope_steps"](pad_sequence(rewards, True), mask, uid)[0][mask > 0]
        expected = [float(credit.max()), float(credit.min()), float(credit.mean())]
        theirs = [logged["data"][f"critic/advantages/{name}"] for name in ("max", "min", "mean")]
        assert theirs == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert expected[0] > 0
