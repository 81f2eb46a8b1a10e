"""Logs of the engines with the keys that each of them writes, for the tests of the readers.

Every run has STEPS steps. Values are such that each metric can be told from every other: see `value`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

STEPS = 24
"""Steps of every run."""

EVERY = 6
"""Steps from one evaluation to the next."""

Row = dict[str, Any]


def value(step: int, start: float, slope: float = 0.01) -> float:
    """A value at a step, rounded as engines round it."""
    return round(start + slope * step, 6)


def written(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """JSON lines of these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def spread(key: str, mean: float, *, tails: bool = True) -> Row:
    """A distribution as prime-rl logs it."""
    row = {f"{key}/mean": mean, f"{key}/max": 2 * mean, f"{key}/min": mean / 2}
    return row | ({f"{key}/p10": 0.6 * mean, f"{key}/p90": 1.5 * mean} if tails else {})


def prime_trainer(step: int) -> Iterator[Row]:
    """Rows that the trainer of prime-rl writes in a step, one per call of its monitor."""
    at = {"step": step, "time": 1.8e9 + 60 * step}
    yield {**at, "perf/throughput": 5e4, "perf/throughput_per_gpu": 6e3, "perf/mfu": 40.0, "perf/peak_memory": 60.0}
    yield {**at, "optim/lr": 1e-6, "optim/zero_grad_ratio": 0.1, "optim/grad_norm": value(step, 0.3)}
    yield {
        **at, **spread("loss", 0.01, tails=False), **spread("entropy/all", value(step, 0.5, -0.005), tails=False),
        "entropy/math/mean": 0.4, "entropy/code/mean": 0.5, "mismatch_kl/all/mean": value(step, 1e-3, 1e-5),
        "mismatch_kl/all/max": 0.3, "mismatch_kl/math/mean": 1e-3, "mismatch_kl/code/mean": 2e-3,
        "is_masked/all/mean": 0.001, "is_masked/all/max": 1.0, "kl_ent_ratio/mean": 0.002, "max_vio/mean": 1.1,
    }  # fmt: skip
    yield {**at, "time/step": 58.0, "time/wait_for_batch": 3.0, "time/forward_backward": 40.0}
    yield {**at, "system/disk_free": 900.0}


def prime_scope(prefix: str, step: int, reward: float, agent: str = "agent") -> Row:
    """Metrics of one pool of rollouts, such as train/agg/all."""
    whole = spread(f"{prefix}/num_total_tokens", 900.0) | spread(f"{prefix}/num_output_tokens", value(step, 700, 1))
    each = f"{prefix}/{agent}"
    return {
        **whole, **spread(f"{prefix}/num_turns", 1.0), f"{prefix}/has_error/mean": 0.01, **spread(f"{each}/reward",
        reward),
        f"{each}/reward/max": 1.0, f"{each}/reward/min": 0.0,
        **spread(f"{each}/num_output_tokens", value(step, 700, 1)), f"{each}/is_truncated/mean": value(step, 0.05,
        0.001),
        f"{each}/is_completed/mean": 0.95, f"{each}/solved_none": 0.2, f"{each}/solved_all": value(step, 0.1),
        f"{each}/solved_some": value(step, 0.7, -0.01), f"{each}/stop_condition/generation_truncated": 0.05,
        **spread(f"{each}/metrics/correct", reward), **spread(f"{each}/timing/total", 30.0),
    }  # fmt: skip


def prime_orchestrator(step: int, agent: str = "agent") -> Iterator[Row]:
    """Rows that the orchestrator of prime-rl writes in a step: rollouts of two environments, and evaluations."""
    at = {"step": step, "time": 1.8e9 + 60 * step - 30}
    row: Row = {}
    for subset in ("all", "effective"):
        row |= prime_scope(f"train/agg/{subset}", step, value(step, 0.3), agent)
        row |= prime_scope(f"train/math/{subset}", step, value(step, 0.4), agent)
        row |= prime_scope(f"train/code/{subset}", step, value(step, 0.2), agent)
    yield {
        **at, **row, "progress/tokens": 1e6, "progress/total_tokens": 1e6 * (step + 1), "time/step": 57.0,
        "off_policy/mean": value(step, 1.5), "off_policy/max": 3.0, "off_policy/in_flight/mean": 1.0,
        "off_policy/in_flight/max": 2.0, "off_policy/dropped": 0.0, "batch/math": 0.5, "batch/code": 0.5,
        "dispatcher/off_policy/max": 3.0, "dispatcher/off_policy/mean": 1.0, "dispatcher/inflight/train": 64.0,
    }  # fmt: skip
    if step % EVERY == 0:
        held_out = {f"eval/aime/{subset}/{agent}/avg@8": value(step, 0.1) for subset in ("all", "effective")}
        yield {
            **at,
            **held_out,
            f"eval/aime/effective/{agent}/pass@1": value(step, 0.1),
            "eval/aime/policy_version": step,
        }


def prime(step: int) -> Iterator[Row]:
    """Both, as they stand in the one file of a run: the orchestrator is two steps ahead of the trainer."""
    yield from prime_orchestrator(step)
    if step > 2:
        yield from prime_trainer(step - 2)


def verl(step: int) -> Row:
    """Metrics of a step of verl's asynchronous trainer, with those of rollout correction."""
    row = {
        "critic/score/mean": value(step, 0.3), "critic/score/max": 1.0, "critic/score/min": 0.0,
        "critic/rewards/mean": value(step, 0.3), "critic/advantages/mean": 0.0, "actor/entropy": value(step, 0.5,
        -0.005),
        "actor/pg_loss": 0.01, "actor/ppo_kl": 1e-4, "actor/pg_clipfrac": 0.01, "actor/grad_norm": value(step, 0.3),
        "actor/lr": 1e-6, "response_length/mean": value(step, 700, 1), "response_length/max": 2048.0,
        "response_length/clip_ratio": 0.05, "response/aborted_ratio": 0.0, "prompt_length/mean": 90.0,
        "rollout_corr/kl": value(step, 1e-3, 1e-5), "rollout_corr/k3_kl": value(step, 2e-3, 1e-5),
        "rollout_corr/chi2_token": 0.01, "rollout_corr/rollout_is_mean": 0.99,
        "rollout_corr/rollout_is_eff_sample_size": 0.95, "rollout_corr/rollout_is_seq_fraction_high": 0.0,
        "training/off_policy/trajectory_staleness/mean": value(step, 1.5), "training/global_step": step,
        "training/off_policy/trajectory_staleness/max": 3.0, "training/off_policy/evicted_samples": 0.0,
        "fully_async/count/current_param_version": step, "fully_async/count/stale_samples_processed": 4.0 * step,
        "fully_async/count/stale_trajectory_processed": 2.0 * step, "fully_async/count/dropped_stale_samples": 0.0,
        "fully_async/partial/partial_ratio": 0.2, "fully_async/partial/max_partial_span": 2.0, "timing_s/step": 60.0,
        "perf/total_num_tokens": 5e5,
    }  # fmt: skip
    return row | ({"val-core/aime/reward/mean@8": value(step, 0.1)} if step % EVERY == 0 else {})


def areal(step: int) -> Row:
    """Statistics of a step of AReaL, averages of its tracker."""
    averages = {
        "ppo_actor/task_reward": value(step, 0.3), "ppo_actor/final_reward": 0.2, "ppo_actor/advantages": 0.0,
        "ppo_actor/kl_rewards": 0.0, "ppo_actor/no_eos_ratios": value(step, 0.05, 0.001), "ppo_actor/prompt_len": 90.0,
        "ppo_actor/seq_len": value(step, 790, 1), "ppo_actor/correct_seq_len": 700.0,
        "ppo_actor/incorrect_seq_len": 900.0, "ppo_actor/update/importance_weight": 1.0,
        "ppo_actor/update/approx_kl": 1e-4, "ppo_actor/update/entropy": value(step, 0.5, -0.005),
        "ppo_actor/update/actor_loss": 0.01, "ppo_actor/update/clip_ratio": 0.01,
        "ppo_actor/update/behave_imp_weight": 0.99, "ppo_actor/update/behave_approx_kl": value(step, 1e-3, 1e-5),
    }  # fmt: skip
    row = {f"{key}/{what}": mean for key, mean in averages.items() for what in ("avg", "min", "max")}
    row |= {
        "ppo_actor/update/grad_norm": value(step, 0.3), "ppo_actor/update/lr": 1e-6, "ppo_actor/eps_clip": 0.2,
        "ppo_actor/update/version_stats/sample_staleness_theta_avg": value(step, 1.5),
        "ppo_actor/update/version_stats/sample_staleness_theta_max": 3.0,
        "ppo_actor/update/version_stats/v_theta": float(step), "rollout/reward": value(step, 0.3),
        "timeperf/train_step": 50.0, "timeperf/rollout": 10.0,
    }  # fmt: skip
    return row | ({"eval-rollout/reward": value(step, 0.1)} if step % EVERY == 0 else {})


def roll(step: int) -> Row:
    """Metrics of a step of ROLL's RLVR pipeline with two domains."""
    row: Row = {}
    for prefix, reward in (
        ("", value(step, 0.3)),
        ("math_rule/", value(step, 0.4)),
        ("code_sandbox/", value(step, 0.2)),
    ):
        row |= {
            f"{prefix}critic/score/mean": reward, f"{prefix}critic/score/max": 1.0, f"{prefix}critic/score/min": 0.0,
            f"{prefix}critic/correct/mean": reward, f"{prefix}critic/rewards/mean": reward,
            f"{prefix}critic/entropy/mean": value(step, 0.5, -0.005), f"{prefix}critic/advantages/mean": 0.0,
            f"{prefix}token/response_length/mean": value(step, 700, 1), f"{prefix}token/response_length/max": 2048.0,
            f"{prefix}token/prompt_length/mean": 90.0, f"{prefix}token/total_response_length/clip": 12,
            f"{prefix}group/mixed_groups_ratio": value(step, 0.7, -0.01),
            f"{prefix}group/all_correct_groups_ratio": 0.2,
        }  # fmt: skip
    row |= {
        "system/global_step": step, "system/batch_size": 128, "system/samples": 128 * (step + 1), "actor/lr": 1e-6,
        "actor/pg_loss": 0.01, "actor/kl_loss": 0.002, "actor/total_loss": 0.011, "actor/approxkl": 1e-4,
        "actor/policykl": 1e-4, "actor/ppo_ratio_clipfrac": 0.01, "actor/ratio_mean": 1.0,
        "actor/grad_norm": value(step, 0.3), "actor/train_infer_diff_token_mean": value(step, 1e-3, 1e-5),
        "actor/train_infer_ratio_token_mean": 0.99, "actor/train_infer_final_mask_mean": 0.98, "time/step_total": 60.0,
    }  # fmt: skip
    return row | ({"val_correct/all/mean": value(step, 0.1), "val_correct/aime/mean": 0.2} if step % EVERY == 0 else {})


def roll_lines(rows: Iterable[Row]) -> str:
    """What ROLL's stdout tracker prints."""
    head = "[2026-08-19 15:36:11] [tracking.py (153)] [INFO] [DRIVER 0 / 1][PID 77] "
    texts = []
    for row in rows:
        texts.append(head + "pipeline step " + str(row["system/global_step"]) + " start...\n")
        texts.append(f"{head}metrics_tag: {json.dumps({'step': row['system/global_step'], 'metrics': row})}\n")
    return "".join(texts)


def swift(step: int) -> Row:
    """A line of ms-swift's logging.jsonl."""
    row: Row = {
        "loss": 0.01, "grad_norm": value(step, 0.3), "learning_rate": 1e-6, "reward": value(step, 0.3),
        "reward_std": 0.3,
        "frac_reward_zero_std": value(step, 0.3), "rewards/MathAccuracy/mean": value(step, 0.2),
        "rewards/MathAccuracy/std": 0.4, "rewards/Format/mean": 0.9, "rewards/Format/std": 0.1, "kl": 0.002,
        "completions/mean_length": value(step, 700, 1), "completions/min_length": 20.0,
        "completions/max_length": 2048.0, "completions/clipped_ratio": value(step, 0.05, 0.001), "num_turns": 1.0,
        "entropy/mean": value(step, 0.5, -0.005), "entropy/max": 3.0, "entropy/min": 0.0,
        "clip_ratio/low_mean": 0.001, "clip_ratio/low_min": 0.0, "clip_ratio/high_mean": 0.002,
        "clip_ratio/high_max": 0.1, "clip_ratio/region_mean": 0.003, "rollout_correction/kl": value(step, 1e-3, 1e-5),
        "rollout_correction/k3_kl": value(step, 2e-3, 1e-5), "rollout_correction/chi2_token": 0.01,
        "rollout_correction/chi2_seq": 0.02, "rollout_correction/is_weight_mean": 0.99, "rollout_correction/ess": 0.95,
        "rollout_correction/clipped_frac": 0.01, "epoch": round(step / 100, 2), "global_step/max_steps": f"{step}/200",
        "elapsed_time": f"{step}m 3s", "remaining_time": "1h 2m 3s", "memory(GiB)": 61.2, "train_speed(s/it)": 60.1,
    }  # fmt: skip
    return row


def swift_rows() -> Iterator[Row]:
    """The lines of a run of ms-swift, with its evaluations and its last line about the whole."""
    for step in range(1, STEPS + 1):
        yield swift(step)
        if step % EVERY == 0:
            yield {"eval_loss": 0.1, "eval_reward": value(step, 0.1), "eval_reward_std": 0.3,
                   "eval_completions/mean_length": 650.0, "epoch": round(step / 100, 2),
                   "global_step/max_steps": f"{step}/200", "elapsed_time": "9m 3s", "remaining_time": "1h"}  # fmt: skip
    yield {"train_runtime": 1400.0, "train_loss": 0.01, "epoch": 0.24, "global_step/max_steps": f"{STEPS}/200",
           "last_model_checkpoint": "out/checkpoint-24", "best_model_checkpoint": None,
           "best_metric": None}  # fmt: skip


def twinkle(step: int) -> Row:
    """The dict that Twinkle's recipes print and send to SwanLab in a step; some of its numbers are strings."""
    return {
        "train/total_reward": value(step, 0.3), "train/total_reward_std": 0.4, "train/format_reward": 0.9,
        "train/format_reward_std": 0.1, "train/accuracy_reward": value(step, 0.2), "train/accuracy_reward_std": 0.4,
        "train/completion_length": value(step, 700, 1), "profiling/Time taken: generate": 30.0,
        "learning rate(param group 1)": "1.000000e-06", "learning rate(param group 2)": "1.000000e-06", "iters": step,
        "total time elapse": "30 seconds", "speed": "0.02 iters/s", "loss": "0.0100",
        "grad_norm": f"{value(step, 0.3):.6f}", "train/policy_confidence": 0.8, "train/mean_new_logp": -0.22,
        "train/mean_old_logp": -0.22, "train/logp_diff_mean": 1e-4, "train/approx_kl": 1e-4, "train/token_kl_max": 0.3,
        "train/token_ratio_max": 1.4, "train/entropy": value(step, 0.5, -0.005), "train/clip_ratio_low": 0.001,
        "train/clip_ratio_high": 0.002, "train/clip_ratio": 0.003, "train/frac_reward_zero_std": value(step, 0.3),
    }  # fmt: skip


def twinkle_lines(rows: Iterable[Row]) -> str:
    """What Twinkle's recipes print."""
    return "".join(f"[INFO:twinkle] [Step {row['iters']}/200] {row}\n" for row in rows)


def art(step: int) -> Iterator[Row]:
    """Lines of ART's history.jsonl: rollouts, the update, and now and then an evaluation, each by itself."""
    at = {"training_step": step, "time/wall_clock_sec": 60.0 * step, "step": step, "recorded_at": "2026-05-23T10:00:00"}
    yield {
        "reward/mean": value(step, 0.3), "reward/exception_rate": 0.0, "reward/std_dev": 0.3, "reward/correct": 0.4,
        "data/step_num_scenarios": 16.0, "data/step_num_trajectories": 128.0, **at,
    }  # fmt: skip
    yield {
        "loss/train": 0.01, "loss/grad_norm": value(step, 0.3), "loss/learning_rate": 1e-6, "loss/kl_div": 0.002,
        "loss/entropy": value(step, 0.5, -0.005), **at,
    }  # fmt: skip
    yield {"costs/train/llm_judge": 0.1, **at}
    if step % EVERY == 0:
        yield {"val/reward": value(step, 0.1), "val/exception_rate": 0.0, "val/reward_std_dev": 0.2, **at}


def art_old(step: int) -> Iterator[Row]:
    """The same in the versions before: train/ before every key."""
    yield {"train/reward": value(step, 0.3), "train/exception_rate": 0.0, "train/reward_std_dev": 0.3, "step": step}
    yield {"train/loss": 0.01, "train/grad_norm": value(step, 0.3), "train/policy_loss": 0.01,
           "train/learning_rate": 1e-6, "train/entropy": value(step, 0.5, -0.005), "step": step}  # fmt: skip
    if step % EVERY == 0:
        yield {"val/reward": value(step, 0.1), "val/exception_rate": 0.0, "val/reward_std_dev": 0.2, "step": step}


def verifiers(step: int) -> Row:
    """A row of the trainer of verifiers (verifiers-rl), as its trainer_state.json and W&B have it."""
    return {
        "loss": 0.01, "grad_norm": value(step, 0.3), "learning_rate": 1e-6, "reward": value(step, 0.3),
        "reward/std": 0.4,
        "advantage/absmean": 0.3, "reward/correct_answer": value(step, 0.2), "reward/format": 0.9,
        "tokens/completion": value(step, 700, 1), "tokens/masked_fraction": 0.1, "timing/generation": 30.0,
        "wall_clock/generate_s": 31.0, "errors/rate": 0.0, "importance_ratio": 0.99, "entropy": value(step, 0.5,
        -0.005),
        "mismatch_kl": value(step, 1e-3, 1e-5), "step": step, "epoch": round(step / 100, 2),
    }  # fmt: skip


def tinker(step: int) -> Row:
    """A line of metrics.jsonl of the Tinker cookbook, with two tags of problems."""
    row: Row = {"step": step, "progress/batch": step, "progress/done_frac": step / 100, "optim/lr": 1e-5}
    for tag, reward in (("all", value(step, 0.3)), ("math", value(step, 0.4)), ("code", value(step, 0.2))):
        row |= {
            f"env/{tag}/ac_tokens_per_turn": value(step, 700, 1), f"env/{tag}/ob_tokens_per_turn": 90.0,
            f"env/{tag}/turns_per_episode": 1.0, f"env/{tag}/total_episodes": 128, f"env/{tag}/reward/total": reward,
            f"env/{tag}/correct": reward, f"env/{tag}/format": 0.9, f"env/{tag}/by_group/frac_all_bad": 0.2,
            f"env/{tag}/by_group/frac_mixed": value(step, 0.7, -0.01), f"env/{tag}/by_group/frac_all_good": 0.1,
        }  # fmt: skip
    row |= {
        "optim/kl_sample_train_v1": value(step, 1e-3, 1e-5), "optim/kl_sample_train_v2": 2e-3,
        "optim/entropy": value(step, 0.5, -0.005), "time/total": 60.0, "sampling_client/step_max": step,
        "sampling_client/step_min": step - 2, "sampling_client/step_mean": step - 1.0,
    }  # fmt: skip
    return row | (
        {"test/env/all/reward/total": value(step, 0.1), "test/env/all/correct": 0.1} if step % EVERY == 0 else {}
    )


def skyrl(step: int) -> Row:
    """Metrics of a step of SkyRL's fully asynchronous trainer."""
    row = {
        "reward/avg_raw_reward": value(step, 0.3), "reward/avg_pass_at_8": 0.6, "reward/mean_positive_reward": 0.3,
        "loss/avg_final_rewards": value(step, 0.3), "generate/avg_num_tokens": value(step, 700, 1),
        "generate/min_num_tokens": 20.0, "generate/max_num_tokens": 2048.0, "generate/avg_tokens_zero_rewards": 900.0,
        "policy/final_loss": 0.01, "policy/policy_loss": 0.01, "policy/policy_entropy": value(step, 0.5, -0.005),
        "policy/raw_grad_norm": value(step, 0.3), "policy/policy_lr": 1e-6, "policy/ppo_clip_ratio": 0.01,
        "policy/rollout_train_logprobs_abs_diff_mean": value(step, 1e-3, 1e-5),
        "policy/rollout_train_logprobs_abs_diff_max": 0.5, "async/staleness_mean": value(step, 1.5),
        "async/staleness_max": 3.0, "async/staleness_min": 0.0, "async/keep_rate": 0.9, "environment/num_turns": 2.0,
        "timing/step": 60.0, "trainer/global_step": step, "trainer/epoch": 0,
    }  # fmt: skip
    return row | ({"eval/all/avg_score": value(step, 0.1), "eval/aime/avg_score": 0.1} if step % EVERY == 0 else {})


def nemo(step: int) -> Row:
    """Metrics of a step of NeMo-RL."""
    row = {
        "train/reward": value(step, 0.3), "train/loss": 0.01, "train/grad_norm": value(step, 0.3), "train/lr": 1e-6,
        "train/approx_entropy": value(step, 0.5, -0.005), "train/mean_gen_tokens_per_sample": value(step, 700, 1),
        "train/mean_prompt_length": 90.0, "train/total_num_tokens": 1e5, "train/probs_ratio": 1.0,
        "train/probs_ratio_clamped": 1.0, "train/kl_penalty": value(step, 1e-3, 1e-4),
        "train/token_mult_prob_error": value(step, 1.01, 1e-4),
        "train/gen_kl_error": value(step, 1e-3, 1e-5), "train/policy_kl_error": 1e-3, "train/js_divergence_error": 1e-3,
        "train/sampling_importance_ratio": 0.99, "timing/train/total_step_time": 60.0, "step": step,
    }  # fmt: skip
    return row | (
        {"validation/accuracy": value(step, 0.1), "validation/avg_length": 600.0} if step % EVERY == 0 else {}
    )


def slime(step: int) -> Iterator[tuple[str, int, Row]]:
    """(kind, number, values) of the lines that slime prints in a step, from step 0."""
    yield "perf", step - 1, {"rollout/response_len/mean": value(step, 700, 1), "rollout/response_len/max": 2048,
                             "rollout/zero_std/count_0.0": 3, "rollout/zero_std/count_1.0": 1,
                             "rollout/repetition_frac": 0.0, "rollout/truncated_ratio": value(step, 0.05, 0.001),
                             "perf/rollout_time": 30.0, "perf/longest_sample_tokens_per_sec": 70.0}  # fmt: skip
    yield "rollout", step - 1, {"rollout/response_lengths": value(step, 700, 1), "rollout/raw_reward": value(step, 0.3),
                                "rollout/rewards": 1e-9, "rollout/truncated": 0.05, "rollout/total_lengths": 800.0,
                                "rollout/rollout_log_probs": -0.3, "rollout/log_probs": -0.3,
                                "rollout/advantages": 0.0, "rollout/returns": 0.0}  # fmt: skip
    yield "step", step - 1, {"train/loss": 0.01, "train/pg_loss": 0.01, "train/entropy_loss": value(step, 0.5, -0.005),
                             "train/pg_clipfrac": 0.0, "train/ppo_kl": 0.0, "train/kl_loss": 0.001,
                             "train/train_rollout_logprob_abs_diff": value(step, 1e-3, 1e-5), "train/ois": 1.0,
                             "train/grad_norm": value(step, 0.3), "train/lr-pg_0": 1e-6, "train/lr-pg_1": 1e-6,
                             "train/global_batch_size": 256, "train/step": step - 1}  # fmt: skip
    yield "perf", step - 1, {"perf/train_time": 40.0, "perf/step_time": 60.0, "perf/wait_time_ratio": 0.2}
    if step % EVERY == 0:
        yield "eval", step - 1, {"eval/aime": value(step, 0.1), "eval/aime/response_len/mean": 900.0,
                                 "eval/aime-truncated_ratio": 0.1}  # fmt: skip


def slime_lines() -> str:
    """What slime prints of a run."""
    head = "\x1b[36m(RolloutManager pid=12, ip=10.0.0.1)\x1b[0m [2026-08-21 17:14:19] rollout.py:247 - "
    return "".join(f"{head}{kind} {k}: {row}\n" for step in steps() for kind, k, row in slime(step))


def verl_lines(task: str = "TaskRunnerV1") -> str:
    """What verl prints of a run, behind the prefix of Ray."""
    head = f"\x1b[36m({task} pid=4242, ip=10.0.0.1)\x1b[0m "
    return (
        head
        + "Training Progress:   0%|\n"
        + "".join(
            head + " - ".join([f"step:{step}", *(f"{key}:{number}" for key, number in verl(step).items())]) + "\n"
            for step in steps()
        )
    )


def steps() -> range:
    """The steps of a run."""
    return range(1, STEPS + 1)
