"""prime-rl: metrics.jsonl of its trainer and of its orchestrator, in one file or two, and the same in W&B.

The orchestrator logs rewards, lengths and evaluations, the trainer the update; both count the same steps. Of the scopes
of the rollouts, `all` has every one drawn and `effective` those trained on; `agg` is over all environments.
`mismatch_kl` is the k3 estimate between the trainer's log-probabilities and those of the sampling, mean over tokens.
"""

from __future__ import annotations

from grposcope.logs.trainers.trainer import Trainer


def _scopes(metric: str) -> tuple[str, ...]:
    """Keys of a metric of the rollouts in the versions of prime-rl, with and without the prefix train/."""
    whole = [f"agg/{scope}/{agent}{metric}/mean" for scope in ("all", "effective") for agent in ("agent/", "")]
    return (f"{metric}/all/mean", *(f"{prefix}{key}" for prefix in ("train/", "") for key in whole))


PRIME_RL = Trainer(
    name="prime-rl",
    title="prime-rl",
    recognises=lambda keys: bool(
        keys & {"mismatch_kl/all/mean", "kl_ent_ratio/mean", "is_truncated/all/mean", *_scopes("num_total_tokens")}
    ),
    keys={
        "reward": _scopes("reward"),
        "entropy": ("entropy/all/mean", "entropy/mean"),
        "mismatch/k3": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
        "length": ("decode_len/all/mean", *_scopes("num_output_tokens")),
        "truncated": _scopes("is_truncated"),
        "loss": ("loss/mean",),
        "grad_norm": ("optim/grad_norm",),
        "lr": ("optim/lr",),
        "seconds_step": ("time/step",),
        "importance/masked": ("is_masked/mean", "is_masked/all/mean"),
        "staleness/mean": ("off_policy/mean", "dispatcher/off_policy/mean"),
        "staleness/max": ("off_policy/max", "dispatcher/off_policy/max"),
    },
    without_reward="no reward in it: the orchestrator of prime-rl logs it, in a file of its own; give that as well",
    how_to_log={
        "reward": "the orchestrator logs it; give its metrics.jsonl",
        "evaluation": "orchestrator.eval.interval",
        "grad_norm": "the trainer logs optim/grad_norm; give its metrics.jsonl",
        "entropy": "the trainer logs entropy/all/mean; give its metrics.jsonl",
        "length": "the orchestrator logs it; give its metrics.jsonl",
        "truncated": "is_truncated, always logged by the orchestrator",
        "lr": "the trainer logs optim/lr; give its metrics.jsonl",
        "loss": "the trainer logs loss/mean; give its metrics.jsonl",
        "mismatch": "the trainer logs mismatch_kl/all/mean; give its metrics.jsonl",
    },
)
"""Everything that is known of prime-rl."""
