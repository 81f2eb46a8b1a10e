"""Settings of every trainer with a problem, and the same ones without it, which have no finding of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grposcope.core.errors import UserError
from grposcope.core.finding import Finding
from grposcope.core.settings import Dialect, Settings
from grposcope.faults.judge_settings import lint
from grposcope.faults.known_task import Known
from grposcope.instruments.lint.dialects import (
    AREAL,
    MLX_LM_LORA,
    MS_SWIFT,
    NEMO_RL,
    OPEN_INSTRUCT,
    OPENRLHF,
    PRIME_RL,
    ROLL,
    SKYRL,
    SLIME,
    TRL,
    VERL,
)
from grposcope.instruments.lint.read import read
from grposcope.signs.settings.names import key_of
from grposcope.signs.settings.recipe import has_adapters, interval

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
GRPO = {"algorithm.adv_estimator": "grpo", ROLLOUT + "n": 8, ACTOR + "ppo_micro_batch_size_per_gpu": 4}
PRIME, SLIME_BATCH = {"orchestrator.group_size": 8}, {"rollout_batch_size": 32, "n_samples_per_prompt": 8}
SKYRL_BATCH = ("trainer.train_batch_size", "trainer.policy_mini_batch_size")
ASYNC_NEMO = {"grpo.async_grpo.enabled": True, "loss_fn.use_importance_sampling_correction": False}
FULL, LOW = {"tuner_type": "full"}, {"learning_rate": 1e-6}

NORM = "actor.reward_norm."
OF_AREAL = {"gconfig.n_samples": 8, "actor.kl_ctl": 0.0, NORM + "mean_level": "group", NORM + "group_size": 8}
STALE = {**OF_AREAL, "rollout.max_head_offpolicyness": 4, "actor.recompute_logprob": True}

MEGATRON = "policy.megatron_cfg."
COSINE = {MEGATRON + "enabled": True, MEGATRON + "scheduler.lr_decay_style": "cosine",
          MEGATRON + "scheduler.lr_decay_iters": 100, "grpo.max_num_steps": 1000, MEGATRON + "optimizer.lr": 2e-6,
          MEGATRON + "optimizer.min_lr": 0.0}  # fmt: skip

PAIRS: list[tuple[str, str, Dialect, dict[str, Any], dict[str, Any], str]] = [
    ("stale sampler", "warning", AREAL, STALE, {"actor.use_decoupled_loss": True}, "weights of earlier updates"),
    ("stale sampler", "warning", AREAL, STALE, {"actor.recompute_logprob": False}, "weights of earlier updates"),
    ("stale sampler", "warning", AREAL, STALE, {"rollout.max_head_offpolicyness": 0}, "weights of earlier updates"),
    ("estimator without groups", "failing", AREAL, {**OF_AREAL, NORM + "group_size": None}, {NORM + "group_size": 8},
     "actor.reward_norm.group_size is 1 by default: each rollout is compared with itself alone"),
    ("estimator without groups", "warning", AREAL, {**OF_AREAL, NORM + "group_size": 4}, {NORM + "group_size": 8},
     "means are taken over 4 rollouts in turn"),
    ("estimator without groups", "failing", AREAL, {**OF_AREAL, NORM + "group_size": 6}, {"gconfig.n_samples": 6},
     "a prompt has 8 rollouts"),
    ("estimator without groups", "warning", AREAL, {"gconfig.n_samples": 8}, {"actor.adv_norm.std_level": "batch"},
     "neither actor.reward_norm nor actor.adv_norm subtracts a mean"),
    ("estimator without groups", "warning", AREAL, {"gconfig.n_samples": 8}, {"actor.group_size": 8}, "no critic"),
    ("missing reference", "warning", AREAL, {**OF_AREAL, "actor.kl_ctl": None}, {"ref.path": "model"},
     "actor.kl_ctl is 0.1 and the file has no ref"),
    ("sampler temperature differs", "warning", AREAL, {**OF_AREAL, "gconfig.temperature": 0.6},
     {"actor.temperature": 0.6}, "drawn at 0.6, and the trainer divides its logits by 1"),
    ("greedy sampling", "failing", AREAL, {**OF_AREAL, "gconfig.greedy": True}, {"gconfig.greedy": False}, "same text"),
    ("group of one", "failing", AREAL, {**OF_AREAL, "gconfig.n_samples": 1}, {"gconfig.n_samples": 8}, "no others"),
    ("high learning rate", "failing", AREAL, {**OF_AREAL, "actor.optimizer.lr": 1e-3}, {"actor.use_lora": True}, "50"),
    ("lost gradient", "warning", MLX_LM_LORA, {"group_size": 4}, {"importance_sampling_level": "sequence"},
     "before mlx-lm-lora 3.0, None, the ratio is the constant 1"),
    ("group of two", "note", MLX_LM_LORA, {"group_size": 2}, {"group_size": 4}, "two"),
    ("batch of few prompts", "note", MLX_LM_LORA, {"batch_size": 1}, {"gradient_accumulation_steps": 16}, "one prompt"),
    ("greedy evaluation", "note", AREAL, {**OF_AREAL, "eval_gconfig.greedy": True}, {"eval_gconfig.greedy": False},
     "rollouts are drawn at temperature 1"),
    ("greedy evaluation", "note", SLIME, {"eval_temperature": 0, "rollout_temperature": 0.8}, {"eval_temperature": 0.8},
     "rollouts are drawn at temperature 0.8"),
    ("low learning rate", "warning", NEMO_RL, COSINE, {MEGATRON + "scheduler.lr_decay_style": "constant"},
     "the schedule ends after 100 steps, and the run has 1000: from then on the learning rate is 0"),
    ("low learning rate", "warning", NEMO_RL, COSINE, {"grpo.max_num_steps": 150}, "ends after 100 steps"),
    ("low learning rate", "warning", NEMO_RL, COSINE, {MEGATRON + "optimizer.min_lr": 1e-6}, "ends after 100 steps"),
    ("low learning rate", "warning", MLX_LM_LORA,
     {"iters": 1000, "lr_schedule.name": "cosine_decay", "lr_schedule.arguments": [1e-4, 200, 1e-6]},
     {"lr_schedule.arguments": [1e-4, 1000, 1e-6]}, "0.01 of what is set"),
    ("batch of few prompts", "note", VERL, {**GRPO, "data.train_batch_size": 2}, {"data.train_batch_size": 32},
     "a step has 2 prompts"),
    ("zero learning rate", "failing", MLX_LM_LORA, {"learning_rate": 0.0}, {"learning_rate": 1e-5}, "0"),
    ("indivisible batches", "failing", PRIME_RL, {**PRIME, "orchestrator.batch_size": 100},
     {"orchestrator.batch_size": 104}, "100 rollouts of a step are no multiple of the group size 8"),
    ("indivisible batches", "failing", PRIME_RL, {**PRIME, "orchestrator.batch_size": 4},
     {"orchestrator.batch_size": 8}, "4 rollouts of a step"),
    ("refused settings", "failing", PRIME_RL,
     {**PRIME, "orchestrator.batch_size": 64, "orchestrator.token_batch_size": 9999},
     {"orchestrator.token_batch_size": None}, "prime-rl refuses to start"),
    ("refused settings", "failing", PRIME_RL,
     {**PRIME, "trainer.scheduler.type": "cosine", "trainer.scheduler.warmup_steps": 50, "max_steps": 50},
     {"max_steps": 51}, "warm-up take 50 steps, and the run has 50"),
    ("refused settings", "failing", PRIME_RL,
     {**PRIME, "trainer.scheduler.type": "linear", "trainer.scheduler.warmup_steps": 5, "max_steps": 14},
     {"max_steps": 15}, "warm-up and decay take 15 steps, and the run has 14"),
    ("indivisible batches", "failing", SKYRL, dict.fromkeys(SKYRL_BATCH, 96) | {SKYRL_BATCH[1]: 64},
     {SKYRL_BATCH[1]: 48}, "96 prompts of a step are no multiple of the mini-batch of 64"),
    ("refused settings", "failing", SKYRL,
     {"trainer.algorithm.use_kl_loss": True, "trainer.algorithm.use_kl_in_reward": True},
     {"trainer.algorithm.use_kl_loss": False}, "SkyRL refuses to start"),
    ("indivisible batches", "warning", SLIME, {**SLIME_BATCH, "global_batch_size": 100}, {"global_batch_size": 64},
     "the last 56 of each step are drawn and dropped"),
    ("indivisible batches", "failing", SLIME, {**SLIME_BATCH, "global_batch_size": 512}, {"global_batch_size": 256},
     "256 rollouts are fewer than a training batch of 512"),
    ("refused settings", "failing", SLIME, {**SLIME_BATCH, "kl_coef": 0.1, "kl_loss_coef": 0.1, "use_kl_loss": True},
     {"kl_coef": 0.0}, "one coefficient"),
    ("refused settings", "failing", SLIME, {**SLIME_BATCH, "global_batch_size": 64, "num_steps_per_rollout": 2},
     {"num_steps_per_rollout": 4}, "in 2 steps are not 64 each"),
    ("indivisible batches", "warning", OPENRLHF,
     {"rollout.batch_size": 8, "rollout.n_samples_per_prompt": 8, "train.batch_size": 128}, {"train.batch_size": 64},
     "64 rollouts of a step do not fill one training batch of 128"),
    ("refused settings", "failing", NEMO_RL, {"grpo.batch_multiplier": 2, "grpo.use_dynamic_sampling": False},
     {"grpo.use_dynamic_sampling": True}, "NeMo-RL refuses to start"),
    ("high learning rate", "failing", MS_SWIFT, {**FULL, "learning_rate": 1e-3}, {"tuner_type": "lora"}, "50 times"),
    ("high learning rate", "failing", VERL, {**GRPO, ACTOR + "optim.lr": 1e-4}, {ACTOR + "optim.lr": 1e-6}, "5 times"),
    ("high learning rate", "failing", PRIME_RL, {**PRIME, "trainer.optim.lr": 1e-3},
     {"trainer.optim.type": "muon"}, "50 times"),
    ("high learning rate", "note", VERL,
     {**GRPO, "actor_rollout_ref.model.lora_rank": 8, "actor_rollout_ref.model.lora_alpha": 128},
     {"actor_rollout_ref.model.lora_alpha": 16}, "alpha ÷ rank = 16"),
    ("zero learning rate", "failing", MS_SWIFT, {"lora_rank": 8, "lora_alpha": 0}, {"lora_alpha": 16}, "alpha = 0"),
    ("low learning rate", "warning", TRL, {"warmup_steps": 100, "max_steps": 50}, {"warmup_steps": 5},
     "the warm-up takes 100 steps, and the run has 50: the learning rate rises to its end and reaches 0.5"),
    ("length", "note", TRL, {"max_completion_length": 64}, {"max_completion_length": 65}, "about 48 words"),
    ("length", "warning", VERL, {**GRPO, "data.max_response_length": 32, "data.train_files": "d/gsm8k/train.parquet"},
     {"data.max_response_length": 1024}, "data.train_files is of such answers"),
    ("room for sequences", "warning", PRIME_RL,
     {**PRIME, "orchestrator.train.sampling.max_completion_tokens": 4096, "seq_len": 2048}, {"seq_len": 4096},
     "a completion alone may have 4096 tokens"),
    ("room for sequences", "note", MS_SWIFT,
     {"max_length": 2048, "max_completion_length": 1024, "vllm_max_model_len": 2048}, {"vllm_max_model_len": 3072},
     "3072 tokens, but the engine of the sampler holds 2048"),
    ("room for sequences", "note", OPEN_INSTRUCT,
     {"response_length": 2048, "max_prompt_token_length": 2048, "pack_length": 2560}, {"pack_length": 4096}, "4096"),
    ("truncated sampler", "note", OPENRLHF, {"rollout.top_p": 0.9}, {"rollout.top_p": 1.0}, "rollout.top_p = 0.9"),
    ("truncated sampler", "note", TRL, {"min_p": 0.1}, {"min_p": None}, "min_p = 0.1"),
    ("truncated sampler", "note", NEMO_RL, {"policy.generation.top_k": 50}, {"policy.generation.top_k": None},
     "before NeMo-RL #2053"),
    ("entropy explosion", "warning", VERL, {**GRPO, ACTOR + "entropy_coeff": 0.1}, {ACTOR + "entropy_coeff": 0.001},
     "coefficient 0.1"),
    ("entropy explosion", "warning", SKYRL,
     {"trainer.algorithm.use_entropy_loss": True, "trainer.algorithm.entropy_loss_coef": 0.1},
     {"trainer.algorithm.use_entropy_loss": False}, "whatever the reward"),
    ("kl penalty outweighs the reward", "warning", SLIME, {"use_kl_loss": True, "kl_loss_coef": 2.0},
     {"use_kl_loss": False}, "coefficient of the KL is 2"),
    ("kl penalty outweighs the reward", "warning", OPENRLHF, {"algo.kl.init_coef": 1.5}, {"algo.kl.init_coef": 0.01},
     "1.5"),
    ("unused reference", "note", SLIME, {"use_kl_loss": True, "kl_loss_coef": 0.0}, {"kl_loss_coef": 0.01}, "costs"),
    ("stale sampler", "warning", OPENRLHF, {"train.async_enable": True},
     {"algo.advantage.is_correction_enable": True}, "weights of earlier updates"),
    ("stale sampler", "warning", NEMO_RL, ASYNC_NEMO, {"loss_fn.use_importance_sampling_correction": True}, "weighs"),
    ("stale sampler", "warning", MS_SWIFT, {"async_generate": True},
     {"rollout_importance_sampling_mode": "token_truncate"}, "async_generate"),
    ("idle clip range", "note", SLIME, {**SLIME_BATCH, "global_batch_size": 256, "eps_clip_high": 0.28},
     {"global_batch_size": 64}, "every ratio is 1"),
    ("idle clip range", "note", VERL,
     {**GRPO, "data.train_batch_size": 256, ACTOR + "clip_ratio_high": 0.28},
     {"algorithm.rollout_correction.bypass_mode": True}, "one optimiser step"),
    ("idle standardizing", "note", SLIME, {"n_samples_per_prompt": 3}, {"disable_grpo_std_normalization": True}, ""),
    ("float16 overflow", "note", OPENRLHF, {"ds.param_dtype": "fp16"}, {"ds.param_dtype": "bf16"}, "65,504"),
    ("cispo clamp", "warning", MS_SWIFT, {"loss_type": "cispo", "epsilon": 0.2}, {"epsilon_high": 5.0},
     "clamped at 0.2"),
    ("unbounded ratio", "warning", MS_SWIFT, {"num_iterations": 4}, {"importance_sampling_level": "sequence"},
     "4 steps"),
    ("masked truncation", "note", SKYRL, {"generator.apply_overlong_filtering": True},
     {"generator.apply_overlong_filtering": False}, "left out of the loss"),
    ("masked truncation", "note", MS_SWIFT, {"overlong_filter": True}, {"overlong_filter": False}, "mean of the group"),
    ("coarse weights", "warning", PRIME_RL, {**PRIME, "trainer.model.optimization_dtype": "bfloat16"},
     {"trainer.model.optimization_dtype": "float32"}, "a step of 1e-06"),
    ("estimator without groups", "warning", OPENRLHF, {"rollout.n_samples_per_prompt": 8},
     {"algo.advantage.estimator": "group_norm"}, "its default is gae"),
    ("estimator without groups", "warning", OPENRLHF, {"rollout.n_samples_per_prompt": 8},
     {"critic.adam.lr": 9e-6}, "its default is gae"),
    ("old log-probabilities of the sampler", "note", SLIME, {"use_rollout_logprobs": True},
     {"use_rollout_logprobs": False}, "use_rollout_logprobs takes"),
    ("clip saturation", "note", ROLL, {"ppo_epochs": 8}, {"ppo_epochs": 1}, "8 times"),
    ("idle kl coefficient", "warning", SKYRL,
     {"trainer.algorithm.use_kl_loss": False, "trainer.algorithm.kl_loss_coef": 0.01},
     {"trainer.algorithm.use_kl_loss": True}, "not used"),
    ("optimiser state lost", "note", PRIME_RL, {**PRIME, "trainer.ckpt.skip_optimizer": True},
     {"trainer.ckpt.skip_optimizer": False}, "Adam's moments"),
    ("optimiser state lost", "note", NEMO_RL, {"checkpointing.save_optimizer": False},
     {"checkpointing.save_optimizer": True}, "every coordinate"),
    ("constant reward", "failing", PRIME_RL, {**PRIME, "orchestrator.verification.enabled": False},
     {"orchestrator.verification.enabled": True}, "every reward is 0"),
    ("reward weights", "failing", MS_SWIFT, {"reward_weights": [1.0, 1.0, 1.0]}, {"reward_weights": [1.0, 1.0]},
     "3 weights for 2 reward functions: ms-swift refuses"),
    ("nothing saved", "note", NEMO_RL, {"checkpointing.enabled": False}, {"checkpointing.enabled": True}, "late fall"),
    ("nothing saved", "note", SLIME, {"num_rollout": 100}, {"save": "out"}, "no checkpoint"),
    ("nothing saved", "note", VERL, {**GRPO, "trainer.total_epochs": 3}, {"trainer.save_freq": 10}, "no checkpoint"),
    ("misspelt setting", "note", PRIME_RL, {**PRIME, "orchestrator.buffer.easy_threshold": 1.0, "max_async_level": 2},
     {"orchestrator.buffer.easy_threshold": None, "max_async_level": None}, "orchestrator.buffer"),
    ("misspelt setting", "note", MS_SWIFT, {"train_type": "full"}, {"train_type": None, **FULL}, "train_type"),
    ("misspelt setting", "warning", VERL, {**GRPO, "data.max_reponse_length": 2048},
     {"data.max_reponse_length": None, "data.max_response_length": 2048}, "data.max_response_length"),
    ("misspelt setting", "warning", PRIME_RL, {**PRIME, "trainer.scheduler.warmpu_steps": 5},
     {"trainer.scheduler.warmpu_steps": None}, "trainer.scheduler.warmup_steps"),
    ("misspelt setting", "warning", NEMO_RL, {"grpo.num_prompt_per_step": 8}, {"grpo.num_prompts_per_step": 8},
     "grpo.num_prompts_per_step"),
    ("misspelt setting", "warning", OPENRLHF, {"rollout.n_samples_per_promt": 8}, {"rollout.n_samples_per_prompt": 8},
     "rollout.n_samples_per_prompt"),
    ("misspelt setting", "failing", OPENRLHF, {"rollout.batch_size": 128, "init_kl_coef": 0.01},
     {"init_kl_coef": None}, "no version takes both"),
]  # fmt: skip


def present(given: Mapping[str, Any], dialect: Dialect, fault: str) -> list[Finding]:
    known = {key: setting for key, setting in given.items() if setting is not None}
    functions = 2 if dialect is MS_SWIFT else None
    settings = Settings(Path("x"), "a file", dialect, known, reward_functions=functions)
    return [finding for finding in lint(settings, Known()) if finding.present and finding.fault == fault]


@pytest.mark.parametrize(("fault", "grade", "dialect", "bad", "sound", "words"), PAIRS)
def test_a_problem_is_named_and_its_sound_twin_is_not(
    fault: str, grade: str, dialect: Dialect, bad: dict[str, Any], sound: dict[str, Any], words: str
) -> None:
    named = [finding for finding in present(bad, dialect, fault) if finding.grade == grade]
    assert named, [finding.because for finding in present(bad, dialect, fault)]
    assert words in named[0].because
    assert named[0].evidence
    assert dialect is TRL or fault not in ("indivisible batches", "refused settings") or "TRL" not in named[0].source
    assert not [finding for finding in present({**bad, **sound}, dialect, fault) if finding.grade == grade]


def test_a_base_configuration_of_nemo_rl_is_no_idle_filter() -> None:
    """Its base configuration has the number of batches beside a filter that is off; another number was asked for."""
    off = {"grpo.use_dynamic_sampling": False}
    assert not present({**off, "grpo.dynamic_sampling_max_gen_batches": 10}, NEMO_RL, "idle filter")
    assert present({**off, "grpo.dynamic_sampling_max_gen_batches": 30}, NEMO_RL, "idle filter")


def test_a_teacher_needs_no_group_and_estimators_without_groups_neither() -> None:
    alone = {"num_generations": 1}
    assert present(alone, MS_SWIFT, "group of one")
    assert not present({**alone, "teacher_model": "big"}, MS_SWIFT, "group of one")
    assert present({**alone, "teacher_model": "big", "reward_funcs": "format"}, MS_SWIFT, "group of one")
    assert not present({"advantage_estimator": "ppo", "n_samples_per_prompt": 1}, SLIME, "group of one")
    assert not present({"orchestrator.group_size": 1, "orchestrator.algo.type": "opd"}, PRIME_RL, "group of one")
    taught = {"algorithm.adv_estimator": "grpo", ROLLOUT + "n": 1, "distillation.enabled": True}
    assert present(taught, VERL, "group of one")
    by_teacher_alone = {**taught, "distillation.distillation_loss.use_task_rewards": False}
    assert not present(by_teacher_alone, VERL, "group of one")


def test_batches_that_stream_in_hold_no_mini_batches() -> None:
    streaming = {**GRPO, "data.train_batch_size": 0, "data.gen_batch_size": 1}
    assert not present(streaming, VERL, "indivisible batches")
    assert present({**streaming, "data.train_batch_size": 8}, VERL, "indivisible batches")


def test_adapters_are_unknown_where_something_unread_may_say_so() -> None:
    """A rate for adapters is no failure of a file that Hydra completes, or whose rank is an expression."""
    given = {**GRPO, ACTOR + "optim.lr": 1e-4}
    opaque = frozenset({"actor_rollout_ref.model.lora_rank"})
    assert has_adapters(Settings(Path("x"), "a file", VERL, given)) is False
    assert has_adapters(Settings(Path("x"), "a file", VERL, given, partial=True)) is None
    settings = Settings(Path("x"), "a file", VERL, given, opaque=opaque)
    assert has_adapters(settings) is None
    assert not [f for f in lint(settings, Known()) if f.fault == "high learning rate" and f.grade == "failing"]
    assert has_adapters(Settings(Path("x"), "a file", PRIME_RL, {"trainer.model.lora": {}})) is True
    assert has_adapters(Settings(Path("x"), "a file", MS_SWIFT, {"learning_rate": 1e-5})) is True
    megatron = {"global_batch_size": 16, "lr": 1e-6}
    assert has_adapters(Settings(Path("x"), "a file", MS_SWIFT, megatron)) is False
    assert has_adapters(Settings(Path("x"), "a file", MS_SWIFT, {**megatron, "train.tuner_type": "lora"})) is True


def test_a_name_that_trl_no_longer_has_is_told_of_its_own_call_alone() -> None:
    """A file with TRL's names may be of another program, which still has them."""
    given = {"max_prompt_length": 512, "num_generations": 8}
    for form, told in (("the call GRPOConfig(…) in line 3", 1), ("a TOML file", 0)):
        findings = lint(Settings(Path("x"), form, TRL, given))
        assert sum(f.present and "max_prompt_length" in f.because for f in findings) == told


def test_a_null_of_a_base_file_is_not_refused() -> None:
    """verl's own file has null for both sizes, which the command line completes; a missing size is another matter."""
    sizes = (ACTOR + "ppo_micro_batch_size", ACTOR + "ppo_micro_batch_size_per_gpu")
    given = {**GRPO, "data.train_batch_size": 256, **dict.fromkeys(sizes)}
    findings = lint(Settings(Path("x"), "a file", VERL, given))
    assert not [f for f in findings if f.present and f.fault == "refused settings"]
    assert present(given, VERL, "refused settings")  # without the keys


def test_keys_that_are_in_force() -> None:
    megatron = {"policy.megatron_cfg.optimizer.lr": 3e-6, "policy.optimizer.kwargs.lr": 5e-6}
    on = {**megatron, "policy.megatron_cfg.enabled": True}
    assert key_of(Settings(Path("x"), "", NEMO_RL, megatron), "lr") == "policy.optimizer.kwargs.lr"
    assert key_of(Settings(Path("x"), "", NEMO_RL, on), "lr") == "policy.megatron_cfg.optimizer.lr"
    assert key_of(Settings(Path("x"), "", ROLL, {}), "no such name") == ""
    twice = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    assert interval(Settings(Path("x"), "", MS_SWIFT, {**twice, "num_generations": 4}), None) == 2


EVALUATION = """
rollouts_per_example = 3
[[env]]
id = "primeintellect/math-env"
[sampling]
max_tokens = 16
"""


def test_a_file_of_an_evaluation_is_none_of_training(tmp_path: Path) -> None:
    (tmp_path / "eval.toml").write_text(EVALUATION)
    with pytest.raises(UserError, match="no settings of a known trainer"):
        read(tmp_path / "eval.toml")
    (tmp_path / "orch.toml").write_text("batch_size = 6\n" + EVALUATION)
    assert read(tmp_path / "orch.toml").dialect is PRIME_RL
    (tmp_path / "dpo.sh").write_text("swift rlhf --rlhf_type dpo --learning_rate 1e-4\n")
    with pytest.raises(UserError, match="by dpo and not by GRPO"):
        read(tmp_path / "dpo.sh")
    (tmp_path / "sft.sh").write_text("swift sft --learning_rate 1e-4 --num_train_epochs 1\n")
    with pytest.raises(UserError, match="no settings of a known trainer"):
        read(tmp_path / "sft.sh")
    (tmp_path / "draw.sh").write_text("python -m verl.trainer.main_generation actor_rollout_ref.rollout.n=4\n")
    with pytest.raises(UserError, match="trains nothing"):
        read(tmp_path / "draw.sh")


APPENDED = """#!/bin/bash
ACTOR="
    actor_rollout_ref.actor.use_dynamic_bsz=False \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
MORE="actor_rollout_ref.actor.optim.lr=2e-6"
ACTOR="$ACTOR $MORE"
{condition}
EXTRA=(
    $ACTOR
)
DATA=(
    algorithm.adv_estimator=grpo
)
python -m verl.trainer.main_ppo "${{DATA[@]}}" "${{EXTRA[@]}}"
"""


def test_a_variable_that_is_added_to_is_read_and_one_under_a_condition_is_not(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(APPENDED.format(condition=""))
    given = read(script).given
    assert given[ACTOR + "optim.lr"] == 2e-6
    assert given[ACTOR + "ppo_micro_batch_size_per_gpu"] == 1
    script.write_text(
        APPENDED.format(condition='if [ "$1" ]; then\nACTOR="$ACTOR actor_rollout_ref.model.lora_rank=8"\nfi')
    )
    assert "actor_rollout_ref.model.lora_rank" not in read(script).given


def test_flags_of_two_versions_of_openrlhf_are_read_together(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("python -m openrlhf.cli.train_ppo_ray --rollout.n_samples_per_prompt 8 --init_kl_coef 0.01\n")
    (finding,) = [f for f in lint(read(script)) if f.present and f.fault == "misspelt setting"]
    assert finding.grade == "failing"


MLX = """
train: true
train_mode: {mode}
group_size: 8
epsilon: 0.2
temperature: 1.0
learning_rate: 1.0e-5
importance_sampling_level: token
"""


def test_a_file_of_mlx_lm_lora_is_none_of_trl(tmp_path: Path) -> None:
    """What its command line has a default for, it does not take of the file."""
    path = tmp_path / "config.yaml"
    path.write_text(MLX.format(mode="grpo"))
    settings = read(path)
    assert settings.dialect is MLX_LM_LORA
    assert has_adapters(settings) is True
    (finding,) = [own for own in lint(settings) if own.present]
    assert (finding.fault, finding.grade) == ("setting not in force", "warning")
    assert "without the flag the run has group_size 4, epsilon 0.0001" in finding.because
    assert finding.remedy.endswith("--group-size 8 --epsilon 0.2")
    path.write_text(MLX.format(mode="dpo"))
    with pytest.raises(UserError, match="by dpo and not by GRPO"):
        read(path)


def test_a_file_of_areal_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "rollout:\n  max_head_offpolicyness: 2\ngconfig:\n  n_samples: 4\n"
        "actor:\n  kl_ctl: 0.0\n  recompute_logprob: true\n"
        "  reward_norm:\n    mean_level: group\n    group_size: ${gconfig.n_samples}\n"
    )
    settings = read(path)
    assert settings.dialect is AREAL
    assert interval(settings, None) == 4
    assert [own.fault for own in lint(settings) if own.present] == ["stale sampler"]
    script = tmp_path / "run.sh"
    script.write_text(
        "#!/bin/bash\npython3 train.py --config grpo.yaml gconfig.n_samples=8 actor.path=model actor.offload=true\n"
    )
    assert read(script).dialect is AREAL
    assert not [own for own in lint(read(script)) if own.present]  # the rest is in the other file


def test_a_file_of_an_unknown_trainer_is_said_to_be_unknown(tmp_path: Path) -> None:
    """Names that TRL has as well do not make it one of TRL's, where it says the size of a group by another name."""
    path = tmp_path / "config.yaml"
    path.write_text("group_size: 8\nmax_completion_length: 512\nlearning_rate: 1.0e-5\n")
    with pytest.raises(UserError, match="no settings of a known trainer"):
        read(path)
    path.write_text("num_generations: 8\nmax_completion_length: 512\nlearning_rate: 1.0e-5\n")
    assert read(path).dialect is TRL


@pytest.mark.parametrize(("data", "grade"), [("openai/gsm8k", "warning"), ("acme/labels", "note")])
def test_a_short_limit_is_as_grave_for_every_trainer(data: str, grade: str, tmp_path: Path) -> None:
    """By the data, which a script loads by its name and a YAML file has in a key."""
    script = tmp_path / "train.py"
    script.write_text(
        f'data = load_dataset("{data}", split="train")\nargs = GRPOConfig(max_completion_length=32)\n'
        'GRPOTrainer("model", args=args, reward_funcs=[score], train_dataset=data)\n'
    )
    config = tmp_path / "verl.yaml"
    config.write_text(
        f"data:\n  train_files: {data}/train.parquet\n  max_response_length: 32\n"
        "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: 8}}\n"
    )
    for path in (script, config):
        findings = [one for one in lint(read(path)) if one.fault == "length" and one.present]
        assert [one.grade for one in findings] == [grade], path.name
