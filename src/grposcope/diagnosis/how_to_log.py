"""How to have a trainer log what a rule misses."""

from __future__ import annotations

from collections.abc import Mapping

HOW: Mapping[str, str] = {
    "reward": "TRL, verl and OpenRLHF always log it: give the training log itself",
    "evaluation": "TRL: eval_dataset and eval_strategy=steps with a reward other than the trained one; verl: "
    "data.val_files and trainer.test_freq; OpenRLHF: --eval_dataset and --eval_steps; grposcope train: --eval-every",
    "dead_fraction": "TRL: frac_reward_zero_std, or log_completions=True; verl: trainer.rollout_data_dir; OpenRLHF: "
    "--dynamic_filtering logs a pass rate; or, for rewards of 0 and 1, --set group=N --set rewards=binary",
    "entropy": "TRL: always, from 0.18; verl: actor/entropy; OpenRLHF: --entropy_loss_coef 0",
    "kl": "TRL: beta=1e-4 or more; verl: actor.use_kl_loss=True; OpenRLHF: --init_kl_coef above 0",
    "length": "TRL: completions/mean_length; verl: response_length/mean; OpenRLHF: response_length: all logged always",
    "truncated": "TRL: completions/clipped_ratio; verl: response_length/clip_ratio; OpenRLHF: truncated: logged always",
    "grad_norm": "TRL, verl and OpenRLHF log it where the optimiser step runs; notebooks' tables leave it out: give "
    "trainer_state.json",
    "loss": "TRL: loss; verl: actor/pg_loss; OpenRLHF: policy_loss: give the log of the trainer itself",
    "clip_fraction": "TRL: clip_ratio/region_mean, not with every loss_type; verl: actor/pg_clipfrac; OpenRLHF: "
    "ppo_clip_ratio",
    "components": "TRL: one function per component in reward_funcs; verl: extra keys of the reward function",
    "component_std": "TRL: rewards/NAME/std, from 0.16; elsewhere by rollouts: verl trainer.rollout_data_dir",
    "reward_std": "TRL: reward_std; OpenRLHF: group_reward_std; verl: trainer.rollout_data_dir",
}
"""Quantity -> where each trainer has it."""
