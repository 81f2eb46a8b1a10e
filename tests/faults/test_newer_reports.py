"""Causes of newer public reports: what is named first, that what is said is true, and a sound twin of each.

Numbers are made; the reports are named where their kind is tested.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_kinds_of_reports import verl
from test_reported_kinds import Row, false_claims, log, present, rows

from grposcope.core.rollouts import Rollout
from grposcope.core.settings import Settings
from grposcope.faults.judge_rollouts import prove
from grposcope.faults.judge_settings import lint
from grposcope.faults.known_task import Known
from grposcope.instruments.lint.dialects import NEMO_RL, PRIME_RL, VERL
from grposcope.instruments.rewards import RewardSettings, answer, source
from grposcope.instruments.rewards.found import of_rollouts
from grposcope.logs import read, read_rollouts
from grposcope.signs.rollouts.claims import advantages, groups, texts
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import foreign_turns, right_answers


def named(path: Path) -> list[str]:
    return [finding.fault for finding in present(path)]


@pytest.mark.parametrize("spread", [0.4, 0.0])
def test_a_total_of_zero_beside_rewards_that_are_paid(tmp_path: Path, spread: float) -> None:
    """As in verifiers #186: a gate zeroes the total; where the functions pay nothing either, nobody was ever paid."""

    def change(k: int, row: Row) -> None:
        row.update(reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0, grad_norm=0.0, loss=0.0)
        noise = 0.03 * float(np.random.default_rng(k).normal())
        row.update({"rewards/prose/mean": spread * (1 + noise), "rewards/prose/std": spread * (1 + noise)})

    path = log(tmp_path / "a.jsonl", rows(0, change, 60))
    first = present(path)[0]
    assert first.fault == ("constant reward" if spread else "never paid")
    assert ("what each function returned, its weight and the total" in first.remedy) == bool(spread)
    assert ("never paid" in named(path)) != bool(spread)
    assert false_claims(path) == []


def mismatched(last: float) -> Any:
    def change(k: int, row: Row) -> None:
        row["sampling/sampling_logp_difference/mean"] = 0.001 * 1.05 ** min(k, 119)
        if k == 119:
            row.update({"sampling/sampling_logp_difference/mean": last, "grad_norm": float("nan")})
        if k > 119:
            row.update(grad_norm=float("nan"), loss=float("nan"), reward=0.0, reward_std=0.0)

    return change


def test_a_ratio_that_overflows_comes_before_what_it_loses(tmp_path: Path) -> None:
    """As in prime-rl #2972; where the comparison is finite, something else was lost first."""
    path = log(tmp_path / "a.jsonl", rows(1, mismatched(float("inf"))))
    first = present(path)[0]
    assert (first.fault, first.onset) == ("ratio overflow", 120)
    assert "after it had grown from 0.00" in first.because
    assert false_claims(path) == []
    assert named(log(tmp_path / "b.jsonl", rows(1, mismatched(0.3))))[0] == "non-finite"


@pytest.mark.parametrize(("least", "rate", "there"), [(0.2, 1e-6, True), (0.002, 1e-6, False), (0.2, 5e-4, False)])
def test_old_log_probabilities_of_another_engine(tmp_path: Path, least: float, rate: float, there: bool) -> None:
    """As in a launcher of Megatron-LM with verl's bypass_mode: the KL of the first update is not 0, and grows with the
    length; a rate at which updates lead as far says nothing."""

    def change(k: int, rng: np.random.Generator) -> dict[str, float]:
        length = 500 + 20 * k + 10 * rng.normal()
        return {"actor/ppo_kl": least * length / 500, "actor/lr": rate, "response_length/mean": length}

    findings = {finding.fault: finding for finding in present(verl(tmp_path / "a.log", 80, change))}
    assert ("old log-probabilities of the sampler" in findings) == there
    if there:
        because = findings["old log-probabilities of the sampler"].because
        assert "nats per token in the first row" in because
        assert "it goes with the mean length" in because


@pytest.mark.parametrize("again", [True, False])
def test_a_warm_up_that_comes_again(tmp_path: Path, again: bool) -> None:
    """As in NeMo-RL #3171: a restart restores neither scheduler nor optimiser."""

    def change(k: int, row: Row) -> None:
        row["learning_rate"] = 1e-6 * min(1.0, ((k - 80 if again and k >= 80 else k) + 1) / 12)

    path = log(tmp_path / "a.jsonl", rows(2, change))
    assert named(path) == (["learning rate off schedule"] if again else [])
    if again:
        (found,) = present(path)
        assert (found.onset, found.grade) == (81, "warning")
        assert "begins the warm-up of the first rows anew" in found.because
        assert false_claims(path) == []


def damaged(kl: float, rate: float) -> Any:
    def change(k: int, row: Row) -> None:
        row["learning_rate"], row["kl"] = rate, 0.0
        if k:
            noise = float(np.random.default_rng(k).normal())
            row.update({"kl": kl * float(np.exp(0.1 * noise)), "completions/clipped_ratio": 1.0,
                        "reward": -0.4 + 0.05 * noise, "completions/mean_length": 200.0})  # fmt: skip

    return change


@pytest.mark.parametrize(
    ("kl", "rate", "first"), [(12.0, 3e-6, "degenerate output"), (1.0, 1e-4, "high learning rate")]
)
def test_an_update_that_is_too_small_for_what_it_did(tmp_path: Path, kl: float, rate: float, first: str) -> None:
    """As in Unsloth #1888, float16 on a V100: no rate of 3e-6 leads twelve nats away in one update."""
    path = log(tmp_path / "a.jsonl", rows(3, damaged(kl, rate), 60))
    found = present(path)[0]
    assert found.fault == first
    assert ("float16" in found.remedy) == (first == "degenerate output")
    assert false_claims(path) == []


@pytest.mark.parametrize(("settings", "dialect", "fault"), [
    ({"orchestrator.train.sampling.extra_body.top_k": 20}, PRIME_RL, "truncated sampler"),
    ({"orchestrator.sampling.extra_body.top_k": -1}, PRIME_RL, ""),
    ({"loss_fn.reference_policy_kl_penalty": 0.01, "loss_fn.reference_policy_kl_type": "k1"}, NEMO_RL,
     "kl estimator without gradient"),
    ({"loss_fn.reference_policy_kl_penalty": 0.01, "loss_fn.reference_policy_kl_type": "k3"}, NEMO_RL, ""),
    ({"loss_fn.reference_policy_kl_penalty": 0.0, "loss_fn.reference_policy_kl_type": "k1"}, NEMO_RL, ""),
    ({"algorithm.rollout_correction.bypass_mode": True}, VERL, "old log-probabilities of the sampler"),
    ({"algorithm.rollout_correction.bypass_mode": False}, VERL, ""),
])  # fmt: skip
def test_settings_of_newer_reports(settings: dict[str, Any], dialect: Any, fault: str) -> None:
    """prime-rl #3186, NeMo-RL #2506, and verl's bypass_mode."""
    asked = {"truncated sampler", "kl estimator without gradient", "old log-probabilities of the sampler"}
    found = lint(Settings(Path("run"), "a file", dialect, settings, partial=True), Known())
    assert [one.fault for one in found if one.present and one.fault in asked] == ([fault] if fault else [])


def solved(paid: bool, column: str = "answer") -> list[Rollout]:
    """Texts of which half have the right answer."""
    made = []
    for k in range(80):
        right = k % 2 == 0
        made.append(Rollout(
            where=f"line {k + 1}", step=1 + k // 16, group=f"g{k // 8}", named=True, prompt="What is it?",
            completion=f"So it is {k} in the end. The answer is \\boxed{{{k if right else k + 1}}}.",
            reward=float(right and paid), rewards={"correct": float(right and paid)}, columns={column: f"#### {k}.0"},
        ))  # fmt: skip
    return made


def test_right_answers_that_nobody_pays(tmp_path: Path) -> None:
    """As in verifiers #277: a rubric without its parser; without a known answer nothing is said."""
    finding = right_answers.unpaid(solved(False))
    assert finding is not None
    assert finding.because.startswith("40 of 40 texts that mark the answer of the data set as theirs have correct = 0")
    assert right_answers.unpaid(solved(True)) is None
    assert right_answers.unpaid(solved(False, "topic")) is None
    assert right_answers.unpaid([row for row in solved(True) if row.reward]) is None, "all right, and all are paid"
    made = [{"step": 1 + k // 16, "example_id": k // 8, "prompt": "What is it?", "answer": str(k), "reward": 0.2,
             "completion": f"It is \\boxed{{{k}}}.", "correct_reward_func": 0.0, "format_reward_func": 1.0}
            for k in range(80)]  # fmt: skip
    path = log(tmp_path / "results.jsonl", made)
    assert named_with_texts(path) == ["right answers unpaid"]
    assert read_rollouts.rollouts(path).rows[0].rewards == {"correct_reward_func": 0.0, "format_reward_func": 1.0}


def acting(made_up: bool, opening: str = "Observation: ") -> list[Rollout]:
    made = []
    for k in range(60):
        action = f"Thought: look.\nAction: search[{k}]" + (f"\n{opening}found {k}." if made_up and k % 2 else "")
        said = [{"role": "assistant", "content": action}, {"role": "tool", "content": f"{opening}{k} papers"},
                {"role": "assistant", "content": "Thought: Observation was good.\nAction: FINISH"}]  # fmt: skip
        made.append(Rollout(where=f"line {k + 1}", step=1 + k // 12, group=f"g{k // 6}", named=True, completion=said))
    return made


def test_observations_that_the_policy_writes_itself(tmp_path: Path) -> None:
    """As in AgenticArXiv-RL #81; a word in a sentence is none, and answers without one beginning say nothing."""
    finding = foreign_turns.written(acting(True))
    assert finding is not None
    assert finding.because.startswith("30 of 60 rollouts have “Observation:”")
    assert foreign_turns.written(acting(False)) is None
    assert foreign_turns.written(acting(True, "")) is None
    (claim,) = prove(PipelineEvidence("", rows=tuple(acting(True))), (texts.PROOF,)).values()
    assert claim[0].fault == "invented observations"
    made = [{"step": row.step, "group": row.group, "reward": float(k % 3 == 0),
             "messages": [{"role": "user", "content": f"Find {row.group}."}, *row.messages]}
            for k, row in enumerate(acting(True))]  # fmt: skip
    assert "invented observations" in named_with_texts(log(tmp_path / "a.jsonl", made))


def named_with_texts(path: Path) -> list[str]:
    from grposcope.faults import judge_texts

    return [finding.fault for finding in judge_texts.of_run(read(path)) if finding.present]


def rejected(inside: bool, cut: bool | None = False) -> PipelineEvidence:
    """Groups of four of which one is masked out whole; inside: its reward is in the baseline."""
    size = [6, 5, 5, 5 if cut is False else 7]  # tokens
    made = []
    for k in range(6):
        rewards = [1.0, 0.0, 0.0, 1.0]
        used = rewards if inside else rewards[:3]
        for j, reward in enumerate(rewards):
            advantage = reward - float(np.mean(used)) if inside or j < 3 else 0.0
            limited = None if cut is None else cut and j == 3
            made.append(Rollout(
                where=f"line {4 * k + j + 1}", step=1, group=f"g{k}", named=True, prompt=f"p{k}", completion="a b",
                mask=np.full(size[j], j < 3), reward=reward, advantages=np.array([advantage]), truncated=limited,
            ))  # fmt: skip
    return PipelineEvidence("", rows=tuple(made))


@pytest.mark.parametrize(("inside", "cut", "there"), [
    (True, False, True), (False, False, False), (True, True, False), (True, None, False),
])  # fmt: skip
def test_rejected_rollouts_in_the_baseline(inside: bool, cut: bool | None, there: bool) -> None:
    """As in verl #6452; completions that a limit cut are masked on purpose, and siblings are compared with them."""
    (claim,) = prove(rejected(inside, cut), (advantages.PROOF,)).values()
    found = [one for one in claim if one.present]
    assert [one.fault for one in found] == (["untrained rollouts in the baseline"] if there else [])
    if there:
        assert "6 rollouts have no token that is trained on" in found[0].because
        assert "18 of 18 advantages of the others" in found[0].because


@pytest.mark.parametrize(
    ("own_ids", "baseline", "there"), [(True, "", True), (False, "", False), (True, "batch", False)]
)
def test_groups_of_one_whose_prompts_are_siblings(own_ids: bool, baseline: str, there: bool) -> None:
    """As in rllm #776: an id of the rollout for that of the task; a baseline of the batch needs no groups, and no
    advantage of a group of one is said to be that of a recipe with a group mean."""
    made = []
    for k in range(32):
        reward = float(k % 3 == 0)
        advantage = reward - 11 / 32 if baseline else reward
        made.append(Rollout(where=f"line {k + 1}", step=1, group=f"{k // 4}-{k if own_ids else ''}", named=True,
                            prompt=f"p{k // 4}", completion=f"text {k}", reward=reward,
                            advantages=np.array([advantage])))  # fmt: skip
    evidence = PipelineEvidence("", rows=tuple(made))
    (claim,) = prove(evidence, (groups.PROOF,)).values()
    assert [one.fault for one in claim if one.present] == (["split groups"] if there else [])
    if there:
        assert "mostly 4 with one" in claim[0].because
        (claim,) = prove(evidence, (advantages.PROOF,)).values()
        assert not any("group mean" in one.because for one in claim)


def test_a_graded_reward_that_is_at_its_end(tmp_path: Path) -> None:
    """As in ms-swift #3353: a limit in tokens that is compared with characters."""
    for limit, there in ((40, True), (4000, False)):
        rng, made = np.random.default_rng(0), []
        for k in range(160):
            right, length = float(rng.random() < 0.5), float(rng.integers(30, 400))
            cosine = (0.5 if right else 0.0) + 0.5 * right * max(0.0, 1 - length / limit)
            made.append(
                {
                    "step": 1 + k // 32,
                    "group": f"g{k // 8}",
                    "prompt": f"p{k // 8}",
                    "completion": f"t{k}",
                    "reward": right + cosine,
                    "rewards": {"accuracy": right, "cosine": cosine + k * (k < 12) / 1e3},
                }
            )
        rewards = source.of_run(read(log(tmp_path / f"{limit}.jsonl", made)))
        assert rewards is not None
        said = answer._of_found(of_rollouts(rewards), RewardSettings())
        assert ("there it is at an end" in said.because) == there
        assert ("in the unit that it counts in" in said.do) == there
        assert json.dumps(said.because)
