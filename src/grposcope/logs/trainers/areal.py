"""AReaL: its keys in W&B, SwanLab, TensorBoard or JSON lines; `areal_console` reads the tables that it prints.

`task_reward` is the reward before scaling; `no_eos_ratios` the share of completions without an end token;
`approx_kl` is that to the policy before the update, by the log-ratio (k1). `behave_approx_kl` is the mean log-ratio of
that policy to the one that sampled and `behave_imp_weight` the mean ratio, both over the tokens below its cap.
`seq_len` has the prompt in it; what is left without `prompt_len` is the completion.
"""

from __future__ import annotations

from grposcope.logs.trainers import areal_console
from grposcope.logs.trainers.trainer import Columns, Defect, Made, Trainer, width_of_batch


def _versions(which: str) -> tuple[str, ...]:
    """Keys of the staleness against the weights that train, in the scopes that AReaL logs it in."""
    key = f"version_stats/sample_staleness_theta_{which}"
    return f"ppo_actor/update/{key}", f"ppo_actor/{key}", key


def _made(columns: Columns) -> dict[str, Made]:
    """The length of completions: sequences less their prompts."""
    whole, prompt = columns.get("ppo_actor/seq_len/avg"), columns.get("ppo_actor/prompt_len/avg")
    if whole is None or prompt is None:
        return {}
    return {"length": Made(whole - prompt, "ppo_actor/seq_len/avg − ppo_actor/prompt_len/avg")}


AREAL = Trainer(
    name="areal",
    title="AReaL",
    recognises=lambda keys: any(key.startswith("ppo_actor/") for key in keys),
    keys={
        "reward": ("ppo_actor/task_reward/avg", "rollout/reward"),
        "entropy_loss": ("ppo_actor/update/entropy/avg",),
        "kl_old_k1": ("ppo_actor/update/approx_kl/avg",),
        "truncated": ("ppo_actor/no_eos_ratios/avg",),
        "prompt_length": ("ppo_actor/prompt_len/avg",),
        "policy_loss": ("ppo_actor/update/actor_loss/avg",),
        "grad_norm": ("ppo_actor/update/grad_norm",),
        "clip_fraction": ("ppo_actor/update/clip_ratio/avg",),
        "lr": ("ppo_actor/update/lr",),
        "seconds_step": ("timeperf/step/total",),
        "mismatch/log_ratio": ("ppo_actor/update/behave_approx_kl/avg",),
        "importance/weight": ("ppo_actor/update/behave_imp_weight/avg",),
        "importance/masked": ("ppo_actor/update/rs_filtered_fraction", "ppo_actor/update/rs_filtered_fraction/avg"),
        "staleness/mean": _versions("avg"),
        "staleness/max": _versions("max"),
        "weight_version": (
            "ppo_actor/update/version_stats/v_theta",
            "ppo_actor/version_stats/v_theta",
            "version_stats/v_theta",
        ),
    },
    logs=(areal_console.KIND,),
    made=_made,
    defects=(
        Defect(
            "share at the limit",
            "areal",
            ("ppo_actor/no_eos_ratios/avg",),
            (0, 0),
            None,
            "compares lengths with the width of the padded batch, not with the limit",
            "source of AReaL 1.0",
            True,
            width_of_batch("ppo_actor/no_eos_ratios/avg", "ppo_actor/seq_len/max"),
        ),
    ),
    how_to_log={
        "reward": "ppo_actor/task_reward/avg, always logged",
        "evaluation": "evaluator.freq_steps",
        "entropy": "ppo_actor/update/entropy/avg, always logged",
        "length": "ppo_actor/seq_len/avg and prompt_len/avg, always logged",
        "truncated": "ppo_actor/no_eos_ratios/avg, always logged",
        "grad_norm": "ppo_actor/update/grad_norm, always logged",
        "lr": "ppo_actor/update/lr, always logged",
        "loss": "ppo_actor/update/actor_loss/avg, always logged",
        "clip_fraction": "ppo_actor/update/clip_ratio/avg, always logged",
        "mismatch": "ppo_actor/update/behave_approx_kl/avg, with use_decoupled_loss",
    },
)
"""Everything that is known of AReaL."""
