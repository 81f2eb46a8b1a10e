"""What is looked at before a run: one function per check, and the table that all listings are made of.

To add a check, write a function in the file of its kind, or a file, and a line here.
"""

from __future__ import annotations

from grposcope.instruments.lint.checks import (
    advantages,
    batches,
    clipping,
    groups,
    lengths,
    measured,
    names,
    optimisation,
    reference,
    refresh,
    rewards,
)
from grposcope.instruments.lint.findings import Check

EVERY = ("trl", "verl", "nemo-rl", "grposcope")
GRPO_CONFIG = "TRL 1.16, GRPOConfig.__post_init__: https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig"
VALIDATE = "verl 0.9.1, verl.utils.config.validate_config: https://github.com/verl-project/verl"
CORE = "verl 0.9.1, verl.trainer.ppo.core_algos: https://github.com/verl-project/verl"

CHECKS: tuple[Check, ...] = (
    Check("names", ("trl",), "names that are not settings but resemble one", ("failing",), GRPO_CONFIG, names.misspelt),
    Check("small groups", EVERY, "groups of one or two rollouts", ("failing", "note"),
          f"{GRPO_CONFIG}; {CORE}", groups.small_group),
    Check("dead groups", EVERY, "groups whose rewards will all be equal, at the success rate given or measured",
          ("failing", "warning", "note"), "p^G + (1 − p)^G, arXiv:2503.14476 §3.2; grposcope.maths.dead_groups",
          groups.dead),
    Check("greedy sampling", ("trl", "verl", "nemo-rl", "grposcope"), "rollouts of a prompt that are all the same",
          ("failing",), "https://huggingface.co/docs/transformers/generation_strategies", groups.no_variety),
    Check("estimator", ("verl",), "several rollouts per prompt with the default estimator, which is PPO's",
          ("failing",), "verl 0.9.1, trainer/config/ppo_trainer.yaml: https://verl.readthedocs.io/en/latest/algo/grpo.html",
          advantages.unnamed_estimator),
    Check("leave-one-out deviation", ("nemo-rl",), "advantages divided by the standard deviation of the other rollouts",
          ("warning", "note"), "NeMo-RL #1518, #1519, #4161: https://github.com/NVIDIA-NeMo/RL/issues/1518",
          advantages.leave_one_out),
    Check("vanishing deviation", ("trl", "verl"),
          "groups with almost equal rewards, divided by their standard deviation",
          ("warning", "note"), "arXiv:2503.20783 (question-level difficulty bias); "
          "https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig", advantages.vanishing_spread),
    Check("token-level rewards", ("verl",), "rewards of steps or tokens that the estimator sums",
          ("warning", "note"), f"verl #160, #7244: https://github.com/verl-project/verl/issues/160; {CORE}",
          advantages.token_rewards),
    Check("cispo clamp", ("trl",), "a clamp of the ratio below 1", ("warning",),
          "arXiv:2506.13585, arXiv:2510.13786 (upper bound 5); TRL #4495: "
          "https://github.com/huggingface/trl/pull/4495", clipping.cispo_clamp),
    Check("clip range not read", ("verl",), "a clip_ratio that two other defaults override", ("warning",), CORE,
          clipping.unread_clip),
    Check("idle clip range", ("trl", "verl"), "a clip range where each batch is used once", ("note",),
          "arXiv:1707.06347 (the ratio is 1 at the first step)", clipping.idle_clip),
    Check("reward weights", ("trl",), "weights that differ in number from the rewards", ("failing",),
          "TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig", rewards.weights),
    Check("effective weights", ("trl",), "several rewards of which only one counts", ("warning", "note"),
          "arXiv:2601.05242 (GDPO); TRL #4841: https://github.com/huggingface/trl/issues/4841",
          rewards.effective_weights),
    Check("reference", ("trl",), "a reference that does not exist", ("failing",),
          "TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer", reference.trl_reference),
    Check("KL penalty", ("verl",), "coefficients whose switch is off, and switches whose coefficient is 0",
          ("warning", "note"), "https://verl.readthedocs.io/en/latest/algo/grpo.html; " + VALIDATE,
          reference.verl_reference),
    Check("truncation", ("trl", "verl"), "completions that will be cut, judged by the lengths of an earlier run",
          ("failing", "warning", "note"), "arXiv:2503.14476 §3.4 (overlong samples)", lengths.truncation),
    Check("masked truncation", ("trl",), "truncated completions that still count in the baseline", ("note",),
          "arXiv:2503.14476 §3.4; TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer",
          lengths.masked_groups),
    Check("room for sequences", ("trl", "verl"), "sequences longer than the engine or a micro-batch can hold",
          ("failing", "warning"), "verl 0.9.1, verl.utils.seqlen_balancing; "
          "https://verl.readthedocs.io/en/latest/perf/perf_tuning.html", lengths.no_room),
    Check("batches of TRL", ("trl",), "batches that do not divide into groups, passes and processes",
          ("failing", "warning", "note"), GRPO_CONFIG, batches.trl_batches),
    Check("batches of verl", ("verl",), "batches, mini-batches and micro-batches that do not divide",
          ("failing", "warning"), VALIDATE, batches.verl_batches),
    Check("batches of NeMo-RL", ("nemo-rl",), "rollouts that do not divide into training batches", ("failing",),
          "https://docs.nvidia.com/nemo/rl/latest/guides/grpo.html", batches.nemo_batches),
    Check("refresh interval", EVERY, "steps on one batch beyond the stable limit N* of an earlier run",
          ("warning", "note"), "arXiv:2606.30789; grposcope.instruments.stability.refresh", refresh.too_long),
    Check("learning rate", ("trl", "verl", "nemo-rl"), "a learning rate of 0, or higher than published ones",
          ("failing", "warning"), "the settings in benchmarks/lint.md", optimisation.learning_rate),
    Check("coarse weights", ("trl", "verl"), "bfloat16 weights, in which most steps are rounded away", ("note",),
          "AReaL #1634: https://github.com/areal-project/AReaL/pull/1634", optimisation.coarse_weights),
    Check("metrics of the version", ("trl", "verl"), "metrics that the trainer of an earlier run logs wrongly",
    ("note",),
          "verl #7817, #6806: https://github.com/verl-project/verl/issues/7817; TRL #5352: "
          "https://github.com/huggingface/trl/issues/5352; grposcope.logs.trainers", measured.wrong_metrics),
)  # fmt: skip
"""Every check, in the order in which findings of one grade are shown."""
