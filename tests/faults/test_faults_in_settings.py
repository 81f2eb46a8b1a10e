"""Every check finds what it looks for, says the right number, and stays quiet beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reward_rows

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Finding
from grposcope.core.run import Groups, Meta, Run, no_evaluations
from grposcope.core.settings import Dialect, Settings
from grposcope.faults.checks.expected_dead import larger_group
from grposcope.faults.judge_settings import UNREAD, judged, lint, untold, word
from grposcope.faults.known_task import Known
from grposcope.instruments.dynamics import constant_lag, refresh
from grposcope.instruments.dynamics.stability import UpdateRule
from grposcope.instruments.lint.dialects import DIALECTS, NEMO_RL, OPENRLHF, OWN, PRIME_RL, TRL, VERL
from grposcope.logs import read
from grposcope.signs.settings.recipe import interval

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
GOOD_VERL = {"algorithm.adv_estimator": "grpo", ROLLOUT + "n": 8, "data.train_batch_size": 1024,
             ACTOR + "ppo_micro_batch_size_per_gpu": 16}  # fmt: skip


def config(given: Mapping[str, Any], dialect: Dialect = TRL, **more: Any) -> Settings:
    return Settings(Path("config.yaml"), "a file", dialect, dict(given), **more)


def found(
    fault: str, given: Mapping[str, Any], dialect: Dialect = TRL, known: Known | None = None, **more: Any
) -> list[Finding]:
    """The findings of a fault that is present."""
    return [one for one in lint(config(given, dialect, **more), known) if one.present and one.fault == fault]


def a_run(rewards: np.ndarray, table: Mapping[str, Any] | None = None, **settings: Any) -> Run:
    groups = Groups.of([1] * len(rewards), [str(i) for i in range(len(rewards))], list(rewards))
    columns = {"step": np.arange(1.0, 41.0)} | {name: np.full(40, value) for name, value in (table or {}).items()}
    return Run(
        Meta(Path("before"), "trl", "before", "finished"), {"settings": settings}, columns, groups, no_evaluations()
    )


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_good_settings_have_no_finding(dialect: Dialect) -> None:
    given = {
        "trl": {"num_generations": 8},
        "verl": GOOD_VERL,
        "nemo-rl": {"grpo.num_generations_per_prompt": 16, "grpo.num_prompts_per_step": 32,
                    "policy.train_global_batch_size": 512, "policy.optimizer.kwargs.lr": 5e-6},
        "grposcope": {"group": 8, "interval": 1},
        "ms-swift": {"num_generations": 8, "learning_rate": 1e-5, "rlhf_type": "grpo"},
        "slime": {"n_samples_per_prompt": 8, "rollout_batch_size": 32, "global_batch_size": 256, "train_async": True,
                  "use_tis": True},
        "skyrl": {"generator.n_samples_per_prompt": 8, "trainer.policy_mini_batch_size": 1024},
        "prime-rl": {"orchestrator.group_size": 8, "trainer.optim.lr": 1e-6},
        "openrlhf": {"rollout.n_samples_per_prompt": 8, "train.batch_size": 8192, "algo.advantage.estimator": "rloo"}
        if dialect is OPENRLHF
        else {"n_samples_per_prompt": 8, "train_batch_size": 8192, "advantage_estimator": "rloo"},
        "areal": {"gconfig.n_samples": 8, "actor.kl_ctl": 0.0, "actor.reward_norm.mean_level": "group",
                  "actor.reward_norm.group_size": 8, "actor.optimizer.lr": 1e-6},
        "mlx-lm-lora": {"train_mode": "grpo", "importance_sampling_level": "token"},
        "roll": {"num_return_sequences_in_group": 8, "actor_train.training_args.learning_rate": 1e-6,
                 "actor_infer.generating_args.temperature": 1.0},
        "open-instruct": {"num_samples_per_prompt_rollout": 8, "learning_rate": 1e-6, "temperature": 1.0},
    }[dialect.name]  # fmt: skip
    settings = config(given, dialect)
    findings = lint(settings, Known(success=0.5))
    assert not [finding for finding in findings if finding.present]
    assert word(findings, settings) == "healthy"


@pytest.mark.parametrize(
    ("dialect", "key", "grade"),
    [(TRL, "num_generations", "failing"), (VERL, ROLLOUT + "n", "warning"), (OWN, "group", "failing"),
     (NEMO_RL, "grpo.num_generations_per_prompt", "failing")],
)  # fmt: skip
def test_small_groups(dialect: Dialect, key: str, grade: str) -> None:
    beside = {"algorithm.adv_estimator": "grpo"} if dialect is VERL else {}
    assert [f.grade for f in found("group of one", {key: 1, **beside}, dialect)] == [grade]
    assert [f.grade for f in found("group of two", {key: 2, **beside}, dialect)] == ["note"]
    assert not found("group of one", {key: 2, **beside}, dialect)
    assert not found("group of two", {key: 3, **beside}, dialect)
    if dialect is VERL:
        assert not found("group of one", {key: 1, "algorithm.adv_estimator": "gae"}, dialect)


@pytest.mark.parametrize("whole", ["orchestrator.", ""])
@pytest.mark.parametrize(
    ("fault", "given", "sound", "words"),
    [
        ("tool output trained on", {"mask_env_responses": False}, {"mask_env_responses": True}, "answer, as if"),
        ("tool output trained on", {"algo.type": "echo"}, {"algo.type": "grpo"}, "likelihood of what tools answer"),
        ("baseline by rows", {"algo.length_weighted_baseline": True}, {}, "by their trained tokens"),
        ("turns retokenised", {"use_token_client": False}, {"use_token_client": True}, "tokenised anew"),
        ("collapsed calls", {"algo.length_penalty.type": "linear", "algo.length_penalty.num_turns_weight": 0.3},
         {"algo.length_penalty.num_turns_weight": 0, "algo.length_penalty.num_input_tokens_weight": 0},
         "up to 0.3 × the mean reward of the group from a rollout for its turns and up to 0.1 ×"),
    ],
)  # fmt: skip
def test_turns_of_prime_rl(
    whole: str, fault: str, given: dict[str, object], sound: dict[str, object], words: str
) -> None:
    beside = {f"{whole}group_size": 8} if whole else {"rollouts_per_example": 8}
    (finding,) = found(fault, {**beside, **{whole + key: value for key, value in given.items()}}, PRIME_RL)
    assert words in finding.because
    assert f"{whole}{next(iter(given)).rpartition('.')[0] or next(iter(given))}" in finding.because
    assert not found(fault, {**beside, **{whole + key: value for key, value in sound.items()}}, PRIME_RL)


def test_rollouts_older_than_the_stable_lag() -> None:
    """An earlier run that was 8 steps late is beyond K*, though each batch is used once."""
    rule = UpdateRule(0.01, 0.9, 1, "sgd", step=0.01, curvature=Estimate(2.0, 0.1, 10), lag=8)
    given = {"learning_rate": 0.01, "num_iterations": 1}
    (finding,) = found("growing oscillation", given, known=Known(rule=rule, rule_source="measured"))
    limit = constant_lag.threshold(0.01, 0.9, 2.0)
    assert f"gradients are up to 8 steps late, as in the earlier run; at most {limit:.0f} are stable" in finding.because
    assert "allows fewer than 5;" in finding.because
    fresh = replace(rule, lag=0)
    assert not found("growing oscillation", given, known=Known(rule=fresh, rule_source="measured"))


def enumerated(p: float, group: int) -> float:
    """Share of dead groups by enumeration of all 2^G outcomes."""
    outcomes = product([0, 1], repeat=group)
    return sum(math.prod(p if o else 1 - p for o in one) for one in outcomes if len(set(one)) == 1)


@pytest.mark.parametrize(
    ("p", "group", "grade"), [(0.5, 4, None), (0.1, 4, "warning"), (0.01, 8, "failing"), (0.95, 8, "warning")]
)
def test_dead_groups_at_a_success_rate(p: float, group: int, grade: str | None) -> None:
    """Starved where most rollouts fail, saturated where most succeed, with a remedy of their own."""
    fault, other = ("saturated", "starved") if p > 0.5 else ("starved", "saturated")
    given, known = {"num_generations": group}, Known(success=p)
    findings = found(fault, given, known=known)
    assert not found(other, given, known=known)
    assert all(("harder prompts" in f.remedy) is (fault == "saturated") for f in findings)
    assert [f.grade for f in findings] == ([] if grade is None else [grade])
    if grade:
        assert f"{100 * enumerated(p, group):.1f}% of groups of {group}" in findings[0].because


def test_dead_groups_of_an_earlier_run_and_a_remedy() -> None:
    rewards = (np.random.default_rng(0).random((400, 8)) < 0.08).astype(float)
    (finding,) = found("starved", {"num_generations": 4}, known=Known(run=a_run(rewards), success=0.5))
    assert "from 400 groups of before" in finding.because
    size = int(finding.remedy.split("num_generations to ")[1].split()[0])
    assert enumerated(0.08, 4) > 0.5 > 0.92**size + 0.08**size
    assert 0.92 ** (size // 2) + 0.08 ** (size // 2) > 0.5


def test_replacing_dead_groups_costs_rollouts() -> None:
    given = {**GOOD_VERL, "algorithm.filter_groups.enable": True, ROLLOUT + "n": 4}
    (finding,) = found("starved", given, VERL, Known(success=0.1))
    assert finding.grade == "note"
    assert f"{1 / (1 - enumerated(0.1, 4)):.3g} rollouts are drawn per rollout kept" in finding.because


def test_without_a_rate_dead_groups_are_not_checked() -> None:
    (finding,) = [one for one in lint(config({"num_generations": 4})) if one.fault == "starved"]
    assert finding.status == "cannot tell"
    assert "success rate is not known" in finding.because


def test_a_larger_group_is_the_least_that_helps_and_at_most_sixteen_times_as_large() -> None:
    for success in (0.03, 0.05, 0.2, 0.97):
        enough = next(n for n in (4, 8, 16, 32) if success**n + (1 - success) ** n < 0.5)
        assert larger_group(2, Known(success=success)) == enough
    assert larger_group(2, Known(success=0.02)) is None  # 64 would do
    assert larger_group(4, Known(success=0.02)) == 64


def test_greedy_sampling() -> None:
    assert found("greedy sampling", {"temperature": 0.0})[0].grade == "failing"
    assert found("greedy sampling", {**GOOD_VERL, ROLLOUT + "do_sample": False}, VERL)
    assert found("greedy sampling", {**GOOD_VERL, ROLLOUT + "temperature": 0}, VERL)


def test_the_estimator_of_verl_has_to_be_named() -> None:
    given = {key: value for key, value in GOOD_VERL.items() if key != "algorithm.adv_estimator"}
    assert found("estimator without groups", given, VERL)[0].grade == "failing"
    assert not found("estimator without groups", given, VERL, partial=True)
    assert not found("estimator without groups", {**given, "algorithm.adv_estimator": "gae"}, VERL)


def test_leave_one_out_divided_by_the_others() -> None:
    """The advantage of the one rollout that differs, computed as NeMo-RL did: (1 − 0)/(0 + 1e-6)."""
    rewards = np.array([1.0, 0.0, 0.0, 0.0])
    others = np.delete(rewards, 0)
    assert (rewards[0] - others.mean()) / (others.std() + 1e-6) == pytest.approx(1e6)
    both = {
        "grpo.use_leave_one_out_baseline": True,
        "grpo.normalize_rewards": True,
        "grpo.num_generations_per_prompt": 4,
    }
    (finding,) = found("leave-one-out deviation", both, NEMO_RL)
    assert "±10⁶" in finding.because
    for reward, grade in ((0.25, "note"), (0.35, "warning")):
        run = a_run(np.full((2, 4), reward))
        assert [f.grade for f in found("leave-one-out deviation", both, NEMO_RL, Known(run=run))] == [grade]
    for key in ("grpo.use_leave_one_out_baseline", "grpo.normalize_rewards"):
        assert not found("leave-one-out deviation", {**both, key: False}, NEMO_RL)


def test_deviations_that_vanish_in_an_earlier_run() -> None:
    rng = np.random.default_rng(1)
    rewards = (rng.random((200, 8)) < 0.5) + np.where(np.arange(200)[:, None] % 10 == 0, 0.0, 0)
    rewards[::10] = 1 + 1e-4 * rng.random((20, 8))
    (finding,) = found("vanishing deviation", {}, known=Known(run=a_run(rewards)))
    assert finding.grade == "warning"
    spread = rewards.std(-1, ddof=1)
    live = spread[spread > 0]
    assert f"{100 * np.mean(live < 0.01 * np.median(live)):.1f}%" in finding.because
    assert not found("vanishing deviation", {}, known=Known(run=a_run((rng.random((50, 8)) < 0.5).astype(float))))
    assert not found("vanishing deviation", {"scale_rewards": "none"}, known=Known(run=a_run(rewards)))
    assert found("vanishing deviation", {"num_generations": 8}, reward_functions=2)[0].grade == "note"
    assert not found("vanishing deviation", {"num_generations": 8}, reward_functions=1)


def test_token_level_rewards() -> None:
    (finding,) = found("token-level rewards", {**GOOD_VERL, "reward.process_reward.enable": True}, VERL)
    assert finding.grade == "warning"
    assert [f.grade for f in found("idle discount", {**GOOD_VERL, "algorithm.lam": 0.95}, VERL)] == ["note"]
    given = {**GOOD_VERL, "algorithm.adv_estimator": "gae", "algorithm.lam": 0.95}
    assert not found("idle discount", given, VERL)


def test_cispo_clamps_the_ratio_itself() -> None:
    (finding,) = found("cispo clamp", {"loss_type": "cispo"})
    assert "clamped at 0.2" in finding.because
    assert found("cispo clamp", {"loss_type": "cispo", "epsilon_high": 0.28})
    assert not found("cispo clamp", {"loss_type": "cispo", "epsilon_high": 5.0})
    assert not found("cispo clamp", {"loss_type": "dapo"})


def test_a_clip_ratio_that_verl_does_not_read() -> None:
    assert found("clip range not read", {**GOOD_VERL, ACTOR + "clip_ratio": 0.1}, VERL)
    assert not found("clip range not read", {**GOOD_VERL, ACTOR + "clip_ratio": 0.2}, VERL)
    assert not found("clip range not read", {**GOOD_VERL, ACTOR + "clip_ratio": 0.1}, VERL, partial=True)


def test_a_clip_range_without_reuse() -> None:
    assert found("idle clip range", {"epsilon_high": 0.28})[0].grade == "note"
    assert not found("idle clip range", {"epsilon_high": 0.28, "num_iterations": 2})
    assert not found("idle clip range", {"epsilon_high": 0.28, "steps_per_generation": 4})
    once = {**GOOD_VERL, ACTOR + "clip_ratio_high": 0.28, ACTOR + "ppo_mini_batch_size": 1024}
    assert found("idle clip range", once, VERL)
    assert not found("idle clip range", {**once, ACTOR + "ppo_mini_batch_size": 256}, VERL)


def test_rewards_and_their_weights() -> None:
    assert found("reward weights", {"reward_weights": [1.0, 0.5]}, reward_functions=3)[0].grade == "failing"
    assert not found("reward weights", {"reward_weights": [1.0, 0.5]}, reward_functions=2)
    run = a_run(np.zeros((2, 2)), {"component_std/right": 0.4, "component_std/length": 200.0})
    (finding,) = found("muted component", {"reward_weights": [1.0, 0.1]}, known=Known(run=run))
    assert finding.brief == "only length counts"
    assert f"length {100 * 20 / 20.4:.1f}%" in finding.because
    assert not found("muted component", {"reward_weights": [1.0, 0.002]}, known=Known(run=run))
    summed = {"reward_weights": [1.0, 0.1], "multi_objective_aggregation": "normalize_then_sum"}
    assert not found("muted component", summed, known=Known(run=run))
    assert [f.brief for f in found("vanishing deviation", summed, known=Known(run=run))] == ["rare rewards count fully"]
    assert [f.grade for f in found("reward weights", {"reward_weights": [0.0, 0.0]})] == ["failing"]


def test_what_rewards_will_weigh_from_rollouts_of_the_base_model(tmp_path: Path) -> None:
    drawn = reward_rows.drawn(3, 8)
    run = read(reward_rows.trl(tmp_path / "t", {**drawn, "form": 0.02 * drawn["form"]}, dict.fromkeys(drawn, 1.0)))
    (finding,) = found("muted component", {"reward_weights": [1.0, 1.0, 1.0]}, known=Known(run=run))
    assert finding.brief == "form will hardly count"
    assert "form 1% (intended: 33%)" in finding.because
    after = {"reward_weights": [1.0, 1.0, 1.0], "multi_objective_aggregation": "normalize_then_sum"}
    for well in ({"reward_weights": [1.0, 50.0, 1.0]}, after):
        (finding,) = [one for one in lint(config(well), Known(run=run)) if one.fault == "muted component"]
        assert finding.status == "excluded"
        assert "form" in finding.because.partition("weight in the advantage: ")[2], "what each will weigh is told"
        assert not found("vanishing deviation", well, known=Known(run=run))


@pytest.mark.parametrize(("value", "fault"), [(0.0, "never paid"), (1.0, "constant component")])
def test_a_reward_that_never_varies(value: float, fault: str, tmp_path: Path) -> None:
    drawn = reward_rows.drawn(3, 8)
    drawn["form"] = np.full_like(drawn["form"], value)
    run = read(reward_rows.trl(tmp_path / "t", drawn, dict.fromkeys(drawn, 1.0)))
    (finding,) = found(fault, {"reward_weights": [1.0, 1.0, 1.0]}, known=Known(run=run))
    assert (finding.grade, finding.brief) == ("warning", "form never varies")


def test_references_of_trl() -> None:
    assert found("missing reference", {"sync_ref_model": True})[0].grade == "failing"
    assert not found("missing reference", {"sync_ref_model": True, "beta": 0.04})
    assert found("missing reference", {"sync_ref_model": True, "beta": 0.04}, adapters=True)


def test_kl_penalties_of_verl() -> None:
    def faults(given: Mapping[str, Any]) -> set[str]:
        return {one.fault for one in lint(config({**GOOD_VERL, **given}, VERL)) if one.present and "kl" in one.fault}

    assert faults({ACTOR + "kl_loss_coef": 0.01}) == {"idle kl coefficient"}
    left = lint(config({**GOOD_VERL, ACTOR + "kl_loss_coef": 0.001}, VERL))
    assert [one.grade for one in left if one.fault == "idle kl coefficient"] == ["note"]
    assert not faults({ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": 0.01})
    assert not faults({ACTOR + "use_kl_loss": False, ACTOR + "kl_loss_coef": 0.0, "algorithm.use_kl_in_reward": False})
    in_reward = {ACTOR + "use_kl_loss": False, ACTOR + "kl_loss_coef": 0.01, "algorithm.use_kl_in_reward": True}
    assert not faults({**in_reward, "algorithm.adv_estimator": "rloo"})
    assert faults(in_reward) == {"standardized kl penalty"}
    both = {ACTOR + "use_kl_loss": True, "algorithm.use_kl_in_reward": True}
    assert faults(both) == {"two kl penalties", "standardized kl penalty"}
    unused = {**GOOD_VERL, ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": 0.0}
    assert found("unused reference", unused, VERL)


def test_lengths_of_an_earlier_run() -> None:
    run = a_run(np.zeros((2, 2)), {"length": 900.0, "truncated": 0.3}, max_tokens=1024)
    assert [f.grade for f in found("length", {"max_completion_length": 512}, known=Known(run=run))] == ["failing"]
    assert [f.grade for f in found("length", {"max_completion_length": 1000}, known=Known(run=run))] == ["note"]
    assert not found("length", {"max_completion_length": 4096}, known=Known(run=run))
    assert found("masked truncation", {"mask_truncated_completions": True})[0].grade == "note"


def test_room_for_sequences() -> None:
    dynamic = {**GOOD_VERL, ACTOR + "use_dynamic_bsz": True, "data.max_response_length": 16384}
    assert found("room for sequences", dynamic, VERL)
    assert not found("room for sequences", {**dynamic, ACTOR + "ulysses_sequence_parallel_size": 2}, VERL)
    assert found("room for sequences", {**GOOD_VERL, ROLLOUT + "max_model_len": 1023}, VERL)
    assert not found("room for sequences", {**GOOD_VERL, ROLLOUT + "max_model_len": 1024}, VERL)
    assert found("room for sequences", {"max_completion_length": 512, "vllm_max_model_length": 256})
    for prompt, fits in ((256, True), (257, False)):
        given = {"max_completion_length": 256, "vllm_max_model_length": 512, "max_prompt_length": prompt}
        assert bool(found("room for sequences", given)) is not fits


def test_batches_of_trl_are_whole_groups_by_brute_force() -> None:
    """TRL starts where each × steps × processes is a multiple of G: with the processes given, and for which it is."""
    for each, steps, group in product((1, 2, 3, 4), (1, 2, 3), (2, 3, 4, 6, 32)):
        given = {"per_device_train_batch_size": each, "steps_per_generation": steps, "num_generations": group}
        for world in (1, 2, 3):
            fails = [f.grade for f in found("indivisible batches", given, known=Known(world=world))]
            assert fails == (["failing"] if each * steps * world % group else [])
        least = next(world for world in range(1, 33) if each * steps * world % group == 0)
        findings = found("indivisible batches", given)
        assert [f.grade for f in findings] == ([] if least == 1 else ["note"] if least <= 8 else ["warning"])
        assert all(f"a multiple of {least} processes" in f.because for f in findings)
        whole = {"per_device_train_batch_size": each, "generation_batch_size": 12, "num_generations": group}
        for world in (1, 2, 3):
            wrong = [12 % group != 0, 12 % (each * world) != 0]
            assert len(found("indivisible batches", whole, known=Known(world=world))) == sum(wrong)


def test_evaluation_batches_of_trl_are_whole_groups_by_brute_force() -> None:
    for each, group in product((1, 2, 3, 4, 6), (2, 3, 4)):
        given = {"per_device_train_batch_size": 12, "num_generations": 12, "steps_per_generation": 1,
                 "eval_strategy": "steps", "per_device_eval_batch_size": each,
                 "num_generations_eval": group}  # fmt: skip
        least = next(world for world in range(1, 9) if each * world % group == 0)
        assert [f"a multiple of {least} processes" in f.because for f in found("indivisible batches", given)] == [
            True
        ] * (least > 1)
        for world in (1, 2, 3):
            fails = [f.grade for f in found("indivisible batches", given, known=Known(world=world))]
            assert fails == (["failing"] if each * world % group else [])


def test_steps_on_one_batch() -> None:
    """TRL: passes of a process on a batch × num_iterations by gradient_accumulation_steps; likewise the others."""
    trl = {"per_device_train_batch_size": 2, "generation_batch_size": 48, "gradient_accumulation_steps": 3,
           "num_iterations": 2}  # fmt: skip
    assert [interval(config(trl), world) for world in (1, 2, 4)] == [16, 8, 4]
    assert interval(config({"steps_per_generation": 6, "gradient_accumulation_steps": 2}), None) == 3
    verl = {"data.train_batch_size": 1024, ACTOR + "ppo_mini_batch_size": 256, ACTOR + "ppo_epochs": 3}
    assert interval(config(verl, VERL), None) == 12
    nemo = {"grpo.num_prompts_per_step": 32, "grpo.num_generations_per_prompt": 16,
            "policy.train_global_batch_size": 128}  # fmt: skip
    assert interval(config(nemo, NEMO_RL), None) == 4


def test_mini_batches_of_verl_are_shared_by_rollouts_not_prompts() -> None:
    def refused(mini: int) -> bool:
        given = {**GOOD_VERL, ACTOR + "ppo_mini_batch_size": mini, "trainer.nnodes": 2, "trainer.n_gpus_per_node": 8}
        return any("data-parallel ranks" in f.because for f in found("indivisible batches", given, VERL))

    assert [refused(mini) for mini in (1, 2, 3, 4, 16)] == [bool(mini * 8 % 16) for mini in (1, 2, 3, 4, 16)]


@pytest.mark.parametrize(
    ("changes", "fault", "words"),
    [
        ({"data.train_batch_size": 128}, "indivisible batches", "128 prompts cannot hold a mini-batch of 256"),
        ({"data.train_batch_size": 1000}, "indivisible batches", "1000 prompts leave 232 after 3 mini-batches of 256"),
        ({"trainer.n_gpus_per_node": 7}, "indivisible batches", "8192 rollouts on 7 GPUs"),
        ({ACTOR + "ppo_micro_batch_size_per_gpu": 3}, "indivisible batches",
         "a GPU has 256 rollouts of each mini-batch, not a multiple of 3"),
        ({ACTOR + "ppo_micro_batch_size_per_gpu": None}, "refused settings", "until one is set"),
        ({ACTOR + "ppo_micro_batch_size": 8}, "refused settings", "refuses both"),
        ({ACTOR + "ulysses_sequence_parallel_size": 3}, "indivisible gpus",
         "8 GPUs are not a multiple of the size of one replica"),
        ({ROLLOUT + "tensor_model_parallel_size": 3}, "indivisible gpus", "not a multiple of the 3"),
    ],
)  # fmt: skip
def test_batches_of_verl(changes: Mapping[str, Any], fault: str, words: str) -> None:
    assert any(words in f.because for f in found(fault, {**GOOD_VERL, **changes}, VERL))
    assert not found(fault, GOOD_VERL, VERL)


def test_replicas_of_megatron_are_counted() -> None:
    given = {**GOOD_VERL, ACTOR + "ppo_mini_batch_size": 64, ROLLOUT + "n": 5, "trainer.nnodes": 3,
             ACTOR + "megatron.pipeline_model_parallel_size": 3,
             ACTOR + "megatron.tensor_model_parallel_size": 4}  # fmt: skip
    fitting = {**given, ACTOR + "ppo_micro_batch_size_per_gpu": 4}
    assert not found("indivisible batches", fitting, VERL)
    assert not found("indivisible gpus", fitting, VERL)
    assert found("indivisible gpus", {**given, ACTOR + "megatron.context_parallel_size": 5}, VERL)


def test_rollouts_of_nemo_rl() -> None:
    given = {
        "grpo.num_generations_per_prompt": 16,
        "grpo.num_prompts_per_step": 32,
        "policy.train_global_batch_size": 500,
    }
    assert found("indivisible batches", given, NEMO_RL)[0].grade == "failing"


def test_refresh_intervals_beyond_the_limit() -> None:
    rule = UpdateRule(0.01, 0.9, 1, "sgd", step=0.01, curvature=Estimate(1.0, 0.1, 10))
    limit = refresh.threshold(0.01, 0.9, 1.0)
    given = {"learning_rate": 0.01, "num_iterations": int(limit) + 1}
    (finding,) = found("growing oscillation", given, known=Known(rule=rule, rule_source="measured"))
    assert finding.grade == "warning"
    assert f"each batch is used for {int(limit) + 1} steps" in finding.because
    near = {**given, "num_iterations": int(limit)}
    assert [f.grade for f in found("oscillation", near, known=Known(rule=rule))] == ["note"]
    for calm in ({**given, "num_iterations": 2}, {**given, "learning_rate": 0.001}):
        assert not found("growing oscillation", calm, known=Known(rule=rule))
        assert not found("oscillation", calm, known=Known(rule=rule))
    (untold,) = [one for one in lint(config(given)) if one.fault == "growing oscillation"]
    assert untold.status == "cannot tell"


def test_learning_rates() -> None:
    assert found("zero learning rate", {"learning_rate": 0})[0].grade == "failing"
    assert found("high learning rate", {"learning_rate": 1e-3})[0].grade == "warning"
    assert "even for adapters" in found("high learning rate", {"learning_rate": 1e-3})[0].because
    assert found("high learning rate", {"learning_rate": 5e-5}, adapters=False)[0].grade == "note"
    assert not found("high learning rate", {"learning_rate": 1e-6})


def test_coarse_weights() -> None:
    """A weight of 0.02 in bfloat16 does not move by a step of 1e-6, and one of 1e-4 does."""
    torch = pytest.importorskip("torch")
    for weight, moves in ((0.02, False), (1e-4, True)):
        value = torch.tensor(weight, dtype=torch.bfloat16)
        assert bool((value + torch.tensor(1e-6, dtype=torch.bfloat16)) != value) is moves
    (finding,) = found("coarse weights", {"torch_dtype": "bfloat16"})
    assert f"smaller than {1e-6 * 256:.2g}" in finding.because
    assert not found("coarse weights", {"torch_dtype": "bfloat16"}, adapters=True)
    assert found("coarse weights", {**GOOD_VERL, ACTOR + "fsdp_config.model_dtype": "bf16"}, VERL)


def test_a_misspelt_name() -> None:
    (finding,) = found("misspelt setting", {"num_generation": 8})
    assert "num_generations" in finding.remedy
    assert not found("misspelt setting", {"output_dir": "x", "num_generations": 8})
    assert not found("misspelt setting", {"a.num_generations": 8})  # of another program, or in a section of a file


def test_adapters_of_verl_and_the_base_model_of_the_sampler() -> None:
    """By verl 0.9.1: dummy weights are overwritten before the first adapters, but not layer by layer."""
    lora = {**GOOD_VERL, "actor_rollout_ref.model.lora_rank": 32}

    def grades(**more: Any) -> list[str | None]:
        keys = {"load_format": ROLLOUT + "load_format", "layered": ROLLOUT + "layered_summon",
                "transfer": ROLLOUT + "checkpoint_engine.backend",
                "merge": "actor_rollout_ref.model.lora.merge"}  # fmt: skip
        given = {**lora, **{keys[name]: value for name, value in more.items()}}
        return [finding.grade for finding in found("weights never arrived", given, VERL)]

    assert grades() == ["note"]
    assert grades(layered=True) == ["failing"]
    assert grades(layered=True, load_format="safetensors") == []
    assert grades(load_format="safetensors", transfer="nccl") == ["warning"]
    assert grades(merge=True, transfer="nccl") == []
    assert not found("weights never arrived", {**lora, ACTOR + "strategy": "megatron"}, VERL)
    assert not found("weights never arrived", GOOD_VERL, VERL)


def test_the_word_and_the_counts_are_those_of_the_findings() -> None:
    """Nothing read: no fault is judged by defaults; a note is no reason not to start."""
    partial = config({}, partial=True)
    findings = lint(partial)
    assert {f.status for f in findings} <= {"cannot tell", "excluded"}
    assert untold(findings) == len([f for f in findings if f.status == "cannot tell"]) > judged(findings)
    assert any(f.because == UNREAD for f in findings)
    assert word(findings, partial) == "cannot tell"
    noted = config({"mask_truncated_completions": True})
    findings = lint(noted, Known(success=0.5))
    assert findings[0].grade == "note"
    assert word(findings, noted) == "healthy"
    order = [("present", "cannot tell", "excluded").index(f.status) for f in findings]
    assert order == sorted(order)


def test_settings_as_evidence() -> None:
    given = {"num_generations": 8, "beta": 0.1}
    settings = config(given, lines={"num_generations": 12, "temperature": 3}, opaque=frozenset({"temperature"}))
    signs = settings.signs("num_generations", "temperature", "epsilon", "nothing")
    assert [(sign.what, sign.where) for sign in signs] == [
        ("num_generations = 8", "line 12"), ("temperature = an expression", "line 3"), ("epsilon = 0.2 by default", ""),
    ]  # fmt: skip
    assert signs[0].value == 8
    assert math.isnan(signs[1].value)
