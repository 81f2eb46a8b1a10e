"""Settings that have a fault, and settings that have it not, for every fault that settings may show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import reward_rows

from grposcope.core.estimate import Estimate
from grposcope.core.run import Groups, Meta, Reading, Run, no_evaluations
from grposcope.core.settings import Dialect, Settings
from grposcope.faults.known_task import Known
from grposcope.instruments.dynamics.stability import UpdateRule
from grposcope.instruments.lint.dialects import AREAL, MLX_LM_LORA, NEMO_RL, OPENRLHF, PRIME_RL, SKYRL, SLIME, TRL, VERL
from grposcope.logs import read
from grposcope.logs.trainers import DEFECTS

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
GOOD_VERL = {"algorithm.adv_estimator": "grpo", ROLLOUT + "n": 8, "data.train_batch_size": 1024,
             ACTOR + "ppo_micro_batch_size_per_gpu": 16}  # fmt: skip
LORA = {"actor_rollout_ref.model.lora_rank": 32, ROLLOUT + "layered_summon": True}
FILTER, TURNS = "algorithm.filter_groups.", ROLLOUT + "multi_turn."
FILTERED = {FILTER + "enable": True, FILTER + "max_num_gen_batches": 10, "data.gen_batch_size": 3072}
NEMO_SCALED = {"grpo.num_generations_per_prompt": 4, "grpo.normalize_rewards": True}
ALGORITHM = "trainer.algorithm."
SCRIPT, KL = Path("settings"), "algorithm.use_kl_in_reward"


@dataclass(frozen=True)
class Example:
    """Settings with a fault, the same without it (`clean` over `bad`; None takes a key away), and what is known.

    well: what is known beside clean settings, where that is what differs. more: further fields of the settings; mended:
    those of clean ones, where they differ.
    """

    bad: Mapping[str, Any]
    clean: Mapping[str, Any]
    dialect: Dialect = TRL
    known: Known = field(default_factory=Known)
    well: Known | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    mended: Mapping[str, Any] | None = None

    def settings(self, with_it: bool) -> Settings:
        """The settings with the fault, or without."""
        start = GOOD_VERL if self.dialect is VERL else {}
        given = {**start, **self.bad, **({} if with_it else self.clean)}
        more = self.more if with_it or self.mended is None else self.mended
        return Settings(SCRIPT, "a file", self.dialect, {k: v for k, v in given.items() if v is not None}, **more)


def earlier(table: Mapping[str, Any], rewards: np.ndarray | None = None) -> Run:
    """An earlier run with these constant columns and rewards of groups."""
    rewards = np.zeros((2, 2)) if rewards is None else rewards
    groups = Groups.of([1] * len(rewards), [str(i) for i in range(len(rewards))], list(rewards))
    columns = {"step": np.arange(1.0, 41.0)} | {name: np.full(40, value) for name, value in table.items()}
    return Run(Meta(Path("before"), "trl", "before", "finished"), {"settings": {}}, columns, groups, no_evaluations())


def of_defects(*names: str) -> Run:
    """A run of TRL whose log has these metrics wrong."""
    return replace(earlier({}), reading=Reading(defects=names))


def rule() -> UpdateRule:
    """An update rule that is stable for some tens of steps on a batch."""
    return UpdateRule(0.01, 0.9, 1, "sgd", step=0.01, curvature=Estimate(1.0, 0.1, 10))


def of_components(folder: Path, **values: float) -> Known:
    """A run with the rewards of three functions, of which these are constant."""
    drawn = reward_rows.drawn(3, 8)
    drawn |= {name: np.full_like(drawn[name], value) for name, value in values.items()}
    return Known(run=read(reward_rows.trl(folder / "run", drawn, dict.fromkeys(drawn, 1.0))))


def examples(folder: Path) -> dict[str, Example]:
    """Fault -> its example. A new fault with a check of settings needs one here."""
    spreads = Known(run=earlier({"component_std/right": 0.4, "component_std/length": 200.0}))
    two, three = {"reward_weights": [1.0, 1.0]}, {"reward_weights": [1.0, 1.0, 1.0]}
    fast = {"learning_rate": 0.01}
    one_reward = {"reward_weights": [1.0]}
    trl = next(defect for defect in DEFECTS if defect.engine == "trl")
    return {
        "misspelt setting": Example({"num_generation": 8}, {"num_generation": None, "num_generations": 8}),
        "refused settings": Example({"auto_find_batch_size": True}, {"auto_find_batch_size": False}),
        "indivisible batches": Example({"num_generations": 3}, {"num_generations": 4}, known=Known(world=1)),
        "indivisible gpus": Example({ROLLOUT + "tensor_model_parallel_size": 3},
                                    {ROLLOUT + "tensor_model_parallel_size": 4}, VERL),
        "update not applied": Example({}, {}, more={"script": {"frozen adapters": 4}}, mended={}),
        "wrong old log-probabilities": Example({}, {"disable_dropout": True}, more={"script": {"adapter dropout": 4}}),
        "setting not in force": Example({}, {}, more={"script": {"unsloth": 1, "rollout_func": 9}},
                                        mended={"script": {"rollout_func": 9}}),
        "wrong divisor": Example({"normalize_advantages": True, "context_parallel_size": 2},
                                 {"context_parallel_size": 1}, SLIME),
        "reward weights": Example(two, three, more={"reward_functions": 3}),
        "lost gradient": Example({}, {"importance_sampling_level": "token"}, MLX_LM_LORA),
        "sampler temperature differs": Example({"gconfig.temperature": 0.6}, {"actor.temperature": 0.6}, AREAL),
        "missing reference": Example({"sync_ref_model": True}, {"beta": 0.04}),
        "room for sequences": Example({ROLLOUT + "max_model_len": 1023}, {ROLLOUT + "max_model_len": 1024}, VERL),
        "group of one": Example({"num_generations": 1}, {"num_generations": 2}),
        "greedy evaluation": Example({ROLLOUT + "val_kwargs.temperature": 0},
                                     {ROLLOUT + "val_kwargs.temperature": 1.0}, VERL),
        "batch of few prompts": Example({"num_generations": 8, "per_device_train_batch_size": 8},
                                        {"gradient_accumulation_steps": 16}, known=Known(world=1)),
        "group of two": Example({"num_generations": 2}, {"num_generations": 4}),
        "idle standardizing": Example({"num_generations": 3}, {"num_generations": 8}),
        "estimator without groups": Example({"algorithm.adv_estimator": None}, GOOD_VERL, VERL),
        "greedy sampling": Example({"temperature": 0.0}, {"temperature": 1.0}),
        "hot sampling": Example({"temperature": 2.0}, {"temperature": 1.0}),
        "kl penalty outweighs the reward": Example({"beta": 4.0}, {"beta": 0.04}),
        "zero learning rate": Example({"learning_rate": 0}, {"learning_rate": 1e-6}),
        "high learning rate": Example({"learning_rate": 1e-3}, {"learning_rate": 1e-6}),
        "truncated sampler": Example({"top_p": 0.9, "top_k": 50}, {"top_p": 1.0, "top_k": 0}),
        "old log-probabilities of the sampler": Example({"algorithm.rollout_correction.bypass_mode": True},
                                                        {"algorithm.rollout_correction.bypass_mode": False}, VERL),
        "stale sampler": Example({"train_async": True, "update_weights_interval": 4}, {"use_tis": True}, SLIME),
        "leave-one-out deviation": Example({**NEMO_SCALED, "grpo.use_leave_one_out_baseline": True},
                                           {"grpo.use_leave_one_out_baseline": False}, NEMO_RL),
        "vanishing deviation": Example({}, {"scale_rewards": "none"}, more={"reward_functions": 2}),
        "token-level rewards": Example({"reward.process_reward.enable": True},
                                       {"reward.process_reward.enable": False}, VERL),
        "idle discount": Example({"algorithm.lam": 0.95}, {"algorithm.lam": 1.0}, VERL),
        "cispo clamp": Example({"loss_type": "cispo"}, {"epsilon_high": 5.0}),
        "clip range not read": Example({ACTOR + "clip_ratio": 0.1}, {ACTOR + "clip_ratio": 0.2}, VERL),
        "wrong clip range": Example({"epsilon": 0.28, "epsilon_high": 0.2}, {"epsilon": 0.2, "epsilon_high": 0.28}),
        "idle clip range": Example({"epsilon_high": 0.28}, {"num_iterations": 2}),
        "idle kl coefficient": Example({ACTOR + "kl_loss_coef": 0.01}, {ACTOR + "use_kl_loss": True}, VERL),
        "kl estimator without gradient": Example(
            {ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_type": "k1"}, {ACTOR + "kl_loss_type": "low_var_kl"}, VERL
        ),
        "unused reference": Example({ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": 0.0},
                                    {ACTOR + "kl_loss_coef": 0.01}, VERL),
        "two kl penalties": Example({ACTOR + "use_kl_loss": True, KL: True}, {KL: False}, VERL),
        "standardized kl penalty": Example({KL: True}, {KL: False, ACTOR + "use_kl_loss": True}, VERL),
        "constant component": Example(three, one_reward, known=of_components(folder / "constant", form=1.0)),
        "never paid": Example(three, one_reward, known=of_components(folder / "zero", form=0.0)),
        "muted component": Example({"reward_weights": [1.0, 0.1]}, {"reward_weights": [1.0, 0.002]}, known=spreads),
        "ends not counted": Example({"mask_truncated_completions": True, "max_tool_calling_iterations": 6},
                                    {"mask_truncated_completions": False}),
        "weight by turns": Example({"loss_type": "grpo", "max_tool_calling_iterations": 6}, {"loss_type": "dapo"}),
        "turn limit": Example({TURNS + "enable": True, TURNS + "max_assistant_turns": 1},
                              {TURNS + "max_assistant_turns": 8}, VERL),
        "returns stop at tools": Example({TURNS + "enable": True, "algorithm.adv_estimator": "reinforce_plus_plus"},
                                         {"algorithm.adv_estimator": "rloo"}, VERL),
        "turns retokenised": Example({TURNS + "enable": True, TURNS + "use_inference_chat_template": True},
                                     {TURNS + "use_inference_chat_template": False}, VERL),
        "baseline by rows": Example({"custom_generate_function_path": "mine.generate"},
                                    {"custom_reward_post_process_path": "mine.advantages"}, SLIME),
        "collapsed calls": Example({"orchestrator.algo.length_penalty.type": "linear"},
                                   {"orchestrator.algo.length_penalty.num_turns_weight": 0.0,
                                    "orchestrator.algo.length_penalty.num_input_tokens_weight": 0.0}, PRIME_RL),
        "tool output trained on": Example({"orchestrator.mask_env_responses": False},
                                          {"orchestrator.mask_env_responses": True}, PRIME_RL),
        "turn rewards not read": Example({"generator.step_wise_trajectories": True},
                                         {"generator.step_wise_trajectories": False}, SKYRL),
        "last turn alone": Example({"generator.step_wise_trajectories": True},
                                   {"generator.step_wise_trajectories": False}, SKYRL),
        "failures as zeros": Example({"generator.zero_reward_on_non_stop": True},
                                     {"generator.zero_reward_on_non_stop": False}, SKYRL),
        "masked truncation": Example({"mask_truncated_completions": True}, {"mask_truncated_completions": False}),
        "coarse weights": Example({"torch_dtype": "bfloat16"}, {"torch_dtype": "float32"}),
        "starved": Example({"num_generations": 4}, {"num_generations": 32}, known=Known(success=0.05)),
        "saturated": Example({"num_generations": 4}, {"num_generations": 32}, known=Known(success=0.95)),
        "length": Example({"max_completion_length": 512}, {"max_completion_length": 4096},
                          known=Known(run=earlier({"length": 900.0}))),
        "growing oscillation": Example({**fast, "num_iterations": 1000}, {"num_iterations": 2},
                                       known=Known(rule=rule(), rule_source="measured")),
        "oscillation": Example({**fast, "num_iterations": 30}, {"num_iterations": 2},
                               known=Known(rule=rule(), rule_source="measured")),
        "metric logged wrongly": Example({}, {}, known=Known(run=of_defects(trl.name)), well=Known(run=of_defects())),
        "low learning rate": Example({"learning_rate": 5e-7}, {"learning_rate": 1e-5}, more={"adapters": True}),
        "filter runs out": Example(FILTERED, {FILTER + "max_num_gen_batches": 0}, VERL, known=Known(success=0.003)),
        "clip saturation": Example({"num_iterations": 8}, {"num_iterations": 1}),
        "unbounded ratio": Example({"num_iterations": 4}, {"delta": 2.0}),
        "filter of shaped rewards": Example(
            {**FILTERED, FILTER + "metric": "seq_reward", "reward_model.overlong_buffer.enable": True},
            {FILTER + "metric": "acc"}, VERL,
        ),
        "best by loss": Example({"load_best_model_at_end": True}, {"metric_for_best_model": "eval_reward"}),
        "accumulation not scaled": Example(
            {"loss_type": "dapo", "gradient_accumulation_steps": 32, "steps_per_generation": 8},
            {"steps_per_generation": 32},
        ),
        "normalisation not read": Example({"grpo.normalize_rewards": False},
                                          {"grpo.adv_estimator.normalize_rewards": False}, NEMO_RL),
        "kl against its penalty": Example(
            {ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": -0.001}, {ACTOR + "kl_loss_coef": 0.001}, VERL
        ),
        "idle filter": Example({FILTER + "max_num_gen_batches": 10, "data.gen_batch_size": 3072},
                               {FILTER + "enable": True}, VERL),
        "filter of summed rewards": Example(
            {ALGORITHM + "advantage_estimator": "gdpo", ALGORITHM + "zero_variance_filter": True},
            {ALGORITHM + "zero_variance_filter": False}, SKYRL,
        ),
        "best not measured": Example({"checkpointing.metric_name": "val_reward", "grpo.val_period": 0},
                                     {"grpo.val_period": 10}, NEMO_RL),
        "filter by mean": Example({"algo.dynamic_filtering_enable": True}, {"algo.dynamic_filtering_enable": False},
                                  OPENRLHF),
        "float16 overflow": Example({"fp16": True}, {"fp16": False, "bf16": True}),
        "optimiser state lost": Example({"save_only_model": True}, {"save_only_model": False}),
        "constant reward": Example({"orchestrator.buffer.skip_verification": True},
                                   {"orchestrator.buffer.skip_verification": False}, PRIME_RL),
        "entropy explosion": Example({"entropy_coef": 0.1}, {"entropy_coef": 0.001}),
        "nothing saved": Example({"trainer.save_freq": -1}, {"trainer.save_freq": 20}, VERL),
        "weights never arrived": Example(LORA, {ROLLOUT + "load_format": "safetensors"}, VERL),
    }  # fmt: skip
