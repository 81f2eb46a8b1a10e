"""Open Instruct (Olmo): its keys in W&B and its CSV exports.

`val/…` is of the rollouts trained on, `eval/…` what is held out. `scores` is the reward after every penalty,
`val/stop_rate` the share of completions that ended of themselves, and `batch/filtered_prompts_pct` that of the groups
drawn whose rewards were all equal, where they are filtered. Of the estimates of the KL to the reference k3 is
`objective/kl2_avg` beside `objective/kl0_avg`, and `objective/kl3_avg` in versions before. `policy/approxkl_avg` is how
far an update moves the policy, so it keeps its name, as `global_step` does, which counts rollouts.
"""

from __future__ import annotations

import re

from grposcope.logs.trainers.trainer import Columns, Definitions, Made, Setting, Settings, Trainer


def _define(columns: Columns, settings: Settings, window: int) -> Definitions:
    """The key of the k3 estimate, by the numbers that the estimates have in this version."""
    k3 = "objective/kl2_avg" if "objective/kl0_avg" in columns else "objective/kl3_avg"
    return ({k3: "kl"} if k3 in columns else {}), []


def _made(columns: Columns) -> dict[str, Made]:
    """The share of completions that did not end of themselves."""
    stopped = columns.get("val/stop_rate")
    return {} if stopped is None else {"truncated": Made(1 - stopped, "1 − val/stop_rate")}


OPEN_INSTRUCT = Trainer(
    name="open-instruct",
    title="Open Instruct",
    recognises=lambda keys: "val/sequence_lengths" in keys,
    keys={
        "reward": ("scores", "objective/scores"),
        "dead_fraction": ("batch/filtered_prompts_pct",),
        "entropy_loss": ("policy/entropy_avg",),
        "kl_k1": ("objective/kl0_avg", "objective/kl_avg"),
        "length": ("val/sequence_lengths",),
        "length_min": ("val/sequence_lengths_min",),
        "length_max": ("val/sequence_lengths_max",),
        "loss": ("loss/total_avg",),
        "policy_loss": ("loss/policy_avg",),
        "grad_norm": ("optim/grad_norm",),
        "clip_fraction": ("policy/clipfrac_avg",),
        "lr": ("lr",),
        "advantage_mean": ("val/advantages_mean",),
        "advantage_max": ("val/advantages_max",),
        "advantage_min": ("val/advantages_min",),
        "seconds_step": ("time/total",),
        "mismatch/abs": ("debug/vllm_vs_local_logprob_diff_mean",),
        "mismatch/abs_max": ("debug/vllm_vs_local_logprob_diff_max",),
        "staleness/mean": ("num_steps_off_policy",),
        "agent/calls": ("tools/aggregate/avg_calls_per_rollout",),
        "agent/call_failures": ("tools/aggregate/failure_rate",),
    },
    trained_on=re.compile(r"val/.+"),
    define=_define,
    made=_made,
    counters=("training_step",),
    version="of May 2026",
    configured=lambda keys: bool({"num_samples_per_prompt_rollout", "num_unique_prompts_rollout"} & set(keys)),
    settings=(
        Setting("num_samples_per_prompt_rollout", "group"),
        Setting("num_unique_prompts_rollout", "prompts"),
        Setting("learning_rate", "lr"),
        Setting("beta", "kl"),
        Setting("kl_estimator", "divergence"),
        Setting("temperature", "temperature"),
        Setting("response_length", "max_tokens"),
        Setting("max_prompt_token_length", "max_prompt"),
        Setting("pack_length", "room"),
        Setting("vllm_top_p", "top_p"),
    ),
    how_to_log={
        "reward": "scores, always logged",
        "evaluation": "local_eval_every",
        "entropy": "policy/entropy_avg, with record_entropy",
        "kl": "objective/kl0_avg to kl3_avg, with load_ref_policy",
        "length": "val/sequence_lengths, always logged",
        "truncated": "val/stop_rate, always logged",
        "grad_norm": "optim/grad_norm, always logged",
        "lr": "lr, always logged",
        "mismatch": "debug/vllm_vs_local_logprob_diff_mean, always logged",
        "staleness": "num_steps_off_policy, always logged",
        "agent/calls": "tools/aggregate/avg_calls_per_rollout, of rollouts with tools",
    },
)
"""Everything that is known of Open Instruct."""
